"""Periods against a simple computation: whatever the order, repetition and corrections of the reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.sources.counts import ALL
from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, PeriodCounts, fact_hours, period_counts, total_counts
from slackwater.state.facts import HOUR, RejectedEvents, Report
from slackwater.state.reports import new_report, read_report
from tests.fakes_receiver import a_source
from tests.fakes_state import MemoryState

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = {"5m": 5, "10m": 10, "1h": 60}
HOURS = 3


def source_of(window: str = "5m", percent: float = 99.995, timezone: str | None = None) -> Source:
    counts = {"window": window, "complete_percent": percent}
    return a_source(counts=counts, timestamp={"field": "at", "timezone": timezone}, pull=None)


def evaluate(
    source: Source,
    reports: list[Report],
    stored: dict[datetime, int],
    *,
    rejected: dict[datetime, list[RejectedEvents]] | None = None,
    hours: list[datetime] | None = None,
) -> list[PeriodCounts]:
    """Return the periods by what a table holds after these reports."""
    state = MemoryState()
    for report in reports:
        state.put_report(report)
    for hour, items in (rejected or {}).items():
        for item in items:
            state.put_rejected("things", {hour: item})
    hours = hours or [START + number * HOUR for number in range(HOURS)]
    return period_counts(
        source,
        hours,
        facts=state.facts("things", fact_hours(source, hours)),
        coverage=state.coverage("things"),
        stored=stored,
        is_current=lambda origin: origin != "replaced",
    )


def report(source: Source, counts: dict[int, int], *, as_of: int, through: int, by: str = "push:acme") -> Report:
    """Return a report; all times are in minutes after `START`."""
    at = [START + timedelta(minutes=minutes) for minutes in (as_of, through)]
    windows = {START + timedelta(minutes=start): count for start, count in counts.items()}
    return new_report(source, as_of=at[0], through=at[1], counts=windows, principal=by)


def expected(reports: list[Report], minutes: int, hour: datetime) -> tuple[int | None, bool]:
    """Return the events sent in an hour, None without a report, and whether they are known: by all reports at once."""
    sent, known = [], True
    for number in range(60 // minutes):
        start = hour + timedelta(minutes=number * minutes)
        end = start + timedelta(minutes=minutes)
        naming = [item for item in reports if start in item.counts]
        if naming:
            newest = max(naming, key=lambda item: (item.as_of, item.id))
            sent.append(newest.counts[start][ALL])
            known &= newest.through >= end
        elif any(item.through >= end for item in reports) and any(item.covers_from <= start for item in reports):
            sent.append(0)
        else:
            known = False
    return (sum(sent) if sent else None), known


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Report]]:
    """Return a window and reports, with times that repeat, restated up and down."""
    window = draw(st.sampled_from([*MINUTES]))
    source, minutes = source_of(window), MINUTES[window]
    starts = st.integers(-1, HOURS * 60 // minutes - 1).map(lambda number: number * minutes)
    times = st.integers(0, HOURS * 12).map(lambda number: number * 5)
    counts = st.dictionaries(starts, st.integers(0, 4), max_size=8)
    made = st.builds(
        lambda counts, as_of, through, by: report(source, counts, as_of=as_of, through=through, by=by),
        *(counts, times, times, st.sampled_from(["push:acme", "file:a.json"])),
    )
    return window, draw(st.lists(made, max_size=6))


@given(histories(), st.data())
def test_periods_are_those_of_a_simple_computation(history, data):
    window, reports = history
    order = data.draw(st.permutations(reports + reports[: len(reports) // 2]))
    stored = {START + number * HOUR: data.draw(st.integers(0, 8)) for number in range(HOURS)}
    percent = data.draw(st.sampled_from([99.995, 100, 50, 0.001]))
    source = source_of(window, percent)
    for period in evaluate(source, order, stored):
        sent, known = expected(reports, MINUTES[window], period.start)
        present = stored[period.start]
        assert period.sent == sent
        if not known:
            assert (period.state, period.missing, period.surplus) == (CountState.UNKNOWN, 0, 0)
        elif present > sent:
            assert (period.state, period.surplus) == (CountState.SURPLUS, present - sent)
        else:
            complete = sent == 0 or Fraction(100 * present, sent) >= Fraction(str(percent))
            assert period.state == (CountState.COMPLETE if complete else CountState.SHORT)
            assert period.missing == sent - present


@given(histories())
def test_silence_is_never_completeness(history):
    window, reports = history
    for period in evaluate(source_of(window), reports, {}):
        if not any(item.through >= period.end for item in reports):
            assert period.state is CountState.UNKNOWN


def state_of(source: Source, reports: list[Report], stored: int, **more: object) -> CountState:
    return evaluate(source, reports, {START: stored}, hours=[START], **more)[0].state


def test_the_limit_is_exact():
    source = source_of("1h")
    sent = [report(source, {0: 100_000}, as_of=60, through=60)]
    assert [state_of(source, sent, stored) for stored in (99_994, 99_995, 100_000, 100_001)] == [
        "short",
        "complete",
        "complete",
        "surplus",
    ]


def test_a_later_report_lowers_raises_and_reopens():
    source = source_of("1h")
    first = report(source, {0: 100}, as_of=60, through=60)
    raised, lowered = (report(source, {0: n}, as_of=at, through=60) for n, at in ((120, 70), (90, 80)))
    reopened = report(source, {0: 90}, as_of=90, through=30)
    assert state_of(source, [first], 100) == "complete"
    assert state_of(source, [raised, first], 100) == "short"
    assert state_of(source, [lowered, raised, first], 90) == "complete"
    assert state_of(source, [lowered, reopened, raised, first], 90) == "unknown"


def test_nothing_of_nothing_is_complete_only_by_through():
    source = source_of("5m")
    assert state_of(source, [], 0) == "unknown"
    assert state_of(source, [report(source, {}, as_of=59, through=55)], 0) == "unknown"
    # It covers the last window before `through` only: of the windows before the first report nobody knows anything.
    assert state_of(source, [report(source, {}, as_of=60, through=60)], 0) == "unknown"
    assert state_of(source, [report(source, {0: 0}, as_of=60, through=60)], 0) == "complete"
    reports = [report(source, {0: 0}, as_of=5, through=5), report(source, {}, as_of=60, through=60)]
    assert [state_of(source, reports, stored) for stored in (0, 1)] == ["complete", "surplus"]


def test_rejected_events_count_and_those_of_replaced_files_or_without_a_time_do_not():
    source = source_of("1h")
    sent = [report(source, {0: 100}, as_of=60, through=60)]
    rejected = [RejectedEvents(origin, {ALL: (0,) * 11 + (5,)}, unplaced) for origin, unplaced in (("a", 0), ("b", 90))]
    assert state_of(source, sent, 90, rejected={START: rejected}) == "complete"
    assert state_of(source, sent, 89, rejected={START: rejected}) == "short"
    replaced = RejectedEvents("replaced", {ALL: (100,) * 12})
    assert state_of(source, sent, 89, rejected={START: [*rejected, replaced]}) == "short"
    # The same batch twice.
    assert state_of(source, sent, 89, rejected={START: [*rejected, *rejected]}) == "short"


def test_after_a_change_of_the_window_the_newest_report_decides():
    hourly, exact = source_of("1h"), source_of("5m")
    reports = [report(hourly, {0: 100}, as_of=60, through=60), report(exact, {0: 70, 5: 20}, as_of=70, through=60)]
    assert state_of(exact, reports, 90) == "complete"
    assert state_of(exact, reports[:1], 100) == "complete"


@pytest.mark.parametrize(("day", "hours"), [("2026-03-08", 23), ("2026-11-01", 25), ("2026-06-01", 24)])
def test_days_have_the_hours_of_their_timezone(day, hours):
    source = source_of("day", timezone="America/New_York")
    now = datetime.fromisoformat(f"{day}T00:00Z") + timedelta(days=2)
    document = {"as_of": now.isoformat(), "through": now.isoformat(), "counts": {day: 100}}
    sent = read_report(json.dumps(document).encode(), source, principal="p", now=now)
    start = sent.covers_from
    whole = [start + number * HOUR for number in range(hours)]
    [period] = evaluate(source, [sent], dict.fromkeys(whole, 4), hours=whole)
    assert (period.end - period.start, period.sent, period.stored) == (hours * HOUR, 100, 4 * hours)
    # A part of the day says nothing about it.
    [part] = evaluate(source, [sent], dict.fromkeys(whole, 100), hours=whole[1:])
    assert (part.state, part.sent) == ("unknown", 100)


def test_the_line_has_the_numbers_of_the_known_periods():
    source = source_of("1h")
    sent = report(source, {0: 900_000, 60: 100_000}, as_of=120, through=120)
    rejected = {START: [RejectedEvents("a", {ALL: (500,) + (0,) * 11})]}
    stored = {START: 899_412, START + HOUR: 100_000}
    periods = evaluate(source, [sent], stored, rejected=rejected, hours=[START, START + HOUR])
    total = total_counts(source, periods)
    assert total.line == "sent 1,000,000, stored 999,412, rejected 500, missing 88"
    assert (total.state, total.unknown) == ("short", 0)
    more = total_counts(source, evaluate(source, [sent], stored, rejected=rejected))
    assert more.line == f"{total.line}, no counts for 1 of 3 hours"
    assert more.state == "short"
    nothing = total_counts(source, evaluate(source, [], stored))
    assert (nothing.line, nothing.state) == ("no counts of the source", "unknown")
    surplus = total_counts(source, evaluate(source, [sent], {START: 900_001, START + HOUR: 100_000}))
    assert surplus.line.startswith("sent 1,000,000, stored 1,000,001, rejected 0, surplus 1, no counts")


def test_a_surplus_makes_up_for_no_missing_event():
    source = source_of("1h")
    sent = report(source, {0: 10, 60: 10}, as_of=120, through=120)
    total = total_counts(source, evaluate(source, [sent], {START: 9, START + HOUR: 11}, hours=[START, START + HOUR]))
    assert (total.state, total.missing, total.surplus) == ("short", 1, 1)
