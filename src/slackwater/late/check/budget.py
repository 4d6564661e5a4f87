"""How much of the budget of its re-runs a pipeline needs on one calendar day."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.late.decision import DayDecision, DecisionRule
from slackwater.pipeline.definition import Late
from slackwater.runs.rerun_usage import RerunUsage


def budget_percent(policy: Late, usage: RerunUsage, days: Iterable[DayDecision]) -> float | None:
    """Return the estimated price of today's re-runs in percent of `late.budget_per_day`; None without a budget.

    `usage` are those that checks have started today. The `days` that the budget defers count too: a budget is spent
    when it does not suffice, not when it is used up to the last cent. A re-run without an estimate counts as 0.
    """
    if policy.budget_per_day is None:
        return None
    deferred = [day.figures for day in days if day.rule is DecisionRule.OVER_BUDGET and day.figures]
    needed = usage.usd + sum(figures.estimated_usd or 0.0 for figures in deferred)
    return 100 * needed / policy.budget_per_day
