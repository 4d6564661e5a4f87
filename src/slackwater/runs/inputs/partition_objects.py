"""The objects of a source in some partitions: the keys of partitions sort by date and hour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from slackwater.runs.packing.index import with_members
from slackwater.runs.period import HOUR, start_of
from slackwater.sources.partitions import Partition, partition_value, source_prefix
from slackwater.storage import ObjectStore, StoredObject


def objects_of_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List the objects of the partitions, in order of URI, also those that are members of packed objects.

    Consecutive hours are listed together. Objects before them are not read, and of those after them at most the rest of
    a page, so the number of requests does not depend on how many other objects the source has. The index of each packed
    hour takes one more.
    """
    return with_members(list_partitions(source, partitions, store=store, raw_bucket=raw_bucket), store)


def list_partitions(
    source: str, partitions: Collection[Partition], *, store: ObjectStore, raw_bucket: str
) -> Iterator[StoredObject]:
    """List what is stored in the partitions, in order of URI: objects, packed objects and their indexes."""
    prefix = source_prefix(raw_bucket, source)
    for first, last in _consecutive(sorted(partitions)):
        # An object's URI has a slash after the hour, which sorts before "0".
        start, end = f"{prefix}date={first.date}/hour={first.hour}", f"{prefix}date={last.date}/hour={last.hour}0"
        for stored in store.list(prefix, start_after=start):
            if stored.uri >= end:
                break
            partition = Partition(partition_value(stored.uri, "date"), partition_value(stored.uri, "hour"))
            if partition in partitions:
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
