"""A new definition of a pipeline is a cause of its own: neither what it adds is late data, nor what it removes lost."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.costs.cost import RunCost
from slackwater.errors import InputError, Throttled
from slackwater.late.check.tasks import day_tasks
from slackwater.late.comparison import Cause
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.late.entry import definition_input
from slackwater.late.new_entries import cost_shares
from slackwater.late.report.document import change_document
from slackwater.late.report.message import compose
from slackwater.pipeline.definition import Late, StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.inputs.difference import Change
from slackwater.runs.inputs.input_definition import InputDefinition, input_definition
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.record import RunReason
from tests.fakes_check import NOW, PIPELINE, World
from tests.fakes_comparison import comparison, version
from tests.fakes_notification import DATE, a_manifest, an_object
from tests.late_world import LateWorld
from tests.unit.late.test_errors import fail_listing
from tests.unit.runs.test_table_inputs import SUNDAY, Weeks, week_of, weekly

pytestmark = pytest.mark.unit

DAY, EAST = "2013-03-10", "Etc/GMT-6"
NEW_YORK = {"timezone": "America/New_York", "sources": ("flights", "weather")}
"""The hours from 05:00 UTC. In EAST, the day begins at 18:00 UTC of the day before."""
DEFINITIONS = {
    "the same": (NEW_YORK, NEW_YORK),
    "an added source": (NEW_YORK | {"sources": ("flights",)}, NEW_YORK),
    "a removed source": (NEW_YORK, NEW_YORK | {"sources": ("flights",)}),
    "another timezone": (NEW_YORK, NEW_YORK | {"timezone": EAST}),
    "both": (NEW_YORK | {"sources": ("flights",)}, NEW_YORK | {"timezone": EAST}),
}
ARRIVALS = [
    None,
    *product(("flights", "weather"), (("2013-03-09", "20"), (DAY, "12"), (DAY, "20"), ("2013-03-11", "02"))),
]


STEPS = {"delays_by_carrier": StepUse(step="sql", depends_on=("flights",))}
"""Steps that any definition of the sources can have."""


def define(world: World, *, on_definition: str = Late().on_definition, **changes: object) -> None:
    """Deploy another definition, after the cool-down of earlier runs."""
    world.time += timedelta(hours=2)
    definition = world.project.pipelines[PIPELINE]
    late = definition.late.model_copy(update={"on_definition": on_definition})
    definition = definition.model_copy(update={"late": late} | changes)
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, PIPELINE: definition}})


def decision_of(world: World, day: str = DAY) -> DayDecision:
    return next(item for item in world.check().days if item.date == day)


def is_read(definition: dict, source: str, hour: tuple[str, str]) -> bool:
    """Whether a run of the day reads events of this hour, by the definition of a day alone."""
    instant = datetime.fromisoformat(f"{hour[0]}T{hour[1]}:00").replace(tzinfo=UTC)
    local = instant.astimezone(ZoneInfo(definition["timezone"])).date()
    return source in definition["sources"] and local.isoformat() == DAY


@pytest.mark.parametrize("policy", ["keep", "rerun"])
@pytest.mark.parametrize("arrived", ARRIVALS)
@pytest.mark.parametrize(("former", "present"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_only_what_both_definitions_read_is_late(world, former, present, arrived, policy):
    define(world, **former, steps=STEPS)
    world.publish(DAY, force=True)
    define(world, **present, on_definition=policy)
    uri = world.add(arrived[0], *arrived[1], name="late", rows=500) if arrived else ""
    is_late = arrived is not None and is_read(former, *arrived) and is_read(present, *arrived)
    is_new = former != present
    decision = decision_of(world)
    new = DecisionRule.NEW_DEFINITION if policy == "rerun" else DecisionRule.DEFINITION_KEPT
    expected_rule = DecisionRule.GROWN if is_late else new if is_new else DecisionRule.UNCHANGED
    is_moved = former["timezone"] != present["timezone"]
    if is_moved and expected_rule in {DecisionRule.GROWN, DecisionRule.NEW_DEFINITION}:
        expected_rule = DecisionRule.MOVED_HOURS
    assert decision.rule is expected_rule
    assert {item.uri for item in decision.late_inputs if item.rows} == ({uri} if is_late else set())
    assert [item.etag for item in decision.late_inputs if item.change == "definition"] == (
        [world.project.written_digest(PIPELINE)] if is_new else []
    )
    assert ("the definition has changed" in decision.reason) is bool(decision.new_definition) is is_new
    runs_again = is_late or (is_new and policy == "rerun")
    would_run = LateDecision.HOLD if is_moved else LateDecision.RERUN
    assert decision.decision is (would_run if runs_again else LateDecision.IGNORE)
    assert ("the run reads with the new one" in decision.reason) is (runs_again and is_new)
    expected = [(RunReason.LATE_DATA, is_late), (RunReason.NEW_DEFINITION, is_new)]
    if is_late or is_new:
        run = world.publish(DAY, moves_hours=is_moved)
        record = world.table.run(PIPELINE, DAY, run.attempt)
        assert list(record.reasons) == [reason for reason, applies in expected if applies]
        assert decision_of(world).rule is DecisionRule.UNCHANGED


def test_no_day_runs_alone_with_other_hours_than_the_days_around_it(world):
    """An event of 20:00 UTC belongs to the 10th in New York, and to the 11th in EAST."""
    world.add("flights", "2013-03-10", "20", name="evening", rows=100)
    for day in (DAY, "2013-03-11"):
        world.publish(day, force=True)
    define(world, timezone=EAST)
    world.add("flights", "2013-03-11", "12", name="late", rows=500)
    before = world.table.day(PIPELINE, "2013-03-11").published
    held = decision_of(world, "2013-03-11")
    assert (held.decision, held.rule) == (LateDecision.HOLD, DecisionRule.MOVED_HOURS)
    assert "--from DATE --to DATE --stale" in held.reason
    assert world.table.day(PIPELINE, "2013-03-11").published == before
    for force in (False, True):  # also one that a check has started before the deployment, or a person
        with pytest.raises(InputError, match=r"was published with another timezone, .* --from DATE --to DATE --stale"):
            world.freeze("2013-03-11", force=force)
    world.hold_decisions().release(PIPELINE, "2013-03-11", reason="the only day that counts")
    assert decision_of(world, "2013-03-11").decision is LateDecision.RERUN
    world.publish("2013-03-11")
    assert decision_of(world, "2013-03-11").rule is DecisionRule.UNCHANGED


@pytest.mark.parametrize("published", [(), ("2013-03-12",)])
def test_a_table_that_is_added_and_has_no_earlier_days_stops_no_check(world, published):
    rates = world.project.pipelines[PIPELINE].model_copy(update={"pipeline": "fx_rates"})
    pipelines = {**world.project.pipelines, "fx_rates": rates}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    define(world, tables={"rates": TableInput(table="fx_rates")})
    for day in published:
        run = world.table.day(PIPELINE, day).published.run.model_copy(update={"pipeline": "fx_rates"})
        shown = world.table.day(PIPELINE, day).published.model_copy(update={"run": run})
        world.table.save(world.table.day("fx_rates", day).model_copy(update={"published": shown, "attempts": 1}))
    # A day whose run could not list the table is on hold: it does not take the place of one that can run, each night.
    limited = world.project.pipelines[PIPELINE].late.model_copy(update={"max_reruns_per_day": 1})
    define(world, late=limited)
    for day in ("2013-03-09", "2013-03-12"):
        world.add("flights", day, "12", name="late", rows=500)
    for _ in range(2):
        rules = {day.date: day.rule for day in world.check().days if day.run_id}
        last = rules.pop("2013-03-12")
        assert last is (DecisionRule.GROWN if published else DecisionRule.UNREADABLE)
        assert rules.pop("2013-03-09") is DecisionRule.UNREADABLE
        assert set(rules.values()) == {DecisionRule.DEFINITION_KEPT}
        held = {"2013-03-09"} if published else {"2013-03-09", "2013-03-12"}
        assert set(world.table.held(PIPELINE)) == held
        reason = world.table.day(PIPELINE, "2013-03-09").hold.reason
        assert reason.startswith("cannot be checked: tables.rates: fx_rates has not published 2013-03-09: run it first")
        world.time += timedelta(days=1)
    if published:
        assert world.publish("2013-03-12").attempt == 2


hours = st.tuples(st.sampled_from(("2013-03-09", "2013-03-10", "2013-03-11")), st.integers(0, 23))
definitions = st.builds(
    InputDefinition,
    timezone=st.sampled_from(("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati")),
    sources=st.lists(st.sampled_from(("flights", "weather", "buoys")), min_size=1, unique=True).map(tuple),
    tables=st.just(()),
)


@given(former=definitions, present=definitions, old=st.sets(hours), new=st.sets(hours))
def test_differences_are_those_of_the_hours_and_sources_of_both_definitions(former, present, old, new):
    def of_day(definition: InputDefinition, hour: tuple[str, int]) -> bool:
        start = datetime.fromisoformat(hour[0]).replace(tzinfo=UTC) + timedelta(hours=hour[1])
        minutes = (start + timedelta(minutes=15 * number) for number in range(4))
        zone = ZoneInfo(definition.timezone)
        return any(minute.astimezone(zone).date().isoformat() == DATE for minute in minutes)

    def listed(definition: InputDefinition, of: set[tuple[str, int]]) -> list:
        return [
            an_object(source, date=hour[0], hour=f"{hour[1]:02}", rows=1)
            for source, hour in product(sorted(definition.sources), sorted(of))
            if of_day(definition, hour)
        ]

    before, now = a_manifest(*listed(former, old)), a_manifest(*listed(present, new))
    found = shared_inputs(before, now, former=former, present=present).differences
    shared = {hour for hour in old | new if of_day(former, hour) and of_day(present, hour)}
    for source in found:
        both = shared if source.source in former.sources else set()
        assert source.late.rows == len((new - old) & both), source.source
        assert sum(item.before.rows for item in source.removed) == len((old - new) & both), source.source
    assert [source.source for source in found] == sorted(present.sources)


@pytest.mark.parametrize(("hour", "is_shared"), [("12", True), ("20", False)])
def test_only_objects_that_both_definitions_read_can_vanish(world, hour, is_shared):
    uri = world.add("flights", DAY, hour, name="b", rows=5)
    world.publish(DAY)
    define(world, timezone=EAST)
    world.store.delete([uri])
    decision = decision_of(world)
    if is_shared:
        assert (decision.decision, decision.rule) == (LateDecision.HOLD, DecisionRule.VANISHED)
        with pytest.raises(InputError, match="the inputs have lost 5 rows"):
            world.freeze(DAY)
    else:
        assert decision.rule is DecisionRule.DEFINITION_KEPT
        assert world.freeze(DAY, moves_hours=True).attempt == 3


@pytest.mark.parametrize("policy", ["keep", "rerun"])
def test_the_hold_of_an_older_day_ends_with_its_cause_although_its_definition_is_another_one(world, policy):
    uri = world.add("flights", "2013-03-08", "17", name="b", rows=5)
    world.publish("2013-03-08", force=True)
    world.store.delete([uri])
    world.check()
    assert world.table.day(PIPELINE, "2013-03-08").hold.rule == "vanished"
    world.time += timedelta(days=8)
    define(world, sources=("flights",), steps=STEPS, on_definition=policy)
    world.add("flights", "2013-03-08", "17", name="b", rows=5)
    world.check()
    assert world.table.day(PIPELINE, "2013-03-08").hold is None
    [decision] = world.checker.decide(pipeline=PIPELINE, dates=["2013-03-08"])
    assert decision.rule is DecisionRule.DEFINITION_KEPT


@pytest.mark.parametrize("failures", [0, 1], ids=["each day is listed by itself", "one day is checked twice"])
def test_days_of_the_window_run_again_although_they_cannot_be_listed_together(world, failures):
    define(world, steps=STEPS)
    world.publish(DAY, force=True)
    define(
        world, timezone="America/New_York", on_definition="rerun", steps=STEPS | {"more": STEPS["delays_by_carrier"]}
    )
    before = {day.date: day.rule for day in world.check().days}
    assert before[DAY] is DecisionRule.NEW_DEFINITION
    fail_listing(world, Throttled, dates=[DAY], times=failures)
    assert {day.date: day.rule for day in world.check().days} == before
    assert [decision.rule for decision in world.checker.decide(pipeline=PIPELINE, dates=[DAY])] == [before[DAY]]


def test_a_new_query_is_a_new_definition_too(world):
    definition = world.project.pipelines[PIPELINE]
    step = definition.steps[definition.publish.step].model_copy(update={"parameters": {"other": 1}})
    define(world, on_definition="rerun", steps={**definition.steps, definition.publish.step: step})
    decision = decision_of(world)
    assert (decision.rule, decision.late_inputs[0].source) == (DecisionRule.NEW_DEFINITION, "definition")
    assert decision.new_definition == ("the steps, the published key or the columns of the sources have changed",)


def test_a_setting_of_late_data_is_no_new_definition(world):
    define(world, late=Late(window_days=7, cool_down_hours=5), deadline_hours=3, description="new")
    assert set(world.rules().values()) == {
        DecisionRule.UNCHANGED, DecisionRule.CURRENT, DecisionRule.NEVER_PUBLISHED
    }  # fmt: skip


def test_re_runs_for_a_definition_keep_the_limits_of_the_pipeline(world):
    definition = world.project.pipelines[PIPELINE]
    late = definition.late.model_copy(update={"max_reruns_per_day": 2})
    define(world, late=late)
    define(world, sources=("flights",), steps=STEPS, on_definition="rerun")
    rules = [day.rule for day in world.check().days if day.new_definition]
    assert rules == [DecisionRule.NEW_DEFINITION] * 2 + [DecisionRule.TOO_MANY] * 3


@pytest.mark.parametrize(("policy", "rule"), [("keep", DecisionRule.TOO_EXPENSIVE), ("rerun", DecisionRule.GROWN)])
def test_late_data_that_is_not_worth_its_price_keeps_no_day_from_a_new_definition(world, policy, rule):
    run = world.table.run(PIPELINE, DAY, 1)
    world.table.save_cost(run.model_copy(update={"cost": RunCost(usd=1, complete=True)}))
    world.add("flights", DAY, "20", name="late", rows=500)
    late = world.project.pipelines[PIPELINE].late.model_copy(update={"worth_per_percent": 0.0001})
    define(world, late=late)
    assert decision_of(world).rule is DecisionRule.TOO_EXPENSIVE
    define(world, steps=STEPS, on_definition=policy)
    decision = decision_of(world)
    assert (decision.rule, decision.decision is LateDecision.RERUN) == (rule, policy == "rerun")


def test_a_run_of_an_older_version_does_not_say_what_it_read_so_an_added_source_is_late_data(world):
    define(world, sources=("flights",), steps=STEPS)
    world.publish(DAY, force=True)
    record = world.table.run(PIPELINE, DAY, 2)
    world.table.save(record.model_copy(update={"reads": None}))
    define(world, sources=("flights", "weather"))
    decision = decision_of(world)
    assert decision.reason.startswith("weather grew by 1,000 rows (no rows before)")
    assert decision.new_definition == ()


def test_a_rollback_reads_what_its_version_has_read(world):
    define(world, timezone=EAST)
    world.publish(DAY, moves_hours=True)
    run = world.freeze(DAY, rollback=1, reason="r")
    assert world.table.run(PIPELINE, DAY, run.attempt).reads.timezone == "America/New_York"


TABLES = [((-6, 0), (-3, 0)), ((-3, 0), (-6, 0)), ((-4, -2), (-3, 0)), ((-1, 0), (-6, -5)), ((-6, 0), (-6, 0))]


@pytest.mark.parametrize("policy", ["keep", "rerun"])
@pytest.mark.parametrize("days_before", range(7))
@pytest.mark.parametrize(("former", "present"), TABLES)
def test_only_days_that_both_definitions_name_are_changed_days(former, present, days_before, policy):
    world = Weeks(days=former)
    world.publish_week()
    pipelines = {**world.project.pipelines, PIPELINE: weekly(days=present)}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    define(world, on_definition=policy)
    world.publish_daily(SUNDAY - timedelta(days=days_before), content="other", attempt=2, rows=11)
    is_shared = all(first <= -days_before <= last for first, last in (former, present))
    decision, is_new = week_of(world), former != present
    new = DecisionRule.NEW_DEFINITION if policy == "rerun" else DecisionRule.DEFINITION_KEPT
    assert decision.rule is (DecisionRule.GROWN if is_shared else new if is_new else DecisionRule.UNCHANGED)
    assert sum(item.rows for item in decision.late_inputs) == 11 * is_shared
    (days,) = decision.sources
    assert (days.late.rows, days.removed) == (11 * is_shared, ())
    if is_new:
        wanted = f"days: table daily, days {list(former)} -> table daily, days {list(present)}"
        assert decision.new_definition == (wanted,)


def test_a_run_that_reads_the_same_days_with_another_name_keeps_the_manifest_of_the_run_before():
    first = published_world()
    second = first.reader("weekly", TableInput(table=PIPELINE, missing="empty"))
    second.run_day("2013-03-12")
    former = second.project.pipelines["weekly"]
    second.define(
        tables={"again": former.tables["days"]}, steps={"rows": StepUse(step="select", depends_on=("again",))}
    )
    assert not second.run_day("2013-03-12", "failed")
    read, failed = second.table.runs("weekly", "2013-03-12")
    assert [item.source for item in second.manifest(read.run.manifest).objects] == ["days"]
    assert [item.source for item in second.manifest(failed.run.manifest).objects] == ["again"]
    second.define(tables=former.tables, steps=former.steps)
    second.time += timedelta(hours=2)
    decision = next(day for day in second.monitor().days if day.date == "2013-03-12")
    assert (decision.rule, decision.late_inputs) == (DecisionRule.OUTCOME_UNKNOWN, ())


# The ledger and the messages


def published_world() -> LateWorld:
    world = LateWorld()
    define(world, steps=STEPS)
    for name in ("2013-03-11", "2013-03-12"):
        for source in ("flights", "weather"):
            world.add(source, name, "17", rows=1000)
        world.run_day(name)
    return world


def ledger_rows(world: LateWorld) -> list[tuple]:
    rows = sorted(world.ledger.rows, key=lambda row: (row.date, row.decided_at, row.source))
    return [(row.date.day, row.source, row.rows, row.decision, row.rule, row.attempt) for row in rows]


def test_late_data_bears_the_cost_of_a_run_and_a_definition_only_without_any():
    definition = definition_input("d", at=NOW)
    late = definition.model_copy(update={"change": Change.ADDED, "rows": 3})
    assert cost_shares([definition, late], 0.5) == [0, 0.5]
    assert cost_shares([definition], 0.5) == [0.5]


def test_a_run_by_hand_books_the_definition_once():
    world = published_world()
    define(world, timezone="Asia/Tokyo")
    world.run_day("2013-03-12", moves_hours=True)
    world.monitor()
    world.monitor()
    assert [row for row in ledger_rows(world) if row[0] == 12] == [(12, "definition", 0, "rerun", "manual", 2)]


def test_the_message_names_what_has_changed_in_the_definition(world):
    pipelines = world.project.pipelines
    reads = [input_definition(pipelines[PIPELINE].model_copy(update=item), pipelines) for item in DEFINITIONS["both"]]
    before = version(1).model_copy(update={"reads": reads[0], "definition": "a"})
    after = version(2).model_copy(update={"reads": reads[1], "definition": "b"})
    both = comparison(before=before, after=after)
    assert both.causes == (Cause.LATE_DATA, Cause.NEW_DEFINITION)
    lines = "\nDefinition\n  timezone: America/New_York -> Etc/GMT-6\n  weather (source): added\n"
    assert lines in compose(both).body
    document = change_document(both, summary="s", comparison_uri="u", report_uri="r")
    assert document.definition_changes == ("timezone: America/New_York -> Etc/GMT-6", "weather (source): added")
    only = comparison(
        before=before, after=after, inputs=[item.model_copy(update={"changes": ()}) for item in both.inputs]
    )
    assert only.causes == (Cause.NEW_DEFINITION,)
    assert "\nInputs\n  The inputs that the definitions of both versions read are the same.\n" in compose(only).body
    assert "Definition\n" not in compose(comparison()).body


def test_a_whole_window_of_a_new_definition_runs_nothing_by_default(world):
    define(world, timezone=EAST)
    report = world.check()
    assert day_tasks(report) == ()
    kept = [day.date for day in report.days if day.rule is DecisionRule.DEFINITION_KEPT]
    assert kept == [str(date(2013, 3, number)) for number in range(8, 13)]
