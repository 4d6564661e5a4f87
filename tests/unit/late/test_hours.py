"""Checks of hours: which hours they look at, and what each late hour leads to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.errors import InputError
from slackwater.late.check.dry_run import without_writes
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.pipeline.definition import Late, Pipeline, StepUse
from slackwater.runs.period import HOUR
from tests.fakes_check import NOW, PIPELINE, World, make_hourly
from tests.late_world import LateWorld

pytestmark = pytest.mark.unit

FIRST = datetime(2013, 3, 10, 4, tzinfo=UTC)
"""The day of New York on which the clocks go forward begins an hour later."""


def name_of(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H}"


def add(world: World, hour: str, name: str = "a", rows: int = 10) -> str:
    return world.add("flights", *hour.split("T"), name=name, rows=rows)


@pytest.fixture
def world():
    world = LateWorld()
    world.time = NOW
    make_hourly(world, timezone="America/New_York", late=Late(cool_down_hours=0))
    return world


def decided(report) -> dict[str, tuple[LateDecision, DecisionRule]]:
    """The decisions about hours with a published version."""
    return {day.date: (day.decision, day.rule) for day in report.days if day.attempt}


@pytest.mark.parametrize(
    ("as_of", "last"),
    [
        (None, "2013-03-13T18"),
        ("2013-03-13", "2013-03-13T18"),
        ("2013-03-13T18", "2013-03-13T18"),
        ("2013-03-12T23", "2013-03-12T23"),
        ("2013-03-12", "2013-03-13T03"),  # the end of the day of New York
    ],
)
def test_a_check_looks_at_168_hours_and_the_current_one(world, as_of, last):
    report = world.checker.check(pipeline=PIPELINE, as_of=as_of)
    end = datetime.fromisoformat(f"{last}:00")
    assert [day.date for day in report.days] == [name_of(end - HOUR * back) for back in range(168, -1, -1)]
    assert (report.as_of, report.days[-1].rule) == (last, DecisionRule.CURRENT)


@pytest.mark.parametrize("as_of", ["2013-03-13T24", "2013-03-32", "yesterday"])
def test_what_names_no_hour_is_refused(world, as_of):
    with pytest.raises(InputError, match=f"as_of: '{as_of}' is not a date such as 2013-03-10, or an hour such as"):
        world.checker.check(pipeline=PIPELINE, as_of=as_of)


@pytest.mark.parametrize(("as_of", "timezone"), [("2013-03-13T19", "UTC"), ("2013-03-14", "America/New_York")])
def test_a_check_of_the_future_is_refused(world, as_of, timezone):
    with pytest.raises(InputError, match=f"as_of: {as_of} has not begun in {timezone}"):
        world.checker.check(pipeline=PIPELINE, as_of=as_of)


def test_a_daily_pipeline_is_not_checked_as_of_an_hour():
    with pytest.raises(InputError, match=r"as_of: '2013-03-13T15' is not a date such as 2013-03-10$"):
        World().checker.check(pipeline=PIPELINE, as_of="2013-03-13T15")


def test_late_changed_and_removed_data_lead_to_decisions_about_their_hours_alone(world):
    hours = [f"2013-03-12T{hour:02}" for hour in range(12, 18)]
    grown, changed, removed, small, rolled_back, untouched = hours
    uris = {hour: add(world, hour, rows=1000) for hour in hours}
    for hour in hours:
        world.run_day(hour)
    world.run_day(rolled_back, force=True)
    world.run_day(rolled_back, rollback=1, reason="wrong file")
    add(world, grown, "late", rows=50)
    world.store.delete([uris[changed]])
    add(world, changed, "corrected", rows=1001)
    world.store.delete([uris[removed]])
    add(world, small, "late", rows=9)
    wanted = {
        grown: (LateDecision.RERUN, DecisionRule.GROWN),
        changed: (LateDecision.HOLD, DecisionRule.VANISHED),
        removed: (LateDecision.HOLD, DecisionRule.VANISHED),
        small: (LateDecision.IGNORE, DecisionRule.BELOW),
        rolled_back: (LateDecision.HOLD, DecisionRule.ROLLED_BACK),
        untouched: (LateDecision.IGNORE, DecisionRule.UNCHANGED),
    }
    assert decided(without_writes(world.checker).check(pipeline=PIPELINE, as_of=None)) == wanted
    assert decided(world.monitor()) == wanted
    assert world.warehouse.days[grown].keys() == {(uri, _etag(world, uri)) for uri in _uris(world, grown)}
    assert [world.table.day(PIPELINE, hour).attempts for hour in hours] == [2, 1, 1, 1, 3, 1]
    assert sorted(world.table.held(PIPELINE)) == [changed, removed, rolled_back]


def _uris(world: World, hour: str) -> list[str]:
    day, _, number = hour.partition("T")
    return [uri for uri in world.store.objects if f"/date={day}/hour={number}/" in uri]


def _etag(world: World, uri: str) -> str:
    (item,) = (each for each in world.store.list(uri.rpartition("/")[0] + "/") if each.uri == uri)
    return item.etag


def test_the_object_of_an_hour_leads_to_a_check_of_this_hour_alone(world):
    for hour in ("2013-03-12T12", "2013-03-12T13"):
        add(world, hour)
        world.run_day(hour)
    world.arrive(add(world, "2013-03-12T13", "late", rows=20))
    reports = []
    world.on_check = reports.append
    world.receive_messages()
    assert [decided(report) for report in reports] == [{"2013-03-12T13": (LateDecision.RERUN, DecisionRule.GROWN)}]


def test_limits_count_the_hours_of_a_calendar_day_of_the_pipeline(world):
    world.set_late(max_reruns_per_day=2)
    hours = [name_of(FIRST + HOUR * number) for number in range(4)]
    for hour in hours:
        add(world, hour)
        world.run_day(hour)
        add(world, hour, "late", rows=20)
    rules = [rule for _, rule in decided(world.monitor()).values()]
    assert rules == [DecisionRule.GROWN] * 2 + [DecisionRule.TOO_MANY] * 2
    (deferred, _) = (day.figures.not_before for day in world.monitor().days if day.rule is DecisionRule.TOO_MANY)
    assert deferred == datetime(2013, 3, 14, 4, tzinfo=UTC)  # midnight of New York
    world.time = deferred
    assert [rule for _, rule in decided(world.monitor()).values()].count(DecisionRule.GROWN) == 2


def test_hours_are_overdue_after_their_deadline(world):
    add(world, "2013-03-12T12")
    world.run_day("2013-03-12T12")
    definition = world.project.pipelines[PIPELINE].model_copy(update={"deadline_hours": 26})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    assert world.check().overdue == ("2013-03-12T13", "2013-03-12T14", "2013-03-12T15")


def test_a_check_asks_as_often_of_a_source_with_a_year_of_objects(world):
    hour = "2013-03-12T12"
    add(world, hour)
    world.run_day(hour)
    asked = []
    listing, world.store.list = world.store.list, lambda *args, **more: asked.append(args) or listing(*args, **more)
    world.check()
    before = len(asked)
    for days in range(365):
        add(world, name_of(FIRST - timedelta(days=10 + days)))
    world.check()
    assert len(asked) == 2 * before


def test_people_are_notified_once_of_the_hours_that_keep_an_earlier_definition(world):
    for hour in ("2013-03-12T12", "2013-03-12T13"):
        add(world, hour)
        world.run_day(hour)
    world.define(steps={"delays_by_carrier": StepUse(step="sort", depends_on=("flights",))})
    world.monitor()
    world.monitor()
    (document,) = world.documents("definition")
    assert document["summary"] == "daily_delays: 2 published hours of the last 168 keep an earlier definition"
    assert document["days"] == ["2013-03-12T12", "2013-03-12T13"]
    assert "since these hours were published" in world.topic.sent[0]["body"]


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ({"window_days": 3}, "the window of an hourly pipeline is `window_hours`: write that instead"),
        ({"window_hours": 367}, "less than or equal to 366"),
    ],
)
def test_the_window_of_hours_is_in_hours(late, message):
    with pytest.raises(ValueError, match=message):
        make_hourly(World(), late=late)


def test_the_window_of_days_is_in_days():
    definition = World().project.pipelines[PIPELINE].model_dump(by_alias=True)
    with pytest.raises(ValueError, match="the window of a daily pipeline is `window_days`: write that instead"):
        Pipeline.model_validate({**definition, "late": {"window_hours": 24}})
