"""A model of late data: whatever arrives, vanishes, runs, crashes and is decided, in any order, ends as documented."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from slackwater.errors import InputError, SlackwaterError
from slackwater.late.decision import LateDecision
from slackwater.pipeline.definition import StepUse
from slackwater.pipeline.when import When
from slackwater.sources.rejected_events import hours_metadata, rejects_prefix
from tests.fakes_check import PIPELINE
from tests.fakes_notification import Crashed
from tests.late_counts import SOURCE, LateCounts
from tests.late_history import DATES
from tests.late_processes import FAULTS, Process, Turns
from tests.late_world import OUTCOMES, STEPS, USD_PER_ROW, run_twice
from tests.models import model_settings

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

SIZES = (3, 9, 30, 400)
"""Rows of an object: the thresholds of flights are 1 percent and 10 rows, and any rows of weather are late."""

LIMITS = (
    {},
    {},
    {"max_reruns_per_day": 1},
    {"budget_per_day": 4_500 * USD_PER_ROW},
    {"worth_per_percent": 100 * USD_PER_ROW},
    {"max_age_hours": 5},
)

OTHER_STEPS = {"delays_by_carrier": StepUse(step="sort", depends_on=("flights",))}
BOTH = {"sources": ("flights", "weather")}
DEFINITIONS = (
    BOTH | {"timezone": "America/New_York", "steps": STEPS},
    BOTH | {"timezone": "America/New_York", "steps": OTHER_STEPS},
    # The hour of pushed events is in the same day as before, and those of files are in the next one.
    BOTH | {"timezone": "Etc/GMT-6", "steps": STEPS},
    {"sources": ("flights",), "timezone": "America/New_York", "steps": STEPS},
)

WAITS = (
    {"unknown": {"after": "4h", "then": "fail"}, "incomplete": {"after": "12h", "then": "run"}},
    {"unknown": {"after": "9h", "then": "run"}, "incomplete": {"after": "6h", "then": "fail"}},
    {"unknown": {"after": "1h", "then": "run"}, "incomplete": {"after": "14h", "then": "run"}},
    {"unknown": {"after": "3h", "then": "fail"}, "incomplete": {"after": "8h", "then": "fail"}},
)

# Of the calls of two processes.
orders = st.lists(st.integers(0, 1), min_size=1, max_size=50)
dates, sizes, names = st.sampled_from((*DATES[:1] * 4, *DATES)), st.sampled_from(SIZES), st.sampled_from("bcdefg")
outcomes = st.sampled_from(("published", "published", *OUTCOMES))
faults = st.one_of(
    st.builds(Process),
    st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)),
    # The notification of a monitoring that runs one day again.
    st.builds(Process, at=st.integers(12, 20), fault=st.sampled_from(FAULTS)),
)

works = st.tuples(
    st.sampled_from(("monitor", "monitor", "monitor", "run", "release", "reject", "roll back")),
    st.sampled_from(("published", "published", *OUTCOMES)),
    faults,
)


class LateData(LateCounts, RuleBasedStateMachine):
    @initialize(
        on_removed=st.sampled_from(("keep", "hold", "drop")), limits=st.sampled_from(LIMITS),
        on_definition=st.sampled_from(("keep", "rerun")), has_counts=st.booleans(), when=st.sampled_from(WAITS),
    )  # fmt: skip
    def publish_the_finished_days(
        self, on_removed: str, limits: dict[str, float], on_definition: str, *, has_counts: bool, when: dict[str, Any]
    ) -> None:
        self.on_removed, self.limits, self.on_definition = on_removed, limits, on_definition
        self.begin_reports(has_counts=has_counts, when=when)
        self.world.set_late(on_removed={"flights": on_removed}, on_definition=on_definition, **limits)
        for date in DATES[:2]:
            self.fetch(date, "a", 1000)
            self.push(date, "a", 1000)
            self.pull(date, "a", 1000)
            self.world.run_day(date)
        self.observe()

    # What the sources do

    @rule(date=dates, name=names, rows=sizes)
    def push(self, date: str, name: str, rows: int) -> None:
        self.world.arrive(self.world.add("weather", date, "17", name=f"{name}-{rows}", rows=rows))

    @rule(date=dates, name=names, rows=sizes)
    def pull(self, date: str, name: str, rows: int) -> None:
        """A file arrives, or replaces the one of the same name: its objects are named by their content."""
        prefix, store = f"s3://raw/raw/source=flights/date={date}/hour=18/{name}-", self.world.store
        store.delete([uri for uri in store.objects if uri.startswith(prefix)])
        store.put(f"{prefix}{rows}.parquet", b"x" * rows, metadata={"rows": str(rows), "file": f"{name}.csv"})
        self.world.arrive(f"{prefix}{rows}.parquet")

    @rule(date=dates, rows=sizes)
    def reject_events(self, date: str, rows: int) -> None:
        """The receiver rejects events of a day."""
        today = self.world.time.date().isoformat()
        uri = f"{rejects_prefix('raw', 'flights', today)}{len(self.rejected)}.jsonl"
        self.world.store.put(uri, b"x" * rows, metadata=hours_metadata({f"{date}T17": rows}))
        self.rejected[uri] = date, rows, self.world.time

    @rule(date=dates, name=st.sampled_from("aabc"), rows=sizes)
    def fetch(self, date: str, name: str, rows: int) -> None:
        """A pull fetches a file, or its new content."""
        self.withdrawn.discard(self.world.fetched.get(f"{name}-{date}.csv"))
        path = f"{name}-{date}.csv"
        uri = self.world.fetch("flights", date, path, rows)
        self.files[uri] = path
        self.world.arrive(uri)

    @rule(date=dates, name=st.sampled_from("abc"), is_removed=st.sampled_from((True, True, False)))
    def withdraw(self, date: str, name: str, is_removed: bool) -> None:
        """A pull records that the partner does not list a file any more, or lists it again."""
        path = f"{name}-{date}.csv"
        if uri := self.world.fetched.get(path):
            self.world.withdraw("flights", path, is_removed=is_removed)
            (self.withdrawn.add if is_removed else self.withdrawn.discard)(uri)
            self.ever_withdrawn.add(path)

    @rule(date=dates, rows=sizes)
    def fetch_and_withdraw(self, date: str, rows: int) -> None:
        self.fetch(date, "a", rows)
        self.withdraw(date, "a", True)

    @rule(date=dates, number=st.integers(0, 9))
    def remove(self, date: str, number: int) -> None:
        if present := sorted(self.raw(date)):
            uri = present[number % len(present)]
            body, metadata, _ = self.world.store.objects.pop(uri)
            self.removed[uri] = body, metadata

    @rule(date=dates, number=st.integers(0, 9))
    def remove_and_run(self, date: str, number: int) -> None:
        self.remove(date, number)
        self.run(date, "published", False, Process())

    @precondition(lambda self: self.removed)
    @rule()
    def restore(self) -> None:
        uri, (body, metadata) = self.removed.popitem()
        if uri in self.files and uri not in self.world.fetched.values():
            return  # The file has got another content.
        # A file has one content: the objects of an earlier one do not return next to those of a later one.
        if "source=flights" in uri:
            content = uri.rpartition("-")[0]
            self.world.store.delete([other for other in self.world.store.objects if other.startswith(f"{content}-")])
        self.world.store.put(uri, body, metadata=metadata)
        self.world.arrive(uri)

    @precondition(lambda self: self.has_counts)
    @rule(
        date=dates, difference=st.sampled_from((0, 0, 0, 3, 9, -5, 400)), age=st.sampled_from((0, 0, 0, 3)),
        through=st.sampled_from((0, 24, 24)), first=st.sampled_from((1, 24)), process=faults,
    )  # fmt: skip
    def report(self, date: str, difference: int, process: Process, **covers: int) -> None:
        """The partner reports how many events it has sent, of which some have not arrived."""
        self.put_report(date, difference, **covers)
        self.scheduled.wake_source(SOURCE, self.reports[-1].counts, process)
        self.may_wait |= bool(process.at)
        self.go_on()

    @precondition(lambda self: self.has_counts)
    @rule(date=dates, name=names, rows=sizes, difference=st.sampled_from((0, 0, 3, 9)), process=faults)
    def push_a_part(self, date: str, name: str, rows: int, difference: int, process: Process) -> None:
        """Late events arrive, and the partner has sent more."""
        self.push(date, name, rows)
        self.report(date, difference, Process())
        self.monitor("published", process, None, None)

    @precondition(lambda self: self.has_counts)
    @rule(rows=sizes, lacks=st.sampled_from((0, 0, 3)), is_reported_first=st.booleans(), process=faults)
    def schedule_and_push(self, rows: int, lacks: int, is_reported_first: bool, process: Process) -> None:
        """A scheduled run of the present day waits; its last events arrive, before or after their report."""
        date = DATES[-1]
        if is_reported_first:
            self.report(date, rows + lacks, Process())
        self.schedule(date, process)
        self.push(date, f"last{len(self.reports)}", rows)
        self.receive_messages(Process())
        if not is_reported_first:
            self.report(date, lacks, process)

    @rule(hours=st.sampled_from((0.2, 0.5, 0.7, 2, 2, 5, 20, 20, 170)))
    def wait(self, hours: float) -> None:
        self.world.time += timedelta(hours=hours)
        # Waiting runs are evaluated again after 15 minutes.
        self.scheduled.time_out()
        self.may_wait = False
        self.go_on()

    # What people and schedules do

    @rule(definition=st.sampled_from(DEFINITIONS))
    def deploy(self, definition: dict[str, Any]) -> None:
        """The definition changes: another timezone, an added or a removed source, or other steps."""
        waits = self.has_counts and SOURCE in definition["sources"]
        self.world.define(**definition, when=self.when if waits else When())
        self.may_wait = True

    @rule(date=dates, outcome=outcomes, force=st.booleans(), moves_hours=st.booleans(), process=faults)
    def run(self, date: str, outcome: str, force: bool, process: Process, moves_hours: bool = False) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.run_day(date, outcome, process, force=force, moves_hours=moves_hours)
        self.observe()

    @precondition(lambda self: self.has_counts)
    @rule(date=dates, process=faults)
    def schedule(self, date: str, process: Process) -> None:
        """An execution waits for its inputs, and runs its day."""
        self.scheduled.schedule(date, process)
        self.may_wait |= bool(process.at)
        self.go_on()

    def go_on(self) -> None:
        """The executions that may go on run their days."""
        if not self.may_wait and not self.world.messages:
            self.scheduled.no_wake_up_is_lost()
        self.scheduled.run_days()
        self.observe()

    @rule(date=dates)
    def start(self, date: str) -> None:
        """An execution freezes its inputs, and is still running."""
        if date in self.started:
            return
        execution = self.world.execution("pipeline", Process())
        with suppress(SlackwaterError):
            run, _ = self.world.freeze_day(date, execution.__enter__(), Process())
            if run:
                self.started[date] = execution, run
                return
        execution.__exit__(None, None, None)

    @rule(date=dates, outcome=outcomes, process=faults)
    def end(self, date: str, outcome: str, process: Process) -> None:
        if date in self.started:
            execution, run = self.started.pop(date)
            name = self.world.table.run(PIPELINE, date, run.attempt).execution
            process.stop = lambda: self.world.executions.running.discard(name)
            with suppress(SlackwaterError, Crashed):
                self.world.finish(run, outcome, process)
            execution.__exit__(None, None, None)
            self.observe()

    @rule(date=dates, number=st.integers(0, 3), outcome=st.sampled_from(("published", OUTCOMES[-1])), process=faults)
    def roll_back(self, date: str, number: int, outcome: str, process: Process) -> None:
        versions = sorted(attempt for each, attempt in self.recorded if each == date)[:-1]
        with suppress(SlackwaterError, Crashed):
            to = versions[number % len(versions)] if versions else 1
            self.world.run_day(date, outcome, process, rollback=to, reason="r")
        self.observe()

    @rule(date=dates, run=st.booleans())
    def release(self, date: str, run: bool) -> None:
        with suppress(SlackwaterError):
            force = self.world.hold_decisions().release(PIPELINE, date, reason="r")
            self.decide(date)
            self.released.add((date, frozenset(self.raw(date))))
            # Without the run, the next check starts it.
            if run or force:
                self.world.run_day(date, force=force)
        self.observe()

    @rule(date=dates)
    def reject(self, date: str) -> None:
        with suppress(SlackwaterError):
            self.world.hold_decisions().keep(PIPELINE, date, reason="r")
            self.decide(date)

    @rule(outcome=outcomes, process=faults, one=st.none() | dates, arrives=st.none() | st.tuples(dates, names, sizes))
    def monitor(self, outcome: str, process: Process, one: str | None, arrives: tuple[str, str, int] | None) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.monitor(
                dates=[one] if one else None, outcome=outcome, process=process,
                meanwhile=lambda: self.push(*arrives) if arrives else None,
            )  # fmt: skip
        self.is_interrupted |= 0 < process.at <= process.writes
        self.observe()

    @rule(process=faults)
    def receive_messages(self, process: Process) -> None:
        """The queue of arrivals delivers its messages."""
        with suppress(Crashed):
            self.world.receive_messages(process)
        self.go_on()

    @rule(date=dates, name=names, rows=sizes, process=faults)
    def push_and_monitor(self, date: str, name: str, rows: int, process: Process) -> None:
        self.push(date, name, rows)
        self.monitor("published", process, None, None)

    @rule(date=dates, name=names, rows=sizes, process=faults)
    def pull_and_monitor(self, date: str, name: str, rows: int, process: Process) -> None:
        self.pull(date, name, rows)
        self.monitor("published", process, None, None)

    @rule(date=dates, works=st.tuples(works, works), order=orders)
    def do_two_things_at_once(self, date: str, works: Any, order: list[int]) -> None:
        turns = Turns(order)
        for number, (*_, process) in enumerate(works):
            process.turns, process.number = turns, number
        turns.run(*(partial(self.work, date, *work) for work in works))
        self.is_interrupted |= any(0 < process.at <= process.writes for *_, process in works)
        self.observe()

    @rule(date=dates, at=st.integers(1, 6), order=orders)
    def take_over_a_stopped_execution(self, date: str, at: int, order: list[int]) -> None:
        self.world.take_over(date, at, order)
        self.observe()

    @rule(late=st.tuples(dates, names, sizes), has_run=st.booleans(), at=st.integers(1, 24), order=orders)
    def take_over_a_stopped_monitoring(
        self, late: tuple[str, str, int], has_run: bool, at: int, order: list[int]
    ) -> None:
        """Two monitorings run a day with late data again, or notify people of its run. The first one is stopped."""
        self.push(*late)
        if has_run:
            self.run(late[0], "published", False, Process())
        run_twice(self.world.monitor, at, order)
        self.is_interrupted = True
        self.observe()

    def work(self, date: str, kind: str, outcome: str, process: Process) -> None:
        world = self.world
        if kind == "monitor":
            world.monitor(outcome=outcome, process=process)
        elif kind == "run":
            world.run_day(date, outcome, process, force=True)
        elif kind == "roll back":
            world.run_day(date, "published", process, rollback=1, reason="r")
        elif kind == "release":
            try:
                force = world.hold_decisions_of(process).release(PIPELINE, date, reason="r")
            finally:
                # A process that ends may have recorded the decision before.
                self.decide(date)
                made = world.table.day(PIPELINE, date).resolution
                if made and made.action == "released":
                    self.released.add((date, frozenset(self.raw(date))))
            world.run_day(date, outcome, process, force=force)
        else:
            try:
                world.hold_decisions_of(process).keep(PIPELINE, date, reason="r")
            finally:
                self.decide(date)

    # What is true then

    def teardown(self) -> None:
        world = self.world
        for execution, _ in self.started.values():
            execution.__exit__(None, None, None)
        assert not world.executions.running
        world.time += timedelta(hours=25)
        self.scheduled.time_out()
        self.scheduled.each_goes_on_once()
        self.scheduled.run_days()
        self.rest()
        self.settle_older_days()
        self.rest()
        first = self.first_day()
        self.each_day_has_its_inputs(first)
        self.no_version_is_lost()
        self.nothing_is_lost_without_a_decision()
        self.people_know_each_version()
        self.people_know_each_definition()
        self.the_ledger_has_each_late_input(first)
        self.the_ledger_has_each_effect()
        self.the_ledger_has_each_rejected_event()
        self.the_counters_are_those_of_the_ledger()
        self.the_limits_hold()

    def rest(self) -> None:
        """Receive all messages, and check the window until nothing changes any more."""
        world = self.world
        for _ in range(12):
            before = self.state()
            world.receive_messages()
            self.report = world.monitor()
            is_deferred = any(day.decision is LateDecision.DEFER for day in self.report.days)
            world.time += timedelta(hours=12 if is_deferred else 2)
            if self.state() == before and not is_deferred:
                break
        else:
            raise AssertionError("the checks do not come to rest")
        self.observe()

    def first_day(self) -> str:
        """Return the first day of the window."""
        return self.report.days[0].date

    def settle_older_days(self) -> None:
        """A person runs the days before the window of which late data is known: they must be on the list."""
        world, first = self.world, self.first_day()
        for date in DATES:
            day = world.table.day(PIPELINE, date)
            if date >= first or day.published is None or (day.hold and day.hold.rule == "rolled_back"):
                continue
            # The person whose run has ended without an outcome runs the day again.
            is_unknown = day.outcome_unknown or day.active
            if not is_unknown and not day.hold and not self.is_kept(date, is_older=True):
                assert world.table.late_day(PIPELINE, date), f"{date} is before the window, and not on its list"
            if is_unknown or day.hold or world.table.late_day(PIPELINE, date):
                try:
                    world.run_day(date)
                except InputError:
                    # The day has lost rows.
                    world.run_day(date, force=self.release_present_inputs(date))
                    self.decide(date)
                    self.released.add((date, frozenset(self.raw(date))))
                assert not world.table.late_day(PIPELINE, date), date
                assert self.published_rows(date) == self.raw(date), date

    def release_present_inputs(self, date: str) -> bool:
        decisions, is_held = self.world.hold_decisions(), self.world.table.day(PIPELINE, date).hold
        try:
            return decisions.release(PIPELINE, date, reason="r")
        except InputError:
            # They have changed since a release whose run has not published: the person reads the present reason now.
            assert not is_held
            assert self.world.table.day(PIPELINE, date).hold
            return decisions.release(PIPELINE, date, reason="r")

    def state(self) -> tuple:
        world = self.world
        days = [day.model_copy(update={"version": 0}) for day in world.table.by_day.values()]
        return days, dict(world.warehouse.days), len(world.topic.sent), len(world.ledger.rows), len(world.alarms)


TestLateData = LateData.TestCase
TestLateData.settings = model_settings(examples=120, steps=25)
