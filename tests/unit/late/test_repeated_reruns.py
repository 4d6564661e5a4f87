"""A day that changed tables run again and again goes on hold: a cycle that no validation can see."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import MAX_TABLE_RERUNS, DayDecision, DecisionRule, LateDecision
from tests.fakes_check import PIPELINE, World
from tests.unit.runs.test_foreign_tables import Commit, Lake
from tests.unit.runs.test_table_inputs import SUNDAY, Weeks, week_of

pytestmark = pytest.mark.unit

DATE = str(SUNDAY)


class Cycle(Weeks):
    """A week that changes one of the days that it reads whenever it is published, as a load step could."""

    runs = 0

    def __init__(self, *, hours: float = 1.1) -> None:
        super().__init__()
        self.hours = hours
        self.publish()

    def publish(self) -> None:
        self.publish_week()
        self.runs += 1
        self.publish_daily(SUNDAY, content=f"after run {self.runs}", rows=10 + self.runs)

    def follow(self, checks: int) -> DayDecision:
        """Check the week so often, and run it again whenever the check says so; return the last decision."""
        for _ in range(checks):
            self.time += timedelta(hours=self.hours)
            decision = week_of(self)
            if decision.decision is LateDecision.RERUN:
                self.publish()
        return decision


def test_a_cycle_ends_on_hold_and_stays_there_until_a_person_decides():
    world = Cycle()
    decision = world.follow(MAX_TABLE_RERUNS)
    assert (decision.rule, world.runs) == (DecisionRule.GROWN, 1 + MAX_TABLE_RERUNS)
    decision = world.follow(40)
    assert (decision.decision, decision.rule, world.runs) == (LateDecision.HOLD, DecisionRule.REPEATED, 11)
    assert decision.reason == (
        "days has 1 changed day, 20 -> 21 rows (26.2 %): any late data counts (pipeline daily_delays has no threshold "
        "above 0); changed tables have run the day again 10 times within 24 hours: find out whether its rows lead back "
        "to its inputs, and if not, raise late.cool_down_hours; `slackwater late release daily_delays --date "
        "2013-03-10 --reason TEXT` runs it again"
    )
    assert world.table.day(PIPELINE, DATE).hold.rule == "repeated"


def test_a_release_runs_the_day_once():
    world = Cycle()
    assert world.follow(12).rule is DecisionRule.REPEATED
    world.hold_decisions().release(PIPELINE, DATE, reason="r")
    assert week_of(world).rule is DecisionRule.RELEASED
    world.publish()
    assert world.table.day(PIPELINE, DATE).hold is None
    assert week_of(world).rule is DecisionRule.REPEATED


def test_a_rejected_cycle_rests_until_the_table_changes_again():
    world = Cycle()
    world.follow(20)
    world.hold_decisions().keep(PIPELINE, DATE, reason="r")
    assert week_of(world).rule is DecisionRule.KEPT
    world.publish_daily(SUNDAY, content="newer", rows=50)
    world.time += timedelta(hours=1)
    assert week_of(world).rule is DecisionRule.REPEATED


def test_the_hold_ends_when_the_tables_are_those_of_the_published_run_again():
    world = Cycle()
    world.follow(20)
    world.publish_daily(SUNDAY, content="after run 10", rows=20)
    assert week_of(world).rule is DecisionRule.UNCHANGED
    assert world.table.day(PIPELINE, DATE).hold is None


def test_a_cool_down_of_three_hours_lets_a_table_change_all_the_time():
    world = Cycle(hours=3)
    assert world.follow(30).rule is DecisionRule.GROWN
    assert world.runs == 31


def test_late_data_of_sources_does_not_count(world: World):
    for number in range(3 * MAX_TABLE_RERUNS):
        world.time += timedelta(hours=1)
        world.add("weather", DATE, "17", name=f"late {number}", rows=1)
        assert DATE in {task.date for task in day_tasks(world.check())}
        world.publish(DATE)


def test_a_cycle_through_an_iceberg_table_ends_on_hold_too():
    world = Lake(Commit(1))
    world.publish(DATE)
    for number in range(2, 40):
        world.time += timedelta(hours=1.1)
        world.commit(Commit(number, rows=10 + number))
        decision = next(day for day in world.check("2013-03-12").days if day.date == DATE)
        if decision.decision is LateDecision.RERUN:
            world.publish(DATE)
    assert (decision.rule, world.table.day(PIPELINE, DATE).attempts) == (DecisionRule.REPEATED, 11)
