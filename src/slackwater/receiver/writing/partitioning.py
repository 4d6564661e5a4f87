"""Split checked events by the UTC hour of their own timestamp, and drop duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import BATCH_ID, EVENT_TIME, RECEIVED_AT, TIMESTAMP, raw_schema
from slackwater.sources.partitions import Partition

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
