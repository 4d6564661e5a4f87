"""The open day is published again and again: its versions are provisional until the last run of the day."""

from __future__ import annotations

import random
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from slackwater.errors import InputError
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Late, Schedule
from slackwater.pipeline.live import Live
from slackwater.runs.freeze import FreezeAction, Frozen
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Run, RunReason, RunState
from tests.fakes_check import NOW, PIPELINE, PUBLICATION, World, freezer_of, make_hourly
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import Crash

pytestmark = pytest.mark.unit

DAY, END = "2013-03-13", datetime(2013, 3, 14, 4, tzinfo=UTC)
"""A day of New York, and its end."""


class LiveWorld(World):
    """A world whose pipeline publishes its open day."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        definition = self.project.pipelines[PIPELINE]
        live = definition.model_copy(update={"live": Live(every="5m"), "late": Late(window_days=2)} | changes)
        self.project = self.project.model_copy(update={"pipelines": {PIPELINE: live}})
        self.messages: list[str] = []
        self.woken_days: list[str] = []

    def frozen(
        self, date: str = DAY, *, process: Process | None = None, execution: str = "run", **options: Any
    ) -> Frozen:
        freezer = freezer_of(self if process is None else self.seen_by(process))
        return freezer.freeze(pipeline=PIPELINE, date=date, execution=execution, correlation_id="c", **options)

    def seen_by(self, process: Process) -> World:
        seen = copy(self)
        seen.table, seen.store = process.using(self.table), process.using(self.store)
        return seen

    def record(self, run: Run, process: Process | None = None) -> None:
        table = self.table if process is None else process.using(self.table)
        RunRecorder(
            store=self.store,
            table=table,
            now=self.now,
            arrivals=lambda messages: self.messages.extend(body for body, _ in messages),
            wake_day=lambda _, date: self.woken_days.append(date),
            verdicts=self.pipeline_verdicts,
        ).record_published(run)

    def run(self, date: str = DAY, **options: Any) -> Frozen:
        """Run a day as its state machine does."""
        frozen = self.frozen(date, **options)
        if frozen.action in {FreezeAction.RUN, FreezeAction.FINISH} and frozen.run:
            if frozen.action is FreezeAction.RUN:
                self.commit(frozen.run)
            self.record(frozen.run)
        return frozen

    def begin(self, execution: str) -> None:
        self.executions.running.add(execution)
        self.executions.known.add(execution)

    def commit(self, run: Run) -> None:
        self.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())

    def day(self, date: str = DAY) -> Any:
        return self.table.day(PIPELINE, date)


@pytest.fixture
def world() -> LiveWorld:
    world = LiveWorld()
    world.add("flights", "2013-03-13", "12")
    return world


def test_versions_of_the_open_day_are_provisional_and_the_last_run_keeps_the_latest(world: LiveWorld) -> None:
    first = world.run(live=True)
    assert (first.action, first.run.through) == (FreezeAction.RUN, NOW)
    world.add("flights", "2013-03-13", "17")
    world.time += timedelta(minutes=5)
    second = world.run(live=True)
    day = world.day()
    assert (day.published, day.notified_attempt, day.notification_due) == (None, 0, False)
    assert (day.provisional.run.attempt, day.provisional.run.through) == (2, NOW + timedelta(minutes=5))
    assert world.table.run(PIPELINE, DAY, 2).reasons == (RunReason.LIVE,)
    assert (world.messages, world.woken_days) == ([], [])
    world.time = END + timedelta(hours=2)
    last = world.run()
    assert (last.action, last.run) == (FreezeAction.FINISH, second.run.model_copy(update={"through": None}))
    day = world.day()
    assert (day.provisional, day.published.run, day.published.at) == (None, last.run, world.time)
    assert (day.notified_attempt, day.notification_due, day.attempts) == (2, False, 2)
    recorded = world.table.run(PIPELINE, DAY, 2)
    assert (recorded.run.through, recorded.reasons) == (None, (RunReason.FIRST,))
    assert (len(world.messages), world.woken_days) == (1, [DAY])
    assert world.run().action is FreezeAction.UNCHANGED


def test_a_cost_that_is_written_meanwhile_does_not_bring_the_mark_back(world: LiveWorld) -> None:
    world.run(live=True)
    before = world.table.run(PIPELINE, DAY, 1)
    world.time = END
    world.run()
    assert world.table.save_cost(before) is False
    assert world.table.run(PIPELINE, DAY, 1).run.through is None


def test_the_published_version_has_what_its_last_run_has_waited_for_in_vain(world: LiveWorld) -> None:
    world.run(live=True)
    world.time = END
    assert world.run(missing="weather: no counts").action is FreezeAction.FINISH
    assert world.table.run(PIPELINE, DAY, 1).missing == ("weather: no counts",)


def test_scheduled_runs_publish_what_is_there_if_windows_start_further_ones() -> None:
    """A partner that sends no counts stays visible."""
    world = LiveWorld(live=Live(windows="10m"))
    world.add("flights", "2013-03-13", "12")
    assert world.run(live=True).run.through == NOW
    assert world.run(live=True).action is FreezeAction.UNCHANGED
    world.add("flights", "2013-03-13", "17")
    assert world.run(live=True).run.attempt == 2


def test_nothing_new_starts_no_job(world: LiveWorld) -> None:
    world.run(live=True)
    again = world.run(live=True)
    assert (again.action, again.run.attempt, world.day().attempts) == (FreezeAction.UNCHANGED, 1, 1)


def test_a_run_of_the_open_day_that_a_person_starts_is_provisional_too(world: LiveWorld) -> None:
    assert world.run().run.through == NOW
    assert world.run(force=True).run.through == NOW
    assert world.day().published is None


def test_events_between_the_last_provisional_version_and_the_end_are_in_the_published_version(world: LiveWorld) -> None:
    world.run(live=True)
    world.add("flights", "2013-03-14", "03")
    world.time = END
    last = world.run()
    assert (last.action, last.run.attempt, last.run.through, last.run.rows) == (FreezeAction.RUN, 2, None, 20)
    day = world.day()
    assert (day.published.run.attempt, day.provisional, day.notified_attempt) == (2, None, 2)
    assert world.table.run(PIPELINE, DAY, 2).reasons == (RunReason.FIRST,)


def test_a_check_looks_at_the_day_only_after_its_last_run(world: LiveWorld) -> None:
    world.run(live=True)
    world.add("flights", "2013-03-13", "17", rows=1000)
    assert world.rules()[DAY] is DecisionRule.CURRENT
    world.run(live=True)
    world.time = END + timedelta(hours=1)
    assert world.rules()[DAY] is DecisionRule.NEVER_PUBLISHED
    world.run()
    assert world.rules()[DAY] is DecisionRule.UNCHANGED
    world.add("weather", "2013-03-13", "18", rows=1000)
    assert world.rules()[DAY] is DecisionRule.GROWN
    late = world.run()
    assert (late.run.attempt, late.run.through, world.day().notification_due) == (3, None, True)


def test_a_day_without_its_last_run_is_overdue(world: LiveWorld) -> None:
    for date, hour in (("2013-03-12", "17"), ("2013-03-13", "12")):
        world.add("flights", date, hour)
    world.time = datetime(2013, 3, 13, 18, tzinfo=UTC)
    world.run("2013-03-12")
    world.run(live=True)
    world.time = END + timedelta(hours=13)
    assert world.check().overdue == (DAY,)


def test_a_scheduled_live_run_that_comes_late_does_nothing(world: LiveWorld) -> None:
    world.run(live=True)
    world.time = END
    assert world.frozen(live=True) == Frozen(action=FreezeAction.UNCHANGED)
    world.run()
    assert world.frozen(live=True) == Frozen(action=FreezeAction.UNCHANGED)
    assert world.day().published.run.attempt == 1


def test_a_day_that_has_another_version_gets_no_provisional_one(world: LiveWorld) -> None:
    """The key `live` came after a person had run the day."""
    definition = world.project.pipelines[PIPELINE]
    world.project.pipelines[PIPELINE] = definition.model_copy(update={"live": None})
    world.run()
    world.project.pipelines[PIPELINE] = definition
    world.add("flights", "2013-03-13", "17")
    assert world.frozen(live=True) == Frozen(action=FreezeAction.UNCHANGED)
    assert world.run().run.through is None


def test_a_pipeline_that_is_not_live_any_more_finishes_its_day(world: LiveWorld) -> None:
    world.run(live=True)
    definition = world.project.pipelines[PIPELINE]
    world.project.pipelines[PIPELINE] = definition.model_copy(update={"live": None})
    world.time = END
    assert world.run().action is FreezeAction.FINISH
    assert world.day().published.run.attempt == 1


def test_a_new_definition_computes_the_last_version_again(world: LiveWorld) -> None:
    world.run(live=True)
    definition = world.project.pipelines[PIPELINE]
    publish = definition.publish.model_copy(update={"key": ("date", "carrier")})
    world.project.pipelines[PIPELINE] = definition.model_copy(update={"publish": publish})
    world.time = END
    assert (world.run().action, world.day().published.run.attempt) == (FreezeAction.RUN, 2)


def test_a_second_execution_skips_a_live_run_and_waits_with_the_last_one(world: LiveWorld) -> None:
    world.begin("other")
    run = world.frozen(live=True).run
    assert world.frozen(live=True, execution="other") == Frozen(action=FreezeAction.UNCHANGED)
    world.time = END
    assert world.frozen(execution="other").action is FreezeAction.WAIT
    world.commit(run)
    world.record(run)
    assert world.frozen(execution="other").action is FreezeAction.FINISH


def test_a_run_that_claims_the_day_between_both_states_of_the_last_one_publishes_it(world: LiveWorld) -> None:
    world.begin("other")
    world.run(live=True)
    world.time = END
    last = world.frozen()
    world.add("flights", "2013-03-13", "17")
    newer = world.frozen(execution="other").run
    world.record(last.run)
    assert (world.day().published, world.messages) == (None, [])
    world.commit(newer)
    world.record(newer)
    assert (world.day().published.run.attempt, world.day().notified_attempt) == (2, 2)


def test_a_failed_live_run_is_repeated_when_events_come_and_leaves_no_hold(world: LiveWorld) -> None:
    run = world.frozen(live=True).run
    world.store.put(f"{run.prefix}failure.txt", b"AuditFailed: 2 keys occur more than once")
    world.fail(run)
    day = world.day()
    assert (day.hold, day.outcome_unknown, day.active) == (None, False, None)
    world.begin("next")
    assert world.frozen(live=True, execution="next") == Frozen(action=FreezeAction.UNCHANGED)
    assert world.frozen(live=True).action is FreezeAction.RUN  # the same execution tries once more
    world.fail(world.frozen(live=True).run)
    world.add("flights", "2013-03-13", "17")
    assert world.run(live=True, execution="next").run.attempt == 3


def test_a_run_of_an_open_day_gives_and_clears_no_verdict(world: LiveWorld) -> None:
    recorder = world.recorder
    run = world.frozen(live=True).run
    world.store.put(f"{run.prefix}failure.txt", b"InputInvalid: steps.checked: range of value failed")
    world.store.put(f"{run.prefix}invalid-input.txt", b"flights")
    assert recorder.end_failed(run, error="E", cause="", retried=False).retry is False
    world.add("flights", "2013-03-13", "17")
    run = world.frozen(live=True).run
    world.commit(run)
    recorder.end_published(run)
    assert (world.woken, world.day().hold, world.day().provisional.run.attempt) == ([], None, 2)


def test_a_failed_last_run_holds_the_day(world: LiveWorld) -> None:
    world.run(live=True)
    world.add("flights", "2013-03-13", "17")
    world.time = END
    run = world.frozen().run
    world.store.put(f"{run.prefix}failure.txt", b"AuditFailed: 2 keys occur more than once")
    world.fail(run)
    assert (world.day().hold.rule, world.day().published) == ("audit", None)


def test_a_provisional_version_cannot_be_published_again_by_a_rollback(world: LiveWorld) -> None:
    world.run(live=True)
    world.add("flights", "2013-03-13", "17")
    world.time = END
    world.run()
    with pytest.raises(InputError, match="version 1 of 2013-03-13 is provisional"):
        world.frozen(rollback=1, reason="bad file")


def test_another_pipeline_does_not_see_a_provisional_day(world: LiveWorld) -> None:
    world.run(live=True)
    assert world.table.first_published(PIPELINE) is None
    world.time = END
    world.run()
    assert world.table.first_published(PIPELINE) == DAY


@pytest.mark.parametrize(("date", "hours"), [("2013-03-10", 23), ("2013-11-03", 25)])
def test_a_day_is_open_until_its_local_midnight(date: str, hours: int) -> None:
    world = LiveWorld()
    start = datetime.fromisoformat(f"{date}T00:00:00-05:00" if hours == 23 else f"{date}T00:00:00-04:00")
    end = start + timedelta(hours=hours)
    world.add("flights", date, "12")
    world.time = end - timedelta(seconds=1)
    assert world.run(date, live=True).run.through == world.time
    world.time = end
    assert world.frozen(date, live=True).run is None
    assert world.run(date).action is FreezeAction.FINISH


def test_an_hour_is_open_until_its_end() -> None:
    world = LiveWorld()
    make_hourly(world, live={"every": "5m"}, schedule=Schedule(process="5 * * * *", buffer_minutes=5))
    world.add("flights", "2013-03-13", "18")
    world.time = NOW + timedelta(minutes=30)
    hour = "2013-03-13T18"
    assert world.run(hour, live=True).run.through == world.time
    world.time = NOW + timedelta(hours=1)
    assert world.run(hour).action is FreezeAction.FINISH
    assert world.day(hour).notified_attempt == 1


@pytest.mark.parametrize(("fault", "write"), list(product(FAULT_TYPES[:4], range(1, 4))))
def test_a_repeated_call_finishes_what_a_crash_has_interrupted(world: LiveWorld, fault: str, write: int) -> None:
    """Step Functions repeats each call of a function that has failed: of a live run, then of the last one."""
    for live in (True, False):
        process = Process(WriteFault(write, fault))
        frozen = None
        with suppress(Crash):
            frozen = world.frozen(live=live, process=process)
        frozen = frozen or world.frozen(live=live)
        assert frozen.run is not None
        if frozen.action is FreezeAction.RUN:
            world.commit(frozen.run)
        recorded = False
        process = Process(WriteFault(write, fault))
        with suppress(Crash):
            world.record(frozen.run, process)
            recorded = True
        if not recorded:
            world.record(frozen.run)
        world.time = END
    day = world.day()
    assert (day.provisional, day.published.run.attempt, day.notified_attempt) == (None, 1, 1)
    assert day.published.run.through is None
    assert world.woken_days
    assert world.run().action is FreezeAction.UNCHANGED


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_events_runs_and_crashes_ends_with_all_events_published(seed: int) -> None:
    """Random histories: what is published is complete, and nobody learns of a provisional version."""
    chance, world, count = random.Random(seed), LiveWorld(), 0  # noqa: S311
    frozen: dict[str, Frozen] = {}
    executions = 0
    while world.time < END + timedelta(hours=3):
        step = chance.choice(["event", "freeze", "record", "kill", "time"])
        if step == "event":
            count += 1
            world.add("flights", "2013-03-13", chance.choice(["12", "17"]), name=f"n{count}")
        elif step == "freeze":
            executions += 1
            name = f"e{executions}"
            world.begin(name)
            new = world.frozen(live=chance.random() < 0.7, execution=name)
            if new.action in {FreezeAction.RUN, FreezeAction.FINISH}:
                frozen[name] = new
        elif frozen and step in {"record", "kill"}:
            name = chance.choice(sorted(frozen))
            done = frozen.pop(name)
            assert done.run
            if step == "record" or chance.random() < 0.5:
                world.commit(done.run)
            if step == "record":
                world.record(done.run)
            world.executions.running.discard(name)
        elif step == "time":
            world.time += timedelta(hours=chance.choice([1, 2]))
        day = world.day()
        if world.time < END:
            assert day.published is None
            assert (day.notified_attempt, world.messages, world.woken_days) == (0, [], [])
        assert day.hold is None
        if day.published:
            assert day.provisional is None
            assert day.published.run.through is None
    world.executions.running.clear()
    world.run()
    day = world.day()
    manifest = read_manifest(world.store, day.published.run.manifest)
    assert len(manifest.objects) == count
    assert world.table.run(PIPELINE, DAY, day.published.run.attempt).state is RunState.PUBLISHED
