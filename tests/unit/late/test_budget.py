"""The share of the budget that the re-runs of a day need."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.late.check.metrics import budget_percent
from slackwater.late.decision import DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.pipeline.definition import Late
from slackwater.runs.pipeline_records import CountedRerun, RerunUsage

pytestmark = pytest.mark.unit

BUDGET = Late(budget_per_day=2)


def started(*usd):
    at = datetime(2013, 3, 12, tzinfo=UTC)
    reruns = [CountedRerun(date="2013-03-10", attempt=number, at=at, usd=price) for number, price in enumerate(usd, 1)]
    return RerunUsage(pipeline="p", date="2013-03-12", reruns=tuple(reruns))


def deferred(usd, rule=DecisionRule.OVER_BUDGET):
    figures = DecisionFigures(estimated_usd=usd)
    return DayDecision(
        pipeline="p", date="2013-03-11", decision=LateDecision.DEFER, rule=rule, reasons=(), figures=figures
    )


def test_there_is_no_share_without_a_budget():
    assert budget_percent(Late(), started(1.0), [deferred(5.0)]) is None


def test_without_re_runs_nothing_of_the_budget_is_needed():
    assert budget_percent(BUDGET, started(), []) == 0


def test_re_runs_without_an_estimate_count_as_nothing():
    assert budget_percent(BUDGET, started(None, 0.5), [deferred(None)]) == 25


def test_days_that_the_budget_defers_count_and_those_that_another_limit_defers_do_not():
    assert budget_percent(BUDGET, started(1.5), [deferred(1.0), deferred(9.0, DecisionRule.TOO_MANY)]) == 125
