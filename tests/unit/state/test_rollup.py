"""10 minutes, local days of 23 to 25 hours and dates of several regions are sums of windows: pandas sums the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pandas as pd
import pytest

from slackwater.runs.period import day_of
from slackwater.sources.counts import ALL
from slackwater.state.completeness import CountState, total_counts, total_state
from slackwater.state.facts import HOUR, Coverage, HourFacts, HourReport, Part
from slackwater.state.fold import PeriodState, fold, periods_with
from slackwater.state.rollup import rolled_up
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

SOURCE = a_source(counts={"window": "5m"})
ZONES = {
    "UTC": {288},
    "America/New_York": {276, 288, 300},
    "Europe/Berlin": {276, 288, 300},
    "Asia/Kolkata": {288},
    "Asia/Kathmandu": {288},
    # Half an hour of daylight saving time.
    "Australia/Lord_Howe": {282, 288, 294},
}
DAYS = [date(2026, 3, 7), date(2026, 3, 8), date(2026, 3, 29), date(2026, 4, 5), date(2026, 10, 4), date(2026, 10, 25)]
DAYS += [date(2026, 11, 1), date(2026, 6, 1)]


def states(source, start: datetime, hours: int, *, lacks: int = 0) -> list[PeriodState]:
    """The states of hours with 10 events sent in each window; the window with the number `lacks` has 9."""
    found = []
    for number in range(hours):
        hour = start + number * HOUR
        counts = dict.fromkeys(range(0, 60, 5), 10)
        report = HourReport(
            hour,
            "id",
            start + hours * HOUR,
            "5m",
            {minute: {ALL: sent} for minute, sent in counts.items()},
            (ALL,),
            "push:acme",
        )
        bins = tuple(10 - (number * 12 + window == lacks) for window in range(12))
        facts = {hour: HourFacts((report,), (), (Part("a", {ALL: bins}, 1, hour),))}
        [period] = periods_with(source, [hour])
        found.append(fold(period, facts, Coverage(start, start), distinct=None))
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_a_local_day_has_the_windows_between_its_midnights(zone):
    lengths = set()
    for local in DAYS:
        day = day_of(local, zone)
        start = day.start.replace(minute=0) - 2 * HOUR
        hours = states(SOURCE, start, 30, lacks=24 + 60)
        periods = rolled_up(SOURCE, hours, day.start, day.end)
        windows = [window for period in periods for window in period.windows]
        lengths.add(len(windows))
        assert (windows[0].start, periods[-1].end) == (day.start, day.end)
        assert all(before.end == after.start for before, after in pairwise(periods))
        # The same by pandas, which has its own rules for the clocks.
        midnights = pd.DatetimeIndex([pd.Timestamp(local), pd.Timestamp(local) + pd.Timedelta(days=1)]).tz_localize(
            zone
        )
        index = pd.date_range(*midnights, freq="5min", inclusive="left")
        assert [pd.Timestamp(window.start) for window in windows] == list(index.tz_convert("UTC"))
        total = total_counts(SOURCE, periods)
        assert (total.state, total.sent, total.missing) == ("short", 10 * len(index), 1)
    assert lengths == ZONES[zone]


def test_ten_minutes_are_two_windows():
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    hours = states(SOURCE, start, 1, lacks=3)
    found = [rolled_up(SOURCE, hours, at, at + timedelta(minutes=10)) for at in (start, start + timedelta(minutes=10))]
    assert [(total_counts(SOURCE, each).state, sum(period.stored for period in each)) for each in found] == [
        ("complete", 20),
        ("short", 19),
    ]


def test_a_time_without_states_is_unknown_by_the_hour():
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    hours = states(SOURCE, start, 2, lacks=-1)
    periods = rolled_up(SOURCE, hours, start - HOUR, start + 4 * HOUR)
    assert [period.state for period in periods] == ["unknown", "complete", "complete", "unknown", "unknown"]
    assert (
        total_counts(SOURCE, periods).line == "sent 240, stored 240, rejected 0, missing 0, no counts for 3 of 5 hours"
    )


def test_hours_are_in_a_day_that_begins_within_them():
    """Windows of an hour cannot be divided: the day has all hours that it touches."""
    source = a_source(counts={"window": "1h"})
    start = datetime(2026, 1, 1, 18, tzinfo=UTC)
    report = HourReport(start, "id", start + 2 * HOUR, "1h", {0: {ALL: 5}}, (ALL,), "push:acme")
    facts = {start: HourFacts((report,), (), (Part("a", {ALL: (5, *[0] * 11)}, 1, start),))}
    [period] = periods_with(source, [start])
    state = fold(period, facts, Coverage(start, start), distinct=None)
    [found] = rolled_up(source, [state], start + HOUR / 2, start + HOUR)
    assert (found.start, found.end, found.stored, found.state) == (start, start + HOUR, 5, "complete")


def test_a_date_of_several_regions_is_as_good_as_the_worst_one():
    """Each region is a source, and its day is that of its timezone."""
    local, regions = date(2026, 3, 8), ("America/New_York", "Europe/Berlin", "Asia/Kolkata")

    def state_of(zone: str, *, lacks: int, known: int = 30) -> CountState:
        day, source = day_of(local, zone), a_source(source="things", counts={"window": "5m"})
        hours = states(source, day.start.replace(minute=0), known, lacks=lacks)
        return total_counts(source, rolled_up(source, hours, day.start, day.end)).state

    assert total_state(state_of(zone, lacks=-1) for zone in regions) == "complete"
    assert total_state(state_of(zone, lacks=50 if zone == "Asia/Kolkata" else -1) for zone in regions) == "short"
    assert (
        total_state(state_of(zone, lacks=-1, known=20 if zone == "Europe/Berlin" else 30) for zone in regions)
        == "unknown"
    )
