"""The finished days that new objects belong to."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.late.check.arrived_days import arrived_days, foreign_keys, source_partition
from slackwater.pipeline.definition import Late
from slackwater.project import load_project
from slackwater.sources.partitions import Partition, object_uri

pytestmark = pytest.mark.unit

PROJECT = load_project(Path("examples/nyc_flights"))
PIPELINE = "daily_delays"
NOW = datetime(2013, 3, 13, 18, tzinfo=UTC)


def key(day: str, hour: str, *, source: str = "flights", name: str = "a") -> str:
    return object_uri("raw", source, Partition(day, hour), name).removeprefix("s3://raw/")


def project(timezone: str, window_days: int = 7):
    late = Late(window_days=window_days)
    definition = PROJECT.pipelines[PIPELINE].model_copy(update={"timezone": timezone, "late": late})
    return PROJECT.model_copy(update={"pipelines": {PIPELINE: definition}})


def days(keys: dict[str, str], *, timezone: str = "America/New_York", now: datetime = NOW):
    return arrived_days(project(timezone), keys, now=now)[PIPELINE]


def test_the_key_of_an_object_names_its_source_and_partition():
    assert source_partition(key("2013-03-10", "05")) == ("flights", ("2013-03-10", "05"))


@pytest.mark.parametrize(
    "other",
    [
        "raw/",
        "raw/x.parquet",
        "landing/source=flights/date=2013-03-10/hour=05/a.parquet",
        "raw/source=flights/date=2013-03-10/hour=05/",
        "raw/source=flights/date=2013-03-10/hour=05/more/a.parquet",
        "raw/source%3Dflights/date%3D2013-03-10/hour%3D05/a.parquet",
        "raw/source=flights/date=2013-3-10/hour=05/a.parquet",
        "raw/source=flights/date=2013-02-30/hour=05/a.parquet",
        "raw/source=flights/date=0000-01-01/hour=05/a.parquet",
        "raw/source=flights/date=2013-03-10/hour=24/a.parquet",
    ],
)
def test_other_keys_belong_to_no_partition(other):
    assert source_partition(other) is None
    assert foreign_keys([other, key("2013-03-10", "05")]) == [other]
    assert arrived_days(PROJECT, {"1": other}, now=NOW) == {}


def test_an_hour_before_local_midnight_belongs_to_the_day_before():
    arrived = days({"1": key("2013-03-10", "04"), "2": key("2013-03-10", "05"), "3": key("2013-03-11", "04")})
    # New York is at UTC-5 until 2013-03-10 07:00 UTC, then at UTC-4.
    assert arrived.days == {"2013-03-09": {"1"}, "2013-03-10": {"2"}, "2013-03-11": {"3"}}


def test_the_current_day_and_later_hours_are_left_out():
    arrived = days({"1": key("2013-03-13", "04"), "2": key("2013-03-13", "18"), "3": key("2013-03-20", "00")})
    assert (arrived.days, arrived.older) == ({}, 0)


def test_objects_before_the_window_are_counted_and_start_nothing():
    arrived = days({"1": key("2013-03-06", "04"), "2": key("2013-03-06", "05"), "3": key("1999-01-01", "00")})
    assert (arrived.days, arrived.older) == ({"2013-03-06": {"2"}}, 2)


@pytest.mark.parametrize("timezone", ["America/New_York", "Asia/Kolkata"])
def test_the_first_and_last_hours_of_the_calendar_do_not_disturb_other_objects(timezone):
    keys = {"1": key("0001-01-01", "00"), "2": key("9999-12-31", "23"), "3": key("2013-03-10", "06")}
    arrived = days(keys, timezone=timezone)
    assert (arrived.days, arrived.older_days) == ({"2013-03-10": {"3"}}, {"0001-01-01": {"1"}})


def test_a_source_that_no_pipeline_reads_concerns_nobody():
    assert arrived_days(PROJECT, {"1": key("2013-03-10", "05", source="nobody")}, now=NOW) == {}


def test_an_hour_of_two_days_belongs_to_both():
    # In India a day begins at 18:30 UTC.
    arrived = days({"1": key("2013-03-10", "18")}, timezone="Asia/Kolkata")
    assert arrived.days == {"2013-03-10": {"1"}, "2013-03-11": {"1"}}


def test_a_year_in_one_upload_leads_to_the_days_of_the_window_only():
    hours = [datetime(2012, 3, 13, tzinfo=UTC) + timedelta(hours=number) for number in range(366 * 24)]
    keys = {str(number): key(f"{hour:%Y-%m-%d}", f"{hour:%H}") for number, hour in enumerate(hours)}
    arrived = days(keys)
    assert list(arrived.days) == [f"2013-03-{number:02}" for number in range(6, 13)]
    # 2013-03-06 05:00 UTC is the first hour of the window.
    assert arrived.older == (datetime(2013, 3, 6, 5, tzinfo=UTC) - hours[0]) // timedelta(hours=1)


@given(
    hour=st.integers(0, 24 * 12),
    timezone=st.sampled_from(["America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Europe/Lisbon", "UTC"]),
    now=st.datetimes(datetime(2013, 3, 10), datetime(2013, 4, 2)).map(lambda value: value.replace(tzinfo=UTC)),
)
def test_the_days_are_the_local_dates_of_the_minutes_of_the_hour(hour, timezone, now):
    start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hour)
    zone = ZoneInfo(timezone)
    dates = {(start + timedelta(minutes=minute)).astimezone(zone).date() for minute in range(60)}
    today: date = now.astimezone(zone).date()
    expected = sorted(one.isoformat() for one in dates if today - timedelta(days=7) <= one < today)
    arrived = days({"1": key(f"{start:%Y-%m-%d}", f"{start:%H}")}, timezone=timezone, now=now)
    assert list(arrived.days) == expected
    before = [one for one in dates if one < today - timedelta(days=7)]
    assert arrived.older == all(one < today - timedelta(days=7) for one in dates)
    assert list(arrived.older_days) == sorted(one.isoformat() for one in before)
