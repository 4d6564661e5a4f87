"""The rule `incomplete`: late data waits while the sources have reported more events than there are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.late.check.metrics import put_gauges
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.late.monitor import later_checks
from slackwater.metrics import Metric
from slackwater.pipeline.definition import Late
from slackwater.runs.inputs.manifest import read_manifest
from tests.fakes_check import PIPELINE, World
from tests.unit.runs.test_source_counts import DATE, counted_world, report_flights

pytestmark = pytest.mark.unit


@pytest.fixture
def world() -> World:
    """A published day with 990 of 1,000 events; 5 were rejected, and the others arrive in two pieces."""
    world = counted_world()
    world.publish(DATE)
    world.time += timedelta(days=1)
    world.store.now = world.now
    return world


def decision(world: World):
    [day] = [day for day in world.check().days if day.date == DATE]
    return day


def late(world: World, rows: int, name: str) -> None:
    """Add an object that has just arrived."""
    uri = world.add("flights", DATE, "06", name=name, rows=rows)
    body, metadata, _ = world.store.objects[uri]
    world.store.objects[uri] = (body, metadata, world.now())


def with_late(world: World, **policy: object) -> None:
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(window_days=7, **policy)})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})


def lower_thresholds(world: World) -> None:
    flights = world.project.sources["flights"]
    late_data = type(flights.late)(rows=1)
    sources = {**world.project.sources, "flights": flights.model_copy(update={"late": late_data})}
    world.project = world.project.model_copy(update={"sources": sources})


@pytest.fixture
def piece(world: World) -> World:
    lower_thresholds(world)
    late(world, 3, "piece")
    return world


def test_a_piece_of_what_was_reported_waits_and_the_last_one_runs_the_day_again_once(piece):
    day = decision(piece)
    assert (day.decision, day.rule) == (LateDecision.DEFER, DecisionRule.INCOMPLETE)
    assert "flights: sent 1,000, stored 993, rejected 5, missing 2" in day.reason
    assert "more events are announced, so it waits for them until 2013-03-14 20:00 UTC" in day.reason
    assert day.figures.not_before == piece.now() + timedelta(hours=2)
    [message] = later_checks(piece.check())
    assert message.not_before == day.figures.not_before
    late(piece, 2, "rest")
    assert decision(piece).rule is DecisionRule.GROWN


def test_it_waits_at_most_max_age_hours(piece):
    with_late(piece, max_age_hours=6)
    assert decision(piece).figures.not_before == piece.now() + timedelta(hours=6)
    piece.time += timedelta(hours=5, minutes=59)
    assert decision(piece).rule is DecisionRule.INCOMPLETE
    piece.time += timedelta(minutes=1)
    assert decision(piece).decision is LateDecision.RERUN


def test_without_max_age_hours_it_waits_for_within(piece):
    piece.time += timedelta(hours=2)
    assert decision(piece).rule is DecisionRule.GROWN


def test_a_corrected_report_ends_the_waiting(piece):
    report_flights(piece, 998, hours=1)
    assert decision(piece).rule is DecisionRule.GROWN


def test_a_report_that_raises_the_number_begins_it(piece):
    late(piece, 2, "rest")
    report_flights(piece, 1_100, hours=1)
    assert decision(piece).rule is DecisionRule.INCOMPLETE


def test_a_source_that_reports_nothing_defers_nothing(piece):
    piece.state.reports.clear()
    assert decision(piece).rule is DecisionRule.GROWN


def test_a_release_and_a_run_by_hand_do_not_wait(piece):
    assert piece.freeze(DATE).attempt == 2


def test_a_day_before_the_window_does_not_wait(piece):
    piece.time += timedelta(days=20)
    late(piece, 1, "old")
    [day] = piece.checker.decide(pipeline=PIPELINE, dates=[DATE])
    assert day.decision is LateDecision.RERUN


def missing(world: World) -> dict[str, float]:
    report, put = world.check(), {}

    def put_metric(metric, value, *, pipeline=None, source=None):
        if metric is Metric.EVENTS_MISSING:
            put[source] = value

    put_gauges(report, world.project.pipelines[PIPELINE], world.project, put_metric)
    return put


def test_missing_events_are_a_metric_of_their_source_until_they_are_there(world):
    assert missing(world) == {"flights": 5}
    late(world, 5, "rest")
    assert missing(world) == {"flights": 0}
    report_flights(world, 1_010, hours=2)
    assert missing(world) == {"flights": 10}


def test_events_are_missing_only_after_within_also_before_the_first_run():
    world = counted_world(stored=0)
    world.store.delete([*world.store.objects])
    world.add("flights", DATE, "06", name=f"{'a' * 32}-990", rows=990)
    # The hour ends at 07:00 UTC.
    world.time = world.time.replace(day=9, hour=8, minute=59)
    sources, counts = world.project.sources, world.project.sources["flights"].counts
    late_alarm = counts.model_copy(update={"within": "26h"})
    flights = sources["flights"].model_copy(update={"counts": late_alarm})
    world.project = world.project.model_copy(update={"sources": {**sources, "flights": flights}})
    assert missing(world) == {"flights": 0}
    world.time += timedelta(minutes=1)
    assert missing(world) == {"flights": 5}


def test_the_number_of_events_without_an_exact_count_is_not_compared():
    world = counted_world()
    world.time = world.time.replace(day=9, hour=18)
    assert world.store.asked_metadata == []
    [of_day] = [day for day in world.check().days if day.date == DATE]
    assert of_day.counts == ()


def test_sources_that_report_nothing_have_no_metric_of_missing_events(world):
    world.state.reports.clear()
    world.state.ends.clear()
    assert missing(world) == {"flights": 0}
    assert missing(World()) == {}


def test_the_manifest_of_a_published_day_is_compared_with_the_reports(world):
    record = world.table.day(PIPELINE, DATE)
    manifest = read_manifest(world.store, record.published.run.manifest)
    assert sum(item.rows for item in manifest.of_source("flights")) == 990
