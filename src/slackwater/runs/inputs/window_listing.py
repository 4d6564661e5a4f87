"""The objects of several days in one listing for each source: the keys of partitions sort by date and hour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from slackwater.runs.day import HOUR, Day, partition_of, start_of
from slackwater.runs.inputs.consistent_listing import ConsistentListing
from slackwater.sources.partitions import Partition, partition_value, source_prefix
from slackwater.storage import ObjectStore, StoredObject


@dataclass(frozen=True, kw_only=True)
class WindowListing:
    """The objects of several days, by source."""

    at: datetime
    """When the listing began, UTC."""
    raw_bucket: str
    sources: Mapping[str, ConsistentListing]
    """In order of URI. A source whose files kept changing is missing."""

    def of_day(self, source: str, day: Day) -> ConsistentListing | None:
        """Return the objects of one of the listed days; None for a source that is missing."""
        listing = self.sources.get(source)
        if listing is None:
            return None
        # The last hour may end after the day: the offsets of some timezones are not whole hours.
        hours = partition_of(day.start), partition_of(day.end - timedelta.resolution)
        bounds = _bounds(source_prefix(self.raw_bucket, source), *hours)
        first, last = (bisect_left(listing.objects, bound, key=lambda item: item.uri) for bound in bounds)
        return listing._replace(objects=listing.objects[first:last])


def objects_of_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List the objects of the partitions, in order of URI.

    Consecutive hours are listed together. Objects before them are not read, and of those after them at most the rest of
    a page, so the number of requests does not depend on how many other objects the source has.
    """
    prefix = source_prefix(raw_bucket, source)
    for first, last in _consecutive(sorted(partitions)):
        start, end = _bounds(prefix, first, last)
        for stored in store.list(prefix, start_after=start):
            if stored.uri >= end:
                break
            partition = Partition(partition_value(stored.uri, "date"), partition_value(stored.uri, "hour"))
            if partition in partitions and stored.uri.endswith(".parquet"):
                yield stored


def _consecutive(partitions: Iterable[Partition]) -> Iterator[tuple[Partition, Partition]]:
    """Yield the first and the last of each group of hours that follow each other."""
    first = last = expected = None
    for partition in partitions:
        start = start_of(partition)
        if start != expected:
            if first and last:
                yield first, last
            first = partition
        last, expected = partition, start + HOUR
    if first and last:
        yield first, last


def _bounds(prefix: str, first: Partition, last: Partition) -> tuple[str, str]:
    """Return between which URIs the objects of the hours and of those between them are; no object has such a URI."""
    # An object's URI has a slash after the hour, which sorts before "0".
    return f"{prefix}date={first.date}/hour={first.hour}", f"{prefix}date={last.date}/hour={last.hour}0"
