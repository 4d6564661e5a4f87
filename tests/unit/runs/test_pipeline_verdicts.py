"""Pipelines give verdicts about inputs that their rules of severity `invalidate` have refused."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest
from pydantic import ValidationError

from slackwater.late.decision import DecisionRule
from slackwater.late.monitor import Monitor
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.holds import MAX_REASON
from slackwater.runs.period import period_of
from slackwater.runs.record import invalid_input_uri
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import Subject, Verdict, failures, new_verdict
from tests.fakes_check import PIPELINE, World, five_days

pytestmark = pytest.mark.unit

DAY, OTHER = "2013-03-11", "other"
FLIGHTS = Subject("source", "flights")
REASON = "InputInvalid: steps.checked: row_count failed"


@pytest.fixture
def world() -> World:
    """`other` has read the same flights."""
    world = five_days()
    daily = world.project.pipelines[PIPELINE]
    pipelines = {PIPELINE: daily, OTHER: daily.model_copy(update={"pipeline": OTHER})}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    world.publish(DAY, pipeline=OTHER)
    return world


def refuse(world: World, pipeline: str = PIPELINE, reason: str = REASON) -> None:
    """A run of the day fails a minute later."""
    world.time += timedelta(minutes=1)
    run = world.freeze(DAY, pipeline=pipeline, force=True)
    world.store.put(invalid_input_uri(run.prefix), b"flights")
    world.store.put(f"{run.prefix}failure.txt", reason.encode())
    for _ in range(2):
        world.recorder.record_failure(run, error="E", cause="")


def correct(world: World) -> None:
    world.time += timedelta(hours=4)  # longer than the cool-down of the failed run
    world.add("flights", DAY, "18", name="correction", rows=500)


def clear_unchanged(world: World) -> None:
    """What a check does after its decisions."""
    parts = dict.fromkeys((field.name for field in fields(Monitor)), None)
    monitor = Monitor(**{**parts, "checker": world.checker, "verdicts": world.pipeline_verdicts})
    monitor.clear_verdicts(world.check())


def rule(world: World, pipeline: str) -> DecisionRule:
    report = world.checker.check(pipeline=pipeline, as_of=None)
    return next(item.rule for item in report.days if item.date == DAY)


def stored(world: World) -> list[Verdict]:
    return sorted(world.verdicts.verdicts(FLIGHTS, "0", "9"), key=lambda item: (item.at, item.period))


def test_other_readers_do_not_use_the_input_until_a_run_of_the_pipeline_has_published(world):
    refuse(world)
    assert [(item.period, item.quality, item.principal) for item in stored(world)] == [
        ("2013-03-11T17", "fail", "pipeline daily_delays of 2013-03-11, attempt 2")
    ]
    assert stored(world)[0].reason == REASON
    assert [subject for subject, *_ in world.woken] == [FLIGHTS]
    assert rule(world, OTHER) is DecisionRule.INVALID
    correct(world)
    assert rule(world, OTHER) is DecisionRule.INVALID
    # Its own verdict stops no run of the pipeline: nothing else can clear it.
    assert rule(world, PIPELINE) is DecisionRule.GROWN
    world.time += timedelta(minutes=1)
    world.publish(DAY)
    assert failures(stored(world)) == []
    assert rule(world, OTHER) is DecisionRule.GROWN


def test_a_check_clears_the_verdict_when_the_input_is_again_that_of_the_published_run(world):
    bad = world.add("flights", DAY, "20", rows=500)
    refuse(world)
    assert {item.period for item in failures(stored(world))} == {"2013-03-11T17", "2013-03-11T20"}
    clear_unchanged(world)
    assert len(failures(stored(world))) == 2  # the input has changed since the published run
    world.store.delete([bad])
    world.time += timedelta(hours=4)
    for _ in range(2):
        clear_unchanged(world)
    assert failures(stored(world)) == []
    assert rule(world, OTHER) is DecisionRule.UNCHANGED


def test_its_own_verdict_stops_no_waiting_run_of_the_pipeline(world):
    refuse(world)
    reader = VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)
    failed = {
        name: reader.of_input(world.project.pipelines[name], "flights", period_of(DAY, "America/New_York"), hourly=())
        for name in (PIPELINE, OTHER)
    }
    assert [bool(failed[PIPELINE]), bool(failed[OTHER])] == [False, True]


def test_a_pipeline_clears_only_what_it_has_said_itself(world):
    refuse(world)
    refuse(world, OTHER)
    by_person = new_verdict(
        FLIGHTS, "2013-03-11T17", "fail", version=None, reason="bots", principal="ana", at=world.time
    )
    world.verdicts.put_verdicts([by_person])
    world.time += timedelta(minutes=1)
    world.publish(DAY, force=True)
    assert {item.pipeline for item in failures(stored(world))} == {"", OTHER}
    assert rule(world, PIPELINE) is DecisionRule.INVALID
    # A person clears all of them, and the next refusal is newer.
    world.time += timedelta(minutes=1)
    world.verdicts.put_verdicts([by_person.model_copy(update={"quality": "pass", "id": "p", "at": world.time})])
    assert failures(stored(world)) == []
    refuse(world, OTHER)
    assert {item.pipeline for item in failures(stored(world))} == {OTHER}


def test_a_verdict_is_newer_than_one_whose_clock_is_ahead(world):
    ahead = world.time + timedelta(minutes=4)
    by_person = new_verdict(FLIGHTS, "2013-03-11T17", "pass", version=None, reason="ok", principal="ana", at=ahead)
    world.verdicts.put_verdicts([by_person])
    refuse(world)
    assert [item.pipeline for item in failures(stored(world))] == [PIPELINE]
    # Its own is ahead now, too.
    world.time += timedelta(minutes=1)
    world.publish(DAY, force=True)
    assert failures(stored(world)) == []


def test_a_long_reason_is_cut(world):
    refuse(world, reason=f"{REASON}: {'x' * 2000}")
    assert len(stored(world)[0].reason) == MAX_REASON


def test_a_published_run_of_a_deployment_without_verdicts_reads_no_manifest(world, monkeypatch):
    read = list[str]()
    get = world.store.get
    monkeypatch.setattr(world.store, "get", lambda uri: read.append(uri) or get(uri))
    world.recorder.verdicts.of_published([world.table.run(PIPELINE, DAY, 1)])
    assert read == []


def definition(severity: str, depends_on: str) -> dict[str, object]:
    rules = [{"rule": "row_count", "min": 1, "severity": severity}]
    return {
        "pipeline": "daily",
        "sources": ["flights"],
        "steps": {
            "some": {"step": "sql", "depends_on": ["flights"], "with": {"query": "SELECT * FROM flights"}},
            "checked": {"step": "data_quality", "depends_on": [depends_on], "with": {"rules": rules}},
        },
        "publish": {"step": "checked", "key": ["date"]},
    }


@pytest.mark.parametrize(("severity", "is_given"), [("fail", False), ("invalidate", True)])
def test_a_definition_says_whether_its_runs_give_verdicts(severity, is_given):
    assert Pipeline.model_validate(definition(severity, "flights")).gives_verdicts is is_given


def test_only_an_input_can_be_refused():
    assert not Pipeline.model_validate(definition("fail", "some")).gives_verdicts
    with pytest.raises(ValidationError) as raised:
        Pipeline.model_validate(definition("invalidate", "some"))
    assert (
        "steps.checked.with.rules.0.severity: a verdict is about a source or a table of another pipeline, and some is "
        "neither: check it in a step that reads the input itself, or write `fail`"
    ) in str(raised.value)
