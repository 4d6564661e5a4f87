"""Check the graph of a pipeline: the names of its inputs and of dependencies, cycles, and what no step reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

from slackwater.pipeline.definition import LEDGER_TABLE, Pipeline, StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.problems import Problem, closest, unknown_name
from slackwater.runs.period import has_whole_hours
from slackwater.sources.counts import WINDOW_MINUTES
from slackwater.sources.definition import Source

_DAY = 24 * 60


def graph_problems(
    pipeline: Pipeline,
    sources: Collection[str],
    pipelines: Collection[str],
    *,
    is_complete: bool,
    former: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield all problems of a pipeline's graph. `sources` and `pipelines` are the names of those of the project.

    `former` are earlier names of pipelines, which `rename_problems` reports.
    Where the definition could not be read completely (`is_complete`), what seems unused may be used.
    """
    for index, name in enumerate(pipeline.sources):
        if name not in sources:
            yield unknown_name(f"no source {name!r} in this project", name, sources, path=("sources", index))
    for name, table in pipeline.published_tables.items():
        if table.table not in pipelines and table.table not in former:
            message = f"no pipeline {table.table!r} in this project"
            yield unknown_name(message, table.table, pipelines, path=("tables", name, "table"))
    for name, foreign in pipeline.foreign_tables.items():
        database, table_name = foreign.name
        # The warehouse of a deployment is the database `<prefix>_warehouse`.
        if database.endswith("_warehouse") and table_name in pipelines:
            message = f"a pipeline of this project publishes it: read its days with `table: {table_name}`"
            yield Problem(path=("tables", name, "iceberg"), message=message)
        elif database.endswith("_warehouse") and table_name == LEDGER_TABLE:
            message = "the ledger changes with each run that reads it: query it with `slackwater query`"
            yield Problem(path=("tables", name, "iceberg"), message=message)
    yield from _unknown_dependencies(pipeline, sources)
    only_steps = [name for name in pipeline.steps if name not in pipeline.inputs]
    steps = {step: [name for name in pipeline.steps[step].depends_on if name in only_steps] for step in only_steps}
    for cycle in cycles(steps):
        path = ("steps", cycle[0], "depends_on", pipeline.steps[cycle[0]].depends_on.index(cycle[-1]))
        yield Problem(path=path, message=f"the steps form a cycle: {' -> '.join([*cycle, cycle[0]])}")
    if is_complete:
        yield from _unused(pipeline, sources)


def with_meant_names(pipeline: Pipeline, sources: Collection[str]) -> Pipeline:
    """Return the pipeline with each misspelt name replaced by the closest one, so that steps are checked with it."""

    def meant(name: str, names: Collection[str]) -> str:
        return name if name in names else closest(name, names) or name

    named = pipeline.model_copy(update={"sources": tuple(meant(name, sources) for name in pipeline.sources)})
    names = [*named.inputs, *named.steps]

    def with_names(uses: Mapping[str, StepUse]) -> dict[str, StepUse]:
        return {
            step: use.model_copy(update={"depends_on": tuple(meant(name, names) for name in use.depends_on)})
            for step, use in uses.items()
        }

    step = meant(named.publish.step, named.steps)
    update = {"steps": with_names(named.steps), "load": with_names(named.load)}
    return named.model_copy(update={**update, "publish": named.publish.model_copy(update={"step": step})})


def table_problems(pipelines: Mapping[str, Pipeline]) -> Iterator[tuple[str, Problem]]:
    """Yield a pipeline's name and its problem: cycles of pipelines, and periods that do not fit together."""
    reads = {
        name: [item.table for item in pipeline.published_tables.values() if item.table in pipelines]
        for name, pipeline in pipelines.items()
    }
    for name, pipeline in pipelines.items():
        for table, item in pipeline.published_tables.items():
            if item.table not in pipelines:
                continue
            read, path = pipelines[item.table].period, ("tables", table, "table")
            if pipeline.period == "hour":
                yield from ((name, problem) for problem in _hourly_reader_problems(table, item, read))
            elif (pipeline.period, read) == ("day", "hour") and not has_whole_hours(pipeline.timezone):
                message = (
                    f"{item.table} has `period: hour`, and days of {pipeline.timezone} begin within an hour of UTC: "
                    "read its sources, or use a timezone with whole hours"
                )
                yield name, Problem(path=path, message=message)
    for cycle in cycles(reads):
        tables = pipelines[cycle[0]].published_tables
        path = ("tables", next(name for name, item in tables.items() if item.table == cycle[-1]), "table")
        yield cycle[0], Problem(path=path, message=f"pipelines read each other: {' -> '.join([*cycle, cycle[0]])}")


def _hourly_reader_problems(name: str, item: TableInput, read: str) -> Iterator[Problem]:
    """Yield the problem of an hourly pipeline whose table has not the periods that its definition counts."""
    path = ("tables", name)
    if read == "hour" and item.days != (0, 0):
        message = f"{item.table} has `period: hour`: write `hours`, such as `hours: [-23, 0]`"
        yield Problem(path=(*path, "days"), at_key=True, message=message)
    elif read == "day" and item.hours:
        message = f"{item.table} has `period: day`: write `days`, such as `days: [-1, -1]`"
        yield Problem(path=(*path, "hours"), at_key=True, message=message)
    elif read == "day" and item.days[1] == 0 and item.missing == "error":
        message = (
            f"{item.table} publishes a day after it has ended, so its hours would fail: write days before, such as "
            "`days: [-1, -1]`, or `missing: empty`"
        )
        yield Problem(path=(*path, "table"), message=message)


def count_problems(pipeline: Pipeline, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield a problem for each source that a pipeline wants complete, as a whole or by windows, and cannot be.

    `sources` are those of the project whose definitions can be read.
    """
    for name, wanted in pipeline.when.inputs.items():
        if wanted == "complete" and name in sources and sources[name].counts is None:
            message = f"{name} takes no counts: add `counts: {{window: 1h}}` to sources/{name}.yaml"
            yield Problem(path=("when", "inputs", name), message=message)
    live = pipeline.live
    if live is None or live.windows is None:
        return
    for name in pipeline.sources:
        counts = sources[name].counts if name in sources else None
        if name in sources and counts is None:
            message = f"{name} takes no counts: add `counts: {{window: 5m}}` to sources/{name}.yaml, or use `every`"
            yield Problem(path=("live", "windows"), message=message)
        elif counts and timedelta(minutes=WINDOW_MINUTES.get(counts.window, _DAY)) > live.interval:
            message = (
                f"{name} counts windows of {counts.window}, longer than {live.windows}: shorten `counts.window` in "
                f"sources/{name}.yaml, or use `every`"
            )
            yield Problem(path=("live", "windows"), message=message)


def rename_problems(pipelines: Mapping[str, Pipeline]) -> Iterator[tuple[str, Problem]]:
    """Yield a pipeline's name and its problem for each former name that another pipeline has, or the pipeline itself.

    Two pipelines would share a table, a history and holds.
    """
    first = dict[str, str]()
    for name, pipeline in pipelines.items():
        if not (former := pipeline.renamed_from):
            continue
        path = ("renamed_from",)
        if former == name:
            yield name, Problem(path=path, message="it is the name of this pipeline: remove it")
        elif former in pipelines:
            message = f"the pipeline {former} has this name: rename that one, or remove its file"
            yield name, Problem(path=path, message=message)
        elif former in first:
            message = f"{first[former]} was renamed from it as well: remove it from one of them"
            yield name, Problem(path=path, message=message)
        first.setdefault(former, name)
    for name, pipeline in pipelines.items():
        for table, item in pipeline.published_tables.items():
            if item.table in first and item.table not in pipelines:
                message = f"it was renamed: write {first[item.table]}"
                yield name, Problem(path=("tables", table, "table"), message=message)


def cycles(reads: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield the cycles of a graph, each from its first node on, in the direction of the data.

    `reads` are the nodes that each node reads. Of cycles that have a node in common, one is found.
    """
    order = list(reads)
    while True:
        try:
            TopologicalSorter(reads).prepare()
        except CycleError as error:
            *cycle, _ = error.args[1]
        else:
            return
        first = cycle.index(min(cycle, key=order.index))
        yield [*cycle[first:], *cycle[:first]]
        reads = {
            node: [name for name in names if name not in cycle] for node, names in reads.items() if node not in cycle
        }


def _unknown_dependencies(pipeline: Pipeline, sources: Collection[str]) -> Iterator[Problem]:
    known = [*pipeline.inputs, *pipeline.steps]
    # A misspelt source is one problem, and not another one in each step that reads it.
    meant = {closest(name, sources) for name in pipeline.sources if name not in sources}
    for step, use in pipeline.steps.items():
        for index, name in enumerate(use.depends_on):
            path = ("steps", step, "depends_on", index)
            if name in known or name in meant:
                continue
            if name in sources:
                yield Problem(path=path, message=f"{name} is not one of the pipeline's sources: add it to `sources`")
            else:
                others = [other for other in known if other != step]
                yield unknown_name(f"no source or step {name!r}", name, others, path=path)


def _unused(pipeline: Pipeline, sources: Collection[str]) -> Iterator[Problem]:
    uses = [*pipeline.steps.values(), *pipeline.load.values()]
    names = [*pipeline.inputs, *pipeline.steps]
    # A misspelt name is one problem, and not another one of what it was meant to name.
    written = [pipeline.publish.step, *(name for use in uses for name in use.depends_on)]
    read = {name if name in names else closest(name, names) for name in written}
    for step in pipeline.steps:
        if step not in read:
            yield Problem(path=("steps", step), at_key=True, message="no step reads it: remove it or publish it")
    # Some steps read a source that their parameters name.
    read |= {string for use in uses for string in _strings(use.parameters)}
    for index, name in enumerate(pipeline.sources):
        if name in sources and name not in read:
            message = f"no step reads {name}: remove it, or name it in `depends_on`"
            yield Problem(path=("sources", index), message=message)
    for name in pipeline.tables:
        if name not in read:
            message = "no step reads it: remove it, or name it in `depends_on`"
            yield Problem(path=("tables", name), at_key=True, message=message)


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a parameter."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)
