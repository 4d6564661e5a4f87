"""Counting the events of a listing without duplicates, for sources with an id column.

An event id counts once in its partition. Readers count the first received event: by `_received_at`, then by the URI of
its object (`slackwater.sources.first_by_id`, for Spark and DuckDB). A changed file keeps the order of its first
content. Events without an id all count.

A listing needs only the number of events of each object that count. It assigns an id that several objects hold to the
first one in the readers' order, whatever an earlier run has read. A duplicate that arrives later does not lower the
count of that object, and is not late data.
"""

from __future__ import annotations

import io
import operator
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import structs

from slackwater.errors import ObjectInvalid
from slackwater.receiver.writing.duplicate_ids import duplicate_rows
from slackwater.runs.inputs.consistent_listing import Receipt
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.packing.event_reader import EventReader
from slackwater.sources.partitions import named_rows
from slackwater.storage import StoredObject

# Events of many small objects are one table: a table of each would take most of the time.
_TABLE_ROWS = 2**12

IdReader = Callable[[Sequence[InputObject]], Iterable[Iterable[pa.Array]]]
"""Generates, for each object in order, the ids of its events in blocks; null for an event without an id."""


def without_duplicates(
    objects: Iterable[InputObject],
    *,
    known: Iterable[InputObject],
    read_ids: IdReader,
    receipt: Callable[[str], Receipt | None] = lambda _: None,
) -> Iterator[InputObject]:
    """Yield the objects of one source with the number of events that count; objects with only duplicates are left out.

    `known` are the objects that the published run has read, with the rows that counted then. A partition whose objects
    are all unchanged keeps its rows. A known object, and a new object of a known file, is yielded even when no event of
    it counts any more, so that it does not look like a removed input. `receipt` returns when the object at a URI was
    received; None if it is known only by its time of arrival, as that of a pushed batch.

    `read_ids` is called for one partition at a time, and only for partitions whose objects differ from `known`. Raises
    `ObjectInvalid` when ids of one partition have several types.
    """
    known_by_partition = _by_partition(known)
    for partition, items in _by_partition(objects).items():
        before = known_by_partition.get(partition, [])
        # An unchanged object is the known one: most partitions of a large day have no others.
        is_known = (len(items) == len(before) and all(map(operator.is_, items, before))) or (
            {item.identity for item in items} == {item.identity for item in before}
        )
        # The receiver stores no id twice in one object, so a single object needs no count.
        if is_known or (len(items) == 1 and not before):
            yield from items
        else:
            yield from _counted(items, before, read_ids, receipt)


def ids_in(file: io.IOBase, column: str, *, uri: str) -> Iterator[pa.Array]:
    """Yield the ids in an object of raw events, in blocks; null if it was written before the source had the id column.

    Only the row group of the current block is in memory. `uri` is the object's, for the error message. Raises
    `ObjectInvalid` when the content of `file` is not Parquet.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            has_column = column in parquet.schema_arrow.names
            for group in range(parquet.num_row_groups):
                if has_column:
                    yield from parquet.read_row_group(group, columns=[column])[column].chunks
                else:
                    yield pa.nulls(parquet.metadata.row_group(group).num_rows)
    except (pa.ArrowException, OSError) as error:  # a damaged page is an error of the operating system
        raise ObjectInvalid(
            f"{uri} is not Parquet ({error}): it was not written by the receiver (remove it)"
        ) from error


def packed_ids(reader: EventReader, member: StoredObject, column: str) -> list[pa.Array]:
    """Return the ids of an object whose rows are in a packed object, as `ids_in` does."""
    (events,) = reader.blocks(member, [column])
    has_column = column in events.column_names
    return events[column].chunks if has_column else [pa.nulls(named_rows(member.uri) or 0)]


def _counted(
    items: Sequence[InputObject],
    before: Sequence[InputObject],
    read_ids: IdReader,
    receipt: Callable[[str], Receipt | None],
) -> Iterator[InputObject]:
    """Yield the objects of one partition with the number of events that count."""
    known_by_uri = {item.uri: item for item in before}
    known_by_file: dict[str | None, InputObject] = {item.file: item for item in before if item.file}
    # The known object with the same URI, or one of the same file if the file's content was replaced.
    predecessors = {item.uri: known_by_uri.get(item.uri) or known_by_file.get(item.file) for item in items}

    def order(item: InputObject) -> tuple[object, ...]:
        return *(receipt(item.uri) or Receipt(item.arrived, item.arrived)).order, item.uri

    # The first object with an id is the one that counts it.
    ordered = sorted(items, key=order)
    rows = [0] * len(ordered)

    def events_with_ids() -> Iterator[pa.Table]:
        id_type: pa.DataType | None = None
        blocks, numbers, pending = list[pa.Array](), list[int](), 0
        for index, ids in ((index, ids) for index, read in enumerate(read_ids(ordered)) for ids in read):
            rows[index] += len(ids)
            if len(ids) == ids.null_count:
                continue
            id_type = id_type or ids.type
            if ids.type != id_type:
                raise ObjectInvalid(
                    f"{ordered[index].uri}: its ids are {ids.type}, and other objects of its hour have {id_type}: it "
                    "was not written by the receiver (remove it)"
                )
            blocks.append(ids)
            numbers.append(index)
            pending += len(ids)
            if pending >= _TABLE_ROWS:
                yield _with_ids(blocks, numbers)
                blocks, numbers, pending = [], [], 0
        if blocks:
            yield _with_ids(blocks, numbers)

    with tempfile.TemporaryDirectory(prefix="ids-") as folder:
        for duplicates in duplicate_rows(events_with_ids(), Path(folder)):
            for counted in duplicates["object"].value_counts().to_pylist():
                rows[counted["values"]] -= counted["counts"]
    for index, item in enumerate(ordered):
        if rows[index] or predecessors[item.uri]:
            yield item if item.rows == rows[index] else structs.replace(item, rows=rows[index])


def _with_ids(blocks: Sequence[pa.Array], numbers: Sequence[int]) -> pa.Table:
    """Return the ids of blocks, each with the number of its object, without those of events that have none."""
    if len(blocks) == 1:
        ids, objects = blocks[0], pa.repeat(pa.scalar(numbers[0], pa.int32()), len(blocks[0]))
    else:
        of_rows = (repeat(number, len(block)) for number, block in zip(numbers, blocks, strict=True))
        ids, objects = pa.concat_arrays(blocks), pa.array(chain.from_iterable(of_rows), pa.int32())
    table = pa.table({"id": ids, "object": objects})
    return table.filter(pc.is_valid(ids)) if ids.null_count else table


def _by_partition(objects: Iterable[InputObject]) -> dict[tuple[str, str], list[InputObject]]:
    """Group the objects by date and hour."""
    partitions: dict[tuple[str, str], list[InputObject]] = {}
    for item in objects:
        partitions.setdefault((item.date, item.hour), []).append(item)
    return partitions
