"""The objects of a source in some partitions: the keys of partitions sort by date and hour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from math import ceil

from slackwater.runs.packing.index import with_members
from slackwater.runs.period import HOUR, start_of
from slackwater.sources.partitions import Partition, partition_value, source_prefix
from slackwater.storage import ObjectStore, StoredObject

# The objects that one request lists, and the parts in which the rest of many is listed.
_PAGE, _PARTS = 1000, 16


def objects_of_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List the objects of the partitions, in order of URI, also those that are members of packed objects.

    Consecutive hours are listed together. Objects before them are not read, and of those after them at most the rest of
    a page, so the number of requests does not depend on how many other objects the source has. Hours with more than a
    page of objects are listed in up to 17 parts at the same time. The index of each packed hour takes one more request.
    """
    return with_members(list_partitions(source, partitions, store=store, raw_bucket=raw_bucket), store)


def list_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List what is stored in the partitions, in order of URI: objects, packed objects and their indexes."""
    prefix = source_prefix(raw_bucket, source)

    def list_range(start: str, end: str) -> Iterator[StoredObject]:
        for stored in takewhile(lambda stored: stored.uri < end, store.list(prefix, start_after=start)):
            if Partition(partition_value(stored.uri, "date"), partition_value(stored.uri, "hour")) in partitions:
                yield stored

    for hours in _consecutive(sorted(partitions)):
        # An object's URI has a slash after the hour, which sorts before "0".
        starts = [f"{prefix}date={hour.date}/hour={hour.hour}" for hour in hours]
        end = f"{starts[-1]}0"
        page = list(islice(list_range(starts[0], end), _PAGE))
        yield from page
        if len(page) == _PAGE:
            last = page[-1].uri
            later = [start for start in starts if start > last]
            # As many hours at a time as the first page has, but all of the rest in a few parts.
            size = max(len(starts) - len(later) - 1, ceil(len(later) / _PARTS), 1)
            bounds = [last, *later[::size], end]
            with ThreadPoolExecutor(_PARTS) as pool:
                for part in pool.map(lambda start, end: [*list_range(start, end)], bounds[:-1], bounds[1:]):
                    yield from part


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
