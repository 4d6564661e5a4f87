"""Which pipelines may wait for which, because of verdicts that pipelines give.

A pipeline that has refused an input clears its verdict when it publishes. If it waited for a pipeline that obeys this
verdict, neither would ever publish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slackwater.pipeline.definition import Pipeline
from slackwater.state.verdicts import Subject

Pipelines = Mapping[str, Pipeline]
"""The definitions of a project, by stored name."""


def waiting_for(pipeline: str, pipelines: Pipelines) -> frozenset[str]:
    """Return the pipelines that may wait for one, directly or through others, and itself.

    It obeys no verdict of these, so that no pipelines wait for each other. The definitions decide, and not the verdicts
    that stand: one that is given later may close a circle.
    """
    judged = {name: set(_subjects(each, each.judged_inputs)) for name, each in pipelines.items()}
    awaited = {name: _awaited(each, judged, pipelines) for name, each in pipelines.items()}
    waiting = {pipeline}
    while more := {name for name in awaited.keys() - waiting if awaited[name] & waiting}:
        waiting |= more
    return frozenset(waiting)


def _awaited(pipeline: Pipeline, judged: Mapping[str, set[Subject]], pipelines: Pipelines) -> set[str]:
    """Return for which others a pipeline may wait.

    They judge what it reads, directly or through tables; or it judges what is made of their tables, and publishes only
    after they have.
    """
    read = _made_of(pipeline, pipeline.inputs, pipelines)
    refused = _made_of(pipeline, pipeline.judged_inputs, pipelines)
    judges = {name for name, subjects in judged.items() if subjects & read}
    return judges | {subject.name for subject in refused if subject.of == "pipeline"}


def _made_of(pipeline: Pipeline, inputs: Collection[str], pipelines: Pipelines) -> set[Subject]:
    """Return inputs of a pipeline, and all that the tables among them are made of."""
    found = dict.fromkeys(_subjects(pipeline, inputs))
    new = list(found)
    while new:
        made_by = [pipelines[item.name] for item in new if item.of == "pipeline" and item.name in pipelines]
        new = [item for each in made_by for item in _subjects(each, each.inputs) if item not in found]
        found |= dict.fromkeys(new)
    return set(found)


def _subjects(pipeline: Pipeline, inputs: Collection[str]) -> Iterator[Subject]:
    """Yield the sources and pipelines that inputs are. Tables of other systems have no verdicts."""
    for name in inputs:
        if name in pipeline.published_tables:
            yield Subject("pipeline", pipeline.published_tables[name].table)
        elif name in pipeline.sources:
            yield Subject("source", name)
