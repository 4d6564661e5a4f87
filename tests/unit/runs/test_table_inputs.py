"""Runs that read published days of another pipeline."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from slackwater.errors import DefinitionError, InputError, UnknownName
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.late.report.sections import describe_inputs
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.pipeline.graph import pipeline_order, selected_pipelines
from slackwater.runs.freeze import Frozen
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Publication, PublishedRun, Run
from slackwater.sources.late_thresholds import LateThresholds
from tests.fakes_check import PIPELINE, World, freezer_of
from tests.fakes_notification import a_run

pytestmark = pytest.mark.unit

SUNDAY = date(2013, 3, 10)


def weekly(**changes: Any) -> Pipeline:
    definition = {
        "pipeline": PIPELINE,
        "timezone": "America/New_York",
        "tables": {"days": {"table": "daily", "days": [-6, 0], **changes}},
        "steps": {"end": {"step": "sql", "depends_on": ["days"], "with": {"query": "SELECT 1"}}},
        "publish": {"step": "end", "key": ["date"]},
    }
    return Pipeline.model_validate(definition)


class Weeks(World):
    """A pipeline that reads the days of `daily`, which are published from Monday to Sunday."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        daily = self.project.pipelines[PIPELINE].model_copy(update={"pipeline": "daily"})
        pipelines = {"daily": daily, PIPELINE: weekly(**changes)}
        self.project = self.project.model_copy(update={"pipelines": pipelines})
        for number in range(7):
            self.publish_daily(SUNDAY - timedelta(days=number), content=f"rows {number}")

    def publish_daily(self, day: date, *, content: str, attempt: int = 1, rows: int = 10) -> None:
        record = self.table.day("daily", day.isoformat())
        run = a_run(attempt, pipeline="daily", date=day.isoformat(), run_id="a" * 32)
        publication = Publication(
            table="warehouse.days.daily", snapshot_id="1", rows=rows, replaced=0, seconds=1, content=content
        )
        published = PublishedRun(run=run, publication=publication, at=self.now())
        self.table.save(record.model_copy(update={"published": published, "attempts": attempt}))

    def start(self, **options: Any) -> Frozen:
        arguments = {"pipeline": PIPELINE, "date": SUNDAY.isoformat(), "execution": "run", "correlation_id": "c"}
        return freezer_of(self).freeze(**arguments, **options)

    def publish_week(self) -> Run:
        run = self.start().run
        publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1)
        self.store.put(f"{run.prefix}publication.json", publication.model_dump_json().encode())
        RunRecorder(store=self.store, table=self.table, now=self.now).record_published(run)
        return run


def test_a_run_freezes_the_version_of_each_day():
    world = Weeks()
    world.publish_daily(SUNDAY, content="more rows", attempt=2, rows=12)
    run = world.start().run
    manifest = read_manifest(world.store, run.manifest)
    days = [(SUNDAY - timedelta(days=number)).isoformat() for number in reversed(range(7))]
    assert [(item.source, item.date) for item in manifest.objects] == [("days", day) for day in days]
    last = manifest.objects[-1]
    assert (last.uri, last.etag, last.rows) == ("warehouse.days.daily/date=2013-03-10", "more rows", 12)
    assert last.tag == f"2013-03-10-{'a' * 12}-2"
    assert (run.files, run.rows, run.bytes) == (7, 72, 0)


@pytest.mark.parametrize("number", [0, 3, 6])
def test_a_day_with_the_same_rows_in_a_new_version_starts_no_run(number):
    world = Weeks()
    world.publish_week()
    world.publish_daily(SUNDAY - timedelta(days=number), content=f"rows {number}", attempt=2)
    assert world.start().action == "unchanged"
    assert world.rules("2013-03-11")["2013-03-10"] is DecisionRule.UNCHANGED


@pytest.mark.parametrize("days", [[-3, 0], [-6, -1]])
def test_days_that_the_definition_no_longer_names_are_no_lost_inputs(days):
    world = Weeks()
    world.publish_week()
    world.project = world.project.model_copy(
        update={"pipelines": {**world.project.pipelines, PIPELINE: weekly(days=days)}}
    )
    rules = world.rules("2013-03-11")
    assert rules["2013-03-10"] is not DecisionRule.VANISHED
    run = world.start().run
    assert (run.attempt, run.files) == (2, days[1] - days[0] + 1)


@pytest.mark.parametrize("number", [0, 3, 6])
def test_a_day_with_other_rows_makes_the_week_late(number):
    world = Weeks()
    world.publish_week()
    day = SUNDAY - timedelta(days=number)
    world.publish_daily(day, content="other", attempt=2, rows=11)
    (decision,) = [item for item in world.check("2013-03-11").days if item.date == "2013-03-10"]
    assert (decision.rule, decision.decision) == (DecisionRule.GROWN, LateDecision.RERUN)
    assert "days has 1 changed day, 10 -> 11 rows" in decision.reason
    (source,) = [source for source in decision.sources if source.changes]
    shown = list(describe_inputs(source, source.changes[0].arrived - timedelta(hours=1)))
    # Published days have neither hours nor bytes.
    assert shown[:3] == ["days: 71 rows, 70 before", f"  daily {day} (changed)", "    11 rows (10 before)"]


def test_a_day_that_is_not_published_is_an_error_or_without_rows():
    with pytest.raises(
        InputError, match=r"^tables\.days: daily has not published 2013-03-03: run it first \(slackwater"
    ):
        Weeks(days=[-7, 0]).start()
    assert Weeks(days=[-7, 0], missing="empty").start().run.files == 7


def test_a_day_that_is_published_later_makes_a_week_late_that_could_do_without_it():
    world = Weeks(days=[-7, 0], missing="empty")
    world.publish_week()
    world.publish_daily(date(2013, 3, 3), content="late")
    assert world.rules("2013-03-11")["2013-03-10"] is DecisionRule.GROWN


@pytest.mark.parametrize("days", [[0, -1], [-1, 1], [-400, 0], [0], "all"])
def test_wrong_days_are_refused(days):
    with pytest.raises(ValidationError, match="days"):
        weekly(days=days)


def chain(**reads: str) -> dict[str, Pipeline]:
    pipelines = {}
    for name, tables in reads.items():
        definition = weekly().model_dump(by_alias=True) | {"pipeline": name, "sources": ["a"]}
        definition["tables"] = {f"t{number}": {"table": table} for number, table in enumerate(tables.split())}
        pipelines[name] = Pipeline.model_validate(
            {**definition, "steps": {"end": {"step": "sql", "depends_on": ["a"]}}}
        )
    return pipelines


def test_pipelines_are_ordered_after_those_that_they_read():
    assert pipeline_order(chain(a="b c", b="c", c="")) == ("c", "b", "a")


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ("week", "week"),
        ("week+", "week month year"),
        ("+week", "raw day week"),
        ("+week+", "raw day week month year"),
        ("raw+", "raw day week month year"),
        ("+raw", "raw"),
        ("+year", "raw day other week month year"),
        ("alone+", "alone"),
    ],
)
def test_a_selection_is_a_pipeline_with_those_that_it_reads_or_that_read_it(selection, selected):
    pipelines = chain(year="month other", month="week", week="day", day="raw", raw="", other="", alone="")
    names = selected_pipelines(selection, pipelines)
    assert sorted(names) == sorted(selected.split())
    assert names == tuple(name for name in pipeline_order(pipelines) if name in names)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("weak+", r"^--select: 'weak\+' names no pipeline of the project \(did you mean week\?\)$"),
        ("zzz", r"^--select: 'zzz' names no pipeline of the project \(expected one of day, week\)$"),
        ("+", "names no pipeline"),
        ("", "names no pipeline"),
        ("++week", "names no pipeline of the project .did you mean week"),
    ],
)
def test_a_selection_of_an_unknown_pipeline_names_the_closest_one(selection, message):
    with pytest.raises(UnknownName, match=message):
        selected_pipelines(selection, chain(week="day", day=""))


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ({"a": "b", "b": "a"}, "pipelines read each other's tables: "),
        ({"a": "a"}, "pipelines read each other's tables: a -> a"),
        ({"a": "nothing"}, r"pipeline a: tables\.t0\.table names 'nothing', which is not a pipeline of the project"),
    ],
)
def test_a_cycle_and_an_unknown_pipeline_are_refused(reads, message):
    with pytest.raises(DefinitionError, match=message):
        pipeline_order(chain(**reads))


def week_of(world: Weeks) -> DayDecision:
    (decision,) = [item for item in world.check("2013-03-11").days if item.date == SUNDAY.isoformat()]
    return decision


def test_an_ignored_table_does_not_hide_late_data_of_a_source():
    world = Weeks(on_change="ignore")
    definition = weekly(on_change="ignore").model_copy(
        update={"sources": ("flights",), "late": Late(max_age_hours=1, thresholds={"flights": LateThresholds(rows=5)})}
    )
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, PIPELINE: definition}})
    world.publish_week()
    world.publish_daily(SUNDAY, content="other", attempt=2, rows=3)
    assert week_of(world).rule is DecisionRule.TABLE_IGNORED
    # Late data below its threshold has not waited, although the day of the table has changed long ago.
    world.time += timedelta(days=1)
    world.add("flights", "2013-03-10", "20", name="one", rows=4)
    below = week_of(world)
    assert (below.rule, below.figures.late_rows) == (DecisionRule.BELOW, 4)
    world.add("flights", "2013-03-10", "20", name="two", rows=4)
    grown = week_of(world)
    assert (grown.rule, grown.figures.late_rows) == (DecisionRule.GROWN, 8)


def test_on_change_does_not_give_a_published_week_another_identity():
    world = Weeks()
    world.publish_week()
    for choice in ("hold", "notify", "ignore"):
        world.project = world.project.model_copy(
            update={"pipelines": {**world.project.pipelines, PIPELINE: weekly(on_change=choice)}}
        )
        assert world.start().action == "unchanged"
    assert "on_change" not in world.project._written(PIPELINE)


@pytest.mark.parametrize("choice", ["never", "rerun", True, None])
def test_a_wrong_choice_is_refused(choice):
    with pytest.raises(ValidationError, match="on_change"):
        weekly(on_change=choice)
