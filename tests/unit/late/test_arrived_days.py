"""The finished days that the messages of the queue of arrivals are about."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slackwater.late.arrival_messages import (
    ObjectWritten,
    day_deferred,
    read_message,
    seconds_to_wait,
)
from slackwater.late.check.arrived_days import arrived_days, changed_partitions, foreign_keys
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.project.project import load_project
from slackwater.receiver.commits import file_committed
from slackwater.runs.arrivals import day_published
from slackwater.runs.period import HOUR
from slackwater.sources.partitions import Partition, object_uri, source_partition

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


def written(keys: dict[str, str]) -> list[ObjectWritten]:
    return [ObjectWritten(id=event, key=name) for event, name in keys.items()]


def days(keys: dict[str, str], *, timezone: str = "America/New_York", now: datetime = NOW):
    return arrived_days(project(timezone), written(keys), now=now)[PIPELINE]


def test_the_key_of_an_object_names_its_source_and_partition():
    assert source_partition(key("2013-03-10", "05")) == ("flights", ("2013-03-10", "05"))


@pytest.mark.parametrize(
    "other",
    [
        "raw/", "raw/x.parquet", "landing/source=flights/date=2013-03-10/hour=05/a.parquet",
        "raw/source=flights/date=2013-03-10/hour=05/", "raw/source=flights/date=2013-03-10/hour=05/more/a.parquet",
        "raw/source%3Dflights/date%3D2013-03-10/hour%3D05/a.parquet",
        "raw/source=flights/date=2013-3-10/hour=05/a.parquet", "raw/source=flights/date=2013-02-30/hour=05/a.parquet",
        "raw/source=flights/date=0000-01-01/hour=05/a.parquet", "raw/source=flights/date=2013-03-10/hour=24/a.parquet",
    ],
)  # fmt: skip
def test_other_keys_belong_to_no_partition(other):
    assert source_partition(other) is None
    assert foreign_keys(written({"1": other, "2": key("2013-03-10", "05")})) == [other]
    assert arrived_days(PROJECT, written({"1": other}), now=NOW) == {}


@pytest.mark.parametrize("name", [f"{'0' * 32}-7.packed", "members.json"])
def test_packed_objects_are_no_arrivals(name):
    message = written({"1": f"raw/source=flights/date=2013-03-10/hour=05/{name}"})
    assert (foreign_keys(message), arrived_days(PROJECT, message, now=NOW)) == ([], {})
    assert changed_partitions(message) == {}


def test_an_hour_before_local_midnight_belongs_to_the_day_before():
    arrived = days({"1": key("2013-03-10", "04"), "2": key("2013-03-10", "05"), "3": key("2013-03-11", "04")})
    # New York is at UTC-5 until 2013-03-10 07:00 UTC, then at UTC-4.
    assert arrived.days == {"2013-03-09": {"1"}, "2013-03-10": {"2"}, "2013-03-11": {"3"}}


def test_the_current_day_is_no_day_of_the_window_and_later_hours_are_left_out():
    arrived = days({"1": key("2013-03-13", "04"), "2": key("2013-03-13", "18"), "3": key("2013-03-20", "00")})
    assert (arrived.days, arrived.older_days, arrived.current_day) == ({}, {}, {"2013-03-13": {"1", "2"}})


def test_objects_before_the_window_belong_to_older_days():
    arrived = days({"1": key("2013-03-06", "04"), "2": key("2013-03-06", "05"), "3": key("1999-01-01", "00")})
    assert arrived.days == {"2013-03-06": {"2"}}
    assert arrived.older_days == {"1998-12-31": {"3"}, "2013-03-05": {"1"}}


@pytest.mark.parametrize("timezone", ["America/New_York", "Asia/Kolkata"])
def test_the_first_and_last_hours_of_the_calendar_do_not_disturb_other_objects(timezone):
    keys = {"1": key("0001-01-01", "00"), "2": key("9999-12-31", "23"), "3": key("2013-03-10", "06")}
    arrived = days(keys, timezone=timezone)
    assert (arrived.days, arrived.older_days) == ({"2013-03-10": {"3"}}, {"0001-01-01": {"1"}})


def test_a_source_that_no_pipeline_reads_concerns_nobody():
    assert arrived_days(PROJECT, written({"1": key("2013-03-10", "05", source="nobody")}), now=NOW) == {}


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
    older = frozenset[str]().union(*arrived.older_days.values())
    assert len(older) == (datetime(2013, 3, 6, 5, tzinfo=UTC) - hours[0]) // timedelta(hours=1)


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
    assert list(arrived.older_days) == sorted(one.isoformat() for one in before)


def test_a_committed_file_has_one_message_for_each_utc_date_and_its_hours_decide_the_days():
    hours = [("2013-03-11", "03"), ("2013-03-11", "04"), ("2013-03-10", "23"), ("2013-03-11", "03")]
    messages = list(file_committed("flights", [Partition(*hour) for hour in hours], time=NOW))
    assert [(item.date, item.hours) for item in messages] == [("2013-03-10", ("23",)), ("2013-03-11", ("03", "04"))]
    assert [read_message(item.model_dump_json()) for item in messages] == messages
    first, second = (item.id for item in messages)
    # New York is at UTC-4 on 2013-03-11.
    arrived = arrived_days(project("America/New_York"), messages, now=NOW)[PIPELINE]
    assert arrived.days == {"2013-03-10": {first, second}, "2013-03-11": {second}}


def test_a_committed_file_of_an_older_day_has_that_day():
    (message,) = file_committed("flights", [Partition("2013-02-01", "05"), Partition("2013-02-01", "06")], time=NOW)
    arrived = arrived_days(PROJECT, [message], now=NOW)[PIPELINE]
    assert (arrived.days, arrived.older_days) == ({}, {"2013-02-01": {message.id}})


def reader(*, days: tuple[int, int] = (0, 0), on_change: str = "auto", window_days: int = 7) -> Pipeline:
    definition = {
        "pipeline": "weekly",
        "tables": {"daily": {"table": PIPELINE, "days": days, "on_change": on_change}},
        "steps": {"end": {"step": "sql", "depends_on": ["daily"], "with": {"query": "SELECT 1"}}},
        "publish": {"step": "end", "key": ["date"]},
        "late": {"window_days": window_days},
    }
    return Pipeline.model_validate(definition)


def reading_days(date: str, **table) -> tuple[list[str], list[str]]:
    """Return the days of `weekly` that read the day: those of the window, and those before."""
    own = PROJECT.model_copy(update={"pipelines": {**PROJECT.pipelines, "weekly": reader(**table)}})
    arrived = arrived_days(own, [day_published(PIPELINE, date, time=NOW)], now=NOW)
    found = arrived.pop("weekly", None)
    # Another pipeline of the project reads the same table.
    assert not arrived.keys() - {"weekly_delays"}
    return (list(found.days), list(found.older_days)) if found else ([], [])


@pytest.mark.parametrize("days", [(0, 0), (-1, 0), (-6, -2), (-3, -3)])
@pytest.mark.parametrize("date", ["2013-03-01", "2013-03-05", "2013-03-09", "2013-03-12"])
def test_a_published_day_leads_to_the_days_that_read_it(days, date):
    today = NOW.date()
    read = {one: [one + timedelta(days=offset) for offset in range(days[0], days[1] + 1)] for one in calendar(today)}
    expected = [one for one, dates in read.items() if any(str(each) == date for each in dates)]
    first = today - timedelta(days=7)
    assert reading_days(date, days=days) == (
        [str(one) for one in expected if one >= first],
        [str(one) for one in expected if one < first],
    )


def calendar(today: date) -> list[date]:
    """Return the finished days."""
    return [today - timedelta(days=back) for back in range(60, 0, -1)]


@pytest.mark.parametrize(
    ("on_change", "found"),
    [("auto", ["2013-03-10"]), ("hold", ["2013-03-10"]), ("notify", ["2013-03-10"]), ("ignore", [])],
)
def test_a_published_day_leads_to_nothing_where_its_changes_are_ignored(on_change, found):
    assert reading_days("2013-03-10", on_change=on_change) == (found, [])


def test_a_published_day_of_a_pipeline_that_nobody_reads_leads_to_nothing():
    assert arrived_days(PROJECT, [day_published("weekly_delays", "2013-03-10", time=NOW)], now=NOW) == {}
    assert arrived_days(PROJECT, [day_published("gone", "2013-03-10", time=NOW)], now=NOW) == {}


def test_a_deferred_day_waits_until_it_may_run_again():
    message = day_deferred(PIPELINE, "2013-03-10", not_before=NOW)
    assert message == day_deferred(PIPELINE, "2013-03-10", not_before=NOW)
    assert arrived_days(PROJECT, [message], now=NOW)[PIPELINE].days == {"2013-03-10": {message.id}}
    waits = [0, 0.5, 1, 899.5, 900, 86_400]
    assert [seconds_to_wait(message, NOW - timedelta(seconds=wait)) for wait in waits] == [0, 1, 1, 900, 900, 900]
    assert seconds_to_wait(message, NOW + timedelta(days=1)) == 0


@pytest.mark.parametrize(
    "body",
    [
        {"id": "1", "source": "flights", "date": "2013-02-30", "hours": ["05"], "time": "2013-03-10T05:00:00Z"},
        {"id": "1", "source": "flights", "date": "2013-02-01", "hours": ["24"], "time": "2013-03-10T05:00:00Z"},
        {"id": "1", "pipeline": "p", "date": "2013-02-01"},
        {"id": "1", "pipeline": "p", "date": "2013-02-01", "not_before": "2013-03-10T05:00:00"},
    ],
)
def test_a_message_with_a_wrong_time_is_refused(body):
    with pytest.raises(ValidationError):
        read_message(json.dumps(body))


@pytest.mark.parametrize("timezone", ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_an_object_arrives_for_one_hour_in_each_timezone(timezone):
    hourly = PROJECT.pipelines[PIPELINE].model_copy(update={"period": "hour", "timezone": timezone})
    project = PROJECT.model_copy(update={"pipelines": {PIPELINE: hourly}})
    current, first = (NOW - timedelta(hours=back) for back in (0, 168))
    hours = [f"{at:%Y-%m-%dT%H}" for at in (current + HOUR, current, current - HOUR, first, first - HOUR)]
    keys = {hour: key(*hour.split("T")) for hour in hours}
    arrived = arrived_days(project, written(keys), now=NOW)[PIPELINE]
    assert [list(each) for each in (arrived.current_day, arrived.days, arrived.older_days)] == [
        [hours[1]],
        [hours[3], hours[2]],
        [hours[4]],
    ]
