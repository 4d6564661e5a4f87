"""Which events count, over Arrow tables: compared with plain Python and with the SQL of the same rule in DuckDB.

The events are random, and so are the chunks of the tables.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT
from slackwater.sources.first_by_id import is_first_of_its_id
from slackwater.sources.first_events import first_events

pytestmark = pytest.mark.unit

TIME = pa.timestamp("us", "UTC")
# Before 1970, a division towards zero would put two hours into one.
NOON, EARLY = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def objects(chosen, names):
    """Return the rows of some objects, whose events were received at once."""
    found = []
    for name in names:
        received = NOON + chosen.randrange(4) * MINUTE
        for row in range(chosen.randint(1, 6)):
            at = chosen.choice([NOON, EARLY]) + chosen.randrange(3) * timedelta(minutes=40)
            found.append((chosen.choice(["a", "b", "c", "d", None]), at, received, name, row))
    return found


def table_of(rows, ids):
    columns = [pa.array([ids.get(row[0]) for row in rows], pa.string() if "a" in ids.values() else pa.int64())]
    columns += [pa.array([row[n] for row in rows], TIME) for n in (1, 2)]
    columns += [pa.array([row[3] for row in rows], pa.string()), pa.array([row[4] for row in rows], pa.int64())]
    return pa.table(columns, names=["id", EVENT_TIME, RECEIVED_AT, "_object", "_row"])


def expected(rows, first_received):
    """Return the positions of the events that count."""
    first = {}
    for id_, at, received, name, row in rows:
        hour = at.replace(minute=0, second=0, microsecond=0)
        key = (hour, id_) if id_ else (name, row)
        begins = first_received.get(name, received)
        order = (begins, -received.timestamp() if first_received else 0, name, row)
        first[key] = min(first.get(key, (order, name, row)), (order, name, row))
    return {each[1:] for each in first.values()}


def by_sql(events, first_received):
    """Return the positions of the events that count by the rule in SQL."""
    connection = duckdb.connect()
    connection.register("events", events)
    names, times = pa.array([*first_received], pa.string()), pa.array([*first_received.values()], TIME)
    connection.register("files", pa.table({"name": names, "began": times}))
    condition = is_first_of_its_id(
        "id",
        partition=[f"floor(epoch({EVENT_TIME}) / 3600)"],
        position=["_object", "_row"],
        first_received="began" if first_received else "",
    )
    joined = "events LEFT JOIN files ON name = _object"
    return {*connection.sql(f"SELECT _object, _row FROM {joined} QUALIFY {condition}").fetchall()}


@pytest.mark.parametrize("ids", [{each: each for each in "abcd"}, {each: ord(each) for each in "abcd"}])
@pytest.mark.parametrize("seed", range(30))
def test_the_first_received_event_of_each_hour_and_id_counts(seed, ids):
    chosen = random.Random(seed)  # noqa: S311 - reproducible examples
    names = [f"{number:02d}.parquet" for number in range(5)]
    chosen.shuffle(names)
    rows = objects(chosen, names)
    first_received = {name: NOON - chosen.randrange(2) * MINUTE for name in names if seed % 2 and chosen.random() < 0.5}
    cuts = sorted(chosen.choices(range(len(rows) + 1), k=3))
    parts = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    events = pa.concat_tables([table_of(part, ids) for part in parts])
    found = first_events(events, "id", position=["_object", "_row"], first_received=first_received).to_pylist()
    positions = [(row["_object"], row["_row"]) for row in found]
    assert set(positions) == expected(rows, first_received) == by_sql(events, first_received)
    # Once each, and in the order in which they were.
    assert positions == [row[3:] for row in rows if row[3:] in set(positions)]


def test_no_events_stay_none():
    events = table_of([], {each: each for each in "a"})
    assert first_events(events, "id", position=["_object", "_row"], first_received={"x": NOON}) == events
