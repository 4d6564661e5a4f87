"""The objects of a source in some partitions: the keys of partitions sort by date and hour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise, takewhile
from math import ceil
from threading import BoundedSemaphore
from typing import NamedTuple

from slackwater.runs.packing.index import with_members
from slackwater.runs.period import HOUR, start_of
from slackwater.sources.partitions import Partition, object_partition, source_prefix
from slackwater.storage import ObjectStore, StoredObject

# A source is listed with one request after the other up to so many objects, and the rest of it in so many parts.
_FEW, _PARTS = 3000, 8
# Several sources are listed at the same time, by one client with 32 connections.
_PARTS_AT_ONCE = BoundedSemaphore(16)


def objects_of_partitions(
    source: str,
    partitions: Collection[Partition],
    *,
    store: ObjectStore,
    raw_bucket: str,
    known_indexes: Mapping[str, str] | None = None,
) -> Iterator[StoredObject]:
    """List the objects of the partitions, in order of URI, also those that are members of packed objects.

    Consecutive hours are listed together. Objects before them are not read, and of those after them at most the rest of
    a page, so the number of requests does not depend on how many other objects the source has. Up to 8 parts of hours
    with many objects are listed at the same time, with at most a page more for each. The index of each packed hour
    takes one more request. With `known_indexes`, indexes are listed as well: see `known` of `with_members`.
    """
    listed = all_of_partitions(source, partitions, store=store, raw_bucket=raw_bucket)
    return with_members(listed, store, known=known_indexes)


def all_of_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List what is stored in the partitions as `list_partitions`, for callers that need all of it."""

    def list_part(hours: HourRange) -> list[StoredObject]:
        with _PARTS_AT_ONCE:
            return list(hours.objects(store))

    for group in _hour_ranges(source, partitions, raw_bucket):
        few = list(islice(group.objects(store), _FEW))
        yield from few
        if len(few) == _FEW:
            with ThreadPoolExecutor(_PARTS) as pool:
                for part in pool.map(list_part, group.after(few[-1].uri)):
                    yield from part


def list_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List what is stored in the partitions, in order of URI: objects, packed objects and their indexes.

    There is one request after the other, and none after the last object that the caller takes.
    """
    for group in _hour_ranges(source, partitions, raw_bucket):
        yield from group.objects(store)


class HourRange(NamedTuple):
    """Consecutive hours of a source, without the objects up to one of them."""

    prefix: str
    """What the URIs of the source's objects begin with."""
    partitions: Collection[Partition]
    """Those whose objects are wanted."""
    hours: Sequence[str]
    """What the URIs of each hour begin with, without the slash at its end."""
    start: str
    """Objects sort after it."""
    end: str
    """Objects sort before it."""

    def objects(self, store: ObjectStore) -> Iterator[StoredObject]:
        """Yield the objects in order of URI."""
        for stored in takewhile(lambda item: item.uri < self.end, store.list(self.prefix, start_after=self.start)):
            if object_partition(stored.uri) in self.partitions:
                yield stored

    def after(self, uri: str) -> list[HourRange]:
        """Return the parts of the range after an object, each with whole hours but the first."""
        later = [hour for hour in self.hours if hour > uri]
        size = ceil(len(later) / _PARTS) or 1
        bounds = [uri, *later[size::size], self.end]
        return [self._replace(start=start, end=end) for start, end in pairwise(bounds)]


def _hour_ranges(source: str, partitions: Collection[Partition], raw_bucket: str) -> Iterator[HourRange]:
    """Yield a range for each group of hours that follow each other."""
    prefix = source_prefix(raw_bucket, source)
    for group in _consecutive(sorted(partitions)):
        # An object's URI has a slash after the hour, which sorts before "0".
        hours = [f"{prefix}date={hour.date}/hour={hour.hour}" for hour in group]
        yield HourRange(prefix, partitions, hours, start=hours[0], end=f"{hours[-1]}0")


def _consecutive(partitions: Iterable[Partition]) -> Iterator[list[Partition]]:
    """Yield groups of hours that follow each other."""
    group, expected = list[Partition](), None
    for partition in partitions:
        start = start_of(partition)
        if group and start != expected:
            yield group
            group = []
        group.append(partition)
        expected = start + HOUR
    if group:
        yield group
