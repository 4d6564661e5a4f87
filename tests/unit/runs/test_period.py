from datetime import UTC, date, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.runs.period import Partition, day_of, distance, partition_of, period_of, shifted

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("local_date", "hours", "first", "last"),
    [
        ("2013-03-08", 24, Partition("2013-03-08", "05"), Partition("2013-03-09", "04")),
        ("2013-03-10", 23, Partition("2013-03-10", "05"), Partition("2013-03-11", "03")),
        ("2013-03-11", 24, Partition("2013-03-11", "04"), Partition("2013-03-12", "03")),
        ("2013-11-03", 25, Partition("2013-11-03", "04"), Partition("2013-11-04", "04")),
    ],
)
def test_a_day_in_new_york_covers_its_utc_hours(local_date, hours, first, last):
    day = day_of(date.fromisoformat(local_date), "America/New_York")
    partitions = list(day.partitions())
    assert day.hours == len(partitions) == hours
    assert (partitions[0], partitions[-1]) == (first, last)


def test_a_day_in_a_timezone_off_the_hour_has_every_utc_hour_that_overlaps_it():
    day = day_of(date(2013, 3, 10), "Asia/Kolkata")
    assert day.start == datetime(2013, 3, 9, 18, 30, tzinfo=UTC)
    assert len(list(day.partitions())) == 25


@pytest.mark.parametrize(("timezone", "whole"), [("America/New_York", 23), ("Asia/Kolkata", 23), ("UTC", 24)])
def test_a_day_contains_the_partitions_whose_events_are_all_its_own(timezone, whole):
    """The clocks of New York change on this day; a day of India begins and ends within an hour."""
    day = day_of(date(2013, 3, 10), timezone)
    contained = [partition for partition in day.partitions() if day.contains(partition)]
    assert len(contained) == whole
    outside = [partition_of(day.start - timedelta(minutes=1)), partition_of(day.end)]
    assert not set(contained) & set(outside)


def test_a_day_whose_midnight_is_skipped_starts_at_its_first_valid_local_time():
    day = day_of(date(2018, 11, 4), "America/Sao_Paulo")
    assert day.start == datetime(2018, 11, 4, 3, tzinfo=UTC)
    assert day.hours == 23


@given(
    local_date=st.dates(date(1990, 1, 1), date(2037, 12, 30)),
    timezone=st.sampled_from(sorted(available_timezones())),
)
def test_days_follow_each_other_without_gap_or_overlap(local_date, timezone):
    day, following = day_of(local_date, timezone), day_of(local_date + timedelta(days=1), timezone)
    assert day.end == following.start
    assert day.start <= day.end


@given(instant=st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.timezones()))
def test_the_partition_of_an_instant_is_its_utc_hour(instant):
    partition = partition_of(instant)
    hour = datetime.fromisoformat(f"{partition.date}T{partition.hour}:00:00+00:00")
    assert hour <= instant < hour + timedelta(hours=1)


@given(local_date=st.dates(date(1990, 1, 1), date(2037, 12, 30)))
def test_the_name_of_a_day_is_its_date(local_date):
    day = period_of(local_date.isoformat(), "America/New_York")
    assert day == day_of(local_date, "America/New_York")
    assert day.name == local_date.isoformat()


@given(instant=st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)))
def test_an_hour_is_the_utc_hour_of_its_partition(instant):
    partition = partition_of(instant)
    hour = period_of(f"{partition.date}T{partition.hour}", "America/New_York")
    assert list(hour.partitions()) == [partition]
    assert hour.contains(partition)
    assert hour.start <= instant < hour.end
    assert (hour.name, hour.hours) == (f"{partition.date}T{partition.hour}", 1)


@pytest.mark.parametrize(
    "name",
    [
        *("", "2013-3-10", "20130310", "2013-W10-7", "2013-02-30", "2013-03-10T", "2013-03-10T24", "2013-03-10T5"),
        *("2013-03-10 05", "2013-03-10T05:00", "2013-03-10t05", "2013-03-10T\N{ARABIC-INDIC DIGIT ZERO}5"),
    ],
)
def test_any_other_string_is_no_name(name):
    with pytest.raises(ValueError, match="is not a date such as 2013-03-10, or an hour such as 2013-03-10T15"):
        period_of(name, "UTC")


@given(
    hours=st.booleans(),
    first=st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1)),
    count=st.integers(-10_000, 10_000),
)
def test_shifted_names_sort_by_time_and_have_the_distance(hours, first, count):
    name = f"{first:%Y-%m-%dT%H}" if hours else f"{first:%Y-%m-%d}"
    other = shifted(name, count)
    assert distance(name, other) == count
    assert shifted(other, -count) == name
    assert (name < other) == (count > 0)
    assert period_of(other, "UTC").start - period_of(name, "UTC").start == count * timedelta(hours=1 if hours else 24)
