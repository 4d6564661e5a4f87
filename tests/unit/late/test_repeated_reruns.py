"""A day that changed tables run again and again goes on hold: a cycle that no validation can see."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import MAX_TABLE_RERUNS, DecisionRule, LateDecision
from tests.fakes_check import PIPELINE, World
from tests.unit.runs.test_foreign_tables import Commit, Lake
from tests.unit.runs.test_table_inputs import SUNDAY, Weeks

pytestmark = pytest.mark.unit

DATE = str(SUNDAY)


def test_late_data_of_sources_does_not_count(world: World):
    for number in range(3 * MAX_TABLE_RERUNS):
        world.time += timedelta(hours=1)
        world.add("weather", DATE, "17", name=f"late {number}", rows=1)
        assert DATE in {task.date for task in day_tasks(world.check())}
        world.publish(DATE)


def test_late_data_of_sources_keeps_no_changed_table_from_running_the_day_again():
    world = Weeks()
    weekly = world.project.pipelines[PIPELINE].model_copy(update={"sources": ("weather",)})
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, PIPELINE: weekly}})
    world.publish_week()
    for number in range(MAX_TABLE_RERUNS + 1):
        world.time += timedelta(hours=1.1)
        world.add("weather", DATE, "17", name=f"late {number}", rows=1)
        world.publish_week()
    world.time += timedelta(hours=1.1)
    world.publish_daily(SUNDAY, content="other", attempt=2, rows=11)
    assert world.rules("2013-03-11")[DATE] is DecisionRule.GROWN


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
