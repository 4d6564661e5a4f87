"""Decides about the days that would run again in the order in which they may, with the limits of their pipeline.

The limits are a cool-down of each day, a number of re-runs and a budget of each calendar day. A day that has to wait is
deferred: the next check decides again. A repair of an unknown outcome is not deferred, unless the latest attempts have
all failed: then late data that trickles in would run the day again with every check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from slackwater.late.check.facts import DayFacts, Limits
from slackwater.late.check.rules import decide, rule_of
from slackwater.late.check.window import today
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.day import day_of
from slackwater.runs.rerun_usage import RerunUsage, ReservedRerun

_ORDERS: dict[str, Callable[[DayFacts], Any]] = {
    "oldest": lambda facts: facts.record.date,
    "newest": lambda facts: tuple(-ord(character) for character in facts.record.date),
    "largest": lambda facts: (-facts.amounts(facts.inputs.rerun_inputs).late_rows, facts.record.date),
}


@dataclass(frozen=True, kw_only=True)
class LimitedReruns:
    """The decisions of a check with the limits of the pipeline, and the re-runs of today with the new ones."""

    days: tuple[DayDecision, ...]
    usage: RerunUsage


def usage_date(definition: Pipeline, now: datetime) -> str:
    """Return the calendar day, in the pipeline's timezone, whose re-runs are counted at the instant `now`."""
    return today(definition, now).isoformat()


def decide_with_limits(
    definition: Pipeline,
    days: Sequence[DayFacts],
    *,
    usage: RerunUsage,
    estimate: Callable[[int], float | None],
    now: datetime,
) -> LimitedReruns:
    """Return the decisions about the days in the same order, and the usage to store.

    `days` have no limits yet. `usage` are the re-runs that checks have reserved on the calendar day `usage_date`.
    `estimate` returns the price of a run in USD that reads so many bytes, or None if no run has a price.
    """
    policy, decisions = definition.late, dict[str, DayDecision]()
    tomorrow = day_of(today(definition, now) + timedelta(days=1), definition.timezone).start
    waiting = [facts for facts in days if rule_of(facts).decision is LateDecision.RERUN]
    # Repairs and re-runs that an earlier call of this check has reserved come first: no limit applies to them. Days
    # that keep failing come last, so that they take no place of others.
    waiting.sort(key=lambda facts: (not _is_exempt(facts, usage), facts.keeps_failing, _ORDERS[policy.order](facts)))
    earlier_waits, position = False, 0
    for facts in waiting:
        date, price = facts.record.date, estimate(facts.amounts(facts.inputs.rerun_inputs).input_bytes)
        limits = Limits(
            policy=policy,
            now=now,
            tomorrow=tomorrow,
            price=price,
            usage=usage,
            earlier_waits=earlier_waits,
            position=position,
        )
        decision = decisions[date] = decide(replace(facts, limits=limits))
        if decision.decision is LateDecision.RERUN:
            position += 1
            usage = _reserved(usage, facts, price, now)
        elif decision.rule is DecisionRule.OVER_BUDGET and decision.figures and decision.figures.not_before:
            earlier_waits = True
    return LimitedReruns(
        days=tuple(decisions.get(facts.record.date) or decide(facts) for facts in days),
        usage=usage,
    )


def _is_exempt(facts: DayFacts, usage: RerunUsage) -> bool:
    return facts.is_exempt_repair or usage.has(facts.record.date, facts.attempt)


def _reserved(usage: RerunUsage, facts: DayFacts, price: float | None, now: datetime) -> RerunUsage:
    if usage.has(facts.record.date, facts.attempt):
        return usage
    item = ReservedRerun(date=facts.record.date, attempt=facts.attempt, at=now, usd=price)
    return usage.model_copy(update={"reruns": (*usage.reruns, item)})
