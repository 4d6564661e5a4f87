"""Decides which of the days that would run again may do so now: what a re-run is worth, and the limits of a pipeline.

The limits are a cool-down of each day, a number of re-runs and a budget of each calendar day. A day that has to wait is
deferred: the next check decides again. A repair of an unknown outcome is not deferred, unless the latest attempts have
all failed: then late data that trickles in would run the day again with every check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from slackwater.formatting import counted, timestamp
from slackwater.late.check.decision import DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.late.check.window import today
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.runs.day import day_of
from slackwater.runs.rerun_usage import RerunUsage, ReservedRerun

_ORDERS: dict[str, Callable[[DayDecision], Any]] = {
    "oldest": lambda day: day.date,
    "newest": lambda day: tuple(-ord(character) for character in day.date),
    "largest": lambda day: (-_figures(day).late_rows, day.date),
}


@dataclass(frozen=True, kw_only=True)
class LimitedReruns:
    """The decisions of a check after the limits of the pipeline, and the re-runs of today with the new ones."""

    days: tuple[DayDecision, ...]
    usage: RerunUsage


def usage_date(definition: Pipeline, now: datetime) -> str:
    """Return the calendar day, in the pipeline's timezone, whose re-runs are counted at the instant `now`."""
    return today(definition, now).isoformat()


def limit_reruns(
    definition: Pipeline,
    days: Sequence[DayDecision],
    *,
    usage: RerunUsage,
    estimate: Callable[[int], float | None],
    now: datetime,
) -> LimitedReruns:
    """Return the decisions in the same order, with those that have to wait deferred, and the usage to store.

    `usage` are the re-runs that checks have reserved on the calendar day `usage_date`. `estimate` returns the price of
    a run in USD that reads so many bytes, or None if no run has a price.
    """
    policy = definition.late
    limited = {day.date: _limit_day(day, policy, estimate, now) for day in days if day.decision is LateDecision.RERUN}
    waiting = [day for day in limited.values() if day.decision is LateDecision.RERUN]
    tomorrow = day_of(today(definition, now) + timedelta(days=1), definition.timezone).start
    # Repairs and re-runs that an earlier call of this check has reserved come first: no limit applies to them. Days
    # that keep failing come last, so that they take no place of others.
    waiting.sort(key=lambda day: (not _is_exempt(day, usage), day.keeps_failing, _ORDERS[policy.order](day)))
    is_budget_spent, started = False, 0
    for day in waiting:
        result = _within_limits(day, policy, usage, is_budget_spent=is_budget_spent, tomorrow=tomorrow)
        limited[day.date] = result
        if result.decision is LateDecision.RERUN:
            limited[day.date], started = _with(result, position=started), started + 1
            usage = _reserved(usage, result, now)
        elif result.rule is DecisionRule.OVER_BUDGET and not _exceeds_every_budget(result):
            # Without it, cheaper days would use up the budget of each calendar day before this one.
            is_budget_spent = True
    return LimitedReruns(days=tuple(limited.get(day.date, day) for day in days), usage=usage)


def _limit_day(day: DayDecision, policy: Late, estimate: Callable[[int], float | None], now: datetime) -> DayDecision:
    """Return the decision with estimate and worth; ignored if it is not worth its price, deferred in its cool-down."""
    figures = _figures(day)
    price = estimate(figures.input_bytes)
    worth = None
    if policy.worth_per_percent is not None and figures.late_percent is not None:
        worth = policy.worth_per_percent * figures.late_percent
    day = _with(day, estimated_usd=price, worth_usd=worth)
    if _is_exempt_repair(day):
        return day
    # The new definition would run the day without its late data too.
    is_due_anyway = bool(day.new_definition) and policy.on_definition == "rerun"
    needs_worth = day.rule is DecisionRule.GROWN and not figures.is_aged and not is_due_anyway
    if needs_worth and worth is not None and price is not None and price > worth:
        reason = f"a re-run costs about {_usd(price)}, more than the late data is worth: {_usd(worth)}, at "
        return _changed(day, DecisionRule.NOT_WORTH, f"{reason}late.worth_per_percent {policy.worth_per_percent:g}")
    if figures.last_rerun_at is not None:
        end = figures.last_rerun_at + timedelta(hours=policy.cool_down_hours)
        if now < end:
            reason = f"ran again at {timestamp(figures.last_rerun_at)}: late.cool_down_hours is"
            reason = f"{reason} {policy.cool_down_hours:g}, so it runs after {timestamp(end)}"
            return _changed(day, DecisionRule.COOL_DOWN, reason, not_before=end)
    return day


def _within_limits(
    day: DayDecision, policy: Late, usage: RerunUsage, *, is_budget_spent: bool, tomorrow: datetime
) -> DayDecision:
    """Return the decision with today's numbers; deferred to `tomorrow` if a limit of today forbids the re-run.

    With `is_budget_spent`, an earlier day of the order waits for the budget.
    """
    figures = _figures(day)
    others = [item for item in usage.reruns if (item.date, item.attempt) != (day.date, figures.attempt)]
    spent, price, budget = sum(item.usd or 0.0 for item in others), figures.estimated_usd or 0.0, policy.budget_per_day
    limits = {"spent_usd": spent, "budget_usd": budget}
    day = _with(day, reruns=len(others), max_reruns=policy.max_reruns_per_day, **limits)
    if _is_exempt(day, usage):
        return day
    after = f"it runs after {timestamp(tomorrow)}"
    if len(others) >= policy.max_reruns_per_day:
        reason = f"checks have started {counted(len(others), 're-run')} today: late.max_reruns_per_day is"
        reason = f"{reason} {policy.max_reruns_per_day}, so {after}"
        return _changed(day, DecisionRule.TOO_MANY, reason, not_before=tomorrow)
    if budget is not None and price > budget:
        reason = f"a re-run costs about {_usd(price)}, more than late.budget_per_day, {_usd(budget)}: raise it, or run "
        reason = f"{reason}the day by hand (slackwater run {day.pipeline} --date {day.date})"
        return _changed(day, DecisionRule.OVER_BUDGET, reason)
    if budget is not None and (is_budget_spent or spent + price > budget):
        cost = f"a re-run costs about {_usd(price)}, and the re-runs of today {_usd(spent)}"
        reason = f"{cost}: late.budget_per_day is {_usd(budget)}, so {after}"
        return _changed(day, DecisionRule.OVER_BUDGET, reason, not_before=tomorrow)
    return day


def _is_exempt(day: DayDecision, usage: RerunUsage) -> bool:
    return _is_exempt_repair(day) or usage.has(day.date, _figures(day).attempt)


def _is_exempt_repair(day: DayDecision) -> bool:
    return day.rule is DecisionRule.OUTCOME_UNKNOWN and not day.keeps_failing


def _exceeds_every_budget(day: DayDecision) -> bool:
    return _figures(day).not_before is None


def _reserved(usage: RerunUsage, day: DayDecision, now: datetime) -> RerunUsage:
    figures = _figures(day)
    if usage.has(day.date, figures.attempt):
        return usage
    item = ReservedRerun(date=day.date, attempt=figures.attempt, at=now, usd=figures.estimated_usd)
    return usage.model_copy(update={"reruns": (*usage.reruns, item)})


def _figures(day: DayDecision) -> DecisionFigures:
    """Return the figures of a day that would run again: its inputs were listed."""
    if day.figures is None:
        raise ValueError(f"{day.pipeline} {day.date}: the rule {day.rule} has no figures")
    return day.figures


def _with(day: DayDecision, **figures: Any) -> DayDecision:
    return day.model_copy(update={"figures": _figures(day).model_copy(update=figures)})


def _changed(day: DayDecision, rule: DecisionRule, reason: str, *, not_before: datetime | None = None) -> DayDecision:
    """Return the day ignored or deferred by the rule; the reason follows those for a re-run."""
    decision = LateDecision.IGNORE if rule is DecisionRule.NOT_WORTH else LateDecision.DEFER
    update = {"decision": decision, "rule": rule, "reasons": (*day.reasons, reason)}
    return _with(day, not_before=not_before).model_copy(update=update)


def _usd(amount: float) -> str:
    return f"{amount:.2f} USD" if amount >= 1 else f"{amount:.2g} USD"
