"""Accepted events split by their own hour, each part hashed and encoded as Parquet."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.receiver.partition import Partition
from slackwater.receiver.schema import BATCH_ID, EVENT_TIME, MOMENT, RECEIVED_AT, raw_schema
from slackwater.receiver.source import Source


class Part(NamedTuple):
    """The events of one partition, in the order in which they came."""

    partition: Partition
    table: pa.Table


class Split(NamedTuple):
    """Events in order of hour, and where each hour begins."""

    table: pa.Table
    partitions: Sequence[Partition]
    bounds: Sequence[int]
    """One more than there are partitions."""

    def parts(self) -> Iterator[Part]:
        """Each partition's events."""
        for partition, (start, end) in zip(self.partitions, pairwise(self.bounds), strict=True):
            yield Part(partition, self.table.slice(start, end - start))


def split(table: pa.Table) -> Split:
    """Split checked events by the hour of their own timestamp."""
    # Without a zone: Arrow would look for zone files, which Lambda's image does not have.
    moments = table[EVENT_TIME].cast(pa.int64()).cast(pa.timestamp("us"))
    hours = pc.floor_temporal(moments, unit="hour")
    order = pc.sort_indices(hours)
    runs = pc.run_end_encode(hours.take(order).combine_chunks())
    partitions = [_partition(hour) for hour in runs.values.to_pylist()]
    return Split(table.take(order).combine_chunks(), partitions, [0, *runs.run_ends.to_pylist()])


def _partition(hour: datetime) -> Partition:
    return Partition(hour.date().isoformat(), f"{hour.hour:02d}")


def content_hashes(found: Split) -> list[str]:
    """Return for each partition 32 hex digits of the SHA-256 of its events: names, types, nulls and values by column.

    Equal events in equal order have an equal hash, whenever they are received, in whatever batch or form.
    """
    names = [f"\n{field.name} {field.type}\n".encode() for field in found.table.schema]
    columns = [_bytes_of(_whole(column)) for column in found.table.columns]
    hashes = []
    for start, end in pairwise(found.bounds):
        digest = hashlib.sha256(f"{end - start}".encode())
        for name, column in zip(names, columns, strict=True):
            digest.update(name)
            for piece in column(start, end):
                digest.update(piece)
        hashes.append(digest.hexdigest()[:32])
    return hashes


_Bytes = Callable[[int, int], Sequence[memoryview | bytes]]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array that starts at its buffers' beginning."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _bytes_of(array: pa.Array) -> _Bytes:
    valid = memoryview(array.is_valid().cast(pa.uint8()).buffers()[1])
    if pa.types.is_string(array.type):
        return _text_bytes(array.fill_null(""), valid)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    plain = {pa.timestamp("us", tz="UTC"): pa.int64(), pa.date32(): pa.int32()}.get(array.type, array.type)
    numbers = memoryview(array.cast(plain).fill_null(0).buffers()[1])
    width = plain.bit_width // 8
    return lambda start, end: (valid[start:end], numbers[start * width : end * width])


def _text_bytes(array: pa.StringArray, valid: memoryview) -> _Bytes:
    lengths = memoryview(pc.binary_length(array).buffers()[1])
    offsets, data = array.buffers()[1:]
    places, text = memoryview(offsets).cast("i"), memoryview(data or b"")
    return lambda start, end: (valid[start:end], lengths[start * 4 : end * 4], text[places[start] : places[end]])


def stamp(found: Split, source: Source, *, received_at: datetime, batch_id: str) -> Split:
    """Return the same events by `raw_schema`: with the time of their receipt and their batch."""
    rows = found.table.num_rows
    table = found.table.append_column(RECEIVED_AT, pa.repeat(pa.scalar(received_at, MOMENT), rows))
    table = table.append_column(BATCH_ID, pa.repeat(pa.scalar(batch_id, pa.string()), rows))
    return found._replace(table=table.select(raw_schema(source).names))


def encode(table: pa.Table) -> bytes:
    """Return the table as one Parquet file; the same table gives the same bytes."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", row_group_size=table.num_rows, store_schema=False)
    return sink.getvalue()
