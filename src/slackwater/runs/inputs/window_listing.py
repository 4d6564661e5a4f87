"""The objects of several days in one listing for each source: the keys of partitions sort by date and hour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

from slackwater.runs.day import HOUR, Day, partition_of
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
        bounds = _bounds(source_prefix(self.raw_bucket, source), day, day)
        first, last = (bisect_left(listing.objects, bound, key=lambda item: item.uri) for bound in bounds)
        return listing._replace(objects=listing.objects[first:last])


def objects_of_days(source: str, days: Sequence[Day], *, store: ObjectStore, raw_bucket: str) -> Iterator[StoredObject]:
    """List the objects of the hours of `days`, in order of URI; the days are in order of date.

    Consecutive days are listed together. Objects before them are not read, and of those after them at most the rest of
    a page, so the number of requests does not depend on how many other objects the source has.
    """
    prefix = source_prefix(raw_bucket, source)
    partitions = {partition for day in days for partition in day.partitions()}
    for first, last in _consecutive(days):
        start, end = _bounds(prefix, first, last)
        for stored in store.list(prefix, start_after=start):
            if stored.uri >= end:
                break
            partition = Partition(partition_value(stored.uri, "date"), partition_value(stored.uri, "hour"))
            if partition in partitions and stored.uri.endswith(".parquet"):
                yield stored


def _consecutive(days: Sequence[Day]) -> Iterator[tuple[Day, Day]]:
    """Yield the first and the last day of each group of days that follow each other."""
    first: Day | None = None
    for day, following in zip_longest(days, days[1:]):
        first = first or day
        if following is None or following.start != day.end:
            yield first, day
            first = None


def _bounds(prefix: str, first: Day, last: Day) -> tuple[str, str]:
    """Return between which URIs the objects of the days and of those between them are; no object has such a URI."""
    # The last hour may end after the day: the offsets of some timezones are not whole hours.
    hours = partition_of(first.start), partition_of(last.end + HOUR - timedelta.resolution)
    start, end = (f"{prefix}date={partition.date}/hour={partition.hour}" for partition in hours)
    return start, end
