"""Decides about the days that would run again, the oldest first, with the limits of their pipeline.

The limits are a cool-down of each day, a number of re-runs and a budget of each calendar day. A day that has to wait is
deferred: the next check decides again. A repair of an unknown outcome is not deferred, unless the latest attempts have
all failed: then late data that trickles in would run the day again with every check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from slackwater.errors import DayChanged, Unavailable
from slackwater.late.check.facts import DayFacts, Limits
from slackwater.late.check.rules import decide
from slackwater.late.check.window_dates import today
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.cost_estimate import expected_usd, latest_runs
from slackwater.runs.period import day_of
from slackwater.runs.pipeline_records import CountedRerun, RerunUsage
from slackwater.runs.table import RunTable

# Checks of one pipeline seldom run in parallel, and each writes once.
_MAX_CONFLICTS = 10


@dataclass(frozen=True, kw_only=True)
class LimitedReruns:
    """The decisions of a check with the limits of the pipeline, and the re-runs of today with the new ones."""

    days: tuple[DayDecision, ...]
    usage: RerunUsage


def usage_date(definition: Pipeline, now: datetime) -> str:
    """Return the calendar day, in the pipeline's timezone, whose re-runs are counted at the instant `now`."""
    return today(definition, now).isoformat()


def decide_and_count(
    definition: Pipeline, days: Sequence[DayFacts], *, table: RunTable, now: datetime
) -> tuple[DayDecision, ...]:
    """Return the decisions about the days in the same order, and count the re-runs among them in the run table.

    If another check counts re-runs at the same time, the limits are applied again to the same facts. A repeated call
    does not count a re-run twice. Writes nothing if no day would run again. Raises `Unavailable` when other checks keep
    changing the count: the same call can be repeated.
    """
    decisions = tuple(decide(facts) for facts in days)
    if not any(item.decision is LateDecision.RERUN for item in decisions):
        return decisions
    runs = latest_runs(table, definition.pipeline, last=max(facts.record.date for facts in days))
    for _ in range(_MAX_CONFLICTS):
        usage = table.rerun_usage(definition.pipeline, usage_date(definition, now))
        result = decide_with_limits(
            definition, days, decisions, usage=usage, estimate=partial(expected_usd, runs), now=now
        )
        if result.usage == usage:
            return result.days
        try:
            table.save_rerun_usage(result.usage)
        except DayChanged:
            continue
        return result.days
    raise Unavailable(f"{definition.pipeline}: other checks keep changing the re-runs of {usage.date}: try again")


def decide_with_limits(
    definition: Pipeline,
    days: Sequence[DayFacts],
    decisions: Sequence[DayDecision],
    *,
    usage: RerunUsage,
    estimate: Callable[[int], float | None],
    now: datetime,
) -> LimitedReruns:
    """Return the decisions about the days in the same order, and the usage to store.

    `days` have no limits yet, and `decisions` are those about them without limits, in the same order. `usage` are the
    re-runs that checks have counted on the calendar day `usage_date`. `estimate` returns the price of a run in USD that
    reads so many rows, or None if no run has a price.
    """
    policy, decided = definition.late, {item.date: item for item in decisions}
    tomorrow = day_of(today(definition, now) + timedelta(days=1), definition.timezone).start
    waiting = [facts for facts in days if decided[facts.record.date].decision is LateDecision.RERUN]
    # Repairs and re-runs that an earlier call of this check has counted come first: no limit applies to them. Days that
    # keep failing come last, so that they take no place of others. The oldest dates are the first to leave the window.
    waiting.sort(
        key=lambda facts: (
            not (facts.is_exempt_repair or usage.has(facts.record.date, facts.attempt)),
            facts.keeps_failing,
            facts.record.date,
        )
    )
    earlier_waits, position = False, 0
    for facts in waiting:
        date, price = facts.record.date, estimate(facts.inputs.rows)
        limits = Limits(
            policy=policy,
            now=now,
            tomorrow=tomorrow,
            price=price,
            usage=usage,
            earlier_waits=earlier_waits,
            position=position,
        )
        decision = decided[date] = decide(replace(facts, limits=limits))
        if decision.decision is LateDecision.RERUN:
            position += 1
            if not usage.has(date, facts.attempt):
                counted = CountedRerun(date=date, attempt=facts.attempt, at=now, usd=price)
                usage = usage.model_copy(update={"reruns": (*usage.reruns, counted)})
        elif decision.rule is DecisionRule.OVER_BUDGET and decision.figures and decision.figures.not_before:
            earlier_waits = True
    return LimitedReruns(days=tuple(decided.values()), usage=usage)
