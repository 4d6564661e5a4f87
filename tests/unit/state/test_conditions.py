"""What a run waits for, against a second evaluation that shares nothing with it but the facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.state.completeness import CountState, SourceCounts
from slackwater.state.conditions import (
    CompleteSource,
    FailedInput,
    Limit,
    NewerInput,
    Outcome,
    PublishedDays,
    describe_unmet,
    end_of_wait,
    evaluate,
)
from slackwater.state.verdicts import Subject, new_verdict

pytestmark = pytest.mark.unit

END = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def counts(hours):
    """Return the totals of hours: `None` is one without counts, and a number how many of 10 events are stored."""
    known = [stored for stored in hours if stored is not None]
    is_short = any(stored < 10 for stored in known)
    unknown = len(hours) - len(known)
    state = CountState.SHORT if is_short else CountState.UNKNOWN if unknown or not hours else CountState.COMPLETE
    return SourceCounts(
        source="clicks",
        state=state,
        sent=10 * len(known),
        stored=sum(known),
        rejected=0,
        missing=sum(10 - stored for stored in known),
        surplus=0,
        unit="hour",
        periods=len(hours),
        unknown=unknown,
    )


def a_failure(hour, reason="bots", *, minute=0):
    """Return a verdict about an hour, given at a minute."""
    at = END + timedelta(minutes=minute)
    return new_verdict(
        Subject("source", "clicks"),
        f"2026-01-01T{hour:02d}",
        "fail",
        version=None,
        reason=reason,
        principal="ana",
        at=at,
    )


hours_of_clicks = st.lists(st.sampled_from([None, 9, 10]), max_size=4)
ages = st.none() | st.integers(0, 48)
missing_days = st.lists(st.integers(1, 9), max_size=3, unique=True).map(sorted)
limits = st.tuples(st.integers(1, 30), st.sampled_from(["run", "fail"]))


def second_outcome(inputs, unknown, incomplete, at):
    """Evaluate in plain Python: the limits of what is missing, as (hours, then)."""
    hours, age, days, failures = inputs
    pending = [(incomplete[0], "fail")] if failures else []
    if None in hours or hours == []:
        pending.append(unknown)
    if 9 in hours or age is None or age > 24 or days:
        pending.append(incomplete)
    if not pending:
        return "ready"
    if any(then == "fail" and after <= at for after, then in pending):
        return "fail"
    if any(after > at for after, _ in pending):
        # A limit with `fail` that is still to come does not let the run start either.
        return "wait"
    return "run"


@given(st.tuples(hours_of_clicks, ages, missing_days, st.integers(0, 2)), limits, limits, st.integers(0, 31))
def test_a_second_evaluation_agrees(inputs, unknown, incomplete, at):
    hours, age, days, failures = inputs
    now = END + at * HOUR
    facts = [
        CompleteSource("clicks", counts(hours)),
        NewerInput("rates", None if age is None else now - age * HOUR, timedelta(hours=24)),
        PublishedDays("days", "daily", 7, tuple(f"2026-01-0{day}" for day in days)),
        FailedInput("clicks", tuple(a_failure(hour) for hour in range(failures))),
    ]
    as_limit = [Limit(END + after * HOUR, then) for after, then in (unknown, incomplete)]
    evaluation = evaluate(facts, unknown=as_limit[0], incomplete=as_limit[1], now=now)
    assert evaluation.outcome == second_outcome(inputs, unknown, incomplete, at)
    assert bool(evaluation.unmet) is (evaluation.outcome is not Outcome.READY)
    if evaluation.outcome is Outcome.WAIT:
        # What it says about the end of the wait is what happens then, if nothing changes.
        at_, then = end_of_wait(evaluation.unmet)
        assert at_ > now
        later = [
            fact._replace(newest=at_ - (now - fact.newest)) if isinstance(fact, NewerInput) and fact.newest else fact
            for fact in facts
        ]
        assert evaluate(later, unknown=as_limit[0], incomplete=as_limit[1], now=at_).outcome == then


def test_people_read_what_is_missing():
    limit = Limit(END, "run")
    facts = [
        CompleteSource("clicks", counts([None, 9, 10])),
        CompleteSource("views", counts([None, None])),
        NewerInput("rates", END - 25 * HOUR, timedelta(hours=24)),
        NewerInput("prices", None, timedelta(hours=24)),
        PublishedDays("days", "daily", 9, tuple(f"2026-01-0{day}" for day in range(1, 10))),
        FailedInput(
            "clicks", (a_failure(2), a_failure(1), *(a_failure(hour, "cents", minute=1) for hour in range(24)))
        ),
        FailedInput("views", tuple(a_failure(hour, f"reason {hour}", minute=hour) for hour in range(5))),
    ]
    assert describe_unmet(evaluate(facts, unknown=limit, incomplete=limit, now=END).unmet) == (
        "clicks: sent 20, stored 19, rejected 0, missing 1, no counts for 1 of 3 hours",
        "clicks: no counts for 1 of 3 hours",
        "views: no counts of the source",
        "rates: its newest data is of 2025-12-31 23:00 UTC",
        "prices: it has no data",
        "days: daily has not published 2026-01-01, 2026-01-02, 2026-01-03, 2026-01-04, 2026-01-05, 2026-01-06, "
        "2026-01-07 and 2 more of 9 days",
        "clicks: clicks 2026-01-01 01:00 UTC, 2026-01-01 02:00 UTC: fail, by ana since 2026-01-02 00:00 UTC: bots; "
        "clicks 2026-01-01 00:00 UTC and 23 more hours: fail, by ana since 2026-01-02 00:01 UTC: cents",
        "views: clicks 2026-01-01 00:00 UTC: fail, by ana since 2026-01-02 00:00 UTC: reason 0; "
        "clicks 2026-01-01 01:00 UTC: fail, by ana since 2026-01-02 00:01 UTC: reason 1; "
        "clicks 2026-01-01 02:00 UTC: fail, by ana since 2026-01-02 00:02 UTC: reason 2; and 2 more",
    )
