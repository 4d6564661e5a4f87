"""Waiting runs: each goes on once, never early, and no wake-up is lost, in any order of the calls and with crashes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import CloudError
from slackwater.state.conditions import Evaluation, FailedInput, Limit, Outcome, PublishedDays, evaluate
from slackwater.state.verdicts import Subject, Verdict, failures, new_verdict
from slackwater.state.waits import DayKey, WaitingRun, Waits
from tests.fakes_interleaving import take_turns
from tests.fakes_state import MemoryVerdicts
from tests.fakes_waits import MemoryWaits, Tasks

pytestmark = pytest.mark.unit

END = datetime(2026, 1, 2, tzinfo=UTC)
WEEK = DayKey("weekly", "2026-01-01")
DATES = ("2025-12-30", "2025-12-31", "2026-01-01")
CLICKS, NOON = Subject("source", "clicks"), "2026-01-01T12"


class Days:
    """Published days and verdicts about an hour: what the run of `WEEK` waits for."""

    def __init__(self, then: str = "fail") -> None:
        self.published: set[str] = set()
        self.verdicts = MemoryVerdicts()
        self.now, self.then = END, then

    def publish(self, date: str) -> None:
        self.published.add(date)

    def evaluate(self, key: DayKey) -> Evaluation:
        missing = tuple(date for date in DATES if date not in self.published)
        limit = Limit(END + timedelta(hours=12), self.then)
        facts = [PublishedDays("days", "daily", len(DATES), missing), FailedInput("clicks", self.failures)]
        return evaluate(facts, unknown=limit, incomplete=limit, now=self.now)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        return tuple(failures(self.verdicts.verdicts(CLICKS, NOON, NOON)))

    def give(self, verdict: Verdict) -> None:
        self.verdicts.put_verdicts([verdict])

    def of_day(self, pipeline: str, date: str) -> Iterator[DayKey]:
        if (pipeline, date in DATES) == ("daily", True):
            yield WEEK

    def of_source(self, source: str, hours: object) -> Iterator[DayKey]:
        if source == "clicks":
            yield WEEK

    def of_verdict(self, subject: Subject, periods: object) -> Iterator[DayKey]:
        if (subject, periods) == (CLICKS, [NOON]):
            yield WEEK


class Fuse:
    """Ends a process before its n-th write; those of all processes are counted."""

    def __init__(self, blows: set[int] = frozenset()) -> None:
        self.blows, self.writes = blows, 0

    def before(self, method):
        def call(*arguments, **named):
            self.writes += 1
            if self.writes in self.blows:
                raise CloudError("the process ends here")
            return method(*arguments, **named)

        return call


def waits_of(table, tasks, days) -> Waits:
    return Waits(table=table, tasks=tasks, days=days, evaluate=days.evaluate)


def turn(tasks: Tasks, execution: str, waits: Waits) -> Evaluation:
    """Run the waiting state of an execution once more: with a new token, as Step Functions does."""
    token = tasks.start(execution)
    return waits.wait(WaitingRun(*WEEK, execution=execution, token=token, since=END))


def a_verdict(quality: str, minute: int) -> Verdict:
    at = END + timedelta(minutes=minute)
    return new_verdict(CLICKS, NOON, quality, version=None, reason="bots", principal="ana", at=at)


orders = st.lists(st.integers(0, 5), max_size=80)


@given(orders, st.sets(st.integers(1, 30), max_size=3))
def test_in_any_order_each_run_goes_on_once_and_never_early(order, crashes):
    table, tasks, days, fuse = MemoryWaits(), Tasks(), Days(), Fuse(crashes)
    early = []
    tasks.on_success = lambda: early.append(set(DATES) - days.published)

    def ports(wrap):
        shared_table, shared_tasks, shared_days = MemoryPorts(table, fuse), MemoryPorts(tasks, fuse), days
        return waits_of(wrap(shared_table), wrap(shared_tasks), wrap(shared_days))

    def publish(date, wrap):
        wrap(days).publish(date)
        ports(wrap).wake_day("daily", date)

    def run(execution, wrap):
        turn(tasks, execution, ports(wrap))

    works = [partial(publish, date) for date in DATES] + [partial(run, name) for name in ("a", "b")]
    take_turns(works, order, after_each=lambda: None)
    if not crashes or fuse.writes < min(crashes):
        assert tasks.succeeded == {"a": 1, "b": 1}  # no wake-up is lost
        assert table.runs == {}
    fuse.blows = set()
    for execution in ("a", "b"):
        if not tasks.succeeded.get(execution):
            turn(tasks, execution, waits_of(table, tasks, days))  # 15 minutes later
    assert tasks.succeeded == {"a": 1, "b": 1}
    assert early == [set(), set()]
    # What is left over of crashed processes is removed by the next wake-up, and starts nothing.
    waits_of(table, tasks, days).wake_day("daily", DATES[0])
    assert (tasks.succeeded, table.runs) == ({"a": 1, "b": 1}, {})


qualities = st.lists(st.sampled_from(["fail", "pass"]), max_size=3)


@given(orders, st.sets(st.integers(1, 30), max_size=3), qualities)
def test_a_verdict_wakes_runs_as_a_published_day_does(order, crashes, qualities):
    """The verdicts are given in any order, each by another process; the last of them by time is `pass`."""
    table, tasks, days, fuse = MemoryWaits(), Tasks(), Days(), Fuse(crashes)
    early = []
    tasks.on_success = lambda: early.append((set(DATES) - days.published, days.failures))
    # The first one is there before: no run can start without another one.
    first, *others = [a_verdict(quality, minute) for minute, quality in enumerate(["fail", *qualities, "pass"])]
    days.give(first)

    def ports(wrap):
        return waits_of(wrap(MemoryPorts(table, fuse)), wrap(MemoryPorts(tasks, fuse)), days)

    def give(verdict, wrap):
        wrap(days).give(verdict)
        wrap(days).give(verdict)  # a repeated call
        ports(wrap).wake_verdict(CLICKS, [NOON])

    def publish(date, wrap):
        wrap(days).publish(date)
        ports(wrap).wake_day("daily", date)

    def run(execution, wrap):
        turn(tasks, execution, ports(wrap))

    works = [partial(give, verdict) for verdict in others] + [partial(publish, date) for date in DATES]
    take_turns([*works, *(partial(run, name) for name in ("a", "b"))], order, after_each=lambda: None)
    if not crashes or fuse.writes < min(crashes):
        assert tasks.succeeded == {"a": 1, "b": 1}  # no wake-up is lost
        assert table.runs == {}
    fuse.blows = set()
    for execution in ("a", "b"):
        if not tasks.succeeded.get(execution):
            turn(tasks, execution, waits_of(table, tasks, days))
    assert tasks.succeeded == {"a": 1, "b": 1}
    if not any(verdict.is_failure for verdict in others):  # otherwise one may come after a run has been evaluated
        assert early == [(set(), ()), (set(), ())]


class MemoryPorts:
    """A port whose writes a fuse counts."""

    _WRITES = frozenset({"put_wait", "save_unmet", "remove_wait", "succeed", "fail"})

    def __init__(self, port, fuse: Fuse) -> None:
        self._port, self._fuse = port, fuse

    def __getattr__(self, name):
        method = getattr(self._port, name)
        return self._fuse.before(method) if name in self._WRITES else method


@pytest.fixture
def world():
    table, tasks, days = MemoryWaits(), Tasks(), Days()
    return table, tasks, days, waits_of(table, tasks, days)


def test_a_run_without_unmet_conditions_goes_on_at_once(world):
    table, tasks, days, waits = world
    days.published = set(DATES)
    assert turn(tasks, "a", waits).outcome is Outcome.READY
    assert (tasks.outputs, table.runs) == ([{"missing": ""}], {})


def test_what_a_run_waits_for_is_stored_and_follows(world):
    table, tasks, days, waits = world
    turn(tasks, "a", waits)
    [stored] = table.waits(WEEK)
    assert stored.unmet[0].text == "daily has not published 2025-12-30, 2025-12-31, 2026-01-01 of 3 days"
    days.publish(DATES[0])
    waits.wake_source("clicks")
    [stored] = table.waits(WEEK)
    assert stored.unmet[0].text == "daily has not published 2025-12-31, 2026-01-01 of 3 days"
    assert tasks.succeeded == {}


def test_a_run_that_may_wait_no_longer_fails_with_what_is_missing(world):
    table, tasks, days, waits = world
    days.published, days.now = set(DATES[1:]), END + timedelta(hours=12)
    turn(tasks, "a", waits)
    assert tasks.failures == [
        (
            "InputsMissing",
            "2026-01-01 has waited for its inputs for as long as it may: "
            "days: daily has not published 2025-12-30 of 3 days",
        )
    ]
    assert table.runs == {}


def test_or_runs_and_is_told_what_is_missing(world):
    _, tasks, days, waits = world
    days.published, days.now, days.then = set(DATES[1:]), END + timedelta(hours=12), "run"
    turn(tasks, "a", waits)
    assert tasks.outputs == [{"missing": "days: daily has not published 2025-12-30 of 3 days"}]


def test_a_token_of_a_state_that_timed_out_is_refused_and_the_present_one_stays(world):
    table, tasks, days, waits = world
    turn(tasks, "a", waits)
    [old] = table.waits(WEEK)
    turn(tasks, "a", waits)
    days.published = set(DATES)
    waits._settle(old, Evaluation(Outcome.READY))  # a wake-up that has read the table before
    assert (tasks.succeeded, len(table.runs)) == ({}, 1)
    waits.wake_day("daily", DATES[0])
    assert (tasks.succeeded, table.runs) == ({"a": 1}, {})


def test_a_day_that_cannot_be_evaluated_stops_no_other(world):
    table, tasks, days, _ = world
    other = DayKey("broken", "2026-01-01")

    def evaluate_or_fail(key):
        if key == other:
            raise CloudError("S3 does not answer")
        return days.evaluate(key)

    class Both(Days):
        def of_day(self, pipeline, date):
            return [other, WEEK]

    waits = Waits(table=table, tasks=tasks, days=Both(), evaluate=evaluate_or_fail)
    turn(tasks, "a", waits)
    table.put_wait(WaitingRun(*other, execution="b", token=tasks.start("b"), since=END))
    days.published = set(DATES)
    with pytest.raises(CloudError, match="S3 does not answer"):
        waits.wake_day("daily", DATES[0])
    assert tasks.succeeded == {"a": 1}
