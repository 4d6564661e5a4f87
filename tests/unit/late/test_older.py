"""Days with late data that have left the window: they stay listed until a run has read the data."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.client.older import DAYS_AT_ONCE, UncheckedDays, older_days
from slackwater.errors import InputError, Throttled, UnknownName
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.late.check.checker import Checker
from slackwater.late.check.older import is_waiting
from slackwater.late.decision import DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.pipeline.definition import Late
from slackwater.runs.record import RunState
from tests.fakes_check import PIPELINE, PUBLICATION
from tests.fakes_runs import RUN_TABLE, DictRunTable
from tests.unit.late.test_holds import decisions
from tests.unit.late.test_new_definition import STEPS, define

pytestmark = pytest.mark.unit

DAY = "2013-03-10"
# The window of seven days begins on 2013-03-13.
AFTER = datetime(2013, 3, 20, 18, tzinfo=UTC)


@pytest.fixture
def postponed():
    return []


@pytest.fixture
def arrive(world, postponed):
    def arrive(*names, day=DAY, hour="20", time=AFTER, rows=500):
        """Write objects and deliver their events."""
        events = {}
        for name in names:
            key = world.add("flights", day, hour, name=name, rows=rows).removeprefix("s3://raw/")
            events[name] = json.dumps({"id": name, "key": key, "time": time and time.isoformat()})
        checks = ArrivalChecks(
            project=world.project,
            table=world.table,
            executions=world.executions,
            start=lambda **_: None,
            send_later=postponed.extend,
            update_table=lambda *_: None,
            wake_source=lambda _source, _hours: None,
            now=world.now,
        )
        return checks.start_checks(events)

    return arrive


def with_late(world, **late):
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(window_days=7, **late)})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})


def listed(world, last="2013-12-31"):
    return [(item.date, item.objects) for item in world.table.late_days(PIPELINE, last=last)]


def older(world, **arguments):
    return older_days(world.checker, [PIPELINE], **arguments)


def test_new_objects_of_an_older_day_list_it_until_it_is_published_again(world, arrive):
    world.time = AFTER
    result = arrive("late", "later")
    assert (result.started, result.older) == ((), {PIPELINE: 2})
    assert (listed(world), world.check().older) == ([(DAY, 2)], (DAY,))
    [day] = older(world).days
    assert (day.decision.date, day.decision.rule, day.objects) == (DAY, DecisionRule.GROWN, 2)
    assert (day.decision.figures.late_rows, day.since) == (1000, AFTER)
    world.time += timedelta(minutes=1)
    world.publish(DAY)
    assert (listed(world), world.check().older, older(world).days) == ([], (), [])


def test_a_day_that_leaves_the_window_before_its_check_begins_is_not_forgotten(world, arrive):
    # The last hour of the last day on which the window has this day: 03:30 UTC is 23:30 in New York.
    world.time = datetime(2013, 3, 18, 3, 30, tzinfo=UTC)
    assert [check.days for check in arrive("late", time=world.time).started] == [(DAY,)]
    assert (listed(world), older(world).days) == ([(DAY, 1)], [])
    world.time += timedelta(hours=1)
    assert world.checker.check(pipeline=PIPELINE, as_of=None, dates=[DAY]).days == ()
    assert world.check().older == (DAY,)


def test_data_of_a_day_that_was_published_before_its_end_is_not_forgotten(world, arrive):
    today = "2013-03-13"
    world.add("flights", today, "17")
    arrive("first", day=today, time=world.time)
    assert listed(world) == []  # Its first run reads this data.
    world.publish(today)
    world.time += timedelta(minutes=1)
    assert (arrive("late", day=today, time=world.time).started, listed(world)) == ((), [(today, 1)])
    world.check()
    assert (listed(world), older(world).days) == ([(today, 1)], [])
    # No check has run for longer than the window.
    world.time += timedelta(days=8)
    assert world.check().older == (today,)


def test_days_that_were_never_published_are_not_listed(world, arrive):
    world.time = AFTER
    assert arrive("late", day="2013-02-01").older == {}
    assert listed(world) == []


def test_a_deferred_day_that_leaves_the_window_is_not_forgotten(world):
    with_late(world, max_reruns_per_day=1)
    for day in ("2013-03-08", "2013-03-09"):
        world.add("flights", day, "20", name="late", rows=500)
    world.time = datetime(2013, 3, 15, 18, tzinfo=UTC)
    rules = world.rules()
    assert (rules["2013-03-08"], rules["2013-03-09"]) == (DecisionRule.GROWN, DecisionRule.TOO_MANY)
    world.publish("2013-03-08")
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    assert world.check().older == ("2013-03-09",)


@pytest.mark.parametrize(
    ("rule", "max_age_hours", "waits"),
    [
        (DecisionRule.TOO_EXPENSIVE, 48, True),
        (DecisionRule.TOO_EXPENSIVE, None, False),
        (DecisionRule.UNCHANGED, 48, False),
    ],
)
def test_a_day_that_is_not_worth_its_price_waits_only_if_its_age_counts(rule, max_age_hours, waits):
    figures = DecisionFigures(max_age_hours=max_age_hours)
    day = DayDecision(
        pipeline=PIPELINE, date=DAY, decision=LateDecision.IGNORE, rule=rule, reasons=("r",), figures=figures
    )
    assert is_waiting(day) is waits


ARRIVAL = datetime(2013, 3, 17, 18, tzinfo=UTC)
"""The day is in the window, on the last day but one."""


def test_a_check_of_an_arrival_keeps_a_day_listed_that_has_got_more_data_since(world, arrive, monkeypatch):
    world.time = ARRIVAL
    arrive("few", time=world.time, rows=1)
    read_day = world.table.day

    def day(*arguments):
        world.table.record_late_day(PIPELINE, DAY, at=ARRIVAL + timedelta(seconds=1), keys=["more"])
        return read_day(*arguments)

    monkeypatch.setattr(world.table, "day", day)
    world.checker.check(pipeline=PIPELINE, as_of=None, dates=[DAY])
    assert listed(world) == [(DAY, 2)]


def test_a_repeated_call_completes_the_removal(world, monkeypatch):
    world.time = AFTER
    world.add("flights", DAY, "20", name="late", rows=500)
    world.table.record_late_day(PIPELINE, DAY, at=AFTER)
    run = world.freeze(DAY)
    world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    recorder, remove = world.recorder, world.table.remove_late_day

    def fail(*_, **__):
        raise Throttled("too many requests")

    monkeypatch.setattr(world.table, "remove_late_day", fail)
    with pytest.raises(Throttled):
        recorder.record_published(run)
    assert world.table.run(PIPELINE, DAY, run.attempt).state is RunState.PUBLISHED
    monkeypatch.setattr(world.table, "remove_late_day", remove)
    recorder.record_published(run)
    assert listed(world) == []


def test_a_range_finds_days_that_no_event_has_listed_and_writes_nothing(world):
    world.add("flights", DAY, "20", name="late", rows=500)
    world.store.delete(["s3://raw/raw/source=flights/date=2013-03-09/hour=17/a.parquet"])
    world.time = AFTER
    assert older(world).days == []
    before = dict(world.table.by_day)
    found = older(world, first="2013-03-01", last="2013-03-12").days
    assert [(day.decision.date, day.decision.rule, day.since) for day in found] == [
        ("2013-03-09", DecisionRule.VANISHED, None),
        (DAY, DecisionRule.GROWN, None),
    ]
    assert (world.table.by_day, world.table.usage, listed(world)) == (before, {}, [])
    assert [day.decision.date for day in older(world, first=DAY).days] == [DAY]
    assert older(world, last="2013-03-11").days == []


def test_a_range_finds_data_that_arrived_while_no_definition_read_its_source(world, arrive):
    define(world, steps=STEPS)
    world.publish(DAY, force=True)
    world.time = AFTER
    define(world, sources=("weather",))
    arrive("late")
    define(world, sources=("flights", "weather"))
    assert (listed(world), world.check().older) == ([], ())
    [day] = older(world, first=DAY, last=DAY).days
    assert (day.decision.date, day.decision.rule, day.decision.figures.late_rows) == (DAY, DecisionRule.GROWN, 500)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (None, "2013-03-13", "--to: 2013-03-13 is not before the window of daily_delays, which begins on 2013-03-13"),
        ("2012-12-10", None, f"use a range of 1 to {DAYS_AT_ONCE} days"),
        ("2013-03-02", "2013-03-01", f"use a range of 1 to {DAYS_AT_ONCE} days"),
    ],
)
def test_a_range_ends_before_the_window_and_has_a_limit(world, first, last, message):
    world.time = AFTER
    with pytest.raises(InputError, match=message):
        older(world, first=first, last=last)
    assert older(world, first="2012-12-11", last="2013-03-12").days == []


def test_one_call_checks_a_bounded_number_of_listed_days(world):
    world.time = AFTER
    for number in range(DAYS_AT_ONCE + 3):
        world.table.record_late_day(PIPELINE, (date(2012, 1, 1) + timedelta(number)).isoformat(), at=AFTER)
    result = older(world)
    assert len(result.days) == DAYS_AT_ONCE
    assert result.unchecked == [UncheckedDays(PIPELINE, 3, "2012-04-02", "2012-07-02")]
    assert {day.decision.rule for day in result.days} == {DecisionRule.NEVER_PUBLISHED}


def test_the_named_ranges_lead_to_every_listed_day(world):
    world.time = AFTER
    for day in ("2012-01-01", "2012-12-31", "2013-03-12"):
        world.table.record_late_day(PIPELINE, day, at=AFTER)
    [item] = older(world, first="2012-01-01", last="2012-01-31").unchecked
    assert item == (PIPELINE, 2, "2012-12-31", "2013-03-12"), "the range ends before the window"
    assert older(world, first=item.first, last=item.last).unchecked == []


@pytest.mark.parametrize("rule", [DecisionRule.KEPT, DecisionRule.TABLE_IGNORED])
def test_a_listed_day_that_was_decided_is_shown_once(world, monkeypatch, rule):
    world.time = AFTER
    world.table.record_late_day(PIPELINE, DAY, at=AFTER)
    ignored = {"decision": LateDecision.IGNORE, "figures": DecisionFigures()}
    decided = DayDecision(pipeline=PIPELINE, date=DAY, rule=rule, reasons=("r",), **ignored)
    monkeypatch.setattr(Checker, "decide", lambda *_, **__: (decided,))
    assert [day.decision.rule for day in older(world).days] == [rule]
    assert listed(world) == []


def test_data_that_arrives_during_the_list_keeps_its_day_although_the_clock_of_the_client_is_fast(world, monkeypatch):
    world.table.record_late_day(PIPELINE, DAY, at=AFTER)
    world.time = AFTER + timedelta(minutes=5)
    decide = Checker.decide

    def decide_while_data_arrives(self, **arguments):
        decisions = decide(self, **arguments)
        world.table.record_late_day(PIPELINE, DAY, at=AFTER + timedelta(seconds=2), keys=["k"])
        return decisions

    monkeypatch.setattr(Checker, "decide", decide_while_data_arrives)
    assert older(world).days == []
    assert listed(world) == [(DAY, 1)]


def list_other_days(world, number):
    for back in range(number):
        world.table.record_late_day(PIPELINE, (date(2012, 12, 31) - timedelta(days=back)).isoformat(), at=AFTER)


def test_more_older_days_than_one_read_returns_keep_no_decided_day_listed(world):
    list_other_days(world, 1_000)
    # In the window, one day has nothing new, and the other one is rejected by a person.
    for day in ("2013-03-11", DAY):
        world.table.record_late_day(PIPELINE, day, at=world.time)
    world.store.delete([f"s3://raw/raw/source=flights/date={DAY}/hour=17/a.parquet"])
    report = world.check()
    assert len(report.older) == 1_000
    assert world.table.late_day(PIPELINE, "2013-03-11") is None
    world.table.record_late_day(PIPELINE, DAY, at=world.time)
    decisions(world).keep(PIPELINE, DAY, reason="wrong file")
    assert world.table.late_day(PIPELINE, DAY) is None


def test_an_unknown_pipeline_is_refused(world):
    with pytest.raises(UnknownName):
        older_days(world.checker, ["nobody"])


@pytest.fixture
def table(each_dynamodb):
    with each_dynamodb.table("runs", **RUN_TABLE) as name:
        yield DynamoRunTable(each_dynamodb.client, name)


def test_the_table_counts_each_object_once_and_a_bounded_number_of_them(table):
    table.record_late_day("p", DAY, at=AFTER, keys=["a", "b"])
    table.record_late_day("p", DAY, at=AFTER + timedelta(hours=1), keys=["b", "c"])
    [day] = table.late_days("p", last=DAY)
    assert (day.date, day.since, day.last, day.objects) == (DAY, AFTER, AFTER + timedelta(hours=1), 3)
    for number in range(3):
        table.record_late_day("p", DAY, at=AFTER, keys=[f"{number}-{key}" for key in range(300)])
    [day] = table.late_days("p", last=DAY)
    assert (day.objects, day.last) == (103, AFTER)


def test_a_check_does_not_move_the_last_data_of_a_day_backwards(table):
    table.record_late_day("p", DAY, at=AFTER, keys=["a"])
    table.record_late_day("p", DAY, at=AFTER - timedelta(minutes=1))
    [day] = table.late_days("p", last=DAY)
    assert (day.since, day.last, day.objects) == (AFTER, AFTER, 1)
    table.record_late_day("p", DAY, at=AFTER + timedelta(minutes=1))
    assert table.late_days("p", last=DAY)[0].last == AFTER + timedelta(minutes=1)


def test_the_table_lists_days_of_one_pipeline_in_a_range_and_one_by_itself(table):
    for pipeline, day in (("p", "2013-03-02"), ("p", "2013-02-28"), ("q", "2013-03-01"), ("p", "2013-03-03")):
        table.record_late_day(pipeline, day, at=AFTER)
    assert [day.date for day in table.late_days("p", last="2013-03-02")] == ["2013-02-28", "2013-03-02"]
    assert [day.date for day in table.late_days("p", first="2013-03-02", last="2013-03-03")] == [
        "2013-03-02",
        "2013-03-03",
    ]
    assert (table.late_day("p", "2013-03-02"), table.late_day("p", "2013-03-01")) == (
        table.late_days("p", last="2013-03-02")[1],
        None,
    )
    assert table.days("p", "2013-01-01", "2013-12-31") == []


def test_the_table_keeps_a_day_with_data_after_the_reading(table):
    table.record_late_day("p", DAY, at=AFTER)
    table.remove_late_day("p", DAY, read_at=AFTER - timedelta(microseconds=1))
    assert len(table.late_days("p", last=DAY)) == 1
    table.remove_late_day("p", DAY, read_at=AFTER)
    assert table.late_days("p", last=DAY) == []
    table.remove_late_day("p", DAY, read_at=AFTER)


def test_the_table_keeps_a_day_whose_data_was_seen_since_it_was_read_by_a_slower_clock(table):
    table.record_late_day("p", DAY, at=AFTER, keys=["a"])
    read = table.late_day("p", DAY)
    table.record_late_day("p", DAY, at=AFTER - timedelta(seconds=1), keys=["b"])
    table.remove_unchanged_late_day("p", read)
    assert table.late_day("p", DAY).objects == 2
    table.remove_unchanged_late_day("p", table.late_day("p", DAY))
    assert table.late_day("p", DAY) is None
    table.remove_unchanged_late_day("p", read)


@pytest.mark.parametrize(
    "contract",
    [
        test_the_table_keeps_a_day_whose_data_was_seen_since_it_was_read_by_a_slower_clock,
        test_the_table_counts_each_object_once_and_a_bounded_number_of_them,
        test_a_check_does_not_move_the_last_data_of_a_day_backwards,
        test_the_table_lists_days_of_one_pipeline_in_a_range_and_one_by_itself,
        test_the_table_keeps_a_day_with_data_after_the_reading,
    ],
)
def test_the_fake_of_other_tests_lists_late_days_as_the_table_does(contract):
    contract(DictRunTable())
