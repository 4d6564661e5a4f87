"""Pipelines give verdicts about inputs that their rules of severity `invalidate` have refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from slackwater.errors import AccessDenied, SlackwaterError, Throttled
from slackwater.late.decision import DecisionRule
from slackwater.late.monitor import Monitor
from slackwater.metrics import Metric
from slackwater.pipeline.definition import Pipeline, Publish, StepUse
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.holds import MAX_REASON
from slackwater.runs.period import period_of
from slackwater.runs.record import JobFiles, Rollback, Run
from slackwater.runs.waits.mutual_waits import waiting_for
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import Subject, Verdict, describe_verdicts, failures, new_verdict
from tests.fakes_check import PIPELINE, PUBLICATION, World, five_days, freezer_of

pytestmark = pytest.mark.unit

DAY, OTHER = "2013-03-11", "other"
SOURCES = ("flights", "weather")
FLIGHTS = Subject("source", "flights")
REASON = "steps.checked: row_count failed"


@pytest.fixture
def world() -> World:
    """`other` has read the same flights."""
    world = five_days()
    daily = world.project.pipelines[PIPELINE]
    pipelines = {PIPELINE: daily, OTHER: daily.model_copy(update={"pipeline": OTHER})}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    world.publish(DAY, pipeline=OTHER)
    return world


def define(world: World, pipeline: str, **changes: Any) -> None:
    definition = world.project.pipelines[pipeline].model_copy(update=changes)
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, pipeline: definition}})


def judging_step(name: str) -> dict[str, Any]:
    rules = [{"rule": "row_count", "min": 1, "severity": "invalidate"}]
    return {"step": "data_quality", "depends_on": [name], "with": {"rules": rules}}


def judge(world: World, pipeline: str, source: str) -> None:
    """Let a pipeline judge one of its sources before its steps read it."""
    steps = {
        name: use.model_copy(
            update={"depends_on": tuple("judged" if each == source else each for each in use.depends_on)}
        )
        for name, use in world.project.pipelines[pipeline].steps.items()
    }
    define(world, pipeline, steps={"judged": StepUse.model_validate(judging_step(source)), **steps})


def refuse(world: World, pipeline: str = PIPELINE, reason: str = REASON, source: str = "flights") -> None:
    """A run of the day fails a minute later."""
    world.time += timedelta(minutes=1)
    run = world.freeze(DAY, pipeline=pipeline, force=True)
    world.refuse(run, source, reason)
    for _ in range(2):
        world.recorder.end_failed(run, error="E", cause="", retried=False)


def correct(world: World) -> None:
    world.time += timedelta(hours=4)  # longer than the cool-down of the failed run
    world.add("flights", DAY, "18", name="correction", rows=500)


def clear_unchanged(world: World, pipeline: str = PIPELINE) -> None:
    """What a check does after its decisions."""
    parts = dict.fromkeys((field.name for field in fields(Monitor)), None)
    monitor = Monitor(**{**parts, "checker": world.checker, "verdicts": world.pipeline_verdicts})
    monitor.clear_verdicts(world.checker.check(pipeline=pipeline, as_of=None))


def rule(world: World, pipeline: str) -> DecisionRule:
    report = world.checker.check(pipeline=pipeline, as_of=None)
    return next(item.rule for item in report.days if item.date == DAY)


def failed_inputs(world: World, pipeline: str) -> set[str]:
    """Return the sources whose verdicts a waiting run of the day obeys."""
    reader = VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)
    day, pipelines = period_of(DAY, "America/New_York"), world.project.pipelines
    return {name for name in SOURCES if reader.of_input(pipelines[pipeline], name, day, pipelines=pipelines)}


def standing(world: World) -> list[Verdict]:
    return [item for name in SOURCES for item in failures(world.verdicts.verdicts(Subject("source", name), "0", "9"))]


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


def test_checks_clear_the_verdicts_of_two_pipelines_about_the_same_input(world):
    bad = world.add("flights", DAY, "20", rows=500)
    refuse(world)
    refuse(world, OTHER)
    world.store.delete([bad])
    world.time += timedelta(hours=4)
    # Each holds the day of the other one.
    assert (rule(world, PIPELINE), rule(world, OTHER)) == (DecisionRule.INVALID, DecisionRule.INVALID)
    clear_unchanged(world)
    clear_unchanged(world, OTHER)
    assert failures(stored(world)) == []
    assert (rule(world, PIPELINE), rule(world, OTHER)) == (DecisionRule.UNCHANGED, DecisionRule.UNCHANGED)


def test_its_own_verdict_stops_no_waiting_run_of_the_pipeline(world):
    refuse(world)
    assert [failed_inputs(world, name) for name in (PIPELINE, OTHER)] == [set(), {"flights"}]


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


def test_a_publication_clears_the_verdict_also_if_the_clock_of_a_partner_is_ahead(world):
    ahead = world.time + timedelta(minutes=14)
    by_partner = new_verdict(
        FLIGHTS, "2013-03-11T17", "fail", version=None, reason="t", principal="push:a", giver="push:a", at=ahead
    )
    world.verdicts.put_verdicts([by_partner])
    refuse(world)
    world.time += timedelta(minutes=1)
    world.publish(DAY, force=True)
    assert [item.giver for item in failures(stored(world))] == ["push:a"]


def test_a_run_that_a_later_one_has_closed_as_lost_gives_no_verdict(world):
    lost = world.freeze(DAY, force=True)
    world.refuse(lost, "flights")
    world.executions.running = set()
    run = freezer_of(world).freeze(pipeline=PIPELINE, date=DAY, execution="next", correlation_id="c", force=True).run
    world.store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
    world.recorder.end_published(run)
    # Its function still works. Nothing would clear what it says.
    world.recorder.end_failed(lost, error="E", cause="", retried=False)
    assert stored(world) == []


def test_a_repeated_publication_clears_no_verdict_of_a_later_run(world):
    refuse(world)
    first = world.publish(DAY, force=True)
    assert not standing(world)
    refuse(world)
    given = standing(world)
    # The answer of the first call was lost.
    world.recorder.end_published(first)
    assert standing(world) == given != []
    world.time += timedelta(minutes=1)
    world.publish(DAY, force=True)
    assert not standing(world)


def refused_run(world: World) -> Run:
    """Return a run that a rule has refused. The function that records it has ended before it gave a verdict."""
    world.time += timedelta(minutes=1)
    run = world.freeze(DAY, force=True)
    world.refuse(run, "flights")
    world.fail(run)
    return run


def publish_corrected(world: World) -> None:
    correct(world)
    world.publish(DAY, force=True)


def end_failed(world: World, run: Run) -> None:
    world.recorder.end_failed(run, error="E", cause="", retried=False)


def test_a_repeated_failure_gives_no_verdict_after_a_later_run_has_published(world):
    refused = refused_run(world)
    publish_corrected(world)
    end_failed(world, refused)
    assert stored(world) == []


def test_a_run_gives_its_verdict_after_an_earlier_version_was_published_again(world):
    """Nothing has read the input since. The next run that publishes clears it."""
    refused = refused_run(world)
    published = world.table.day(PIPELINE, DAY)
    restored = world.table.run(PIPELINE, DAY, published.published.run.attempt)
    later = restored.model_copy(
        update={
            "run": restored.run.model_copy(update={"attempt": refused.attempt + 1}),
            "rollback": Rollback(to=1, tag=restored.run.tag, reason="r", frozen_at=world.time),
        }
    )
    world.table.save(published.model_copy(update={"attempts": later.run.attempt}), later)
    end_failed(world, refused)
    assert len(standing(world)) == 1


def test_a_later_run_may_publish_while_a_verdict_is_stored(world, monkeypatch):
    refused, put_verdicts = refused_run(world), world.verdicts.put_verdicts

    def publish_first(given: list[Verdict]) -> None:
        monkeypatch.setattr(world.verdicts, "put_verdicts", put_verdicts)
        publish_corrected(world)
        put_verdicts(given)

    monkeypatch.setattr(world.verdicts, "put_verdicts", publish_first)
    end_failed(world, refused)
    assert [item.quality for item in stored(world)] == ["fail", "pass"]
    assert not standing(world)


def test_a_repeated_failure_clears_the_verdict_that_was_stored_while_a_later_run_published(world, monkeypatch):
    refused, runs = refused_run(world), world.table.runs
    with monkeypatch.context() as patch:
        # Until the first call ends, which does not come to see the later run.
        patch.setattr(world.table, "runs", lambda *of: runs(*of)[: refused.attempt])
        patch.setattr(world.verdicts, "subjects", list)  # it clears before the verdict is stored
        publish_corrected(world)
        end_failed(world, refused)
    assert standing(world)
    end_failed(world, refused)
    assert not standing(world)


@pytest.mark.parametrize("timezone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_a_publication_in_another_timezone_clears_the_hours_of_the_former_day(world, timezone):
    for date, hour in (("2013-03-11", "04"), ("2013-03-12", "03")):  # the first and the last one in New York
        world.add("flights", date, hour, rows=500)
    refuse(world)
    assert len(standing(world)) == 3
    define(world, PIPELINE, timezone=timezone)
    world.time += timedelta(minutes=1)
    world.publish(DAY, force=True, moves_hours=True)
    assert not standing(world)


def test_a_pipeline_that_is_not_deployed_says_nothing(world):
    world.time += timedelta(minutes=1)
    run = world.freeze(DAY, force=True)
    world.refuse(run, "flights")
    world.fail(run)
    record = world.table.run(PIPELINE, DAY, run.attempt)
    files = JobFiles(
        project="s3://exchange/projects/0.json", archive="s3://assets/a.zip", entry_point="s3://assets/p.py"
    )
    world.recorder.verdicts.of_failed(record.model_copy(update={"files": files}))
    assert stored(world) == []
    deployed = files.model_copy(update={"project": "s3://assets/0.json"})
    world.recorder.verdicts.of_failed(record.model_copy(update={"files": deployed}))
    assert len(stored(world)) == 1


@pytest.mark.parametrize("judged", [("flights", "flights"), ("flights", "weather")])
def test_pipelines_that_judge_what_both_read_do_not_wait_for_each_other(world, judged):
    inputs = dict(zip((PIPELINE, OTHER), judged, strict=True))
    for name, source in inputs.items():
        judge(world, name, source)
        world.publish(DAY, pipeline=name, force=True)
    for source in SOURCES:
        world.add(source, DAY, "20", rows=500)
    for name, source in inputs.items():
        refuse(world, name, source=source)
    correct(world)
    assert [rule(world, name) for name in inputs] == [DecisionRule.GROWN] * 2
    # Nor do their first runs, which wait for quality.
    assert not any(failed_inputs(world, name) for name in inputs)
    # A person's verdict counts for both.
    by_person = new_verdict(
        FLIGHTS, "2013-03-11T17", "fail", version=None, reason="bots", principal="ana", at=world.time
    )
    world.verdicts.put_verdicts([by_person])
    assert [rule(world, name) for name in inputs] == [DecisionRule.INVALID] * 2
    assert [failed_inputs(world, name) for name in inputs] == [{"flights"}] * 2
    # Each clears its own.
    for name in inputs:
        world.time += timedelta(minutes=1)
        world.publish(DAY, pipeline=name, force=True)
    assert standing(world) == [by_person]


def test_a_pipeline_obeys_one_that_does_not_wait_for_it_also_if_it_judges_another_input(world):
    """`other` judges the flights alone, and reads nothing else."""
    judge(world, PIPELINE, "weather")
    publish = Publish(step="rows", key=("date",))
    steps = {"rows": StepUse(step="select", depends_on=("flights",))}
    define(world, OTHER, sources=("flights",), steps=steps, publish=publish)
    judge(world, OTHER, "flights")
    world.publish(DAY, pipeline=OTHER, force=True)
    refuse(world, OTHER)
    assert rule(world, PIPELINE) is DecisionRule.INVALID
    assert failed_inputs(world, PIPELINE) == {"flights"}


def chain(reads: dict[str, tuple[str, str]]) -> dict[str, Pipeline]:
    """Return pipelines: each reads the first of these, separated by spaces, and judges the second."""
    found = {}
    for name, (inputs, judged) in reads.items():
        tables = {each: {"table": each} for each in inputs.split() if each in reads}
        sources = [each for each in inputs.split() if each not in reads]
        steps = {"rows": {"step": "sql", "depends_on": inputs.split(), "with": {"query": "SELECT 1"}}}
        if judged:
            steps["checked"] = judging_step(judged)
        fields = {"pipeline": name, "sources": sources, "tables": tables, "steps": steps}
        found[name] = Pipeline.model_validate({**fields, "publish": {"step": "rows", "key": ["date"]}})
    return found


@pytest.mark.parametrize(
    ("reads", "waiting"),
    [
        # Nobody waits for a reader that judges nothing.
        ({"a": ("clicks", ""), "b": ("clicks", "clicks")}, {"b": {"a"}}),
        # Nor for one of two that judge, if it alone reads what the other judges.
        ({"a": ("clicks rates", "rates"), "b": ("clicks", "clicks")}, {"b": {"a"}}),
        ({"a": ("clicks rates", "rates"), "b": ("clicks rates", "clicks")}, {"a": {"b"}, "b": {"a"}}),
        # Three, of which each waits for the next one.
        (
            {"a": ("r s", "r"), "b": ("s t", "s"), "c": ("t r", "t")},
            {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}},
        ),
        # What `x` is made of.
        (
            {"x": ("clicks", ""), "a": ("x rates", "rates"), "b": ("clicks rates", "clicks")},
            {"a": {"b", "x"}, "b": {"a", "x"}},
        ),
        # `a` publishes only after `y` and `x` have: they do not wait for it, nor for those that wait for it.
        (
            {"y": ("clicks", ""), "x": ("y", ""), "a": ("x", "x"), "b": ("clicks x", "clicks")},
            {"x": {"a", "b", "y"}, "y": {"a", "b", "x"}, "a": {"b", "x", "y"}, "b": {"a", "x", "y"}},
        ),
    ],
)
def test_a_pipeline_obeys_none_that_may_wait_for_it(reads, waiting):
    pipelines = chain(reads)
    assert {name: waiting_for(name, pipelines) - {name} for name in pipelines} == {
        name: waiting.get(name, set()) for name in pipelines
    }


def test_a_long_reason_is_cut(world):
    refuse(world, reason=f"{REASON}: {'x' * 2000}")
    assert len(stored(world)[0].reason) == MAX_REASON


@pytest.mark.parametrize("givers", [(), (OTHER,), (PIPELINE,)])
def test_a_published_run_reads_no_manifest_for_verdicts_about_sources(world, monkeypatch, givers):
    """A manifest may be larger than the memory of the function."""
    for giver in givers:
        refuse(world, giver)
    read = list[str]()
    get = world.store.get
    monkeypatch.setattr(world.store, "get", lambda uri: read.append(uri) or get(uri))
    world.recorder.verdicts.of_published([world.table.run(PIPELINE, DAY, 1)])
    assert read == []


@pytest.mark.parametrize("has_published", [False, True])
def test_a_run_is_counted_once_also_if_its_verdicts_are_stored_in_a_second_call(world, monkeypatch, has_published):
    counted = list[Metric]()
    recorder = replace(world.recorder, put_metric=lambda metric, value, **subjects: counted.append(metric))
    run = world.freeze(DAY, force=True)
    if has_published:
        world.store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
    else:
        world.refuse(run, "flights")

    def end() -> None:
        if has_published:
            recorder.end_published(run)
        else:
            recorder.end_failed(run, error="E", cause="", retried=False)

    busy = Throttled("busy")
    with monkeypatch.context() as patch:
        for name in ("subjects", "verdicts"):
            patch.setattr(world.verdicts, name, raising(busy))
        with pytest.raises(Throttled):
            end()
    end()
    assert counted == [Metric.RUNS_PUBLISHED if has_published else Metric.RUNS_FAILED]
    assert bool(failures(stored(world))) is not has_published


def test_a_publication_is_recorded_also_if_the_function_may_not_read_verdicts(world, monkeypatch):
    warned = list[str]()
    recorder = replace(world.recorder, warn=lambda message, **fields: warned.append(message))
    run = world.freeze(DAY, force=True)
    world.store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
    monkeypatch.setattr(world.verdicts, "subjects", raising(AccessDenied("no")))
    recorder.end_published(run)
    assert warned == ["the verdicts of the pipeline were not cleared"]


def raising(error: SlackwaterError) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


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
    assert (Pipeline.model_validate(definition(severity, "flights")).judged_inputs == {"flights"}) is is_given


def test_only_an_input_can_be_refused():
    assert not Pipeline.model_validate(definition("fail", "some")).judged_inputs
    with pytest.raises(ValidationError) as raised:
        Pipeline.model_validate(definition("invalidate", "some"))
    assert (
        "steps.checked.with.rules.0.severity: a verdict is about a source or a table of another pipeline, and some is "
        "neither: check it in a step that reads the input itself, or write `fail`"
    ) in str(raised.value)


def test_versions_that_were_refused_together_are_one_line():
    at = datetime(2013, 3, 12, tzinfo=UTC)
    given = [
        new_verdict(
            Subject("pipeline", "days"), f"2013-03-0{day}", "fail", version=day, reason="r", principal="p", at=at
        )
        for day in range(1, 6)
    ]
    assert list(describe_verdicts(given)) == [
        "days 2013-03-01, version 1 and 4 more versions: fail, by p since 2013-03-12 00:00 UTC: r"
    ]
