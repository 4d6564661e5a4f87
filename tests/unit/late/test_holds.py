"""Days on hold: set by a check or by a failed audit, until somebody decides or the cause is gone."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from slackwater.client.holds import days_on_hold
from slackwater.errors import CloudError, DayChanged, InputError, ObjectInvalid, Throttled, UnknownName
from slackwater.late.check.metrics import days_on_hold as count_days_on_hold
from slackwater.late.check.record_holds import MAX_OLDER_DAYS, day_with_decision, older_days
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.late.pending import pending_check
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.record import DayRecord, Hold, ResolutionAction
from tests.fakes_check import NOW, PIPELINE
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import Crash

pytestmark = pytest.mark.unit

DAY, NOON = "2013-03-10", "s3://raw/raw/source=flights/date=2013-03-10/hour=17/a.parquet"
METADATA = {"rows": "1000"}


def decisions(world, *, table=None):
    return world.hold_decisions(table)


def fail_audit(world, message="AuditFailed: 1 rows would replace the 3 rows that are published", **options):
    run = world.freeze(DAY, **options)
    world.store.put(failure_uri(run.prefix), message.encode())
    world.fail(run)
    return run


def listed(world):
    return [(day.date, day.hold.rule) for day in days_on_hold(world.table, [PIPELINE])]


def test_a_check_puts_a_day_on_hold_once_and_it_stays_after_the_window(world):
    world.store.delete([NOON])
    world.checker.check(pipeline=PIPELINE, as_of=None, execution="arn:monitor")
    hold = world.table.day(PIPELINE, DAY).hold
    assert (hold.rule, hold.since, hold.execution, len(hold.inputs)) == ("vanished", NOW, "arn:monitor", 64)
    assert "flights has lost 1 object with 1,000 rows" in hold.reason
    version = world.table.day(PIPELINE, DAY).version
    world.time += timedelta(hours=1)
    world.check()
    assert world.table.day(PIPELINE, DAY).version == version, "an equal decision is not written again"
    world.time += timedelta(days=30)
    report = world.check()
    assert DAY not in {day.date for day in report.days}
    assert listed(world) == [(DAY, "vanished")]
    assert count_days_on_hold(report, world.table.held(PIPELINE)) == 1


def test_a_further_loss_keeps_the_time_of_the_hold_and_changes_its_inputs(world):
    world.store.delete([NOON])
    world.check()
    before = world.table.day(PIPELINE, DAY).hold
    world.time += timedelta(hours=1)
    world.store.delete([NOON.replace("flights", "weather")])
    world.check()
    after = world.table.day(PIPELINE, DAY).hold
    assert after.since == before.since
    assert after.inputs != before.inputs
    assert "weather has lost" in after.reason


def test_a_hold_of_many_files_names_some_and_counts_the_others(world):
    for number in range(1000):
        uri = f"s3://raw/raw/source=flights/date={DAY}/hour=18/{number:04}.parquet"
        world.store.put(uri, b"x" * 10, metadata={"rows": "10", "file": f"{number:04}.csv"})
    world.publish(DAY)
    for uri in [uri for uri in world.store.objects if "hour=18/" in uri]:
        world.store.put(uri, b"x" * 9, metadata={"rows": "9", "file": uri[-12:-8] + ".csv"})
    report = world.check()
    hold = world.table.day(PIPELINE, DAY).hold
    # Each row of the ledger has the reason.
    (pending,) = pending_check(report, execution="e").days
    assert (pending.reason, len(pending.inputs)) == (hold.reason, 1000)
    named = hold.reason.split("; ")
    assert (len(named), named[17][:22], named[18]) == (21, "flights: 0017.csv was ", "982 more like these")
    assert named[-1].startswith("`slackwater late release")
    with pytest.raises(InputError, match=r"have lost 1,000 rows .* \(1000 changed with fewer rows\)"):
        world.freeze(DAY)


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_decision_needs_a_reason(world, reason):
    with pytest.raises(InputError, match="--reason: it is empty"):
        decisions(world).release(PIPELINE, DAY, reason=reason)


def test_what_cannot_be_decided_is_refused(world):
    decide = decisions(world)
    with pytest.raises(InputError, match=r"published nothing for 2013-03-07, .*slackwater run"):
        decide.release(PIPELINE, "2013-03-07", reason="r")
    with pytest.raises(UnknownName):
        decide.release("nothing", DAY, reason="r")


def test_a_failed_audit_is_decided_again_when_the_inputs_change(world):
    world.add("weather", DAY, "20", name="late")
    fail_audit(world)
    world.check()
    world.add("weather", DAY, "21", name="more")
    # The failed run starts a cool-down. Until a check runs the day again, it stays on the list.
    report = world.check()
    assert {day.rule for day in report.days if day.date == DAY} == {DecisionRule.COOL_DOWN}
    assert listed(world) == [(DAY, "audit")]
    index = list(world.table.held(PIPELINE))
    assert count_days_on_hold(report, index) == 1
    world.time += timedelta(hours=1)
    report = world.check()
    assert {day.rule for day in report.days if day.date == DAY} == {DecisionRule.GROWN}
    assert count_days_on_hold(report, index) == 0, "the index may miss what the check has written"
    day = world.table.day(PIPELINE, DAY)
    assert (day.hold, day.resolution.action) == (None, ResolutionAction.ENDED)


@pytest.mark.parametrize("held_by", ["audit", "failed", "vanished"])
@pytest.mark.parametrize(
    ("decision", "rule", "ends_failure"),
    [
        (LateDecision.RERUN, DecisionRule.GROWN, True),
        (LateDecision.RERUN, DecisionRule.OUTCOME_UNKNOWN, True),
        (LateDecision.IGNORE, DecisionRule.UNCHANGED, True),
        (LateDecision.IGNORE, DecisionRule.KEPT, True),
        (LateDecision.DEFER, DecisionRule.COOL_DOWN, False),
        (LateDecision.DEFER, DecisionRule.TOO_MANY, False),
        (LateDecision.DEFER, DecisionRule.OVER_BUDGET, False),
        (LateDecision.IGNORE, DecisionRule.TOO_EXPENSIVE, False),
        (LateDecision.IGNORE, DecisionRule.BELOW, False),
        (LateDecision.IGNORE, DecisionRule.TABLE_NOTIFIED, False),
    ],
)
def test_a_day_whose_run_failed_stays_on_hold_until_it_runs_or_nothing_has_changed(
    held_by, decision, rule, ends_failure
):
    record = DayRecord(pipeline=PIPELINE, date=DAY, hold=Hold(rule=held_by, reason="r", since=NOW))
    decided = DayDecision(pipeline=PIPELINE, date=DAY, decision=decision, rule=rule, reasons=("x",))
    after = day_with_decision(record, decided, inputs="i", execution="e", now=NOW)
    # The cause of other holds is gone if the inputs allow a run.
    assert (after.hold is None) == (ends_failure or held_by == "vanished")


def test_a_day_that_changes_before_its_hold_ends_is_left_to_the_next_check(world):
    world.add("weather", DAY, "20", name="late")
    fail_audit(world)
    world.add("weather", DAY, "21", name="more")
    world.time += timedelta(hours=1)
    save = world.table.save

    def refuse(day):
        raise DayChanged(day.date)

    world.table.save = refuse
    assert world.rules()[DAY] is DecisionRule.CHANGING
    world.table.save = save
    assert listed(world) == [(DAY, "audit")]
    assert world.rules()[DAY] is DecisionRule.GROWN
    assert listed(world) == []


RULE = "DataError: checked: not_null of tailnum failed in 4 of 1,000 checked rows, such as {}"


@pytest.mark.parametrize("number", [0, 1, MAX_OLDER_DAYS, MAX_OLDER_DAYS + 1, 25, 30])
def test_older_days_are_looked_at_in_turn(number):
    held = [f"2013-01-{day:02}" for day in range(1, number + 1)]
    checks = [older_days([*reversed(held), "2013-03-09"], first=f"2013-03-0{day}") for day in (1, 2, 3)]
    assert {len(days) for days in checks} == {min(number, MAX_OLDER_DAYS)}
    assert set(held) <= set(checks[0]) | set(checks[1]) | set(checks[2])


@pytest.mark.parametrize(
    ("error", "is_held", "number"),
    [
        (Throttled, False, 0),
        (DayChanged, False, 0),
        (Throttled, True, 1),
        (DayChanged, True, 1),
        (CloudError, False, 1),
    ],
)
def test_a_day_with_an_error_that_may_pass_counts_only_if_it_is_on_hold(world, monkeypatch, error, is_held, number):
    if is_held:
        world.store.delete([NOON])
        world.check()
    get, manifest = world.store.get, world.table.day(PIPELINE, DAY).published.run.manifest

    def fail(uri):
        if uri == manifest:
            raise error("e")
        return get(uri)

    monkeypatch.setattr(world.store, "get", fail)
    report = world.check()
    assert count_days_on_hold(report, world.table.held(PIPELINE)) == number


def test_a_day_for_which_aws_still_fails_when_it_is_checked_alone_fails_the_check(world, monkeypatch):
    read = world.table.run

    def run(pipeline, date, attempt):
        if date == DAY:
            raise Throttled("slow down")
        return read(pipeline, date, attempt)

    monkeypatch.setattr(world.table, "run", run)
    assert [day.date for day in world.check().days if day.error_may_pass] == [DAY]
    with pytest.raises(Throttled):
        world.checker.check(pipeline=PIPELINE, as_of=None, dates=[DAY])


def test_a_day_whose_record_is_damaged_counts_although_no_hold_can_be_recorded(world, monkeypatch):
    read = world.table.day

    def day(pipeline, date):
        if date == DAY:
            raise ObjectInvalid("record")
        return read(pipeline, date)

    monkeypatch.setattr(world.table, "day", day)
    assert count_days_on_hold(world.check(), world.table.held(PIPELINE)) == 1


def test_a_day_that_keeps_changing_for_hours_is_on_hold_until_a_check_can_read_it(world):
    metadata = world.store.metadata

    def change(uri):
        raise DayChanged(uri)

    world.add("weather", DAY, "20", name="late", rows=500)
    for hours, is_held in ((0, False), (11, False), (12, True), (13, True)):
        world.time = NOW + timedelta(hours=hours)
        world.store.metadata = change
        report = world.check("2013-03-13")
        assert [day.rule for day in report.days if day.date == DAY] == [DecisionRule.CHANGING]
        assert listed(world) == ([(DAY, "changing")] if is_held else [])
        assert count_days_on_hold(report, world.table.held(PIPELINE)) == int(is_held)
    assert world.table.day(PIPELINE, DAY).hold.since == NOW + timedelta(hours=12)
    world.store.metadata = metadata
    assert world.rules("2013-03-13")[DAY] is DecisionRule.GROWN
    assert (listed(world), world.table.day(PIPELINE, DAY).unreadable_since) == ([], None)
    # The time begins again.
    world.time, world.store.metadata = NOW + timedelta(hours=25), change
    world.check("2013-03-13")
    assert listed(world) == []


@pytest.mark.parametrize("fault", FAULT_TYPES)
def test_a_release_that_breaks_off_is_recorded_or_can_be_repeated(world, fault):
    world.store.delete([NOON])
    world.check()
    process = Process(WriteFault(1, fault), meanwhile=world.check)
    try:
        decisions(world, table=process.using(world.table)).release(PIPELINE, DAY, reason="r")
    except Crash:
        decisions(world).release(PIPELINE, DAY, reason="r")
    assert process.is_fault_reached
    assert world.rules()[DAY] is DecisionRule.RELEASED
    assert world.publish(DAY).accepts_audit


@pytest.mark.parametrize("order", list(itertools.product((0, 1), repeat=4)))
def test_a_release_and_a_check_at_the_same_time_lose_no_decision(world, order):
    world.store.delete([NOON])

    def check(wrap):
        checker = world.checker
        object.__setattr__(checker, "table", wrap(world.table))
        # One day, so that all calls come from this thread.
        checker.check(pipeline=PIPELINE, as_of=None, dates=[DAY])

    def decide(wrap):
        decisions(world, table=wrap(world.table)).release(PIPELINE, DAY, reason="r")

    take_turns([check, decide], order, after_each=lambda: None)
    assert world.table.day(PIPELINE, DAY).resolution.action is ResolutionAction.RELEASED
    assert world.rules()[DAY] is DecisionRule.RELEASED
    assert listed(world) == []


def test_a_day_that_changes_all_the_time_is_reported(world):
    class Busy:
        def day(self, *arguments):
            return world.table.day(*arguments)

        def save(self, day):
            raise DayChanged("again")

    with pytest.raises(DayChanged):
        decisions(world, table=Busy()).release(PIPELINE, DAY, reason="r")
