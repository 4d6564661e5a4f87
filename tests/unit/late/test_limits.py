from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.late.check.decision import DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.late.check.limits.limits import limit_reruns, usage_date
from slackwater.pipeline.definition import Late
from slackwater.project import load_project
from slackwater.runs.rerun_usage import RerunUsage, ReservedRerun
from tests.fakes_check import PIPELINE

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 13, 18, tzinfo=UTC)  # 14:00 in New York
TODAY, MIDNIGHT = "2013-03-13", datetime(2013, 3, 14, 4, tzinfo=UTC)
RERUN, DEFER, IGNORE = LateDecision.RERUN, LateDecision.DEFER, LateDecision.IGNORE
BASE = load_project(Path("examples/nyc_flights")).pipelines[PIPELINE]


def pipeline(**policy):
    return BASE.model_copy(update={"late": Late(**policy)})


def day(date, *, rule=DecisionRule.GROWN, rows=10, percent=1.0, size=1000, attempt=2, last=None, decision=RERUN):
    figures = DecisionFigures(
        late_rows=rows, late_percent=percent, input_bytes=size, attempt=attempt, last_rerun_at=last
    )
    return DayDecision(pipeline=PIPELINE, date=date, decision=decision, rule=rule, reasons=("grew",), figures=figures)


def limit(days, *, usage=None, price=None, now=NOW, **policy):
    usage = usage or RerunUsage(pipeline=PIPELINE, date=TODAY)
    return limit_reruns(pipeline(**policy), days, usage=usage, estimate=lambda size: price and price * size, now=now)


def used(*reruns, usd=None):
    items = tuple(ReservedRerun(date=date, attempt=attempt, at=NOW, usd=usd) for date, attempt in reruns)
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
    assert soon.reasons == (
        "grew",
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


@pytest.mark.parametrize(
    ("order", "runs"), [("oldest", "2013-03-08"), ("newest", "2013-03-10"), ("largest", "2013-03-09")]
)
def test_the_order_decides_which_day_runs_when_only_one_may(order, runs):
    days = [day("2013-03-08", rows=10), day("2013-03-09", rows=30), day("2013-03-10", rows=20)]
    result = limit(days, max_reruns_per_day=1, order=order)
    assert [item.date for item in result.days] == ["2013-03-08", "2013-03-09", "2013-03-10"]
    assert [item.date for item in result.days if item.decision is RERUN] == [runs]
    deferred = next(item for item in result.days if item.rule is DecisionRule.TOO_MANY)
    assert deferred.figures.not_before == MIDNIGHT
    assert (deferred.figures.reruns, deferred.figures.max_reruns) == (1, 1)
    assert deferred.reason == (
        "grew; checks have started 1 re-run today: late.max_reruns_per_day is 1, so it runs after 2013-03-14 04:00 UTC"
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
    repair = repair.model_copy(update={"attempt": 1})
    result = limit([repair, day("2013-03-10")], price=0.001, **policy)
    expected = rule if failures == 3 else DecisionRule.OUTCOME_UNKNOWN
    assert outcome(result)["2013-03-09"][1] is expected
    if failures == 3:
        assert outcome(result)["2013-03-10"] == (RERUN, DecisionRule.GROWN)


def test_a_re_run_that_costs_more_than_the_late_data_is_worth_is_ignored_with_its_numbers():
    [ignored] = limit([day("2013-03-10", percent=2.0)], worth_per_percent=0.4, price=0.001).days
    assert (ignored.decision, ignored.rule) == (IGNORE, DecisionRule.NOT_WORTH)
    assert (ignored.figures.estimated_usd, ignored.figures.worth_usd) == (1.0, 0.8)
    assert ignored.reasons[-1] == (
        "a re-run costs about 1.00 USD, more than the late data is worth: 0.8 USD, at late.worth_per_percent 0.4"
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


@pytest.mark.parametrize(("is_aged", "rule"), [(False, DecisionRule.NOT_WORTH), (True, DecisionRule.GROWN)])
def test_worth_does_not_apply_to_data_above_a_threshold_that_has_waited_too_long(is_aged, rule):
    late = day("2013-03-10")
    late = late.model_copy(update={"figures": late.figures.model_copy(update={"is_aged": is_aged})})
    [item] = limit([late], worth_per_percent=0.0001, price=1.0).days
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
    days = [day("2013-03-09", rule=DecisionRule.BELOW, decision=IGNORE), day("2013-03-10")]
    result = limit(days, max_reruns_per_day=1)
    assert result.days[0] == days[0]


@given(
    sizes=st.lists(st.integers(1, 100), max_size=30),
    cap=st.integers(1, 20),
    budget=st.integers(1, 500),
    order=st.sampled_from(["oldest", "newest", "largest"]),
)
def test_no_sequence_of_checks_exceeds_a_limit_and_every_day_that_fits_runs_in_the_end(sizes, cap, budget, order):
    policy = {"max_reruns_per_day": cap, "budget_per_day": float(budget), "order": order}
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
