"""Split events by their own timestamps, and write each hour to its partition: the last step of push and pull.

Every object is written with `If-None-Match: *`. The name of a pushed batch's objects depends only on the batch, so a
retry after a crash writes only what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.receiver.writing.rejects import rejects_uri, to_jsonl
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import BATCH_ID, EVENT_TIME, RECEIVED_AT, TIMESTAMP, raw_schema
from slackwater.sources.partitions import ROWS, Partition, object_name, object_uri
from slackwater.storage import ObjectStore

# Dictionary encoding of all columns would make writing 30 to 50 % slower, and columns of distinct values larger; two
# columns with one value for each batch gain from it (docs/benchmarks.md). An hour has too few events to gain from
# statistics, and readers read all of its columns. `store_schema` would add Arrow's own schema to every object.
PARQUET: Mapping[str, Any] = {
    "compression": "snappy",
    "use_dictionary": [RECEIVED_AT, BATCH_ID],
    "write_statistics": [EVENT_TIME],
    "store_schema": False,
}
"""Options of `pyarrow.parquet` for writing raw objects."""

_HOUR_US = 3_600 * 10**6
_NONE = pa.array([], pa.int64())


class HourSplit(NamedTuple):
    """A table sorted by hour, with the hour of each row."""

    table: pa.Table
    hours: pa.Array
    """The UTC hour of each row, in ascending order."""

    def runs(self) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield each partition with its rows, a slice of the table, oldest hour first."""
        start = 0
        for partition, rows in self.row_counts():
            yield partition, self.table.slice(start, rows)
            start += rows

    def row_counts(self) -> Iterator[tuple[Partition, int]]:
        """Yield each partition with its number of rows, oldest hour first."""
        runs = pc.run_end_encode(self.hours)
        bounds = pairwise([0, *runs.run_ends.to_pylist()])
        for hour, (start, end) in zip(runs.values.to_pylist(), bounds, strict=True):
            yield Partition(hour.date().isoformat(), f"{hour.hour:02d}"), end - start


class PartitionFile(NamedTuple):
    """The events of one partition, as a local Parquet file."""

    partition: Partition
    path: Path
    rows: int


def add_metadata(table: pa.Table, source: Source, *, received_at: datetime, batch_id: str) -> pa.Table:
    """Add the time of receipt and the batch id. The result has `raw_schema`.

    The table has its event ids already, if the source needs generated ones (`assign_event_ids`).
    """
    table = table.append_column(RECEIVED_AT, pa.repeat(pa.scalar(received_at, TIMESTAMP), table.num_rows))
    table = table.append_column(BATCH_ID, pa.repeat(pa.scalar(batch_id, pa.string()), table.num_rows))
    return table.select(raw_schema(source).names)


def assign_event_ids(
    table: pa.Table, source: Source, *, batch_id: str, rejected: pa.Array = _NONE, first_index: int = 0
) -> pa.Table:
    """Add the column of generated ids, `<batch id>-<index in the batch>`, if the source needs generated ids.

    `rejected` are the indexes in the batch of the events that are not in the table. `first_index` is the index of the
    first event of the block, rejected or not, if the table is only one block of the batch.
    """
    if source.id_column != GENERATED_ID:
        return table
    end = first_index + table.num_rows + len(rejected)
    indices = pa.array(range(first_index, end), pa.int64())
    if len(rejected):
        indices = indices.filter(pc.invert(pc.is_in(indices, value_set=rejected)))
    return table.append_column(GENERATED_ID, pc.binary_join_element_wise(f"{batch_id}-", indices.cast(pa.string()), ""))


def split_by_hour(table: pa.Table, hours: pa.Array | None = None) -> HourSplit:
    """Split events by the UTC hour of their own timestamp; within an hour they keep their order.

    `hours` are the `event_hours` of the table, for a caller that has them.
    """
    hours = event_hours(table) if hours is None else hours
    # Events whose hours are in order already need neither a sort nor a copy. `sort_indices` is a stable sort.
    if pc.any(pc.greater(hours[:-1], hours[1:])).as_py():
        # Arrow sorts integers of a small range by counting them, which is much faster than comparing timestamps.
        order = pc.sort_indices(pc.divide(hours.cast(pa.int64()), _HOUR_US))
        table, hours = table.take(order), hours.take(order)
    return HourSplit(table.combine_chunks(), hours)


def merge(splits: Sequence[HourSplit]) -> HourSplit:
    """Join splits; within an hour, the events of an earlier split come first."""
    return split_by_hour(
        pa.concat_tables([split.table for split in splits]), pa.concat_arrays([split.hours for split in splits])
    )


def event_hours(table: pa.Table) -> pa.Array:
    """Return the UTC hour of each event, as timestamps without a timezone."""
    # With a timezone, Arrow would read the system's timezone files, which Lambda's image does not have.
    timestamps = table[EVENT_TIME].cast(pa.int64()).cast(pa.timestamp("us"))
    return pc.floor_temporal(timestamps, unit="hour").combine_chunks()


def drop_duplicates(split: HourSplit, id_column: str) -> HourSplit:
    """Keep the first event of each id in each partition."""
    # Usually no id repeats, and counting the distinct ids is much faster than finding the first row of each.
    ids = split.table[id_column]
    if pc.count_distinct(ids).as_py() == len(ids):
        return split
    kept = first_rows(pa.table({"hour": split.hours, "id": ids}))
    return HourSplit(split.table.take(kept).combine_chunks(), split.hours.take(kept))


def first_rows(keys: pa.Table) -> pa.Array:
    """Return the indexes, in order, of the rows whose key no earlier row has.

    The values of all columns of a row are its key; null equals null. This is the rule "an event id counts once".
    """
    indexed = keys.append_column("index", row_indexes(keys.num_rows))
    first = indexed.group_by(keys.column_names, use_threads=False).aggregate([("index", "min")])["index_min"]
    return first.take(pc.sort_indices(first)).combine_chunks()


def row_indexes(rows: int) -> pa.Array:
    """Return 0, 1, 2, ... as int64, one for each of `rows` rows."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows)), 1)


def encode_parquet(table: pa.Table) -> bytes:
    """Return the table as a Parquet file with one row group; equal tables give equal bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=table.num_rows, **PARQUET)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


# Objects that are written at the same time. A write mostly waits for S3.
_PARALLEL_WRITES = 8


class PartitionCatalog(Protocol):
    """The operations of the catalog of partitions that the receiver uses."""

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Add the partitions to the catalog; one that it already has is no error. Raises `CloudError`."""


@dataclass(frozen=True, kw_only=True)
class RawWriter:
    """Writes to the raw bucket and to its catalog."""

    store: ObjectStore
    partitions: PartitionCatalog
    raw_bucket: str

    def write_events(
        self, source: Source, split: HourSplit, *, batch_ids: Sequence[str], has_named_rows: bool = True
    ) -> int:
        """Write the events of pushed batches of one source, one object per partition, and register the partitions.

        `source` is the definition by which the batches were checked, not a later one. `split` has `raw_schema`. The
        names of objects depend on `batch_ids`, and with `has_named_rows` they have the number of events. An object that
        the same batches have written before is left unchanged.
        Returns the number of events in the objects that are new. Raises `CloudError`; then some objects may be written,
        and the same call again writes the others.
        """
        ids = sorted(set(batch_ids))

        def put(partition: Partition, rows: int, body: bytes) -> int:
            # The name depends on the batches, not on the events, and `source` is the definition in their receipts: a
            # retry finds the objects of the first attempt even if the source's definition has changed in between. The
            # number of events is that of the first attempt, too (`slackwater.receiver.push.receive.Receipt.rows`).
            name = hashlib.sha256("\n".join([*ids, "/".join(partition)]).encode()).hexdigest()[:32]
            uri = object_uri(
                self.raw_bucket, source.source, partition, object_name(name, rows) if has_named_rows else name
            )
            return rows if self.store.put_new(uri, body, metadata={ROWS: str(rows)}) else 0

        # Encode before the threads start: encoding needs the processor, and the threads are only for waiting for S3.
        encoded = [(partition, table.num_rows, encode_parquet(table)) for partition, table in split.runs()]
        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            written = sum(pool.map(lambda part: put(*part), encoded))
        # The catalog comes last, also for objects that existed: a crash after the writes leaves objects without a
        # registered partition, and the retry must register it.
        self.partitions.register(source.source, [partition for partition, _, _ in encoded])
        return written

    def write_files(self, source: Source, files: Sequence[PartitionFile], *, origin: str) -> None:
        """Write the local file of each partition as an object, and register the partitions.

        The names of the objects begin with `origin`. Raises `CloudError`; then some objects may be written, and the
        same call again writes the others.
        """

        def put(file: PartitionFile) -> None:
            uri = object_uri(self.raw_bucket, source.source, file.partition, object_name(origin, file.rows))
            self.store.put_new_file(uri, file.path, metadata={ROWS: str(file.rows)})

        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            list(pool.map(put, files))  # `list` raises the first error of the threads
        self.partitions.register(source.source, [file.partition for file in files])

    def write_rejects(
        self, source: Source, rejections: pa.Table, *, received_at: datetime, batch_id: str, origin: str
    ) -> None:
        """Write the rejected events of a batch as one object, unless it exists or there are none.

        `rejections` and `origin` are as in `to_jsonl`. Raises `CloudError`.
        """
        if rejections.num_rows:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new(uri, to_jsonl(rejections, batch_id=batch_id, origin=origin))

    def write_rejects_file(self, source: Source, path: Path, *, received_at: datetime, batch_id: str) -> None:
        """Write the local file at `path`, rejected events as JSON lines, as one object, unless it exists or is empty.

        Raises `CloudError`.
        """
        if path.stat().st_size:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new_file(uri, path)
