"""Finds the finished days that newly written raw objects belong to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.late.check.window import check_window
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, partition_of
from slackwater.sources.partitions import Partition

# The key of an object of a partition, as `slackwater.sources.partitions.object_uri` writes it.
_KEY = re.compile(r"raw/source=(?P<source>[a-z][a-z0-9_]*)/date=(?P<date>\d{4}-\d\d-\d\d)/hour=(?P<hour>\d\d)/[^/]+")


@dataclass(frozen=True, kw_only=True)
class ArrivedDays:
    """What arrived for one pipeline."""

    days: Mapping[str, frozenset[str]]
    """By finished day of the window, an ISO date: the ids of the events of its new objects."""
    older: int = 0
    """Number of new objects that belong to days before the window only."""
    older_days: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By day before the window, an ISO date: the ids of the events of its new objects."""


def arrived_days(project: Project, keys: Mapping[str, str], *, now: datetime) -> dict[str, ArrivedDays]:
    """Return what arrived for each pipeline that reads the sources of the objects.

    `keys` are the objects' keys in the raw bucket, by the id of the event. A key that is no object of a partition is
    left out, and so are objects of the current day and of later hours.
    """
    partitions = {event: found for event, key in keys.items() if (found := source_partition(key))}
    sources = {source for source, _ in partitions.values()}
    readers = (pipeline for pipeline in project.pipelines.values() if sources.intersection(pipeline.sources))
    return {pipeline.pipeline: _arrived(pipeline, partitions, now) for pipeline in readers}


def source_partition(key: str) -> tuple[str, Partition] | None:
    """Return the source and the partition of an object of the raw bucket; None for any other key."""
    match = _KEY.fullmatch(key)
    if not match:
        return None
    partition = Partition(match["date"], match["hour"])
    try:
        _start(partition)
    except ValueError:
        return None  # Such as the 30th of February, or hour 24.
    return match["source"], partition


def _start(partition: Partition) -> datetime:
    return datetime.fromisoformat(f"{partition.date}T{partition.hour}:00").replace(tzinfo=UTC)


def foreign_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys that are no objects of a partition."""
    return [key for key in keys if source_partition(key) is None]


def _arrived(pipeline: Pipeline, partitions: Mapping[str, tuple[str, Partition]], now: datetime) -> ArrivedDays:
    window = check_window(pipeline, None, now)[:-1]
    dates: defaultdict[Partition, list[str]] = defaultdict(list)
    for day in window:
        # Where the offset of a timezone is not a whole hour, an hour belongs to two days.
        for partition in day.partitions():
            dates[partition].append(day.date.isoformat())
    first = partition_of(window[0].start)
    days, older_days = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    older = 0
    for event, (source, partition) in partitions.items():
        if source in pipeline.sources:
            older += partition < first
            for date in dates.get(partition, ()):
                days[date].add(event)
            if partition <= first:
                for date in _local_dates(partition, pipeline.timezone):
                    if date < window[0].date.isoformat():
                        older_days[date].add(event)
    return ArrivedDays(days=_in_order(days), older=older, older_days=_in_order(older_days))


def _local_dates(partition: Partition, timezone: str) -> set[str]:
    """Return the dates that the hour belongs to: two if a local midnight is in it."""
    start, zone = _start(partition), ZoneInfo(timezone)
    try:
        last = start + HOUR - timedelta(microseconds=1)
        return {instant.astimezone(zone).date().isoformat() for instant in (start, last)}
    except OverflowError:
        return {partition.date}  # The local date is before the year 1, or after the year 9999.


def _in_order(days: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {date: frozenset(days[date]) for date in sorted(days)}


def older_objects(arrived: Mapping[str, ArrivedDays]) -> Counter[str]:
    """Return the number of objects before the window, by pipeline; none for pipelines without any."""
    return Counter({name: item.older for name, item in arrived.items() if item.older})
