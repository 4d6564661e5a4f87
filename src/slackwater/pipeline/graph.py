"""The order of a pipeline's steps, and which of them run as one Spark job."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from slackwater.errors import DefinitionError
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline


class Stage(Model):
    """Steps that run as one Spark job. The rows of the last step are the result of the stage."""

    name: str
    """The name of its last step."""
    steps: tuple[str, ...]
    reads_sources: tuple[str, ...]
    reads_stages: tuple[str, ...]


def order(pipeline: Pipeline) -> tuple[str, ...]:
    """Return all steps, each after its dependencies. Raises `DefinitionError` for an unknown dependency or a cycle."""
    known = {*pipeline.sources, *pipeline.steps}
    for name, use in pipeline.steps.items():
        for dependency in use.depends_on:
            if dependency not in known:
                raise DefinitionError(
                    f"pipeline {pipeline.pipeline}: steps.{name}.depends_on names {dependency!r}, "
                    f"which is neither a source nor a step of it (known: {', '.join(sorted(known))})"
                )
    sorter = TopologicalSorter(
        {name: [d for d in use.depends_on if d in pipeline.steps] for name, use in pipeline.steps.items()}
    )
    try:
        ordered = tuple(sorter.static_order())
    except CycleError as error:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: steps form a cycle: {' -> '.join(error.args[1])}"
        ) from error
    return ordered


def stages(pipeline: Pipeline) -> tuple[Stage, ...]:
    """Group the steps into stages, in an order in which the stages can run. The last stage ends with `publish.step`.

    A stage ends after a step that asks for an exchange, that several steps read (a fork), or whose reader reads several
    steps (a join). Every other step runs in the Spark job of its reader. Raises `DefinitionError` as `order` does, and
    for a step that nothing reads and that is not published.
    """
    ordered = order(pipeline)
    readers: dict[str, list[str]] = {name: [] for name in pipeline.steps}
    for name, use in pipeline.steps.items():
        for dependency in use.depends_on:
            if dependency in readers:
                readers[dependency].append(name)
    unused = sorted(name for name, names in readers.items() if not names and name != pipeline.publish.step)
    if unused:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: nothing reads {', '.join(unused)}: remove it or publish it"
        )

    def ends_stage(name: str) -> bool:
        if pipeline.steps[name].exchange or len(readers[name]) != 1:
            return True
        # A join waits for all of its inputs: each of them is a job of its own.
        siblings = [d for d in pipeline.steps[readers[name][0]].depends_on if d in pipeline.steps]
        return len(siblings) > 1

    members: dict[str, tuple[str, ...]] = {}
    result: list[Stage] = []
    for name in ordered:
        steps_read = [d for d in pipeline.steps[name].depends_on if d in pipeline.steps]
        inside = [step for d in steps_read if not ends_stage(d) for step in members[d]]
        members[name] = (*inside, name)
        if ends_stage(name):
            reads = [d for step in members[name] for d in pipeline.steps[step].depends_on]
            result.append(
                Stage(
                    name=name,
                    steps=members[name],
                    reads_sources=tuple(dict.fromkeys(d for d in reads if d in pipeline.sources)),
                    reads_stages=tuple(
                        dict.fromkeys(d for d in reads if d in pipeline.steps and d not in members[name])
                    ),
                )
            )
    return tuple(result)
