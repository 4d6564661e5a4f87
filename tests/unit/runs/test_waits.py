"""Which days may wait for an input, and what their runs wait for, over the fakes of the runs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.pipeline.when import When
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.period import day_of, partition_of
from slackwater.runs.waits.days import ProjectDays
from slackwater.runs.waits.evaluation import InputEvaluator
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.conditions import Outcome, describe_unmet
from slackwater.state.facts import HOUR
from slackwater.state.verdicts import Subject, new_verdict
from slackwater.state.waits import DayKey
from tests.fakes_check import PIPELINE, PUBLICATION, World, make_hourly
from tests.unit.runs.test_source_counts import DATE, START, counted_world, report_flights

pytestmark = pytest.mark.unit

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
END = START + 24 * HOUR


def waiting(world: World, **when: object) -> World:
    """Let the pipeline wait."""
    return with_definition(world, when=When.model_validate(when))


def with_definition(world: World, **update: object) -> World:
    definition = world.project.pipelines[PIPELINE].model_copy(update=update)
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, PIPELINE: definition}})
    return world


def evaluation(world: World, day: str = DATE, pipeline: str = PIPELINE):
    evaluator = InputEvaluator(
        project=world.project,
        inputs=world.inputs,
        counts=world.counts,
        table=world.table,
        verdicts=world.verdicts,
        now=world.now,
    )
    return evaluator.evaluate(DayKey(pipeline, day))


def outcome(world: World):
    result = evaluation(world)
    return result.outcome.value, describe_unmet(result.unmet)


@pytest.fixture
def world() -> World:
    """Six hours after the end of a day of which 5 of 1,000 events are missing."""
    world = waiting(
        counted_world(),
        inputs={"flights": "complete"},
        unknown={"after": "4h", "then": "fail"},
        incomplete={"after": "12h", "then": "run"},
    )
    world.time = END + 6 * HOUR
    return world


def test_a_run_waits_for_all_events_that_the_source_has_sent(world):
    assert outcome(world) == ("wait", ("flights: sent 1,000, stored 990, rejected 5, missing 5",))
    world.add("flights", DATE, "06", name="rest", rows=5)
    assert outcome(world) == ("ready", ())


def test_events_of_other_days_do_not_count(world):
    world.add("flights", "2013-03-09", "06", rows=5)
    assert outcome(world)[0] == "wait"


def test_a_report_may_lower_what_was_sent(world):
    report_flights(world, 995, hours=1)
    assert outcome(world) == ("ready", ())


def test_after_its_limit_it_runs_without_what_is_missing(world):
    world.time = END + 12 * HOUR
    assert outcome(world) == ("run", ("flights: sent 1,000, stored 990, rejected 5, missing 5",))


def test_a_source_without_counts_has_a_limit_of_its_own(world):
    world.state.reports.clear()
    world.state.ends.clear()
    world.time = END + 4 * HOUR - timedelta(seconds=1)
    assert outcome(world) == ("wait", ("flights: no counts of the source",))
    world.time = END + 4 * HOUR
    assert outcome(world)[0] == "fail"


def test_a_run_of_a_day_that_a_person_has_published_meanwhile_does_not_fail(world):
    waiting(world, inputs={"flights": "complete"}, incomplete={"after": "4h", "then": "fail"})
    assert outcome(world)[0] == "fail"
    world.publish(DATE)
    assert outcome(world)[0] == "run"


def test_an_input_must_have_changed_not_long_ago(world):
    waiting(world, inputs={"weather": {"newer_than": "2h"}})
    assert outcome(world) == ("wait", ("weather: it has no data",))
    uri = world.add("weather", DATE, "06")
    body, metadata, _ = world.store.objects[uri]
    world.store.objects[uri] = (body, metadata, world.now() - timedelta(hours=3))
    assert outcome(world) == ("wait", ("weather: its newest data is of 2013-03-09 08:00 UTC",))
    world.store.objects[uri] = (body, metadata, world.now() - timedelta(hours=2))
    assert outcome(world) == ("ready", ())


def test_published_days_are_waited_for(world):
    table = TableInput(table=PIPELINE, days=(-1, 0), missing="wait")
    weekly = world.project.pipelines[PIPELINE].model_copy(
        update={"pipeline": "weekly", "sources": (), "tables": {"days": table}, "when": When()}
    )
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, "weekly": weekly}})

    def waits_for():
        return describe_unmet(evaluation(world, "2013-03-09", "weekly").unmet)

    world.time = END + 30 * HOUR
    assert waits_for() == ("days: daily_delays has not published 2013-03-08, 2013-03-09 of 2 days",)
    world.publish("2013-03-09")
    assert waits_for() == ("days: daily_delays has not published 2013-03-08 of 2 days",)
    world.publish(DATE)
    assert evaluation(world, "2013-03-09", "weekly").outcome is Outcome.READY


def test_no_ids_are_read_while_the_events_with_duplicates_are_not_enough(world, monkeypatch):
    flights = world.project.sources["flights"].model_copy(update={"event_id": "carrier"})
    world.project = world.project.model_copy(update={"sources": {**world.project.sources, "flights": flights}})
    read = []
    of_source = type(world.inputs).of_source

    def recorded(inputs, source, partitions, **options):
        read.append(options["reads_ids"])
        return of_source(inputs, source, partitions, **{**options, "reads_ids": False})

    monkeypatch.setattr(type(world.inputs), "of_source", recorded)
    assert outcome(world)[0] == "wait"
    assert read == [False]
    world.add("flights", DATE, "06", name="rest", rows=5)
    assert outcome(world)[0] == "ready"
    assert read == [False, False, True]


def a_project(world: World, zone: str, **table: object):
    """A daily pipeline that waits for flights, and a weekly one that waits for its days."""
    daily = world.project.pipelines[PIPELINE].model_copy(
        update={"timezone": zone, "when": When.model_validate({"inputs": {"flights": "complete"}})}
    )
    tables = {"days": TableInput.model_validate({"table": PIPELINE, "missing": "wait", **table})}
    weekly = daily.model_copy(update={"pipeline": "weekly", "sources": (), "tables": tables, "when": When()})
    pipelines: dict[str, Pipeline] = {PIPELINE: daily, "weekly": weekly}
    return world.project.model_copy(update={"pipelines": pipelines})


NOW = datetime(2026, 4, 6, 12, tzinfo=UTC)
hours_before = st.lists(st.integers(-30, 24 * 3), max_size=3)


@given(st.sampled_from(ZONES), hours_before)
def test_the_days_of_hours_are_those_that_read_them(zone, hours):
    # The clocks change in Lord Howe, by half an hour, on 2026-04-05.
    project = a_project(World(), zone)
    wanted = {NOW.replace(minute=0) - number * HOUR for number in hours}
    days = [day_of(date(2026, 4, 3) + timedelta(days=number), zone) for number in range(6)]
    partitions = {partition_of(hour) for hour in wanted}
    expected = {
        DayKey(PIPELINE, day.date.isoformat())
        for day in days
        if partitions & {*day.partitions()} and day.end >= NOW - 26 * HOUR and day.start <= NOW
    }
    found = set(ProjectDays(project=project, now=lambda: NOW).of_source("flights", wanted))
    # A day whose wait ends may be looked at as well: nobody waits then.
    assert expected <= found
    assert all(partitions & {*day_of(date.fromisoformat(key.date), zone).partitions()} for key in found)
    assert found <= set(ProjectDays(project=project, now=lambda: NOW).of_source("flights", None))


def test_the_days_that_may_wait_are_few():
    days = ProjectDays(project=a_project(World(), "UTC"), now=lambda: NOW)
    assert sorted(key.date for key in days.of_source("flights", None)) == ["2026-04-04", "2026-04-05", "2026-04-06"]
    assert list(days.of_source("weather", None)) == []
    assert list(days.of_source("flights", [NOW - timedelta(days=30)])) == []


def test_a_published_day_is_read_by_the_weeks_around_it():
    days = ProjectDays(project=a_project(World(), "UTC", days=(-6, 0)), now=lambda: NOW)
    assert sorted(days.of_day(PIPELINE, "2026-04-01")) == [
        ("weekly", "2026-04-04"), ("weekly", "2026-04-05"), ("weekly", "2026-04-06")
    ]  # fmt: skip
    assert list(days.of_day(PIPELINE, "2026-03-01")) == []
    assert list(days.of_day("weekly", "2026-04-01")) == []
    others = ProjectDays(project=a_project(World(), "UTC", missing="empty"), now=lambda: NOW)
    assert list(others.of_day(PIPELINE, "2026-04-05")) == []


def give(world: World, quality: str, period: str, *, of: str = "source", name: str = "flights", version=None, at=END):
    """Store a verdict."""
    subject = Subject(of, name)
    given = new_verdict(subject, period, quality, version=version, reason="bots", principal="ana", at=at)
    world.verdicts.put_verdicts([given])


def test_a_run_waits_until_its_source_passes(world):
    waiting(world, quality={"flights": "pass"}, incomplete={"after": "12h", "then": "run"})
    assert outcome(world) == ("ready", ())  # without a verdict
    give(world, "fail", "2013-03-08T06")
    text = "flights: flights 2013-03-08 06:00 UTC: fail, by ana since 2013-03-09 05:00 UTC: bots"
    assert outcome(world) == ("wait", (text,))
    give(world, "pass", "2013-03-08T06", at=END - HOUR)  # an older one
    assert outcome(world) == ("wait", (text,))
    give(world, "pass", "2013-03-08T06", at=END + HOUR)
    assert outcome(world) == ("ready", ())


@pytest.mark.parametrize(
    ("hour", "result"),
    [
        ("2013-03-08T04", "ready"),
        ("2013-03-08T05", "wait"),
        ("2013-03-09T04", "wait"),
        ("2013-03-09T05", "ready"),
    ],
)
def test_verdicts_about_the_hours_of_the_day_count(world, hour, result):
    waiting(world, quality={"flights": "pass"})
    give(world, "fail", hour)
    give(world, "fail", "2013-03-08T12", name="weather")
    assert outcome(world)[0] == result


def test_data_that_has_failed_is_never_published_without_a_person(world):
    waiting(
        world, inputs={"flights": "complete"}, quality={"flights": "pass"}, incomplete={"after": "12h", "then": "run"}
    )
    give(world, "fail", "2013-03-08T06")
    world.time = END + 12 * HOUR
    result, lines = outcome(world)
    assert (result, [line.partition(":")[0] for line in lines]) == ("fail", ["flights", "flights"])
    assert lines[0].startswith("flights: sent 1,000"), "inputs come before quality"
    world.publish(DATE)  # a person has looked at it
    assert outcome(world)[0] == "fail"
    give(world, "pass", "2013-03-08T06", at=END + HOUR)
    assert outcome(world)[0] == "run"


def with_weekly(world: World) -> World:
    """Add a pipeline that waits for the quality of days of the pipeline."""
    daily = world.project.pipelines[PIPELINE]
    weekly = daily.model_copy(
        update={
            "pipeline": "weekly",
            "sources": (),
            "tables": {"days": TableInput(table=PIPELINE, days=(-1, 0), missing="empty")},
            "when": When.model_validate({"quality": {"days": "pass"}}),
            "steps": {"rows": StepUse(step="sql", depends_on=("days",))},
            "publish": daily.publish.model_copy(update={"step": "rows"}),
        }
    )
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, "weekly": weekly}})
    world.time = END + 24 * HOUR
    return world


def test_a_run_waits_until_the_published_day_of_another_pipeline_passes(world):
    world = with_weekly(world)

    def state():
        result = evaluation(world, "2013-03-09", "weekly")
        return result.outcome.value, [item.text for item in result.unmet]

    of_day = {"of": "pipeline", "name": PIPELINE}
    world.publish(DATE)
    give(world, "fail", DATE, **of_day, version=1)
    give(world, "fail", "2013-03-07", **of_day, version=1)  # another day
    give(world, "fail", "2013-03-09", **of_day, version=1)  # not published any more
    assert state() == ("wait", ["daily_delays 2013-03-08, version 1: fail, by ana since 2013-03-09 05:00 UTC: bots"])
    world.publish(DATE, force=True)
    assert state() == ("ready", [])
    give(world, "fail", DATE, **of_day, version=2)
    give(world, "pass", DATE, **of_day, version=1, at=END + HOUR)
    assert state()[0] == "wait"
    days = ProjectDays(project=world.project, now=world.now)
    waiting_days = [("weekly", "2013-03-08"), ("weekly", "2013-03-09")]
    assert sorted(days.of_day(PIPELINE, DATE)) == waiting_days
    assert sorted(days.of_verdict(Subject("pipeline", PIPELINE), [DATE])) == waiting_days


def test_a_verdict_about_an_hour_travels_to_runs_that_wait_for_what_has_read_it(world):
    """`monthly` waits for days of `weekly`, which has read days of the pipeline that has read flights."""
    daily = world.project.pipelines[PIPELINE]
    tables = {"weekly": PIPELINE, "monthly": "weekly"}
    more = {
        name: daily.model_copy(
            update={
                "pipeline": name,
                "sources": (),
                "tables": {"days": TableInput(table=table, days=(-1, 0), missing="empty")},
                "when": When.model_validate({"quality": {"days": "pass"}} if name == "monthly" else {}),
                "steps": {"rows": StepUse(step="sql", depends_on=("days",))},
                "publish": daily.publish.model_copy(update={"step": "rows"}),
            }
        )
        for name, table in tables.items()
    }
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: daily, **more}})
    world.time = END + 30 * HOUR

    def state():
        return [item.text.partition(":")[0] for item in evaluation(world, "2013-03-09", "monthly").unmet]

    world.publish(DATE)
    world.publish("2013-03-08", pipeline="weekly")
    assert state() == []
    give(world, "fail", "2013-03-08T06")
    give(world, "fail", "2013-03-08T09")  # it has read nothing of this hour
    assert state() == ["flights 2013-03-08 06"]
    days = ProjectDays(project=world.project, now=world.now)
    woken = list(days.of_verdict(Subject("source", "flights"), ["2013-03-08T06"]))
    assert DayKey("monthly", "2013-03-09") in woken
    assert {key.pipeline for key in woken} == {"monthly"}
    # What clears the first version may be another version with the same rows, which nobody in between reads again.
    assert DayKey("monthly", "2013-03-09") in set(days.of_day(PIPELINE, DATE))
    # Another version of the day changes nothing: the week has read the first one.
    world.publish(DATE, force=True)
    assert state() == ["flights 2013-03-08 06"]
    give(world, "pass", "2013-03-08T06", at=END + HOUR)
    assert state() == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_verdict_travels_through_versions_of_another_definition(world, is_removed):
    """`weekly` has read days of the pipeline, which has read flights and does not any more."""
    world = with_weekly(world)
    world.publish(DATE)
    world.publish(DATE, pipeline="weekly")
    give(world, "fail", "2013-03-08T06")
    with_definition(world, sources=("weather",))
    if is_removed:
        sources = {name: each for name, each in world.project.sources.items() if name != "flights"}
        world.project = world.project.model_copy(update={"sources": sources})
    for name in (PIPELINE, "weekly"):
        reader = VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)
        assert [item.period for item in reader.of_published(name, DATE)] == ["2013-03-08T06"], name


def test_only_verdicts_about_what_has_some_are_read(world, monkeypatch):
    world = with_weekly(world)
    world.publish(DATE)
    world.publish(DATE, pipeline="weekly")
    give(world, "pass", "2013-03-08T06")
    read, verdicts = [], world.verdicts.verdicts
    monkeypatch.setattr(
        world.verdicts, "verdicts", lambda subject, *range_: read.append(subject) or verdicts(subject, *range_)
    )
    monkeypatch.setattr(world.store, "get", read.append)
    for _ in range(2):
        reader = VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)
        assert reader.of_published("weekly", DATE) == reader.of_published(PIPELINE, DATE) == ()
        assert reader.of_range("weather", "0", "9") == ()
    assert read == [("source", "flights")] * 2


def test_a_version_with_the_same_rows_wakes_the_runs_that_wait_for_what_has_read_them(world):
    world = with_weekly(world)
    world.time -= HOUR
    weekly = world.project.pipelines["weekly"]
    monthly = weekly.model_copy(
        update={"pipeline": "monthly", "tables": {"days": TableInput(table="weekly", missing="empty")}}
    )
    weekly = weekly.model_copy(update={"when": When()})
    world.project = world.project.model_copy(
        update={"pipelines": {**world.project.pipelines, "weekly": weekly, "monthly": monthly}}
    )

    def publish(pipeline: str) -> None:
        run = world.freeze(DATE, pipeline=pipeline, force=True)
        publication = PUBLICATION.model_copy(update={"content": "the same"})
        world.store.put(publication_uri(run.prefix), publication.model_dump_json().encode())
        days = ProjectDays(project=world.project, now=world.now)

        def wake(*day: str) -> None:
            woken.update({key: evaluation(world, key.date, key.pipeline) for key in days.of_day(*day)})

        RunRecorder(store=world.store, table=world.table, now=world.now, wake_day=wake).record_published(run)

    woken = {}
    publish(PIPELINE)
    publish("weekly")
    give(world, "fail", DATE, of="pipeline", name=PIPELINE, version=1)
    assert evaluation(world, DATE, "monthly").outcome is Outcome.WAIT
    woken.clear()
    publish(PIPELINE)
    assert woken[DayKey("monthly", DATE)].outcome is Outcome.READY
    assert {key.pipeline for key in woken} == {"monthly"}


def test_a_source_whose_quality_counts_wakes_the_days_that_read_it(world):
    waiting(world, quality={"flights": "pass"})
    days = ProjectDays(project=world.project, now=world.now)
    hours = ["2013-03-08T05", "2013-03-08T06"]
    assert set(days.of_verdict(Subject("source", "flights"), hours)) == {(PIPELINE, DATE)}
    assert list(days.of_verdict(Subject("source", "weather"), hours)) == []
    assert list(days.of_source("flights", [START])) == []  # events change no verdict


def hourly_world() -> World:
    """The same day in an hourly pipeline, which waits; a daily one reads its hours."""
    world = counted_world()
    when = {"inputs": {"flights": "complete"}, "unknown": {"after": "4h"}, "incomplete": {"after": "5h", "then": "run"}}
    make_hourly(world, when=when)
    hourly = world.project.pipelines[PIPELINE]
    tables = {"hours": TableInput(table=PIPELINE, missing="wait")}
    update = {"pipeline": "daily", "period": "day", "sources": (), "tables": tables, "when": When()}
    daily = hourly.model_copy(update=update)
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: hourly, "daily": daily}})
    return world


@pytest.mark.parametrize(
    ("hour", "result"),
    [
        ("2013-03-08T05", ("ready", ())),
        ("2013-03-08T06", ("wait", ("flights: sent 1,000, stored 990, rejected 5, missing 5",))),
    ],
)
def test_an_hour_waits_for_its_own_events(hour, result):
    world = hourly_world()
    world.time = START + 4 * HOUR
    found = evaluation(world, hour)
    assert (found.outcome.value, describe_unmet(found.unmet)) == result


def test_the_limits_of_an_hour_count_from_its_end():
    world = hourly_world()
    for hours, outcome in ((6.9, "wait"), (7, "run")):  # the second hour of the day ends two hours after its start
        world.time = START + hours * HOUR
        assert evaluation(world, "2013-03-08T06").outcome.value == outcome


def test_the_hours_that_may_wait_are_those_of_the_longest_wait_and_a_day():
    world = hourly_world()
    world.time = START + 40 * HOUR
    days = ProjectDays(project=world.project, now=world.now)
    waiting_hours = sorted(key.date for key in days.of_source("flights", None))
    current = START + 40 * HOUR
    assert waiting_hours == [f"{current - back * HOUR:%Y-%m-%dT%H}" for back in range(5 + 24 + 1, -1, -1)]
    hours = [current - 31 * HOUR, current - 2 * HOUR, current + HOUR]
    assert [key.date for key in days.of_source("flights", hours)] == [f"{current - 2 * HOUR:%Y-%m-%dT%H}"]


def test_a_day_waits_until_all_of_its_hours_are_published():
    world = hourly_world()
    world.time = END + HOUR
    hours = [f"{START + number * HOUR:%Y-%m-%dT%H}" for number in range(24)]
    for hour in hours[:-1]:
        world.publish(hour)
    days = ProjectDays(project=world.project, now=world.now)
    assert list(days.of_day(PIPELINE, hours[-1])) == [("daily", DATE)]
    (unmet,) = evaluation(world, DATE, "daily").unmet
    assert hours[-1] in describe_unmet([unmet])[0]
    world.publish(hours[-1])
    assert evaluation(world, DATE, "daily").outcome is Outcome.READY
