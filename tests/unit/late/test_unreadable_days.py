"""Days that checks cannot read for a time: from when on they are on hold, and how such a hold ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.client.holds import days_on_hold
from slackwater.errors import CloudError, DayChanged, Throttled
from slackwater.late.check.record_holds import day_with_decision
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.runs.record import DayRecord, Hold
from tests.fakes_check import NOW, PIPELINE

pytestmark = pytest.mark.unit

DAY = "2013-03-10"


def fail_reads(world, monkeypatch, error, *dates):
    """Let reading the runs of these days fail, or of all days without one; return what ends that."""
    read = world.table.run

    def run(pipeline, date, attempt):
        if not dates or date in dates:
            raise error("e")
        return read(pipeline, date, attempt)

    monkeypatch.setattr(world.table, "run", run)
    return lambda: monkeypatch.setattr(world.table, "run", read)


def unreadable(world):
    dates = [f"2013-03-{number:02}" for number in range(8, 13)]
    return {date: since for date in dates if (since := world.table.day(PIPELINE, date).unreadable_since)}


def put_on_hold(world, rule):
    hold = Hold(rule=rule, reason="r", since=NOW)
    world.table.save(world.table.day(PIPELINE, DAY).model_copy(update={"hold": hold}))


def test_a_crash_before_the_hold_of_an_older_day_ends_loses_no_late_data(world, monkeypatch):
    put_on_hold(world, "changing")
    world.add("weather", DAY, "20", name="late", rows=500)
    world.time += timedelta(days=30)

    def refuse(day):
        raise DayChanged(day.date)

    with monkeypatch.context() as patch:
        patch.setattr(world.table, "save", refuse)
        world.check()
    assert [day.date for day in days_on_hold(world.table, [PIPELINE])] == [DAY]
    world.check()
    assert days_on_hold(world.table, [PIPELINE]) == []
    assert [item.date for item in world.table.late_days(PIPELINE, last=DAY)] == [DAY]


@pytest.mark.parametrize("error", [Throttled, CloudError])
def test_a_failure_of_aws_for_all_days_two_nights_in_a_row_puts_no_day_on_hold(world, monkeypatch, error):
    for _ in range(2):
        recover = fail_reads(world, monkeypatch, error)
        with pytest.raises(error):
            world.check("2013-03-13")
        assert (unreadable(world), days_on_hold(world.table, [PIPELINE])) == ({}, [])
        recover()
        world.time += timedelta(days=1)


def test_one_day_that_fails_is_recorded_after_the_check_of_the_others(world, monkeypatch):
    fail_reads(world, monkeypatch, Throttled, DAY)
    world.check("2013-03-13")
    assert unreadable(world) == {DAY: NOW}


@pytest.mark.parametrize("stops_at", ["claim", "publication"])
def test_a_run_of_the_day_begins_the_time_again(world, monkeypatch, stops_at):
    recover = fail_reads(world, monkeypatch, Throttled, DAY)
    world.check("2013-03-13")
    recover()
    if stops_at == "claim":
        world.freeze(DAY, force=True)
    else:
        run = world.freeze(DAY, force=True)
        day = world.table.day(PIPELINE, DAY)
        # Such as by a check that could not read the running day.
        world.table.save(day.model_copy(update={"unreadable_since": NOW}))
        world.store.put(f"{run.prefix}publication.json", world.store.get(publication_of(world)))
        world.recorder.record_published(run)
    assert unreadable(world) == {}
    world.executions.running.clear()
    world.time += timedelta(hours=13)
    fail_reads(world, monkeypatch, Throttled, DAY)
    world.check("2013-03-13")
    assert days_on_hold(world.table, [PIPELINE]) == []
    assert unreadable(world) == {DAY: world.time}


def publication_of(world):
    return f"{world.table.day(PIPELINE, DAY).published.run.prefix}publication.json"


@pytest.mark.parametrize(
    ("decision", "rule"),
    [
        (LateDecision.HOLD, DecisionRule.ROLLED_BACK),
        (LateDecision.IGNORE, DecisionRule.RUNNING),
        (LateDecision.IGNORE, DecisionRule.UNCHANGED),
        (LateDecision.IGNORE, DecisionRule.BELOW),
        (LateDecision.DEFER, DecisionRule.COOL_DOWN),
        (LateDecision.HOLD, DecisionRule.VANISHED),
    ],
)
def test_every_decision_about_a_day_that_could_be_read_begins_the_time_again(decision, rule):
    hold = Hold(rule="audit", reason="r", since=NOW)
    record = DayRecord(pipeline=PIPELINE, date=DAY, hold=hold, unreadable_since=NOW)
    decided = DayDecision(pipeline=PIPELINE, date=DAY, decision=decision, rule=rule, reasons=("x",))
    after = day_with_decision(record, decided, inputs="i", execution="e", now=NOW + timedelta(hours=13))
    assert after.unreadable_since is None
    if rule in {DecisionRule.ROLLED_BACK, DecisionRule.RUNNING}:
        assert after.hold == hold
