"""The order of a pipeline's steps, and which of them run as one Spark job."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from slackwater.errors import DefinitionError
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline


class Stage(Model):
    """Steps that run as one Spark job. The rows of its last step are the result of the stage."""

    name: str
    """The name of its last step."""
    steps: tuple[str, ...]
    """In the order in which they run."""
    reads_sources: tuple[str, ...]
    reads_stages: tuple[str, ...]
    """Earlier stages whose results the steps read."""


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
    sorter = TopologicalSorter({name: _steps_read_by(pipeline, name) for name in pipeline.steps})
    try:
        ordered = tuple(sorter.static_order())
    except CycleError as error:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: steps form a cycle: {' -> '.join(error.args[1])}"
        ) from error
    return ordered


def stages(pipeline: Pipeline) -> tuple[Stage, ...]:
    """Group the steps into stages, in the order in which the stages run. The last stage ends with `publish.step`.

    A stage ends after a step with `exchange`, a step that several steps read (a fork), and a step whose reader reads
    several steps (a join). Every other step runs in the Spark job of its reader. Raises `DefinitionError` as `order`
    does, and for a step that no step reads and that is not published.
    """
    ordered = order(pipeline)
    readers: dict[str, list[str]] = {name: [] for name in pipeline.steps}
    for name in pipeline.steps:
        for dependency in _steps_read_by(pipeline, name):
            readers[dependency].append(name)
    # After this check only `publish.step` has no reader. Every other step leads to it, so it is the last one.
    unused = sorted(name for name, names in readers.items() if not names and name != pipeline.publish.step)
    if unused:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: steps: no step reads {', '.join(unused)}: remove it or publish it"
        )

    def ends_stage(name: str) -> bool:
        # A fork stores its rows, because each of its readers would compute them again. `publish.step` has no reader.
        if pipeline.steps[name].exchange or len(readers[name]) != 1:
            return True
        # A join needs all of its inputs: each of them is the result of a job of its own.
        (reader,) = readers[name]
        return len(_steps_read_by(pipeline, reader)) > 1

    # The steps that run in the same job up to each step, and the step itself.
    members: dict[str, tuple[str, ...]] = {}
    result: list[Stage] = []
    for name in ordered:
        inside = [step for read in _steps_read_by(pipeline, name) if not ends_stage(read) for step in members[read]]
        members[name] = (*inside, name)
        if ends_stage(name):
            # `dict.fromkeys` drops repeated names and keeps their order.
            inputs = dict.fromkeys(read for step in members[name] for read in pipeline.steps[step].depends_on)
            result.append(
                Stage(
                    name=name,
                    steps=members[name],
                    reads_sources=tuple(read for read in inputs if read in pipeline.sources),
                    reads_stages=tuple(read for read in inputs if read in pipeline.steps and read not in members[name]),
                )
            )
    return tuple(result)


def _steps_read_by(pipeline: Pipeline, name: str) -> list[str]:
    """Return the steps among the dependencies of a step; the others are sources."""
    return [dependency for dependency in pipeline.steps[name].depends_on if dependency in pipeline.steps]
