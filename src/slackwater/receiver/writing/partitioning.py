"""Accepted events split by their own hour, each part encoded as Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import BATCH_ID, EVENT_TIME, RECEIVED_AT, TIMESTAMP, raw_schema
from slackwater.sources.partitions import Partition

PARQUET: Mapping[str, Any] = {
    "compression": "snappy",
    "use_dictionary": False,
    "write_statistics": [EVENT_TIME],
    "store_schema": False,
}
"""How raw objects are written. Dictionaries and statistics of all columns would take a third longer: an hour's events
are too few to gain from them, and whoever reads them reads them all."""


class HourPart(NamedTuple):
    """The events of one partition, in the order in which they came."""

    partition: Partition
    table: pa.Table


class HourSplit(NamedTuple):
    """Events in order of hour, and where each hour begins."""

    table: pa.Table
    partitions: Sequence[Partition]
    bounds: Sequence[int]
    """One more than there are partitions."""

    def parts(self) -> Iterator[HourPart]:
        """Each partition's events."""
        for partition, (start, end) in zip(self.partitions, pairwise(self.bounds), strict=True):
            yield HourPart(partition, self.table.slice(start, end - start))


def add_metadata(
    table: pa.Table, source: Source, *, received_at: datetime, batch_id: str, rejected: Collection[int] = ()
) -> pa.Table:
    """Return a batch's checked events by `raw_schema`: with the time of their receipt, their batch and their own id.

    `rejected` are the places of the batch's other events, for those that are not numbered yet.
    """
    if GENERATED_ID not in table.column_names:
        table = assign_event_ids(table, source, batch_id=batch_id, rejected=rejected)
    table = table.append_column(RECEIVED_AT, pa.repeat(pa.scalar(received_at, TIMESTAMP), table.num_rows))
    table = table.append_column(BATCH_ID, pa.repeat(pa.scalar(batch_id, pa.string()), table.num_rows))
    return table.select(raw_schema(source).names)


def assign_event_ids(
    table: pa.Table, source: Source, *, batch_id: str, rejected: Collection[int] = (), first: int = 0
) -> pa.Table:
    """Return events with ids of the receiver's own, if their source's are: made of the batch and the place in it.

    `rejected` are the places of the other events, and `first` is where the table begins, if it is a part of the batch.
    """
    if source.id_column != GENERATED_ID:
        return table
    places = (place for place in range(first, first + table.num_rows + len(rejected)) if place not in rejected)
    return table.append_column(GENERATED_ID, pa.array((f"{batch_id}-{place}" for place in places), pa.string()))


def split_by_hour(table: pa.Table) -> HourSplit:
    """Split events by the hour of their own timestamp; within an hour they keep their order."""
    # Without a zone: Arrow would look for zone files, which Lambda's image does not have.
    moments = table[EVENT_TIME].cast(pa.int64()).cast(pa.timestamp("us"))
    hours = pc.floor_temporal(moments, unit="hour").combine_chunks()
    if pc.any(pc.greater(hours[:-1], hours[1:])).as_py():
        order = pc.sort_indices(hours)
        table, hours = table.take(order), hours.take(order)
    runs = pc.run_end_encode(hours)
    partitions = [_partition(hour) for hour in runs.values.to_pylist()]
    return HourSplit(table.combine_chunks(), partitions, [0, *runs.run_ends.to_pylist()])


def _partition(hour: datetime) -> Partition:
    return Partition(hour.date().isoformat(), f"{hour.hour:02d}")


def drop_duplicates(found: HourSplit, column: str) -> HourSplit:
    """Leave out each event whose value in `column` an earlier one of the same partition has."""
    ids = found.table[column]
    if pc.count_distinct(ids).as_py() == len(ids):
        return found
    hours = pc.run_end_decode(
        pa.RunEndEncodedArray.from_arrays(pa.array(found.bounds[1:], pa.int32()), range(len(found.partitions)))
    )
    places = first_places(pa.table({"hour": hours, "id": ids}))
    bounds = [0, *pc.run_end_encode(hours.take(places)).run_ends.to_pylist()]
    return HourSplit(found.table.take(places).combine_chunks(), found.partitions, bounds)


def places_of(rows: int) -> pa.Array:
    """Return 0, 1, 2 ... for so many rows."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows)), 1)


def first_places(keys: pa.Table) -> pa.Array:
    """Return, in order, the places of the rows that no earlier row is equal to."""
    placed = keys.append_column("place", places_of(keys.num_rows))
    found = placed.group_by(keys.column_names, use_threads=False).aggregate([("place", "min")])["place_min"]
    return found.take(pc.sort_indices(found)).combine_chunks()


def encode_parquet(table: pa.Table) -> bytes:
    """Return the table as one Parquet file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=table.num_rows, **PARQUET)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
