"""Metrics by hour: hours of local days from timestamps and integers, checked against pandas over the same rows."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from slackwater.late.changes.pairs import VersionPair
from slackwater.late.comparison import TOLERANCE
from slackwater.runs.period import day_of, parse_date
from slackwater.spark.compare.paired import pair_versions
from slackwater.spark.compare.totals import day_totals, hour_column
from tests.fakes_comparison import version
from tests.spark.frames import frame_of

SCHEMA = "id int, at timestamp, hour int, local timestamp_ntz, count int, price decimal(9,2), delay double"
AGGREGATIONS = {"count": "sum", "price": "mean", "delay": "max"}


def totals_of(spark, before, after, *, key, date, timezone="UTC", hour=None):
    """The totals of two versions, lists of rows of `SCHEMA`."""
    frames = [frame_of(spark, rows, SCHEMA) for rows in (before, after)]
    paired = pair_versions(*frames, key=key, tolerance=TOLERANCE)
    metrics = paired.metrics(AGGREGATIONS)
    day = day_of(parse_date(date), timezone)
    column = hour_column(paired, hour, day=day, timezone=timezone)
    rows, changes = day_totals(paired, metrics, column, pair_of(date))
    return rows, {change.metric: change.hours for change in changes}, changes


def pair_of(date):
    return VersionPair(pipeline="p", date=date, before=version(1), after=version(2))


def rows_of(date, timezone, *, seed):
    """Events of a local day and a few around it; some have no timestamp, some no numbers."""
    maker, day = random.Random(seed), day_of(parse_date(date), timezone)  # noqa: S311 - data, no secret
    seconds = (day.end - day.start).total_seconds()
    instants = [day.start + timedelta(seconds=maker.uniform(-3600, seconds + 3600)) for _ in range(300)]
    numbers = [(maker.randint(-9, 9), Decimal(maker.randint(-999, 999)) / 100, maker.uniform(-5, 5)) for _ in instants]
    return [
        (
            index,
            None if index % 50 == 7 else at,
            index % 26 - 1,
            datetime(2013, 1, 1),
            *pair,
            None if index % 9 else delay,
        )
        for index, (at, (*pair, delay)) in enumerate(zip(instants, numbers, strict=True))
    ]


def by_hour(rows, hour_of):
    """The metrics of a version by hour, computed by pandas."""
    frame = pd.DataFrame(rows, columns=[item.split()[0] for item in SCHEMA.split(", ")])
    frame["h"] = [hour_of(row) for row in rows]
    frame["price"] = frame["price"].astype(float)
    groups = frame.groupby("h", dropna=False).agg({"count": "sum", "price": "mean", "delay": "max"})
    return {None if pd.isna(hour) else hour: row for hour, row in groups.iterrows()}


@pytest.mark.parametrize(
    ("date", "timezone", "count"),
    [
        ("2013-03-10", "America/New_York", 23),
        ("2013-11-03", "America/New_York", 25),
    ],
)
def test_the_hours_of_a_timestamp_are_those_of_the_local_day(spark, date, timezone, count):
    before, after = (rows_of(date, timezone, seed=seed) for seed in (1, 2))
    counts, hours, metrics = totals_of(spark, before, after[20:], key=["id"], date=date, timezone=timezone, hour="at")

    def hour_of(row):
        local = row[1].astimezone(ZoneInfo(timezone)) if row[1] else None
        if local is None or f"{local:%Y-%m-%d}" != date:
            return None
        return f"{local:%Y-%m-%dT%H}:00{local.isoformat()[-6:]}"

    expected = [by_hour(rows, hour_of) for rows in (before, after[20:])]
    for name, of_metric in hours.items():
        assert len(of_metric) == count + 1, "all hours, and the rows without one"
        assert of_metric[-1].hour is None
        for side, of_side in zip(("before", "after"), expected, strict=True):
            actual = {item.hour: getattr(item, side) for item in of_metric}
            assert set(of_side) <= set(actual)
            for hour, value in actual.items():
                wanted = of_side[hour][name] if hour in of_side else None
                assert value == (None if wanted is None or pd.isna(wanted) else pytest.approx(wanted)), (name, hour)
    assert (counts.before, counts.after, counts.removed) == (300, 280, 20)
    assert (metrics[0].before, metrics[0].after) == (sum(row[4] for row in before), sum(row[4] for row in after[20:]))


def test_an_hour_of_the_key_is_found_without_a_declaration(spark):
    """An integer named `hour`; hours without rows are there, and other numbers have no hour."""
    before, after = (rows_of("2013-03-10", "UTC", seed=seed) for seed in (1, 2))
    _, hours, _ = totals_of(spark, before, after, key=["hour", "id"], date="2013-03-10", timezone="America/New_York")
    of_count = hours["count"]
    # The local hour 02 does not exist on this day, but rows have it.
    assert [item.hour for item in of_count] == [*(f"2013-03-10T{hour:02}:00" for hour in range(24)), None]
    expected = [by_hour(rows, lambda row: row[2] if 0 <= row[2] < 24 else None) for rows in (before, after)]
    for index, item in enumerate(of_count):
        hour = index if item.hour else None
        assert (item.before, item.after) == tuple(side[hour]["count"] for side in expected)


def test_a_timestamp_far_from_the_day_has_no_hour(spark):
    """Also one whose seconds are too many for an integer, and the last instant before the day."""
    frame = spark.sql(
        """
        SELECT id, timestamp_seconds(seconds) AS at, 1 AS count
        FROM VALUES (1, 9000000000000L), (2, -9000000000000L), (3, 1362873599L), (4, 1362873600L) AS rows(id, seconds)
        """
    )
    paired = pair_versions(frame, frame, key=["id"], tolerance=TOLERANCE)
    metrics, day = paired.metrics({"count": "sum"}), day_of(parse_date("2013-03-10"), "UTC")
    column = hour_column(paired, "at", day=day, timezone="UTC")
    _, (change,) = day_totals(paired, metrics, column, pair_of("2013-03-10"))
    assert {item.hour: item.before for item in change.hours if item.before} == {"2013-03-10T00:00+00:00": 1, None: 3}


@pytest.mark.parametrize(("key", "hour"), [("id", None), ("id", "nowhere"), ("id", "delay"), ("count", None)])
def test_other_columns_have_no_hours(spark, key, hour):
    frame = frame_of(spark, [], SCHEMA)
    paired = pair_versions(frame, frame, key=[key], tolerance=TOLERANCE)
    assert hour_column(paired, hour, day=day_of(parse_date("2013-03-10"), "UTC"), timezone="UTC") is None


def test_a_local_timestamp_has_an_hour_without_an_offset(spark):
    rows = [(1, None, 5, datetime(2013, 3, 10, 7, 59, 59), 3, None, None)]
    later = [(1, None, 5, datetime(2013, 3, 10, 8), 3, None, None), (2, None, 5, None, 4, None, None)]
    _, hours, _ = totals_of(spark, rows, later, key=["id"], date="2013-03-10", hour="local")
    moved = [
        (item.hour, item.before, item.after) for item in hours["count"] if (item.before, item.after) != (None, None)
    ]
    assert moved == [("2013-03-10T07:00", 3, None), ("2013-03-10T08:00", None, 3), (None, None, 4)]
