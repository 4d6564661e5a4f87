"""The hours of local days, and totals of a day from those of its hours."""

from __future__ import annotations

import math
import statistics
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.late.changes.hour_totals import HourOfDay, PartialTotal, combined, quarters_of_day
from slackwater.late.comparison import HourTotals, MetricChange, Totals
from slackwater.runs.period import day_of, parse_date

pytestmark = pytest.mark.unit

NEW_YORK, LORD_HOWE = "America/New_York", "Australia/Lord_Howe"


@pytest.mark.parametrize(
    ("date", "timezone", "count", "excerpt"),
    [
        ("2013-03-08", NEW_YORK, 24, ["2013-03-08T01:00-05:00", "2013-03-08T02:00-05:00"]),
        ("2013-03-10", NEW_YORK, 23, ["2013-03-10T01:00-05:00", "2013-03-10T03:00-04:00"]),
        ("2013-11-03", NEW_YORK, 25, ["2013-11-03T01:00-04:00", "2013-11-03T01:00-05:00"]),
        ("2013-04-07", LORD_HOWE, 25, ["2013-04-07T01:00+11:00", "2013-04-07T01:00+10:30"]),
        ("2013-10-06", LORD_HOWE, 24, ["2013-10-06T01:00+10:30", "2013-10-06T02:00+11:00"]),
        ("2013-03-10", "UTC", 24, ["2013-03-10T01:00+00:00", "2013-03-10T02:00+00:00"]),
        ("2013-03-10", "Asia/Kathmandu", 24, ["2013-03-10T01:00+05:45", "2013-03-10T02:00+05:45"]),
    ],
)
def test_a_day_has_its_local_hours_with_their_offsets(date, timezone, count, excerpt):
    hours = quarters_of_day(day_of(parse_date(date), timezone), timezone)
    starts = list(dict.fromkeys(hour.start(date) for hour in hours))
    assert len(starts) == count
    assert starts[1:3] == excerpt
    # Every minute of the day is in one of them, by the standard library.
    first = datetime.fromisoformat(f"{date}T00:00").replace(tzinfo=ZoneInfo(timezone)).astimezone(UTC)
    minutes = [(first + timedelta(minutes=index)).astimezone(ZoneInfo(timezone)) for index in range(25 * 60)]
    assert set(starts) == {f"{minute:%Y-%m-%dT%H}:00{minute.isoformat()[19:]}" for minute in minutes if
                           f"{minute:%Y-%m-%d}" == date}  # fmt: skip


def test_an_hour_without_an_offset_has_none_in_its_start():
    assert HourOfDay(7, None).start("2013-03-10") == "2013-03-10T07:00"


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_totals_of_groups_are_those_of_all_values(groups):
    values = [value for group in groups for value in group]

    def of(function):
        return [PartialTotal(Fraction(function(group)) if group else math.nan, len(group)) for group in groups]

    assert combined(Totals.SUM, of(sum)) == (float(sum(values)) if values else None)
    assert combined(Totals.MEAN, of(sum)) == (float(statistics.mean(map(Fraction, values))) if values else None)
    assert combined(Totals.MIN, of(min)) == (float(min(values)) if values else None)
    assert combined(Totals.MAX, of(max)) == (float(max(values)) if values else None)


def test_a_total_is_none_without_a_value_and_beyond_a_double():
    assert combined(Totals.SUM, []) is None
    assert combined(Totals.MEAN, [PartialTotal(0.0, 0)]) is None
    assert combined(Totals.SUM, [PartialTotal(1e308, 1), PartialTotal(1e308, 1)]) is None
    assert combined(Totals.SUM, [PartialTotal(Fraction("0.1"), 1), PartialTotal(Fraction("0.2"), 1)]) == 0.3


def test_an_hour_has_moved_by_the_rule_of_its_metric():
    def moved(exact, *pairs):
        hours = tuple(HourTotals(hour=str(index), before=pair[0], after=pair[1]) for index, pair in enumerate(pairs))
        metric = MetricChange(metric="m", total="sum", exact=exact, before=1, after=1, hours=hours)
        return [hour.hour for hour in metric.moved_hours]

    pairs = [(1e12, 1e12 + 1), (None, None), (None, 0), (3, 3), (1, 2)]
    assert moved(True, *pairs) == ["0", "2", "4"]
    assert moved(False, *pairs) == ["2", "4"]
