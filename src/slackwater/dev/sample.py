"""A sample of an input, and which events of a table belong to it."""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.writing.partitioning import event_hours, row_indexes
from slackwater.runs.day import Day
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT, TIMESTAMP
from slackwater.sources.first_by_id import is_first_of_its_id


class Sample(NamedTuple):
    """Some rows of an input."""

    table: pa.Table
    origin: str
    """Where they come from, for people."""
    note: str = ""
    """What people should know about them, such as rejected rows."""


def events_of_day(events: pa.Table, day: Day) -> pa.Table:
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
