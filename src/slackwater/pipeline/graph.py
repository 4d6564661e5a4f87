"""The order of a pipeline's steps, and which of them run as one Spark job."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from slackwater.errors import DefinitionError
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline


class Stage(Model):
    """Steps that run as one Spark job; the last one's rows leave it."""

    name: str
    """The name of its last step."""
    steps: tuple[str, ...]
    reads_sources: tuple[str, ...]
    reads_stages: tuple[str, ...]


def order(pipeline: Pipeline) -> tuple[str, ...]:
    """All steps, each after what it depends on. Raises `DefinitionError` for a dangling dependency or a cycle."""
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
    """Join steps into stages, in an order in which they can run.

    An exchange stands after a step that asks for it, that several steps read (a fork), or whose reader takes several
    steps (a join); every other step goes on in its reader's Spark job.
    """
    ordered = order(pipeline)
    readers: dict[str, list[str]] = {name: [] for name in pipeline.steps}
    for name, use in pipeline.steps.items():
        for dependency in use.depends_on:
            if dependency in readers:
                readers[dependency].append(name)
    loose = sorted(name for name, who in readers.items() if not who and name != pipeline.publish.step)
    if loose:
        raise DefinitionError(
            f"pipeline {pipeline.pipeline}: nothing reads {', '.join(loose)}: remove it or publish it"
        )

    def ends_stage(name: str) -> bool:
        if pipeline.steps[name].exchange or len(readers[name]) != 1:
            return True
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
