"""Pipelines that read an hourly table: days read all hours of theirs, and hours the ones before."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.errors import InputError
from slackwater.late.check.arrived_days import arrived_days
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Late, Pipeline, Publish, Schedule
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.arrivals import day_published
from slackwater.runs.inputs.input_definition import input_definition
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.inputs.table_inputs import read_periods, reading_periods
from slackwater.runs.period import HOUR, day_of, has_whole_hours, period_of
from slackwater.sources.late_thresholds import ANY_LATE_DATA
from slackwater.validation.graph import table_problems
from tests.fakes_check import NOW, PIPELINE, make_hourly
from tests.late_world import LateWorld

pytestmark = pytest.mark.unit

HOURLY = {
    "period": "hour",
    "publish": Publish(step="rows", key=("date", "hour")),
    "schedule": Schedule(process="10 * * * *"),
}


def pipeline(**fields) -> Pipeline:
    steps = {"rows": {"step": "select", "depends_on": ["hours"]}}
    key = ["date", "hour"] if fields.get("period") == "hour" else ["date"]
    content = {"pipeline": "reader", "steps": steps, "publish": {"step": "rows", "key": key}, **fields}
    if fields.get("period") == "hour":
        content["schedule"] = {"process": "10 * * * *"}
    return Pipeline.model_validate(content)


HOURS = {"hourly": pipeline(pipeline="hourly", period="hour", sources=("hours",))}


def reader(timezone: str, days: tuple[int, int] = (0, 0)) -> Pipeline:
    return pipeline(timezone=timezone, tables={"hours": {"table": "hourly", "days": days}})


def hours_of_local_days(timezone: str, *days: date) -> list[str]:
    """The UTC hours whose start is on one of these local dates, counted from the hours themselves."""
    first = datetime(days[0].year, days[0].month, days[0].day, tzinfo=UTC) - timedelta(hours=30)
    hours = (first + HOUR * number for number in range(24 * len(days) + 80))
    return [f"{at:%Y-%m-%dT%H}" for at in hours if at.astimezone(ZoneInfo(timezone)).date() in days]


@pytest.mark.parametrize(
    ("timezone", "day", "count"),
    [
        ("America/New_York", date(2013, 3, 10), 23),
        ("America/New_York", date(2013, 11, 3), 25),
        ("Europe/Berlin", date(2013, 3, 31), 23),
        ("Europe/Berlin", date(2013, 10, 27), 25),
        ("America/Sao_Paulo", date(2013, 10, 20), 23),  # midnight is skipped
        ("Pacific/Auckland", date(2013, 4, 7), 25),
        ("UTC", date(2013, 3, 10), 24),
    ],
)
def test_a_day_reads_the_hours_of_its_local_day_and_each_leads_back_to_it(timezone, day, count):
    definition = reader(timezone)
    table, period = definition.published_tables["hours"], day_of(day, timezone)
    hours = read_periods(table, period, definition, pipelines=HOURS)
    assert (hours, len(hours)) == (hours_of_local_days(timezone, day), count)
    assert {each for hour in hours for each in reading_periods(table, hour, definition, pipelines=HOURS)} == {
        day.isoformat()
    }


def test_a_week_reads_the_hours_of_seven_days_and_each_leads_to_the_days_after_it():
    definition = reader("Europe/Berlin", (-6, 0))
    table, days = definition.published_tables["hours"], [date(2013, 3, 27) + timedelta(days=back) for back in range(7)]
    hours = read_periods(table, day_of(days[-1], "Europe/Berlin"), definition, pipelines=HOURS)
    assert (hours, len(hours)) == (hours_of_local_days("Europe/Berlin", *days), 7 * 24 - 1)
    assert reading_periods(table, "2013-03-30T23", definition, pipelines=HOURS) == [
        (date(2013, 3, 31) + timedelta(days=after)).isoformat() for after in range(7)
    ]


def test_an_hour_reads_the_hours_before_it():
    definition = pipeline(period="hour", tables={"hours": {"table": "hourly", "hours": (-23, 0)}})
    table = definition.published_tables["hours"]
    hours = read_periods(table, period_of("2013-03-10T05", "UTC"), definition, pipelines=HOURS)
    assert (len(hours), hours[0], hours[-1]) == (24, "2013-03-09T06", "2013-03-10T05")
    back = reading_periods(table, "2013-03-10T05", definition, pipelines=HOURS)
    assert (len(back), back[0], back[-1]) == (24, "2013-03-10T05", "2013-03-11T04")


def test_tables_of_days_are_read_as_before():
    definition = reader("Europe/Berlin", (-1, 0))
    table = definition.published_tables["hours"]
    day = day_of(date(2013, 3, 10), "Europe/Berlin")
    daily = {"hourly": pipeline(sources=("hours",))}
    assert read_periods(table, day, definition, pipelines=daily) == ["2013-03-09", "2013-03-10"]
    assert reading_periods(table, "2013-03-10", definition, pipelines=daily) == ["2013-03-10", "2013-03-11"]


def test_the_hours_that_a_definition_reads_are_recorded_and_days_are_as_before():
    hours = pipeline(period="hour", tables={"hours": {"table": "hourly", "hours": (-23, 0)}})
    assert input_definition(hours, HOURS).tables[0].hours == (-23, 0)
    assert input_definition(reader("UTC"), HOURS).tables[0].hours is None


@pytest.mark.parametrize("timezone", ["Asia/Kolkata", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_days_that_begin_within_an_hour_cannot_read_hours(timezone):
    assert not has_whole_hours(timezone)
    definitions = {"hourly": pipeline(period="hour", sources=("hours",)), "reader": reader(timezone)}
    [(name, problem)] = table_problems(definitions)
    assert (name, problem.path) == ("reader", ("tables", "hours", "table"))
    assert f"days of {timezone} begin within an hour of UTC" in problem.message


@pytest.mark.parametrize(
    ("period", "table", "key", "message"),
    [
        ("hour", {"days": (-1, 0)}, "days", "other has `period: hour`: write `hours`, such as `hours: [-23, 0]`"),
        ("day", {"hours": (0, 0)}, "hours", "other has `period: day`: write `days`, such as `days: [-1, -1]`"),
        ("day", {}, "table", "other publishes a day after it has ended, so its hours would fail: write days before"),
    ],
)
def test_an_hourly_pipeline_counts_the_periods_of_the_table(period, table, key, message):
    hours = pipeline(period="hour", tables={"hours": {"table": "other", **table}})
    definitions = {"other": pipeline(pipeline="other", period=period, sources=("hours",)), "reader": hours}
    [(name, problem)] = table_problems(definitions)
    assert (name, problem.path) == ("reader", ("tables", "hours", key))
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tables": {"hours": {"table": "hourly", "hours": (0, 0)}}}, "a daily pipeline reads days: write `days`"),
        (
            {"tables": {"hours": {"table": "hourly", "hours": (0, -1)}}, "period": "hour"},
            "hours: the first hour, 0, is after the last one, -1",
        ),
        (
            {"tables": {"hours": {"table": "hourly", "on_change": "notify"}}, "period": "hour"},
            "each hour would cause a message",
        ),
    ],
)
def test_periods_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        pipeline(**fields)


@pytest.fixture
def hours():
    """An hourly pipeline of New York whose hours of two days are published: the clocks go forward on the first."""
    world = LateWorld()
    world.time = NOW
    sources = {name: item.model_copy(update={"late": ANY_LATE_DATA}) for name, item in world.project.sources.items()}
    world.project = world.project.model_copy(update={"sources": sources})
    make_hourly(world, timezone="America/New_York", late=Late(cool_down_hours=0))
    for hour in hours_of_local_days("America/New_York", date(2013, 3, 10), date(2013, 3, 11)):
        world.add("flights", *hour.split("T"), rows=len(hour) + int(hour[-2:]))
        world.run_day(hour)
    return world


def read_by(world: LateWorld, name: str) -> Counter[str]:
    """The rows of each hour that the published version of a period has read."""
    published = world.table.day(world.pipeline, name).published
    manifest = read_manifest(world.store, published.run.manifest)
    return Counter({item.date: item.rows for item in manifest.objects})


def share(world: LateWorld, reader: LateWorld) -> LateWorld:
    """Let both worlds have the project with both pipelines."""
    world.project = reader.project
    reader.set_late(cool_down_hours=0, max_reruns_per_day=1000)
    world.project = reader.project
    return reader


def test_a_day_has_the_rows_of_its_hours_and_runs_again_when_one_of_them_changes(hours):
    daily = share(hours, hours.reader("daily", TableInput(table=PIPELINE)))
    for day in ("2013-03-10", "2013-03-11"):
        assert daily.run_day(day)
    expected = {day: hours_of_local_days("America/New_York", date.fromisoformat(day)) for day in daily.warehouse.days}
    assert {day: list(read_by(daily, day)) for day in expected} == expected
    assert [len(each) for each in expected.values()] == [23, 24]
    assert {day.rule for day in daily.monitor().days if day.attempt} == {DecisionRule.UNCHANGED}

    late = expected["2013-03-10"][5]
    hours.add("flights", *late.split("T"), name="late", rows=3)
    hours.monitor()
    assert hours.table.day(PIPELINE, late).attempts == 2
    report = daily.monitor()
    rules = {day.date: day.rule for day in report.days if day.attempt}
    assert rules == {"2013-03-10": DecisionRule.GROWN, "2013-03-11": DecisionRule.UNCHANGED}
    (reason, *_) = next(day.reasons for day in report.days if day.date == "2013-03-10")
    assert "days has 1 changed hour, " in reason
    assert daily.table.day("daily", "2013-03-10").attempts == 2
    (decided,) = {row.file for row in daily.ledger.rows}
    assert decided == f"{PIPELINE} {late}"


def test_a_published_hour_leads_to_a_check_of_the_days_and_hours_that_read_it(hours):
    share(hours, hours.reader("daily", TableInput(table=PIPELINE, days=(-1, 0))))
    hours.project = hours.reader("rolling", TableInput(table=PIPELINE, hours=(-2, 0)), **HOURLY).project
    message = day_published(PIPELINE, "2013-03-11T03", time=NOW)
    arrived = arrived_days(hours.project, [message], now=NOW)
    assert list(arrived["daily"].days) == ["2013-03-10", "2013-03-11"]
    assert list(arrived["rolling"].days) == ["2013-03-11T03", "2013-03-11T04", "2013-03-11T05"]
    assert PIPELINE not in arrived


def test_an_hour_runs_again_when_one_of_the_hours_that_it_reads_changes(hours):
    rolling = share(
        hours, hours.reader("rolling", TableInput(table=PIPELINE, hours=(-2, 0), missing="empty"), **HOURLY)
    )
    names = [f"2013-03-11T{hour:02}" for hour in range(6, 12)]
    for hour in names:
        assert rolling.run_day(hour)
    assert list(read_by(rolling, names[0])) == ["2013-03-11T04", "2013-03-11T05", "2013-03-11T06"]
    hours.add("flights", "2013-03-11", "08", name="late", rows=3)
    hours.monitor()
    rules = {day.date: day.rule for day in rolling.monitor().days if day.attempt}
    assert [name for name, rule in rules.items() if rule is DecisionRule.GROWN] == names[2:5]
    assert {rule for name, rule in rules.items() if name not in names[2:5]} == {DecisionRule.UNCHANGED}


def test_a_day_with_an_hour_that_is_not_published_does_not_run_unless_hours_may_be_missing(hours):
    strict = hours.reader("daily", TableInput(table=PIPELINE))
    with pytest.raises(InputError, match="daily_delays has not published 2013-03-12T04: run it first"):
        strict.run_day("2013-03-12")
    hours.add("flights", "2013-03-12", "04")
    hours.run_day("2013-03-12T04")
    lenient = share(hours, hours.reader("daily", TableInput(table=PIPELINE, missing="empty")))
    assert lenient.run_day("2013-03-12")
    assert list(read_by(lenient, "2013-03-12")) == ["2013-03-12T04"]


def test_more_days_are_a_new_definition_and_no_late_data(hours):
    daily = share(hours, hours.reader("daily", TableInput(table=PIPELINE)))
    daily.run_day("2013-03-11")
    daily.define(tables={"days": TableInput(table=PIPELINE, days=(-1, 0))})
    rules = {day.date: (day.rule, day.new_definition) for day in daily.monitor().days if day.attempt}
    assert rules == {"2013-03-11": (DecisionRule.DEFINITION_KEPT, rules["2013-03-11"][1])}
    assert "days [0, 0]" in rules["2013-03-11"][1][0]


def test_the_records_of_hours_are_read_by_one_request_per_day(hours):
    daily = share(hours, hours.reader("daily", TableInput(table=PIPELINE)))
    daily.run_day("2013-03-10")
    asked = []
    days, hours.table.days = hours.table.days, lambda *args, **more: asked.append(args) or days(*args, **more)
    daily.run_day("2013-03-10", force=True)
    assert asked == [(PIPELINE, "2013-03-10T05", "2013-03-11T03")]
