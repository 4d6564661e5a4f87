from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.late.check.decision import DecisionRule, LateDecision
from slackwater.late.check.evaluate_day import SourceThresholds, decide_early, early_rule, evaluate_day
from slackwater.late.check.wait import MaxAge
from slackwater.runs.inputs.difference import Amount, Change, difference
from slackwater.runs.record import ActiveRun, DayRecord
from slackwater.sources.late_thresholds import LateThresholds
from tests.fakes_notification import DATE, FROZEN, PIPELINE, a_day, a_manifest, a_run, an_object

pytestmark = pytest.mark.unit

SOURCES = ("flights", "weather")


def source_thresholds(origin="its source", **thresholds):
    return {source: SourceThresholds(LateThresholds(**(thresholds or {"rows": 0})), origin) for source in SOURCES}


def evaluate(record, before, now, thresholds, **changes):
    """Return the decision about a day that no person has decided about and no attempt has failed."""
    arguments = {
        "tables": {}, "inputs": "i", "frozen_at": FROZEN, "failed": (), "last_rerun_at": None,
        "waits": {}, "max_ages": {}, "definition": None, "is_repeated": False,
    }  # fmt: skip
    differences = difference(a_manifest(*before), a_manifest(*now), sources=SOURCES)
    return evaluate_day(record, differences, thresholds=thresholds, **{**arguments, **changes})


def decide(before, now, origin="its source", **thresholds):
    return evaluate(a_day(), before, now, source_thresholds(origin, **thresholds))


def same_thresholds(thresholds):
    return {source: SourceThresholds(thresholds, "its source") for source in SOURCES}


def late(rows, **more):
    return an_object(name="late", hour="13", rows=rows, **more)


def test_late_data_that_reaches_a_threshold_causes_a_rerun_and_the_reason_has_its_numbers():
    before = [an_object(rows=924)]
    more = [an_object(name="b", hour="13", rows=90, size=8_000), an_object(name="c", hour="14", rows=7, size=6_200)]
    evaluated = decide(before, [*before, *more], percent=1)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.RERUN, DecisionRule.GROWN)
    assert evaluated.reason == "flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB: reaches percent 1 of its source"
    assert (evaluated.attempt, evaluated.run_id, evaluated.frozen_at) == (1, a_run(1).run_id, FROZEN)


def test_late_data_below_every_threshold_is_ignored_and_the_reason_names_all_thresholds():
    before = [an_object(rows=1000)]
    evaluated = decide(before, [*before, late(9)], percent=1, rows=10, origin="pipeline daily_delays")
    assert (evaluated.decision, evaluated.rule) == (LateDecision.IGNORE, DecisionRule.BELOW)
    assert evaluated.reason == (
        "flights grew by 9 rows (0.9 %), 1 object, 900 Bytes: below percent 1 and rows 10 of pipeline daily_delays"
    )


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
    assert decide(before, [*before, late(rows)], **thresholds).rule is rule


@pytest.mark.parametrize("thresholds", [{"rows": 0}, {"bytes": 0}, {"percent": 0}])
def test_a_day_without_late_data_is_never_run_again(thresholds):
    evaluated = decide([an_object()], [an_object()], **thresholds)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.IGNORE, DecisionRule.UNCHANGED)
    assert evaluated.reason == "no new data since the published run"


def test_the_reason_of_a_zero_threshold_is_any_late_data():
    assert decide([], [late(1)], rows=0).reason == (
        "flights grew by 1 row (no rows before), 1 object, 100 Bytes: "
        "any late data counts (its source has no threshold above 0)"
    )


@pytest.mark.parametrize(("rows", "rule"), [(1, DecisionRule.GROWN), (0, DecisionRule.BELOW)])
def test_any_row_reaches_any_percentage_of_a_source_without_rows_before(rows, rule):
    assert decide([], [late(rows)], percent=10_000).rule is rule


def test_all_rows_of_a_changed_file_count_and_the_reason_says_so():
    before = [an_object(name="x", rows=600, file="f.csv"), an_object(name="y", hour="13", rows=325, file="f.csv")]
    now = [an_object(name="z", rows=608, file="f.csv"), an_object(name="w", hour="13", rows=325, file="f.csv")]
    evaluated = decide(before, now, percent=100)
    assert evaluated.rule is DecisionRule.GROWN
    assert evaluated.reason == (
        "flights has 1 changed file, 925 -> 933 rows (100.9 %), 2 objects, 93.3 kB: reaches percent 100 of its source"
    )


def test_added_and_changed_rows_are_counted_separately():
    before = [an_object(name="x", rows=100, file="f.csv")]
    now = [an_object(name="y", rows=110, file="f.csv"), late(5)]
    assert decide(before, now, rows=1).reason == (
        "flights grew by 5 rows and has 1 changed file, 100 -> 110 rows, 115 rows in total (115.0 %), 2 objects, "
        "11.5 kB: reaches rows 1 of its source"
    )


def a_published_day(date, rows):
    return an_object(date=date, hour="00", name=f"{date}-{rows}", rows=rows, size=0, file=f"daily {date}")


def test_published_days_of_another_pipeline_have_neither_files_nor_sizes():
    days = [a_published_day("2013-03-07", 2), a_published_day("2013-03-08", 3)]
    days = [item.model_copy(update={"uri": f"daily/date={item.date}"}) for item in days]
    changed = [days[0], days[1].model_copy(update={"etag": "new", "rows": 4})]
    assert decide(days, changed, rows=1).reason == (
        "flights has 1 changed day, 3 -> 4 rows (80.0 %): reaches rows 1 of its source"
    )
    assert decide(days, days[:1]).reason.startswith(
        "flights has lost 3 rows that the published run has read: 2013-03-08; find out why"
    )


def test_a_changed_file_with_fewer_rows_puts_the_day_on_hold():
    before = [an_object(name="x", rows=60, file="f.csv"), an_object(name="y", hour="13", rows=40, file="f.csv")]
    now = [an_object(name="z", rows=99, file="f.csv"), late(1000)]
    evaluated = decide(before, now, rows=0)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.HOLD, DecisionRule.SHRANK)
    assert evaluated.reason == (
        "flights: f.csv was changed and has 99 rows of this day, not 100; find out why; "
        f"`slackwater late release {PIPELINE} --date {DATE} --reason TEXT` publishes the day without these rows"
    )


def test_a_changed_file_whose_rows_moved_to_another_hour_has_not_shrunk():
    before, now = [an_object(name="x", rows=60, file="f")], [an_object(name="y", hour="15", rows=60, file="f")]
    assert decide(before, now, rows=0).rule is DecisionRule.GROWN


def test_missing_objects_put_the_day_on_hold_even_when_others_were_added():
    before = [an_object(rows=10), an_object("weather", name="w", rows=3), an_object("weather", name="v", hour="13")]
    evaluated = decide(before, [*before[:1], late(1000)], rows=0)
    assert (evaluated.decision, evaluated.rule) == (LateDecision.HOLD, DecisionRule.VANISHED)
    assert evaluated.reason == (
        "weather has lost 2 objects with 13 rows that the published run has read, of 2013-03-10 12:00 to 14:00 UTC, "
        "without a replacement; find out why; "
        f"`slackwater late release {PIPELINE} --date {DATE} --reason TEXT` publishes the day without these rows"
    )


def test_an_overwritten_object_with_fewer_rows_puts_the_day_on_hold():
    evaluated = decide([an_object(rows=10)], [an_object(rows=9, etag="other")], rows=0)
    assert evaluated.rule is DecisionRule.SHRANK
    assert "data pushed for 2013-03-10 12:00 to 13:00 UTC was changed" in evaluated.reason


def test_one_source_past_its_threshold_is_enough_and_the_reason_names_only_that_source():
    before = [an_object(rows=1000), an_object("weather", rows=10)]
    now = [*before, late(1), an_object("weather", name="late", rows=5)]
    evaluated = decide(before, now, percent=10)
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


def active():
    return ActiveRun(execution="e", run=a_run(2), since=FROZEN)


@pytest.mark.parametrize(
    ("record", "rule", "reason"),
    [
        (DayRecord(pipeline=PIPELINE, date=DATE), DecisionRule.NEVER_PUBLISHED, "never run"),
        (
            DayRecord(pipeline=PIPELINE, date=DATE, attempts=1),
            DecisionRule.NEVER_PUBLISHED,
            "never published, in 1 attempt",
        ),
        (a_day(active=active()), DecisionRule.RUNNING, "attempt 2 has been running since 2013-03-11 07:02 UTC"),
        (a_day(), DecisionRule.CURRENT, "the day has not ended yet"),
        (a_day(), DecisionRule.MANIFEST_GONE, f"slackwater run {PIPELINE} --date {DATE} --force"),
    ],
)
def test_a_rule_that_needs_no_listing_states_its_reason(record, rule, reason):
    evaluated = decide_early(record, rule)
    assert reason in evaluated.reason
    assert evaluated.decision is (LateDecision.HOLD if rule is DecisionRule.MANIFEST_GONE else LateDecision.IGNORE)
    assert evaluated.attempt == (1 if record.published else None)


def test_a_rule_that_needs_a_listing_is_refused_without_one():
    with pytest.raises(ValueError, match="grown cannot decide"):
        decide_early(a_day(), DecisionRule.GROWN)


@pytest.mark.parametrize(
    ("day", "current", "running", "rule"),
    [
        (a_day(), False, False, None),
        (a_day(), True, False, DecisionRule.CURRENT),
        (a_day(), True, True, DecisionRule.RUNNING),
        (a_day(), False, True, DecisionRule.RUNNING),
        (DayRecord(pipeline=PIPELINE, date=DATE), False, False, DecisionRule.NEVER_PUBLISHED),
        (DayRecord(pipeline=PIPELINE, date=DATE), True, False, DecisionRule.CURRENT),
    ],
)
def test_early_rules_decide_some_days_without_their_inputs(day, current, running, rule):
    assert early_rule(day, current=current, running=running) is rule


def test_a_notification_is_due_for_a_version_that_nobody_was_notified_of():
    assert decide_early(a_day(2), DecisionRule.CURRENT).notification_due
    assert not decide_early(a_day(2, notified_attempt=2), DecisionRule.CURRENT).notification_due


# -- properties -----------------------------------------------------------------------------------------------------

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
