"""A sample of an input, and which events of a table belong to it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.writing.partitioning import event_hours, row_indexes
from slackwater.runs.period import Period
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT, TIMESTAMP
from slackwater.sources.first_by_id import is_first_of_its_id


class RejectedRow(NamedTuple):
    """A row of a file that a source rejects."""

    file: Path
    line: int | None
    """From 1; None in files without lines."""
    position: int
    """Which row of the file it is, from 0."""
    reason: str

    def __str__(self) -> str:
        """Return `FILE: line 3: REASON`."""
        where = f"line {self.line}" if self.line else f"row {self.position + 1}"
        return f"{self.file.name}: {where}: {self.reason}"


class Sample(NamedTuple):
    """Some rows of an input."""

    table: pa.Table
    origin: str
    """Where they come from, for people."""
    note: str = ""
    """What people should know about them, such as rejected rows."""
    rejected: int = 0
    """How many rows the source rejects."""
    first_rejected: tuple[RejectedRow, ...] = ()
    """The first of them."""
    of_other_days: int = 0
    """How many rows were read and left out, because they are not of the day."""
    duplicates: int = 0
    """How many rows of the day were left out, because another one with their id counts."""


def events_of_day(events: pa.Table, day: Period) -> pa.Table:
    """Return the events whose timestamp is in the day."""
    start, end = (pa.scalar(instant, TIMESTAMP) for instant in (day.start, day.end))
    times = events[EVENT_TIME]
    return events.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))


def first_of_each_id(events: pa.Table, id_column: str) -> pa.Table:
    """Return the events that count if an id counts once in its hour; events without an id all count.

    Of several events with one id, the first received one counts, or the first in the table without `_received_at`.
    """
    received = events[RECEIVED_AT] if RECEIVED_AT in events.column_names else pa.nulls(len(events), TIMESTAMP)
    keys = pa.table(
        {
            "id": events[id_column],
            "hour": event_hours(events),
            RECEIVED_AT: received.cast(pa.int64()),
            "position": row_indexes(len(events)),
        }
    )
    rule = is_first_of_its_id("id", partition=["hour"], position=["position"])
    with duckdb.connect(":memory:") as connection:
        connection.register("keys", keys)
        query = f"SELECT position FROM keys QUALIFY {rule} ORDER BY position"  # noqa: S608 - names of our own
        kept: pa.Table = connection.sql(query).to_arrow_table()
    return events.take(kept["position"].combine_chunks())
