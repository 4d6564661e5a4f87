"""Published days whose data has failed by a verdict: `late.on_invalid` decides what a check does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.pipeline.definition import StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.record import ResolutionAction
from slackwater.state.verdicts import Subject, new_verdict
from tests.fakes_check import PIPELINE, World, five_days

pytestmark = pytest.mark.unit

DAY, HOUR, OTHER = "2013-03-11", "2013-03-11T17", "2013-03-11T20"
WEEKLY = "weekly"


@pytest.fixture
def world() -> World:
    return five_days()


def give(world: World, quality: Any, period: str = HOUR, *, subject: Subject | None = None, version=None) -> None:
    """Give a verdict a minute later."""
    world.time += timedelta(minutes=1)
    subject = subject or Subject("source", "flights")
    given = new_verdict(subject, period, quality, version=version, reason="bots", principal="ana", at=world.time)
    world.verdicts.put_verdicts([given])


def decision(world: World, pipeline: str = PIPELINE, day: str = DAY):
    report = world.checker.check(pipeline=pipeline, as_of=None)
    return next(item for item in report.days if item.date == day)


def rule(world: World, **which: str) -> DecisionRule:
    return decision(world, **which).rule


def with_late(world: World, pipeline: str = PIPELINE, **late: object) -> None:
    definition = world.project.pipelines[pipeline]
    definition = definition.model_copy(update={"late": definition.late.model_copy(update=late)})
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, pipeline: definition}})


def test_a_day_that_has_read_failed_data_is_on_hold_until_it_passes(world):
    assert rule(world) is DecisionRule.UNCHANGED
    give(world, "fail")
    held = decision(world)
    assert (held.decision, held.rule) == (LateDecision.HOLD, DecisionRule.INVALID)
    assert held.reasons[0] == (
        "flights has failed: flights 2013-03-11 17:00 UTC: fail, by ana since 2013-03-13 18:01 UTC: bots"
    )
    assert "slackwater late release daily_delays --date 2013-03-11 --reason TEXT" in held.reasons[-1]
    assert world.table.day(PIPELINE, DAY).hold.rule == "invalid"
    assert rule(world, day="2013-03-10") is DecisionRule.UNCHANGED
    give(world, "pass")
    assert rule(world) is DecisionRule.UNCHANGED
    assert world.table.day(PIPELINE, DAY).hold is None


def test_late_data_of_a_failed_hour_runs_nothing_until_it_passes(world):
    give(world, "fail", OTHER)
    assert rule(world) is DecisionRule.UNCHANGED  # the day has read nothing of this hour
    world.add("flights", DAY, "20", rows=500)
    assert rule(world) is DecisionRule.INVALID
    give(world, "pass", OTHER)
    assert rule(world) is DecisionRule.GROWN


def test_verdicts_may_be_ignored(world):
    with_late(world, on_invalid={"flights": "ignore"})
    give(world, "fail")
    assert rule(world) is DecisionRule.UNCHANGED
    world.add("flights", DAY, "17", name="late", rows=500)
    assert rule(world) is DecisionRule.GROWN


def test_or_run_the_day_again_as_soon_as_the_input_changes(world):
    with_late(world, on_invalid={"flights": "rerun"})
    give(world, "fail")
    assert rule(world) is DecisionRule.UNCHANGED  # a run would read the same
    world.add("weather", DAY, "17", name="late", rows=0)
    world.add("flights", DAY, "17", name="late", rows=1)  # below the thresholds
    again = decision(world)
    assert (again.decision, again.rule) == (LateDecision.RERUN, DecisionRule.INVALID_READ)
    assert "the input has changed since the published run: flights has failed: flights 2013-03-11 17:00" in again.reason
    world.publish(DAY)
    assert rule(world) is DecisionRule.UNCHANGED


@pytest.mark.parametrize("action", [ResolutionAction.RELEASED, ResolutionAction.KEPT])
def test_a_person_may_accept_the_data_and_a_later_verdict_asks_again(world, action):
    give(world, "fail")
    assert rule(world) is DecisionRule.INVALID
    world.time += timedelta(minutes=1)
    decide = world.hold_decisions().release if action is ResolutionAction.RELEASED else world.hold_decisions().keep
    decide(PIPELINE, DAY, reason="only some bots")
    assert rule(world) is DecisionRule.UNCHANGED
    give(world, "fail")
    assert rule(world) is DecisionRule.INVALID


def test_a_later_verdict_asks_again_about_late_data_that_a_person_does_not_publish(world):
    world.add("flights", DAY, "20", rows=500)
    assert rule(world) is DecisionRule.GROWN
    give(world, "fail")
    assert rule(world) is DecisionRule.INVALID
    world.time += timedelta(minutes=1)
    world.hold_decisions().keep(PIPELINE, DAY, reason="only some bots")
    assert rule(world) is DecisionRule.KEPT
    give(world, "fail", OTHER)
    held = decision(world)
    assert held.rule is DecisionRule.INVALID
    assert "2013-03-11 20:00" in held.reason
    assert "2013-03-11 17:00" not in held.reason
    give(world, "pass", OTHER)
    assert rule(world) is DecisionRule.KEPT


@pytest.fixture
def chain(world) -> World:
    """`weekly` has read the days of the pipeline; it has no threshold."""
    daily = world.project.pipelines[PIPELINE]
    weekly = daily.model_copy(
        update={
            "pipeline": WEEKLY,
            "sources": (),
            "tables": {"days": TableInput(table=PIPELINE, days=(-1, 0), missing="empty", on_change="ignore")},
            "steps": {"rows": StepUse(step="sql", depends_on=("days",))},
            "publish": daily.publish.model_copy(update={"step": "rows"}),
        }
    )
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: daily, WEEKLY: weekly}})
    world.publish(DAY, pipeline=WEEKLY)
    return world


def test_a_verdict_about_a_source_travels_to_a_reader_of_the_reader(chain):
    assert rule(chain, pipeline=WEEKLY) is DecisionRule.UNCHANGED
    give(chain, "fail")
    assert rule(chain, pipeline=WEEKLY) is DecisionRule.INVALID
    assert "days has failed: flights 2013-03-11 17:00 UTC: fail" in decision(chain, pipeline=WEEKLY).reason
    give(chain, "pass")
    assert rule(chain, pipeline=WEEKLY) is DecisionRule.UNCHANGED


@pytest.mark.parametrize(
    ("on_invalid", "rules"), [("hold", ["invalid", "table_ignored"]), ("rerun", ["unchanged", "invalid_read"])]
)
def test_a_newer_version_ends_the_verdict_about_the_earlier_one(chain, on_invalid, rules):
    with_late(chain, WEEKLY, on_invalid={"days": on_invalid})
    give(chain, "fail", DAY, subject=Subject("pipeline", PIPELINE), version=1)
    found = [rule(chain, pipeline=WEEKLY)]
    assert rule(chain) is DecisionRule.UNCHANGED  # a person decides what becomes of the version itself
    chain.publish(DAY, force=True)
    found.append(rule(chain, pipeline=WEEKLY))
    assert found == rules
    chain.publish(DAY, pipeline=WEEKLY)
    assert rule(chain, pipeline=WEEKLY) is DecisionRule.UNCHANGED


def test_a_deployment_without_a_table_of_states_has_no_verdicts(world):
    give(world, "fail")
    world.verdicts = None
    assert rule(world) is DecisionRule.UNCHANGED


def test_no_manifest_of_other_pipelines_is_read_while_nothing_has_failed(chain, monkeypatch):
    give(chain, "fail")
    give(chain, "pass")
    read = []
    get = chain.store.get
    monkeypatch.setattr(chain.store, "get", lambda uri: read.append(uri) or get(uri))
    assert rule(chain, pipeline=WEEKLY) is DecisionRule.UNCHANGED
    assert [uri for uri in read if f"/{PIPELINE}/" in uri] == []
