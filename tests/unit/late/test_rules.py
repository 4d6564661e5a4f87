"""The rules that decide about a day, alone, in pairs, and with the limits of a pipeline."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from slackwater.errors import DayChanged, ObjectMissing, Throttled
from slackwater.late.check.facts import DayFacts, DayInputs, DefinitionChange, Limits, MaxAge, SourceThresholds
from slackwater.late.check.limits import decide_with_limits, usage_date
from slackwater.late.check.rules import RULES, decide, rule_of, rules_table
from slackwater.late.decision import EARLY_RULES, DecisionRule, LateDecision
from slackwater.pipeline.definition import Late
from slackwater.pipeline.table_inputs import TableInput
from slackwater.project.project import load_project
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference, difference
from slackwater.runs.period import day_of
from slackwater.runs.pipeline_records import CountedRerun, RerunUsage
from slackwater.runs.record import ActiveRun, DayRecord, Hold, Resolution, ResolutionAction, RunRecord, RunState
from slackwater.sources.late_thresholds import LateThresholds
from slackwater.state.verdicts import Subject, new_verdict
from tests.fakes_notification import DATE, FROZEN, PIPELINE, a_day, a_manifest, a_run, an_object

pytestmark = pytest.mark.unit

SOURCES = ("flights", "weather")


def active():
    return ActiveRun(execution="e", run=a_run(2), since=FROZEN)


def source_thresholds(origin="its source", **thresholds):
    return {source: SourceThresholds(LateThresholds(**(thresholds or {"rows": 0})), origin) for source in SOURCES}


def facts_of(record, before, now, thresholds, **changes):
    """Return the facts of a day that no person has decided about and no attempt has failed."""
    differences = difference(a_manifest(*before), a_manifest(*now), sources=SOURCES)
    inputs = {"digest": "i", "differences": differences, "thresholds": thresholds, **changes}
    return a_days_facts(record, compared=DayInputs(**inputs))


def a_days_facts(record, **more):
    day = day_of(date.fromisoformat(record.date), "America/New_York")
    frozen_at = FROZEN if record.published else None
    return DayFacts(**{"day": day, "record": record, "is_published": True, "frozen_at": frozen_at, **more})


def evaluate(record, before, now, thresholds, **changes):
    return decide(facts_of(record, before, now, thresholds, **changes))


def decided_by(before, now, origin="its source", **thresholds):
    return evaluate(a_day(), before, now, source_thresholds(origin, **thresholds))


def same_thresholds(thresholds):
    return {source: SourceThresholds(thresholds, "its source") for source in SOURCES}


def late(rows, **more):
    return an_object(name="late", hour="13", rows=rows, **more)


def test_late_data_that_reaches_a_threshold_causes_a_rerun_and_the_reason_has_its_numbers():
    before = [an_object(rows=924)]
    more = [an_object(name="b", hour="13", rows=90, size=8_000), an_object(name="c", hour="14", rows=7, size=6_200)]
    evaluated = decided_by(before, [*before, *more], percent=1)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.RERUN, DecisionRule.GROWN)
    assert evaluated.reason == "flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB: reaches percent 1 of its source"
    assert (evaluated.attempt, evaluated.run_id, evaluated.frozen_at) == (1, a_run(1).run_id, FROZEN)


FILE, OTHER = an_object(name="x", rows=60, file="f.csv"), an_object(name="y", hour="13", rows=40, file="f.csv")
NEW_FILE = an_object(name="z", rows=68, file="f.csv")
PUBLISHED = [
    structs.replace(
        an_object(date=day, hour="00", name=day, rows=rows, size=0, file=f"daily {day}"), uri=f"daily/date={day}"
    )
    for day, rows in (("2013-03-07", 2), ("2013-03-08", 3))
]
LOST = [an_object("weather", name="w", rows=3), an_object("weather", name="v", hour="13")]
RELEASE = f"`slackwater late release {PIPELINE} --date {DATE} --reason TEXT` publishes the day without these rows"
DIFFERENCES = {
    "nothing": ([an_object()], [an_object()], {"rows": 0}, "UNCHANGED", "no new data since the published run"),
    "nothing by bytes": ([an_object()], [an_object()], {"bytes": 0}, "UNCHANGED", "no new data"),
    "nothing by percent": ([an_object()], [an_object()], {"percent": 0}, "UNCHANGED", "no new data"),
    "all thresholds are named": (
        [an_object(rows=1000)], [an_object(rows=1000), late(9)], {"percent": 1, "rows": 10}, "BELOW",
        "flights grew by 9 rows (0.9 %), 1 object, 900 Bytes: below percent 1 and rows 10 of its source",
    ),
    "a threshold of zero": (
        [], [late(1)], {"rows": 0}, "GROWN",
        "flights grew by 1 row (no rows before), 1 object, 100 Bytes: "
        "any late data counts (its source has no threshold above 0)",
    ),
    "any percentage of no rows": ([], [late(1)], {"percent": 10_000}, "GROWN", "no rows before"),
    "no row of no rows": ([], [late(0)], {"percent": 10_000}, "BELOW", "no rows before"),
    "all rows of a changed file": (
        [FILE, OTHER], [NEW_FILE, structs.replace(OTHER, uri="w")], {"percent": 100}, "GROWN",
        "flights has 1 changed file, 100 -> 108 rows (+8.0 %), 108 late rows (108.0 %), 2 objects, 10.8 kB: "
        "reaches percent 100 of its source",
    ),
    "added and changed rows": (
        [FILE], [NEW_FILE, late(5)], {"rows": 1}, "GROWN",
        "flights grew by 5 rows and has 1 changed file, 60 -> 68 rows (+13.3 %), 73 late rows (121.7 %), 2 objects, "
        "7.3 kB: reaches rows 1 of its source",
    ),
    "a published day has neither files nor sizes": (
        PUBLISHED, [PUBLISHED[0], structs.replace(PUBLISHED[1], etag="new", rows=4)], {"rows": 1}, "GROWN",
        "flights has 1 changed day, 3 -> 4 rows (+33.3 %), 4 late rows (80.0 %): reaches rows 1 of its source",
    ),
    "a published day is gone": (
        PUBLISHED, PUBLISHED[:1], {"rows": 0}, "VANISHED",
        "flights has lost 3 rows that the published run has read: 2013-03-08; find out why",
    ),
    "a changed file with fewer rows": (
        [FILE, OTHER], [NEW_FILE, late(1000)], {"rows": 0}, "SHRANK",
        f"flights: f.csv was changed and has 68 rows of this day, not 100; find out why; {RELEASE}",
    ),
    "rows that moved to another hour": (
        [FILE], [an_object(name="z", hour="15", rows=60, file="f.csv")], {"rows": 0}, "GROWN", "60 -> 60 rows"
    ),
    "objects are gone, and others were added": (
        [an_object(rows=10), *LOST], [an_object(rows=10), late(1000)], {"rows": 0}, "VANISHED",
        "weather has lost 2 objects with 13 rows that the published run has read, of 2013-03-10 12:00 to 14:00 UTC, "
        f"without a replacement; find out why; {RELEASE}",
    ),
    "an overwritten object with fewer rows": (
        [an_object(rows=10)], [an_object(rows=9, etag="other")], {"rows": 0}, "SHRANK",
        "data pushed for 2013-03-10 12:00 to 13:00 UTC was changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "thresholds", "rule", "reason"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_the_difference_of_the_inputs_decides_and_is_the_reason(before, now, thresholds, rule, reason):
    evaluated = decided_by(before, now, **thresholds)
    assert evaluated.rule is DecisionRule[rule]
    assert reason in evaluated.reason


@pytest.mark.parametrize(
    ("rows", "thresholds", "rule"),
    [
        (10, {"rows": 10}, DecisionRule.GROWN),
        (9, {"rows": 10}, DecisionRule.BELOW),
        (10, {"bytes": 1000}, DecisionRule.GROWN),
        (10, {"bytes": 1001}, DecisionRule.BELOW),
        (11, {"percent": 1.1}, DecisionRule.GROWN),  # 1.1 * 1000 is more than 1100 in floating point
        (10, {"percent": 1.1}, DecisionRule.BELOW),
        (10, {"percent": 50, "rows": 10}, DecisionRule.GROWN),
        (1, {"rows": 0}, DecisionRule.GROWN),
        (1, {"bytes": 0}, DecisionRule.GROWN),
        (1, {"percent": 0}, DecisionRule.GROWN),
        (0, {"rows": 0}, DecisionRule.GROWN),  # an object without rows is late data too
        (0, {"percent": 1}, DecisionRule.BELOW),
        (0, {"rows": 1}, DecisionRule.BELOW),
    ],
)
def test_a_threshold_is_reached_exactly_at_its_value(rows, thresholds, rule):
    before = [an_object(rows=1000)]
    assert decided_by(before, [*before, late(rows)], **thresholds).rule is rule


def test_one_source_past_its_threshold_is_enough_and_the_reason_names_only_that_source():
    before = [an_object(rows=1000), an_object("weather", rows=10)]
    now = [*before, late(1), an_object("weather", name="late", rows=5)]
    evaluated = decided_by(before, now, percent=10)
    assert evaluated.rule is DecisionRule.GROWN
    assert evaluated.reason.startswith("weather grew by 5 rows (50.0 %)")
    assert "flights" not in evaluated.reason
    assert [source.late.rows for source in evaluated.sources] == [1, 5]


@pytest.mark.parametrize(
    "record", [a_day(outcome_unknown=True), a_day(active=ActiveRun(execution="e", run=a_run(2), since=FROZEN))]
)
@pytest.mark.parametrize(("rows", "hours", "clauses"), [(50, 0, 2), (9, 24, 3), (9, 0, 1)])
def test_a_run_that_may_have_published_is_repaired_before_late_data(record, rows, hours, clauses):
    before = [an_object(rows=1000)]
    thresholds = source_thresholds(rows=10)
    ages = {"flights": MaxAge(24, "late.max_age_hours 24")}
    now = [*before, late(rows)]
    evaluated = evaluate(record, before, now, thresholds, waits={"flights": hours}, max_ages=ages)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.RERUN, DecisionRule.OUTCOME_UNKNOWN)
    # What the late data alone would run the day again for stays among the reasons.
    assert len(evaluated.reasons) == clauses
    assert evaluated.reasons[0].startswith("flights grew") is (clauses > 1)
    assert evaluated.reasons[-1].endswith("the table may not hold the recorded version")


def unpublished(**more):
    return DayRecord(pipeline=PIPELINE, date=DATE, **more)


ROLLED_BACK = Hold(rule="rolled_back", reason="rolled back to version 1: bad file", since=FROZEN)


@pytest.mark.parametrize(
    ("record", "state", "rule", "reason"),
    [
        (unpublished(), {}, DecisionRule.NEVER_PUBLISHED, "never run"),
        (unpublished(attempts=1), {}, DecisionRule.NEVER_PUBLISHED, "never published, in 1 attempt"),
        (unpublished(), {"is_current": True}, DecisionRule.CURRENT, "the day has not ended yet"),
        (unpublished(hold=ROLLED_BACK), {}, DecisionRule.ROLLED_BACK, "version 1"),
        (a_day(hold=ROLLED_BACK), {"is_current": True}, DecisionRule.CURRENT, "the day has not ended yet"),
        (
            a_day(active=active()),
            {"is_running": True, "is_current": True},
            DecisionRule.RUNNING,
            "attempt 2 has been running since 2013-03-11 07:02 UTC",
        ),
        (a_day(hold=ROLLED_BACK, active=active()), {"is_running": True}, DecisionRule.RUNNING, "attempt 2 has been"),
        (a_day(), {}, DecisionRule.MANIFEST_GONE, f"slackwater run {PIPELINE} --date {DATE} --force"),
        (a_day(), {"is_current": True, "error": Throttled("slow")}, DecisionRule.UNREADABLE, "cannot be checked: slow"),
        (a_day(), {"error": DayChanged("moved")}, DecisionRule.CHANGING, "changed during the check: moved: the next"),
        (a_day(), {"error": ObjectMissing("gone")}, DecisionRule.CHANGING, "changed during the check: gone"),
    ],
)
def test_some_rules_need_no_inputs(record, state, rule, reason):
    facts = a_days_facts(record, **state)
    evaluated = decide(facts)
    assert evaluated.rule is rule
    assert reason in evaluated.reason
    assert evaluated.attempt == (1 if record.published else None)
    assert facts.is_early is (rule in EARLY_RULES)
    assert evaluated.error_may_pass is ("error" in state)


def test_inputs_that_were_not_compared_cannot_be_asked():
    with pytest.raises(ValueError, match="were not compared"):
        _ = a_days_facts(a_day()).inputs


def test_a_notification_is_due_for_a_version_that_nobody_was_notified_of():
    assert decide(a_days_facts(a_day(2), is_current=True)).notification_due
    assert not decide(a_days_facts(a_day(2, notified_attempt=2), is_current=True)).notification_due


# -- properties of late data ----------------------------------------------------------------------------------------

objects = st.lists(
    st.builds(
        an_object,
        st.sampled_from(SOURCES),
        hour=st.sampled_from(["05", "12", "23"]),
        name=st.sampled_from("abcd"),
        rows=st.integers(0, 50),
        size=st.integers(0, 9000),
        file=st.sampled_from([None, None, "f.csv", "g.csv"]),
    ),
    max_size=12,
    unique_by=lambda item: item.uri,
)
levels = st.one_of(
    st.builds(LateThresholds, percent=st.floats(0, 300, allow_nan=False)),
    st.builds(LateThresholds, rows=st.integers(0, 100)),
    st.builds(LateThresholds, bytes=st.integers(0, 20_000)),
    st.builds(
        LateThresholds,
        percent=st.floats(0.1, 300, allow_nan=False),
        rows=st.integers(1, 100),
        bytes=st.integers(1, 20_000),
    ),
)


def minus(one, other):
    return Amount(objects=one.objects - other.objects, rows=one.rows - other.rows, bytes=one.bytes - other.bytes)


@given(before=objects, now=objects)
def test_a_difference_is_exact(before, now):
    for source in difference(a_manifest(*before), a_manifest(*now), sources=SOURCES):
        added = sum((item.now for item in source.changes), Amount())
        removed = sum((item.before for item in source.changes), Amount())
        assert minus(source.before + added, removed) == source.now
        assert source.amount(Change.ADDED) + source.amount(Change.CHANGED) == source.late == added
        assert all(item.before == Amount() for item in source.changes if item.change is Change.ADDED)
        assert all(item.now == Amount() for item in source.changes if item.change is Change.REMOVED)
        assert list(source.changes) == sorted(
            source.changes, key=lambda item: (item.date, item.hour, item.file or "", item.change)
        )


@given(now=objects)
def test_a_manifest_does_not_differ_from_itself_in_another_order(now):
    for source_difference in difference(a_manifest(*now), a_manifest(*reversed(now)), sources=SOURCES):
        assert (source_difference.changes, source_difference.before) == ((), source_difference.now)


@given(before=objects, now=objects, thresholds=levels)
def test_every_pair_of_listings_leads_to_a_consistent_decision(before, now, thresholds):
    differences = difference(a_manifest(*before), a_manifest(*now), sources=SOURCES)
    decision = evaluate(a_day(), before, now, same_thresholds(thresholds))
    assert decision.reason
    gone = any(item.change is Change.REMOVED for source in differences for item in source.changes)
    assert (decision.rule is DecisionRule.VANISHED) is gone
    assert (decision.rule is DecisionRule.UNCHANGED) is not any(source.changes for source in differences)


@given(before=objects, rows=st.integers(0, 200), more=st.integers(0, 200), thresholds=levels)
def test_more_late_rows_never_make_a_day_less_late(before, rows, more, thresholds):
    def decided(count):
        return evaluate(a_day(), before, [*before, late(count)], same_thresholds(thresholds)).decision

    assert (decided(rows), decided(rows + more)) != (LateDecision.RERUN, LateDecision.IGNORE)


@given(before=objects, rows=st.integers(0, 200), one=levels, other=levels)
def test_either_of_two_thresholds_is_enough(before, rows, one, other):
    def rule(thresholds):
        return evaluate(a_day(), before, [*before, late(rows)], same_thresholds(thresholds)).rule

    given_both = one.model_copy(update={name: value for name, value in other if value is not None})
    alone = {rule(LateThresholds(**{name: value})) for name, value in given_both if value is not None}
    assert (rule(given_both) is DecisionRule.GROWN) is (DecisionRule.GROWN in alone)


def test_all_objects_of_a_source_that_had_none_are_added():
    (flights,) = difference(a_manifest(), a_manifest(late(3)), sources=["flights"])
    assert (flights.before, flights.late) == (Amount(), Amount(objects=1, rows=3, bytes=300))


@pytest.mark.parametrize(("old", "new"), list(product(["f.csv", None], repeat=2)))
def test_only_objects_of_the_same_file_replace_each_other(old, new):
    before, now = an_object(name="x", file=old), an_object(name="y", file=new)
    (flights,) = difference(a_manifest(before), a_manifest(now), sources=["flights"])
    changes = {item.change for item in flights.changes}
    assert changes == ({Change.CHANGED} if old == new == "f.csv" else {Change.ADDED, Change.REMOVED})


# -- one row for each rule, and pairs of them -----------------------------------------------------------------------

RUN_AGAIN = Resolution(
    action=ResolutionAction.RELEASED, reason="r", principal="p", at=FROZEN, inputs="i", attempt=1
)  # fmt: skip
KEEP = RUN_AGAIN.model_copy(update={"action": ResolutionAction.KEPT})
AUDIT = Hold(rule="audit", reason="fewer rows", since=FROZEN, attempt=4)
FAILED = [
    RunRecord(run=a_run(number), state=RunState.FAILED, execution="e", started_at=FROZEN, error="bad")
    for number in (2, 3, 4)
]


def input_change(source, change, *, before=0, now=0, **more):
    amounts = {"before": Amount(objects=1, rows=before), "now": Amount(objects=1, rows=now)}
    fields = {"source": source, "date": DATE, "hour": "12", "file": None, "change": change, **amounts}
    return InputChange(**{**fields, **more})


ADDED = input_change("flights", Change.ADDED, now=10, before=0)
VANISHED = input_change("flights", Change.REMOVED, before=10)
REMOVED = input_change("flights", Change.REMOVED, before=10, file="f", on_removed="hold")
SHRUNK = input_change("flights", Change.CHANGED, before=10, now=9, file="g")


def table_change(source):
    return input_change(source, Change.CHANGED, before=1, now=2, file=f"d {DATE}")


TABLES = {name: TableInput(table="d", on_change=name) for name in ("auto", "hold", "notify", "ignore")}
LATE_GROWN, LATE_BELOW = {"changes": [ADDED], "rows": 5}, {"changes": [ADDED], "rows": 50}
AGES = {"waits": {"flights": 30.0}, "max_ages": {"flights": MaxAge(24, "late.max_age_hours 24")}}
POLICY = {"worth_per_percent": None, "budget_per_day": None, "max_reruns_per_day": 50}
KEPT, RERUN_NEW = (DefinitionChange(("a: added",), "d", reruns, moves_hours=False) for reruns in (False, True))
MOVED = KEPT._replace(moves_hours=True)
BOTS = {
    "flights": (
        new_verdict(
            Subject("source", "flights"),
            "2013-03-10T12",
            "fail",
            version=None,
            reason="bots",
            principal="ana",
            at=FROZEN,
        ),
    )
}
# What makes each rule apply. Two of them together make both apply, unless they contradict each other.
CASES = {
    DecisionRule.CHANGING: {"error": DayChanged("x")},
    DecisionRule.UNREADABLE: {"error": Throttled("x")},
    DecisionRule.RUNNING: {"is_running": True, "record": {"active": active()}},
    DecisionRule.CURRENT: {"is_current": True},
    DecisionRule.ROLLED_BACK: {"record": {"hold": ROLLED_BACK}},
    DecisionRule.NEVER_PUBLISHED: {"record": {"published": None}},
    DecisionRule.MANIFEST_GONE: {"compared": None},
    DecisionRule.KEPT: {"record": {"resolution": KEEP}, **LATE_GROWN},
    DecisionRule.AUDIT: {"record": {"hold": AUDIT}, "inputs": {"failed": FAILED[-1:]}},
    DecisionRule.INVALID: {"inputs": {"invalid_now": BOTS, "invalid_read": BOTS}},
    DecisionRule.VANISHED: {"changes": [VANISHED]},
    DecisionRule.REMOVED: {"changes": [REMOVED]},
    DecisionRule.SHRANK: {"changes": [SHRUNK]},
    DecisionRule.TABLE_CHANGED: {"changes": [table_change("hold")]},
    DecisionRule.REPEATED: {**LATE_GROWN, "inputs": {"is_repeated": True}},
    DecisionRule.FAILED: {**LATE_GROWN, "inputs": {"failed": FAILED}},
    DecisionRule.MOVED_HOURS: {**LATE_GROWN, "inputs": {"definition": MOVED}},
    DecisionRule.TOO_EXPENSIVE: {**LATE_GROWN, "policy": {"worth_per_percent": 0.001}},
    DecisionRule.INCOMPLETE: {**LATE_GROWN, "inputs": {"incomplete_until": FROZEN + timedelta(hours=2)}},
    DecisionRule.COOL_DOWN: {**LATE_GROWN, "inputs": {"last_rerun_at": FROZEN}, "policy": {}},
    DecisionRule.TOO_MANY: {**LATE_GROWN, "policy": {"max_reruns_per_day": 1}},
    DecisionRule.OVER_BUDGET: {**LATE_GROWN, "policy": {"budget_per_day": 0.5}},
    DecisionRule.OUTCOME_UNKNOWN: {"record": {"outcome_unknown": True, "attempts": 4}},
    DecisionRule.RELEASED: {"record": {"resolution": RUN_AGAIN}, "changes": [VANISHED]},
    DecisionRule.INVALID_READ: {
        "inputs": {"invalid_read": {"ignore": BOTS["flights"]}, "on_invalid": {"ignore": "rerun"}},
        "changes": [table_change("ignore")],
    },
    DecisionRule.GROWN: LATE_GROWN,
    DecisionRule.AGED: {**LATE_BELOW, "inputs": AGES},
    DecisionRule.NEW_DEFINITION: {"inputs": {"definition": RERUN_NEW}},
    DecisionRule.BELOW: LATE_BELOW,
    DecisionRule.TABLE_NOTIFIED: {"changes": [table_change("notify")]},
    DecisionRule.TABLE_IGNORED: {"changes": [table_change("ignore")]},
    DecisionRule.DEFINITION_KEPT: {"inputs": {"definition": KEPT}},
    DecisionRule.UNCHANGED: {},
}


def facts_with(*cases):
    """Return facts to which the rules of all cases apply; where two set the same value, the first one's counts."""
    record, inputs, policy, changes, rows, state = {}, {}, None, [], 5, {}
    for case in reversed(cases):
        record |= case.get("record", {})
        inputs |= case.get("inputs", {})
        changes = [*case.get("changes", ()), *(item for item in changes if item not in case.get("changes", ()))]
        policy = {**(policy or {}), **case["policy"]} if "policy" in case else policy
        rows = case.get("rows", rows)
        state |= {key: value for key, value in case.items() if key in {"error", "is_running", "is_current", "compared"}}
    names = sorted({"flights", *TABLES})
    compared = DayInputs(
        digest="i",
        differences=tuple(
            SourceDifference(
                source=name,
                before=Amount(objects=5, rows=100),
                now=Amount(objects=5),
                changes=tuple(item for item in changes if item.source == name),
            )
            for name in names
        ),
        thresholds=dict.fromkeys(names, SourceThresholds(LateThresholds(rows=rows), "its source")),
        tables=TABLES,
        **inputs,
    )
    facts = a_days_facts(a_day(**record), **{"compared": compared, **state})
    if facts.is_early or facts.error:
        facts = replace(facts, compared=None)
    if policy is None:
        return facts
    usage = RerunUsage(
        pipeline=PIPELINE,
        date="2013-03-11",
        reruns=(CountedRerun(date="2013-03-01", attempt=2, at=FROZEN, usd=0.4),),
    )
    now = FROZEN + timedelta(minutes=1)
    tomorrow = FROZEN + timedelta(hours=9)
    return replace(facts, limits=Limits(policy=Late(**policy), now=now, tomorrow=tomorrow, price=1.0, usage=usage))


def test_every_rule_has_a_case_and_a_name_of_its_own():
    assert [rule.name for rule in RULES] == list(CASES)
    assert set(CASES) == set(DecisionRule)


@pytest.mark.parametrize("name", list(CASES))
def test_each_rule_decides_about_its_case_with_its_decision_and_a_reason(name):
    facts = facts_with(CASES[name])
    [rule] = [rule for rule in RULES if rule.name is name]
    evaluated = decide(facts)
    assert (evaluated.rule, evaluated.decision) == (name, rule.decision)
    assert evaluated.reason
    assert (evaluated.figures is None) is (facts.compared is None)
    assert bool(evaluated.figures and evaluated.figures.not_before) is (
        rule.decision is LateDecision.DEFER and name is not DecisionRule.OVER_BUDGET
    )


@pytest.mark.parametrize(("first", "second"), list(pairwise(CASES)), ids=str)
def test_of_two_neighbours_that_apply_the_first_decides(first, second):
    facts = facts_with(CASES[first], CASES[second])
    assert rule_of(facts).name is first
    [other] = [rule for rule in RULES if rule.name is second]
    # Without inputs, a person has decided about none of them.
    assert other.applies(facts) or (first, second) == (DecisionRule.MANIFEST_GONE, DecisionRule.KEPT)


def test_the_page_about_late_data_has_the_table_of_the_rules():
    page = Path("docs/late-data.md").read_text(encoding="utf-8")
    _, table, _ = page.split("<!-- rules -->\n")
    command = "python -m slackwater.late.check.rules"
    assert table == rules_table(), f"replace the table between the markers by the output of `{command}`"


# -- limits

NOW = datetime(2013, 3, 13, 18, tzinfo=UTC)  # 14:00 in New York
TODAY, MIDNIGHT = "2013-03-13", datetime(2013, 3, 14, 4, tzinfo=UTC)
RERUN, DEFER, IGNORE = LateDecision.RERUN, LateDecision.DEFER, LateDecision.IGNORE
BASE = load_project(Path("examples/nyc_flights")).pipelines[PIPELINE]


def pipeline(**policy):
    return BASE.model_copy(update={"late": Late(**policy)})


def day(date, *, rule=DecisionRule.GROWN, rows=10, percent=1.0, size=1000, attempt=2, last=None, is_aged=False):
    """Return the facts of a day that was published as attempt 1, with so many late rows."""
    before = Amount(objects=1, rows=round(100 * rows / percent) if percent else 0)
    change = InputChange(
        source="flights", date=date, hour="12", file=None, change=Change.ADDED, now=Amount(objects=1, rows=rows)
    )
    flights = SourceDifference(source="flights", before=before, now=Amount(), changes=(change,))
    is_old = is_aged or rule is DecisionRule.AGED
    compared = DayInputs(
        digest="i",
        rows=size,
        differences=(flights,),
        thresholds=source_thresholds(rows=0 if rule is DecisionRule.GROWN else 10**6),
        last_rerun_at=last,
        waits={"flights": 30.0},
        max_ages={"flights": MaxAge(24, "late.max_age_hours 24")} if is_old else {},
    )
    is_unknown = rule is DecisionRule.OUTCOME_UNKNOWN
    return a_days_facts(a_day(date=date, attempts=attempt - 1, outcome_unknown=is_unknown), compared=compared)


def limit(days, *, usage=None, price=None, now=NOW, **policy):
    usage = usage or RerunUsage(pipeline=PIPELINE, date=TODAY)
    decisions = [decide(facts) for facts in days]
    return decide_with_limits(
        pipeline(**policy), days, decisions, usage=usage, estimate=lambda rows: price and price * rows, now=now
    )


def used(*reruns, usd=None):
    items = tuple(CountedRerun(date=date, attempt=attempt, at=NOW, usd=usd) for date, attempt in reruns)
    return RerunUsage(pipeline=PIPELINE, date=TODAY, reruns=items)


def outcome(result):
    return {item.date: (item.decision, item.rule) for item in result.days}


def test_a_day_runs_again_at_once_unless_it_was_run_again_within_the_cool_down():
    [first] = limit([day("2013-03-10")]).days
    assert first.decision is RERUN
    started = NOW - timedelta(minutes=59)
    [soon] = limit([day("2013-03-10", last=started)]).days
    assert (soon.decision, soon.rule) == (DEFER, DecisionRule.COOL_DOWN)
    assert soon.figures.not_before == started + timedelta(hours=1)
    assert soon.reasons[1:] == (
        "ran again at 2013-03-13 17:01 UTC: late.cool_down_hours is 1, so it runs after 2013-03-13 18:01 UTC",
    )
    # Exactly at its end the day may run.
    assert limit([day("2013-03-10", last=started)], now=started + timedelta(hours=1)).days[0].decision is RERUN
    assert limit([day("2013-03-10", last=started)], cool_down_hours=0).days[0].decision is RERUN


def test_a_day_in_its_cool_down_takes_no_place_of_another_day():
    days = [day("2013-03-09", last=NOW), day("2013-03-10")]
    result = limit(days, max_reruns_per_day=1)
    assert outcome(result)["2013-03-10"] == (RERUN, DecisionRule.GROWN)
    assert [item.date for item in result.usage.reruns] == ["2013-03-10"]


def test_the_oldest_day_runs_when_only_one_may():
    days = [day("2013-03-10", rows=10), day("2013-03-08", rows=20), day("2013-03-09", rows=30)]
    result = limit(days, max_reruns_per_day=1)
    assert [item.date for item in result.days] == ["2013-03-10", "2013-03-08", "2013-03-09"]
    assert [item.date for item in result.days if item.decision is RERUN] == ["2013-03-08"]
    deferred = next(item for item in result.days if item.rule is DecisionRule.TOO_MANY)
    assert deferred.figures.not_before == MIDNIGHT
    assert (deferred.figures.reruns, deferred.figures.max_reruns) == (1, 1)
    assert deferred.reasons[-1] == (
        "checks have started 1 re-run today: late.max_reruns_per_day is 1, so it runs after 2013-03-14 04:00 UTC"
    )


def test_re_runs_of_earlier_checks_of_today_count_and_a_repeated_check_counts_none_twice():
    usage = used(("2013-03-07", 2), ("2013-03-08", 3))
    result = limit([day("2013-03-09"), day("2013-03-10")], usage=usage, max_reruns_per_day=3)
    assert outcome(result) == {
        "2013-03-09": (RERUN, DecisionRule.GROWN),
        "2013-03-10": (DEFER, DecisionRule.TOO_MANY),
    }
    again = limit([day("2013-03-09"), day("2013-03-10")], usage=result.usage, max_reruns_per_day=3)
    assert outcome(again) == outcome(result)
    assert again.usage == result.usage
    # The next attempt of the same day is another re-run.
    assert limit([day("2013-03-09", attempt=3)], usage=result.usage, max_reruns_per_day=3).days[0].decision is DEFER


def test_a_repair_of_an_unknown_outcome_is_never_deferred_but_counts():
    repair = day("2013-03-10", rule=DecisionRule.OUTCOME_UNKNOWN, last=NOW, size=10**9)
    result = limit(
        [day("2013-03-09"), repair],
        max_reruns_per_day=1,
        budget_per_day=0.01,
        worth_per_percent=0.001,
        price=1e-6,
    )
    assert outcome(result)["2013-03-10"] == (RERUN, DecisionRule.OUTCOME_UNKNOWN)
    assert outcome(result)["2013-03-09"][0] is DEFER
    assert [item.date for item in result.usage.reruns] == ["2013-03-10"]


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ({}, DecisionRule.COOL_DOWN),
        ({"cool_down_hours": 0, "max_reruns_per_day": 1}, DecisionRule.TOO_MANY),
        ({"cool_down_hours": 0, "budget_per_day": 1.5}, DecisionRule.OVER_BUDGET),
        ({"cool_down_hours": 0}, DecisionRule.OUTCOME_UNKNOWN),
    ],
)
@pytest.mark.parametrize("failures", [2, 3])
def test_after_three_failures_limits_apply_to_a_repair_and_other_days_come_first(policy, rule, failures):
    repair = day("2013-03-09", rule=DecisionRule.OUTCOME_UNKNOWN, last=NOW, attempt=2 + failures)
    result = limit([repair, day("2013-03-10")], price=0.001, **policy)
    expected = rule if failures == 3 else DecisionRule.OUTCOME_UNKNOWN
    assert outcome(result)["2013-03-09"][1] is expected
    if failures == 3:
        assert outcome(result)["2013-03-10"] == (RERUN, DecisionRule.GROWN)


def test_a_re_run_that_costs_more_than_the_late_data_is_worth_is_ignored_with_its_numbers():
    [ignored] = limit([day("2013-03-10", percent=2.0)], worth_per_percent=0.4, price=0.001).days
    assert (ignored.decision, ignored.rule) == (IGNORE, DecisionRule.TOO_EXPENSIVE)
    assert (ignored.figures.estimated_usd, ignored.figures.worth_usd) == (1.0, 0.8)
    assert ignored.reasons[-1] == (
        "a re-run costs about 1.00 USD, and late.worth_per_percent 0.4 allows 0.8 USD for this late data"
    )
    [even] = limit([day("2013-03-10", percent=2.0)], worth_per_percent=0.5, price=0.001).days
    assert even.decision is RERUN


@pytest.mark.parametrize(
    "changes",
    [
        {"percent": None},  # no rows before: any late row is worth a run
        {"rule": DecisionRule.AGED},  # data that has waited too long is processed whatever it is worth
    ],
)
def test_worth_does_not_apply_without_rows_before_and_to_aged_data(changes):
    [item] = limit([day("2013-03-10", **changes)], worth_per_percent=0.0001, price=1.0).days
    assert item.decision is RERUN


@pytest.mark.parametrize(("is_aged", "rule"), [(False, DecisionRule.TOO_EXPENSIVE), (True, DecisionRule.GROWN)])
def test_worth_does_not_apply_to_data_above_a_threshold_that_has_waited_too_long(is_aged, rule):
    [item] = limit([day("2013-03-10", is_aged=is_aged)], worth_per_percent=0.0001, price=1.0).days
    assert item.rule is rule


def test_without_any_priced_run_neither_worth_nor_budget_stops_a_day():
    [item] = limit([day("2013-03-10")], worth_per_percent=0.001, budget_per_day=0.001).days
    assert item.decision is RERUN
    assert item.figures.estimated_usd is None


def test_the_budget_of_a_day_is_shared_by_its_checks_and_kept_for_the_first_day_that_waits():
    usage = used(("2013-03-01", 2), usd=0.3)
    days = [day("2013-03-08", size=200), day("2013-03-09", size=700), day("2013-03-10", size=100)]
    result = limit(days, usage=usage, budget_per_day=1.0, price=0.001)
    # 0.3 + 0.2 leave 0.5: too little for 0.7. The third day, 0.1, must not run before the second one every day.
    assert [item.rule for item in result.days] == [DecisionRule.GROWN, *[DecisionRule.OVER_BUDGET] * 2]
    assert [item.date for item in result.usage.reruns] == ["2013-03-01", "2013-03-08"]
    assert result.days[1].figures.spent_usd == pytest.approx(0.5)
    assert result.days[1].reasons[-1] == (
        "a re-run costs about 0.7 USD, and the re-runs of today 0.5 USD: late.budget_per_day is 1.00 USD, "
        "so it runs after 2013-03-14 04:00 UTC"
    )


def test_a_day_that_costs_more_than_a_whole_budget_says_so_and_stops_no_other_day():
    result = limit([day("2013-03-08", size=3000), day("2013-03-09")], budget_per_day=2, price=0.001)
    too_expensive, other = result.days
    assert (too_expensive.rule, too_expensive.figures.not_before) == (DecisionRule.OVER_BUDGET, None)
    assert "raise it, or run the day by hand (slackwater run daily_delays --date 2013-03-08)" in too_expensive.reason
    assert other.decision is RERUN


def test_the_calendar_day_is_that_of_the_pipelines_timezone():
    definition = pipeline()
    assert usage_date(definition, datetime(2013, 3, 14, 3, 59, tzinfo=UTC)) == "2013-03-13"
    assert usage_date(definition, datetime(2013, 3, 14, 4, tzinfo=UTC)) == "2013-03-14"


def test_days_that_would_not_run_again_are_left_as_they_are():
    days = [day("2013-03-09", rule=DecisionRule.BELOW), day("2013-03-10")]
    result = limit(days, max_reruns_per_day=1)
    assert result.days[0] == decide(days[0])


@given(sizes=st.lists(st.integers(1, 100), max_size=30), cap=st.integers(1, 20), budget=st.integers(1, 500))
def test_no_sequence_of_checks_exceeds_a_limit_and_every_day_that_fits_runs_in_the_end(sizes, cap, budget):
    policy = {"max_reruns_per_day": cap, "budget_per_day": float(budget)}
    waiting = {(date(2013, 1, 1) + timedelta(days=index)).isoformat(): size for index, size in enumerate(sizes)}
    for index in range(len(sizes) + 1):
        now = NOW + timedelta(days=index)
        usage = RerunUsage(pipeline=PIPELINE, date=usage_date(pipeline(), now))
        days = [day(name, size=size, rows=size) for name, size in waiting.items()]
        for _ in range(2):  # the daily check, and one after an event
            result = limit(days, usage=usage, price=1.0, now=now, **policy)
            usage = result.usage
        assert len(usage.reruns) <= cap
        assert usage.usd <= budget
        waiting = {name: size for name, size in waiting.items() if not usage.has(name, 2)}
    assert all(size > budget for size in waiting.values())
