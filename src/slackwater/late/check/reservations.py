"""Reserves the re-runs of a check in the run table, so that parallel checks keep the limits of a pipeline together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slackwater.errors import DayChanged, Unavailable
from slackwater.late.check.facts import DayFacts
from slackwater.late.check.limits import decide_with_limits, usage_date
from slackwater.late.check.rerun_cost import estimate_rerun_cost
from slackwater.late.check.rules import decide, rule_of
from slackwater.late.decision import DayDecision, LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import RunRecord
from slackwater.runs.table import RunTable

# An estimate is based on the published runs of the latest days. Many more days, up to a megabyte with each request, are
# read only if none of these runs has a price and a limit depends on it: re-runs would count as free in the budget.
_PRICED_DAYS = (14, 366)
# Checks of one pipeline seldom run in parallel, and each writes once.
_MAX_CONFLICTS = 10


def reserve_reruns(
    definition: Pipeline, days: Sequence[DayFacts], *, table: RunTable, now: datetime
) -> tuple[DayDecision, ...]:
    """Return the decisions about the days in the same order, and reserve the re-runs among them.

    If another check reserves re-runs at the same time, all days are decided again from their facts. A repeated call
    does not count a re-run twice. Writes nothing if no day would run again. Raises `Unavailable` when other checks keep
    changing the reservations: the same call can be repeated.
    """
    if not any(rule_of(facts).decision is LateDecision.RERUN for facts in days):
        return tuple(decide(facts) for facts in days)
    records = _priced_runs(definition, days, table=table)
    for _ in range(_MAX_CONFLICTS):
        usage = table.rerun_usage(definition.pipeline, usage_date(definition, now))
        result = decide_with_limits(
            definition, days, usage=usage, estimate=lambda size: estimate_rerun_cost(records, size), now=now
        )
        if result.usage == usage:
            return result.days
        try:
            table.save_rerun_usage(result.usage)
        except DayChanged:
            continue
        return result.days
    raise Unavailable(f"{definition.pipeline}: other checks keep changing the re-runs of {usage.date}: try again")


def _priced_runs(definition: Pipeline, days: Sequence[DayFacts], *, table: RunTable) -> list[RunRecord]:
    """Return all runs of the latest days up to the last of `days`, also those that a later version has replaced.

    Empty if none of them has a price.
    """
    last, policy = max(facts.record.date for facts in days), definition.late
    # Without these limits, the price is only shown.
    is_limit = policy.budget_per_day is not None or policy.worth_per_percent is not None
    for limit in _PRICED_DAYS if is_limit else _PRICED_DAYS[:1]:
        records = table.days(definition.pipeline, "0001-01-01", last, limit=limit, latest_first=True)
        runs = table.runs_between(definition.pipeline, records[-1].date, last) if records else []
        if estimate_rerun_cost(runs, 0) is not None:
            return runs
        if len(records) < limit:
            break  # There are no more days.
    return []
