"""The reject rate of a source, compared with its normal one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.late.check.metrics import rejected_above_normal
from slackwater.receiver.event_counts import EventCount

pytestmark = pytest.mark.unit

NOW = datetime(2026, 6, 29, 7, 30, tzinfo=UTC)


def hours_of(counts):
    """Return counts by hour since 1970, from counts by how long ago the hour was."""
    return {int((NOW - ago).timestamp() // 3600): EventCount(*count) for ago, count in counts.items()}


def days(rejected, *, first=2, events=1000):
    """Return a count in the morning of each day, from `first` days ago backwards."""
    return {timedelta(days=first + back): (events, number) for back, number in enumerate(rejected)}


LATEST = timedelta(hours=1)


def above(counts):
    return rejected_above_normal(hours_of(counts), now=NOW)


def test_it_is_the_difference_to_the_median_of_the_days_before_in_percentage_points():
    assert above({LATEST: (1000, 80), **days([10, 900, 20, 30, 0])}) == pytest.approx(8 - 2)


def test_a_rate_that_is_normal_or_below_is_no_difference():
    assert above({LATEST: (1000, 20), **days([20, 20, 30])}) == 0
    assert above({LATEST: (1000, 0), **days([20, 20, 30])}) == 0


def test_normally_nothing_is_rejected():
    assert above({LATEST: (1000, 50), **days([0] * 10)}) == 5
    assert above({LATEST: (1000, 0), **days([0] * 10)}) == 0


def test_all_events_are_rejected():
    assert above({LATEST: (1000, 1000), **days([0] * 10)}) == 100
    assert above({LATEST: (1000, 1000), **days([1000] * 10)}) == 0


def test_there_are_no_events():
    assert above({}) == 0
    assert above(days([10] * 10)) == 0


def test_a_new_source_has_no_normal_rate_until_it_has_two_days_with_enough_events():
    assert above({LATEST: (1000, 1000)}) == 0
    assert above({LATEST: (1000, 1000), **days([0])}) == 0
    assert above({LATEST: (1000, 1000), **days([0]), **days([0] * 9, first=3, events=99)}) == 0
    assert above({LATEST: (1000, 1000), **days([0, 0])}) == 100


@pytest.mark.parametrize(("events", "expected"), [(99, 0), (100, 100)])
def test_too_few_events_of_the_latest_24_hours_say_nothing(events, expected):
    assert above({LATEST: (events, events), **days([0, 0])}) == expected


def test_the_latest_24_hours_begin_yesterday_and_the_14_days_end_then():
    # At 7:30, the hour from 8:00 of yesterday is the first of 24. Yesterday is one of the 14 days, too.
    at_8 = timedelta(hours=23)
    assert above({at_8: (1000, 1000), **days([0, 0])}) == 100
    assert above({at_8 + timedelta(hours=1): (1000, 1000), **days([0, 0])}) == 0
    # The days 14 and 15 days ago.
    assert above({LATEST: (1000, 1000), **days([0, 0], first=13)}) == 100
    assert above({LATEST: (1000, 1000), **days([0, 0], first=14)}) == 0


def test_the_hours_of_a_day_are_added_up():
    split = {timedelta(days=2, hours=hour): (100, 10) for hour in range(5)}
    assert above({LATEST: (60, 60), timedelta(hours=2): (60, 0), **split, **days([100], first=3)}) == pytest.approx(40)
