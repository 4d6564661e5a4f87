"""Finds the days that the messages of the queue of arrivals are about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from slackwater.late.arrival_messages import ArrivalMessage, DayDeferred, ObjectWritten
from slackwater.late.check.window_dates import check_window
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.receiver.commits import FileCommitted
from slackwater.runs.arrivals import DayPublished
from slackwater.runs.inputs.table_inputs import reading_periods
from slackwater.runs.packing.index import is_packing
from slackwater.runs.period import names_in_hour, start_of
from slackwater.sources.partitions import Partition, source_partition


@dataclass(frozen=True, kw_only=True)
class ArrivedDays:
    """What arrived for one pipeline."""

    days: Mapping[str, frozenset[str]]
    """By finished day of the window, an ISO date: the ids of the messages about it."""
    older_days: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By day before the window, an ISO date: the ids of the messages about it."""
    current_day: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same for the current day. No check decides about it, but it may be published already."""


def arrived_days(project: Project, messages: Iterable[ArrivalMessage], *, now: datetime) -> dict[str, ArrivedDays]:
    """Return what arrived for each pipeline that the messages concern.

    A key that is no object of a partition is left out, and so are the hours after the current day.
    """
    arrived = list(messages)
    partitions = {message.id: found for message in arrived if (found := source_partitions(message))}
    sources = {source for source, _ in partitions.values()}
    published = [message for message in arrived if isinstance(message, DayPublished)]
    deferred = [message for message in arrived if isinstance(message, DayDeferred)]
    result = {}
    for name, pipeline in project.pipelines.items():
        of_days = [
            *((message.id, message.date) for message in deferred if message.pipeline == name),
            *((message.id, each) for message in published for each in _reading_days(project, pipeline, message)),
        ]
        if of_days or sources.intersection(pipeline.sources):
            own = {event: item for event, item in partitions.items() if item[0] in pipeline.sources}
            result[name] = _arrived(pipeline, own, of_days, now)
    return result


def changed_partitions(messages: Iterable[ArrivalMessage]) -> Mapping[str, set[Partition]]:
    """Return the partitions that the messages name, by source."""
    changed = defaultdict[str, set[Partition]](set)
    for source, partitions in filter(None, map(source_partitions, messages)):
        changed[source].update(partitions)
    return changed


def source_partitions(message: ArrivalMessage) -> tuple[str, Sequence[Partition]] | None:
    """Return the source and the partitions whose rows have changed; None if the message names none."""
    match message:
        case ObjectWritten():
            # Packing changes nothing that readers see.
            found = None if is_packing(message.key) else source_partition(message.key)
            return (found[0], [found[1]]) if found else None
        case FileCommitted():
            return message.source, [Partition(message.date, hour) for hour in message.hours]
        case _:
            return None


def foreign_keys(messages: Iterable[ArrivalMessage]) -> list[str]:
    """Return the keys of written objects that are no objects of a partition."""
    keys = (message.key for message in messages if isinstance(message, ObjectWritten))
    return [key for key in keys if source_partition(key) is None and not is_packing(key)]


def _reading_days(project: Project, pipeline: Pipeline, published: DayPublished) -> Iterator[str]:
    """Yield the days or hours of the pipeline that read the published one, unless its changes are ignored."""
    for table in pipeline.published_tables.values():
        if table.table == published.pipeline and table.on_change != "ignore":
            yield from reading_periods(table, published.date, pipeline, pipelines=project.pipelines)


def _arrived(
    pipeline: Pipeline,
    partitions: Mapping[str, tuple[str, Sequence[Partition]]],
    of_days: Iterable[tuple[str, str]],
    now: datetime,
) -> ArrivedDays:
    """Return what arrived for a pipeline: `partitions` of its sources by message, and `of_days`, message and day."""
    window = check_window(pipeline, None, now)
    first, current = window[0].name, window[-1].name
    days, older_days = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    of_partitions = (
        (event, day)
        for event, (_, changed) in partitions.items()
        for partition in changed
        for day in _periods(partition, pipeline)
    )
    for event, day in (*of_partitions, *of_days):
        if day <= current:
            (older_days if day < first else days)[day].add(event)
    current_day = {current: days.pop(current)} if current in days else {}
    return ArrivedDays(days=_in_order(days), older_days=_in_order(older_days), current_day=_in_order(current_day))


def _periods(partition: Partition, pipeline: Pipeline) -> set[str]:
    """Return the days that the hour belongs to, two if a local midnight is in it, or itself."""
    try:
        return names_in_hour(start_of(partition), pipeline)
    except OverflowError:
        return {partition.date}  # The local date is before the year 1, or after the year 9999.


def _in_order(days: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {date: frozenset(days[date]) for date in sorted(days)}
