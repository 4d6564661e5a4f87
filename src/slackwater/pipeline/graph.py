"""The order of a pipeline's steps, and which of them run as one Spark job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from slackwater.errors import DefinitionError, UnknownName
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline
from slackwater.problems import unknown_name


class Stage(Model):
    """Steps that run as one Spark job. The rows of its last step are the result of the stage."""

    name: str
    """The name of its last step."""
    steps: tuple[str, ...]
    """In the order in which they run."""
    reads_sources: tuple[str, ...]
    """Sources and tables whose frozen inputs the steps read."""
    reads_stages: tuple[str, ...]
    """Earlier stages whose results the steps read."""
    ancestors: tuple[str, ...]
    """All stages that it reads, directly or through others, in the order in which they run."""


def pipeline_order(pipelines: Mapping[str, Pipeline]) -> tuple[str, ...]:
    """Return the names of all pipelines of a project, each after those whose tables it reads.

    Raises `DefinitionError` for a table of a pipeline that does not exist, and for pipelines that read each other.
    """
    for name, pipeline in pipelines.items():
        for table, item in pipeline.published_tables.items():
            if item.table not in pipelines:
                raise DefinitionError(
                    f"pipeline {name}: tables.{table}.table names {item.table!r}, which is not a pipeline of the "
                    f"project (its pipelines: {', '.join(sorted(pipelines))})"
                )
    reads = {
        name: {item.table for item in pipeline.published_tables.values()}
        for name, pipeline in sorted(pipelines.items())
    }
    try:
        return tuple(TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise DefinitionError(f"pipelines read each other's tables: {' -> '.join(error.args[1])}") from error


def selected_pipelines(
    selection: str, pipelines: Mapping[str, Pipeline], *, names: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the pipelines that a selection names, each after those whose tables it reads.

    `NAME+` is a pipeline and all that read its table, directly or through others. `+NAME` is a pipeline and all whose
    tables it reads, and `+NAME+` is both. Raises `UnknownName`, which suggests one of `names`, by default those of
    `pipelines`, and `DefinitionError` for pipelines that read each other.
    """
    ordered, name = pipeline_order(pipelines), selection.removeprefix("+").removesuffix("+")
    if name not in pipelines:
        problem = unknown_name(
            f"{selection!r} names no pipeline of the project", name, sorted(names or pipelines), path=()
        )
        raise UnknownName(f"--select: {problem}")
    reads = {key: {item.table for item in pipelines[key].published_tables.values()} for key in ordered}
    before, after = {name}, {name}
    if selection.startswith("+"):
        for key in reversed(ordered):
            before |= reads[key] if key in before else set()
    if selection.endswith("+"):
        for key in ordered:
            after |= {key} if reads[key] & after else set()
    return tuple(key for key in ordered if key in before | after)


def order(pipeline: Pipeline) -> tuple[str, ...]:
    """Return all steps, each after its dependencies. Raises `DefinitionError` for an unknown dependency or a cycle."""
    known = {*pipeline.inputs, *pipeline.steps}
    for name, use in pipeline.steps.items():
        for dependency in use.depends_on:
            if dependency not in known:
                raise DefinitionError(
                    f"pipeline {pipeline.pipeline}: steps.{name}.depends_on names {dependency!r}, "
                    f"which is neither a source nor a step of it (known: {', '.join(sorted(known))})"
                )
    sorter = TopologicalSorter({name: _steps_read_by(pipeline, name) for name in pipeline.steps})
    try:
        ordered = tuple(sorter.static_order())
    except CycleError as error:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: steps form a cycle: {' -> '.join(error.args[1])}"
        ) from error
    return ordered


def sources_of(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """Return the sources from which the rows of an input or a step may come, in the order of the definition.

    A step that depends on nothing may read any of them.
    """
    seen, left = set[str](), [name]
    while left:
        read = left.pop()
        if read not in seen:
            seen.add(read)
            left += (pipeline.steps[read].depends_on or pipeline.sources) if read in pipeline.steps else ()
    return tuple(source for source in pipeline.sources if source in seen)


def stages(pipeline: Pipeline) -> tuple[Stage, ...]:
    """Group the steps into stages, in the order in which the stages run. The last stage ends with `publish.step`.

    A stage ends after a step with `exchange`. Every other step runs in the Spark job of the steps that read it; a step
    that several jobs would have to compute ends a stage of its own. Raises `DefinitionError` for an unknown
    dependency, a cycle, and a step that no step reads and that is not published.
    """
    ordered = order(pipeline)
    readers: dict[str, list[str]] = {name: [] for name in pipeline.steps}
    for name in pipeline.steps:
        for dependency in _steps_read_by(pipeline, name):
            readers[dependency].append(name)
    ends = {pipeline.publish.step, *(read for use in pipeline.load.values() for read in use.depends_on)}
    unused = sorted(name for name, names in readers.items() if not names and name not in ends)
    if unused:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: steps: no step reads {', '.join(unused)}: remove it or publish it"
        )
    # The stage in which each step runs, by the name of its last step.
    stage_of: dict[str, str] = {}
    for name in reversed(ordered):
        stages_of_readers = {stage_of[reader] for reader in readers[name]}
        ends_stage = pipeline.steps[name].exchange or len(stages_of_readers) != 1
        stage_of[name] = name if ends_stage else stages_of_readers.pop()
    # The stage that publishes is the last one, also after a stage that only a load step reads.
    lasts = [name for name in ordered if stage_of[name] == name and name != pipeline.publish.step]
    found: list[Stage] = []
    for last in (*lasts, pipeline.publish.step):
        found.append(_stage(pipeline, last, [name for name in ordered if stage_of[name] == last], found))
    return tuple(found)


def layers(ordered: Sequence[Stage]) -> list[list[Stage]]:
    """Group the stages of a pipeline into layers, which run one after the other; the stages of a layer run in parallel.

    Each stage is in the first layer after those of the stages that it reads, as in Kahn's algorithm. The stage that
    publishes is alone in the last one.
    """
    number: dict[str, int] = {}
    for stage in ordered[:-1]:
        number[stage.name] = max((number[read] + 1 for read in stage.reads_stages), default=0)
    number[ordered[-1].name] = max(number.values(), default=-1) + 1
    return [[stage for stage in ordered if number[stage.name] == layer] for layer in range(max(number.values()) + 1)]


def visible_versions(pipeline: Pipeline, stage: Stage, step: str) -> tuple[str, ...]:
    """Return the names of the versions of a run's data that a step of the stage may read besides its inputs.

    Without `versions: all`, these are the stages that its own is computed from. With it, they are all inputs of the
    pipeline, all steps of the stages of earlier layers, which have ended, and the steps before it in its own stage.
    """
    if pipeline.versions != "all":
        return stage.ancestors
    seen: list[str] = []
    for layer in layers(stages(pipeline)):
        if stage in layer:
            break
        seen += [name for ended in layer for name in ended.steps]
    return (*pipeline.inputs, *seen, *stage.steps[: stage.steps.index(step)])


def _stage(pipeline: Pipeline, name: str, steps: Sequence[str], before: Sequence[Stage]) -> Stage:
    """Return the stage of the steps, which are in the order in which they run, as are the stages `before` it."""
    # `dict.fromkeys` drops repeated names and keeps their order.
    inputs = dict.fromkeys(read for step in steps for read in pipeline.steps[step].depends_on)
    if name == pipeline.publish.step:
        inputs |= dict.fromkeys(read for use in pipeline.load.values() for read in use.depends_on)
    reads_stages = tuple(read for read in inputs if read in pipeline.steps and read not in steps)
    needed = {*reads_stages, *(read for stage in before if stage.name in reads_stages for read in stage.ancestors)}
    return Stage(
        name=name,
        steps=tuple(steps),
        reads_sources=tuple(read for read in inputs if read in pipeline.inputs),
        reads_stages=reads_stages,
        ancestors=tuple(stage.name for stage in before if stage.name in needed),
    )


def _steps_read_by(pipeline: Pipeline, name: str) -> list[str]:
    """Return the steps among the dependencies of a step; the others are sources."""
    return [dependency for dependency in pipeline.steps[name].depends_on if dependency in pipeline.steps]
