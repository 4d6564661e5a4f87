"""Hourly pipelines that read a daily table: which days an hour reads, and which hours run again with a day."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.errors import InputError
from slackwater.late.check.arrived_days import arrived_days
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.lineage.downstream import Downstream
from slackwater.lineage.upstream import Upstream
from slackwater.pipeline.definition import Late
from slackwater.pipeline.table_inputs import TableInput
from slackwater.pipeline.when import When
from slackwater.runs.arrivals import day_published
from slackwater.runs.inputs.input_definition import input_definition
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.inputs.table_inputs import read_periods, reading_periods
from slackwater.runs.period import HOUR, period_of
from slackwater.runs.waits.days import ProjectDays
from slackwater.runs.waits.evaluation import InputEvaluator
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.sources.late_thresholds import ANY_LATE_DATA
from slackwater.state.conditions import Outcome, describe_unmet
from slackwater.state.verdicts import Subject, new_verdict
from slackwater.state.waits import DayKey
from tests.fakes_check import NOW, PIPELINE
from tests.late_world import LateWorld
from tests.unit.late.test_hour_chains import HOURLY, pipeline

pytestmark = pytest.mark.unit

# The clocks of New York go forward on the 10th, which has the 23 hours from 05 on.
DAY_BEFORE, SHORT_DAY = "2013-03-09", "2013-03-10"


def local_day(hour: str, timezone: str) -> date:
    """The date on which an hour of UTC starts in a timezone."""
    return datetime.fromisoformat(f"{hour}:00").replace(tzinfo=UTC).astimezone(ZoneInfo(timezone)).date()


def hours_from(first: datetime, count: int) -> list[str]:
    return [f"{first + number * HOUR:%Y-%m-%dT%H}" for number in range(count)]


HOURS_OF_SHORT_DAY = [
    hour for hour in hours_from(datetime(2013, 3, 9), 72) if str(local_day(hour, "America/New_York")) == SHORT_DAY
]  # fmt: skip


@pytest.mark.parametrize("days", [(0, 0), (-1, -1), (-3, -1), (-2, 0)])
@pytest.mark.parametrize(
    ("timezone", "change", "count"),
    [
        ("America/New_York", datetime(2013, 3, 10), 23),
        ("America/New_York", datetime(2013, 11, 3), 25),
        ("Europe/Berlin", datetime(2013, 3, 31), 23),
        ("Europe/Berlin", datetime(2013, 10, 27), 25),
        ("Australia/Lord_Howe", datetime(2013, 10, 6), 23),  # by half an hour
        ("Australia/Lord_Howe", datetime(2013, 4, 7), 25),
        ("Asia/Kolkata", datetime(2013, 3, 10), 24),  # its days begin within an hour
    ],
)
def test_each_hour_reads_the_days_by_its_local_day_and_each_day_leads_back_to_these_hours(
    timezone, change, count, days
):
    pipelines = {"daily": pipeline(pipeline="daily", timezone=timezone, sources=("hours",))}
    reader = pipeline(period="hour", timezone="Asia/Tokyo", tables={"hours": {"table": "daily", "days": days}})
    table = reader.published_tables["hours"]
    hours = hours_from(change - timedelta(days=8), 16 * 24)
    reads, readers = dict[str, list[str]](), defaultdict[str, list[str]](list)
    for hour in hours:
        own = local_day(hour, timezone)
        reads[hour] = [str(own + timedelta(days=offset)) for offset in range(days[0], days[1] + 1)]
        for day in reads[hour]:
            readers[day].append(hour)
    for hour in hours:
        assert read_periods(table, period_of(hour, "UTC"), reader, pipelines=pipelines) == reads[hour]
    inner = [str(change.date() + timedelta(days=number)) for number in range(-3, 4)]
    assert {day: reading_periods(table, day, reader, pipelines=pipelines) for day in inner} == {
        day: readers[day] for day in inner
    }
    if days == (0, 0):
        # A change by half an hour moves the midnight within an hour: the day has as many starts of hours as its length
        # rounded up or down.
        assert len(readers[str(change.date())]) in ({count} if "Lord_Howe" not in timezone else {23, 24, 25})


@pytest.fixture
def daily():
    """A daily pipeline of New York with four published days."""
    world = LateWorld()
    world.time = NOW
    sources = {name: item.model_copy(update={"late": ANY_LATE_DATA}) for name, item in world.project.sources.items()}
    world.project = world.project.model_copy(update={"sources": sources})
    for number in range(8, 12):
        world.add("flights", f"2013-03-{number:02}", "17", rows=number)
        world.run_day(f"2013-03-{number:02}")
    return world


def hourly_reader(world: LateWorld, table: TableInput) -> LateWorld:
    reader = world.reader("hourly", table, **HOURLY, late=Late(cool_down_hours=0, max_reruns_per_day=1000))
    world.project = reader.project
    return reader


def read_by(world: LateWorld, hour: str) -> list[str]:
    published = world.table.day(world.pipeline, hour).published
    return [item.date for item in read_manifest(world.store, published.run.manifest).objects]


def rules(world: LateWorld) -> dict[str, DecisionRule]:
    return {day.date: day.rule for day in world.monitor().days if day.attempt}


YESTERDAY = TableInput(table=PIPELINE, days=(-1, -1))
NEIGHBOURS = ["2013-03-10T04", *HOURS_OF_SHORT_DAY[:2], HOURS_OF_SHORT_DAY[-1], "2013-03-11T04"]
"""The last hour of the day before the short one, three of its own, and the first one after it."""


def test_late_data_of_a_day_runs_the_hours_again_that_have_read_it_and_no_others(daily):
    assert (len(HOURS_OF_SHORT_DAY), HOURS_OF_SHORT_DAY[0], HOURS_OF_SHORT_DAY[-1]) == (
        23, "2013-03-10T05", "2013-03-11T03",
    )  # fmt: skip
    hourly = hourly_reader(daily, YESTERDAY)
    for hour in NEIGHBOURS:
        assert hourly.run_day(hour)
    assert {hour: read_by(hourly, hour) for hour in NEIGHBOURS} == {
        hour: [str(local_day(hour, "America/New_York") - timedelta(days=1))] for hour in NEIGHBOURS
    }
    assert set(rules(hourly).values()) == {DecisionRule.UNCHANGED}

    daily.add("flights", DAY_BEFORE, "18", name="late", rows=3)
    daily.monitor()
    assert daily.table.day(PIPELINE, DAY_BEFORE).attempts == 2
    report = hourly.monitor()
    late = {day.date: day for day in report.days if day.decision is LateDecision.RERUN}
    assert list(late) == NEIGHBOURS[1:4]
    (reason, *_) = late[NEIGHBOURS[1]].reasons
    assert "days has 1 changed day, " in reason
    assert {hour: hourly.table.day("hourly", hour).attempts for hour in NEIGHBOURS} == dict(
        zip(NEIGHBOURS, (1, 2, 2, 2, 1), strict=True)
    )
    assert {(f"{row.date}T{row.hour:02}", row.file, row.rule) for row in hourly.ledger.rows if row.attempt} == {
        (hour, f"{PIPELINE} {DAY_BEFORE}", "grown") for hour in NEIGHBOURS[1:4]
    }
    assert set(rules(hourly).values()) == {DecisionRule.UNCHANGED}


def test_a_published_day_leads_to_a_check_of_the_hours_that_read_it(daily):
    hourly_reader(daily, YESTERDAY)
    arrived = arrived_days(daily.project, [day_published(PIPELINE, DAY_BEFORE, time=NOW)], now=NOW)
    assert list(arrived["hourly"].days) == HOURS_OF_SHORT_DAY
    assert PIPELINE not in arrived


def test_an_hour_whose_day_is_not_published_fails_or_has_no_rows_of_it(daily):
    hour = "2013-03-13T15"
    with pytest.raises(InputError, match=re.escape(f"{PIPELINE} has not published 2013-03-12: run it first")):
        hourly_reader(daily, YESTERDAY).run_day(hour)
    hourly = hourly_reader(daily, YESTERDAY.model_copy(update={"missing": "empty"}))
    assert hourly.run_day(hour)
    assert read_by(hourly, hour) == []
    daily.add("flights", "2013-03-12", "17", rows=12)
    daily.run_day("2013-03-12")
    assert rules(hourly)[hour] is DecisionRule.GROWN
    assert read_by(hourly, hour) == ["2013-03-12"]


def test_another_timezone_of_the_days_is_a_new_definition_and_no_late_data(daily):
    hourly = hourly_reader(daily, TableInput(table=PIPELINE, days=(-1, 0), missing="empty"))
    hour = "2013-03-10T04"
    hourly.run_day(hour)
    assert read_by(hourly, hour) == ["2013-03-08", "2013-03-09"]
    definition = daily.project.pipelines[PIPELINE].model_copy(update={"timezone": "Europe/Berlin"})
    pipelines = {**daily.project.pipelines, PIPELINE: definition}
    hourly.project = daily.project.model_copy(update={"pipelines": pipelines})
    (decided,) = [day for day in hourly.monitor().days if day.attempt]
    assert (decided.date, decided.decision) == (hour, LateDecision.IGNORE)
    assert decided.rule is DecisionRule.DEFINITION_KEPT
    assert "days [-1, 0] of America/New_York" in decided.new_definition[0]
    assert "days [-1, 0] of Europe/Berlin" in decided.new_definition[0]


def test_only_the_days_that_an_hour_reads_by_both_definitions_can_be_late(daily):
    hourly = hourly_reader(daily, TableInput(table=PIPELINE, days=(-2, -1)))
    hour = "2013-03-11T05"
    hourly.run_day(hour)
    hourly.define(tables={"days": TableInput(table=PIPELINE, days=(-1, -1))})
    daily.add("flights", "2013-03-09", "18", name="late", rows=3)
    daily.monitor()
    assert rules(hourly) == {hour: DecisionRule.DEFINITION_KEPT}
    daily.add("flights", "2013-03-10", "18", name="late", rows=3)
    daily.monitor()
    assert rules(hourly) == {hour: DecisionRule.GROWN}


def test_the_timezone_of_the_days_is_recorded_and_nothing_else_changes():
    hours = pipeline(period="hour", tables={"hours": {"table": "daily", "days": (-1, -1)}})
    pipelines = {"daily": pipeline(pipeline="daily", timezone="Europe/Berlin", sources=("hours",)), "reader": hours}
    (named,) = input_definition(hours, pipelines).tables
    assert (named.days, named.hours, named.timezone) == ((-1, -1), None, "Europe/Berlin")
    days = pipeline(timezone="Asia/Tokyo", tables={"hours": {"table": "daily"}})
    assert input_definition(days, pipelines).tables[0].timezone is None


def test_an_hour_waits_for_the_day_that_it_reads_and_the_day_wakes_it(daily):
    hourly = hourly_reader(daily, YESTERDAY.model_copy(update={"missing": "wait"}))
    hour = "2013-03-13T15"
    evaluator = InputEvaluator(
        project=hourly.project, inputs=hourly.inputs, counts=hourly.counts, table=hourly.table,
        verdicts=hourly.verdicts, now=lambda: datetime(2013, 3, 13, 16, tzinfo=UTC),
    )  # fmt: skip
    waits = evaluator.evaluate(DayKey("hourly", hour))
    assert waits.outcome is Outcome.WAIT
    (unmet,) = describe_unmet(waits.unmet)
    assert "2013-03-12" in unmet
    days = ProjectDays(project=hourly.project, now=lambda: datetime(2013, 3, 13, 16, tzinfo=UTC))
    woken = {key.date for key in days.of_day(PIPELINE, "2013-03-12")}
    assert hour in woken
    assert {str(local_day(each, "America/New_York")) for each in woken} == {"2013-03-13"}
    daily.add("flights", "2013-03-12", "17")
    daily.run_day("2013-03-12")
    assert evaluator.evaluate(DayKey("hourly", hour)).outcome is Outcome.READY


def test_a_verdict_about_a_day_travels_to_the_hours_that_have_read_it(daily):
    hourly = hourly_reader(daily, YESTERDAY)
    hourly.define(when=When.model_validate({"quality": {"days": "pass"}}))
    for hour in NEIGHBOURS:
        hourly.run_day(hour)
    subject = Subject("pipeline", PIPELINE)
    daily.verdicts.put_verdicts(
        [new_verdict(subject, DAY_BEFORE, "fail", version=1, reason="bots", principal="ana", at=NOW)]
    )
    definition = hourly.project.pipelines["hourly"]

    def failed(hour: str) -> tuple[bool, bool]:
        reader = VerdictReader(table=daily.table, store=daily.store, verdicts=daily.verdicts)
        period = period_of(hour, "UTC")
        of_input = reader.of_input(definition, "days", period, pipelines=hourly.project.pipelines)
        return bool(of_input), bool(reader.of_published("hourly", hour))

    assert [failed(hour) for hour in NEIGHBOURS] == [(number in {1, 2, 3},) * 2 for number in range(5)]
    days = ProjectDays(project=hourly.project, now=hourly.now)
    assert {key.date for key in days.that_read(subject, [DAY_BEFORE]) if key.pipeline == "hourly"} == {
        *HOURS_OF_SHORT_DAY
    }


def test_the_lineage_of_a_day_has_the_hours_that_have_read_it(daily):
    hourly = hourly_reader(daily, YESTERDAY)
    for hour in NEIGHBOURS:
        hourly.run_day(hour)
    upstream = Upstream(table=daily.table, store=daily.store, verdicts=None, lists_objects=False)
    readers, is_complete = Downstream(project=hourly.project, upstream=upstream).readers(
        PIPELINE, DAY_BEFORE, version=1
    )
    assert (is_complete, [(each.pipeline, each.date, each.read.date, each.read.version) for each in readers]) == (
        True, [("hourly", hour, DAY_BEFORE, 1) for hour in NEIGHBOURS[1:4]],
    )  # fmt: skip
