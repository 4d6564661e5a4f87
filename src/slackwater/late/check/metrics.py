"""The metrics of a check: the levels that it finds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from statistics import median

from slackwater.late.check.limits import usage_date
from slackwater.late.check.record_holds import ends_failure
from slackwater.late.check.window_dates import window_start
from slackwater.late.decision import EARLY_RULES, CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.metrics import Metric, PutsMetric
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.project.project import Project
from slackwater.receiver.event_counts import HISTORY_DAYS, EventCount
from slackwater.runs.period import HOUR
from slackwater.runs.pipeline_records import RerunUsage
from slackwater.runs.table import RunTable

# Fewer events are no evidence: one rejected event of ten is 10 %.
_FEWEST_EVENTS = 100
# A source that delivers weekly has two of them in 14 days.
_FEWEST_DAYS = 2
_WAITING = frozenset({DecisionRule.COOL_DOWN, DecisionRule.INCOMPLETE})


def days_on_hold(report: CheckReport, held_dates: Iterable[str]) -> int:
    """Return how many days of the pipeline are on hold: those of the report, and others of the index.

    A day with an error that may pass counts only if the index has it: a later check decides about it.
    `held_dates` are the dates that the index shows, which may miss what the check has just written.
    """
    known = [day for day in report.days if day.rule not in EARLY_RULES and not day.error_may_pass]
    # After other decisions, a day may still be on hold because its run failed.
    decided = {day.date: day.decision for day in known if day.decision is LateDecision.HOLD or ends_failure(day)}
    others = {date for date in held_dates if date not in decided}
    return len(others | {date for date, decision in decided.items() if decision is LateDecision.HOLD})


def put_budget(report: CheckReport, definition: Pipeline, table: RunTable, put_metric: PutsMetric) -> None:
    """Put how much of its budget a pipeline needs today. Raises `CloudError` when its re-runs cannot be read."""
    if definition.late.budget_per_day is None:
        return
    usage = table.rerun_usage(report.pipeline, usage_date(definition, report.checked_at))
    percent = budget_percent(definition.late, usage, report.days)
    if percent is not None:
        put_metric(Metric.BUDGET_PERCENT, percent, pipeline=report.pipeline)


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


def put_gauges(report: CheckReport, definition: Pipeline, project: Project, put_metric: PutsMetric) -> None:
    """Put the levels that a check of all days finds."""
    pipeline = report.pipeline
    # These days run again by themselves, so they must not fire an alarm.
    unprocessed = _late_bytes(report, LateDecision.HOLD, LateDecision.DEFER, but=_WAITING)
    put_metric(Metric.LATE_BYTES_UNPROCESSED, unprocessed, pipeline=pipeline)
    put_metric(Metric.LATE_BYTES_IGNORED, _late_bytes(report, LateDecision.IGNORE), pipeline=pipeline)
    put_metric(Metric.DAYS_OVERDUE, len(report.overdue), pipeline=pipeline)
    put_metric(Metric.LATE_DAYS_OLDER, len(report.older), pipeline=pipeline)
    for name, missing in report.events_missing.items():
        put_metric(Metric.EVENTS_MISSING, missing, source=name)
    for name, arrived in report.last_arrivals.items():
        usual_hours = project.source(name).silent_hours
        # Without an arrival, the source has been silent at least since the earliest time that the check has listed.
        silent_since = arrived or min(window_start(definition, report.as_of), report.checked_at - usual_hours * HOUR)
        silent_hours = (report.checked_at - silent_since) / HOUR
        put_metric(Metric.HOURS_SINCE_ARRIVAL, silent_hours, source=name)
        percent = 100 * silent_hours / report.usual_silences.get(name, usual_hours)
        put_metric(Metric.SILENCE_PERCENT, percent, source=name)


def _late_bytes(report: CheckReport, *decisions: LateDecision, but: Collection[DecisionRule] = ()) -> int:
    """Return the late data, in bytes, of the days with these decisions, without those that a rule of `but` decides."""
    days = (day for day in report.days if day.decision in decisions and day.rule not in but)
    return sum(source.unprocessed.bytes for day in days for source in day.sources)


def rejected_above_normal(hours: Mapping[int, EventCount], *, now: datetime) -> float:
    """Return by how many percentage points the reject rate of the latest 24 hours is above normal; 0 if it is not.

    `hours` has the hours with events, in hours since 1970, UTC. Normal is the median of the rates of the 14 UTC days
    before today that have at least 100 events. Without two such days, or with fewer than 100 events in the latest 24
    hours, the result is 0.
    """
    hour = int(now.timestamp() // 3600)
    latest = _rate(hours.get(hour - back) for back in range(24))
    days = (range(24 * (hour // 24 - back), 24 * (hour // 24 - back + 1)) for back in range(1, HISTORY_DAYS + 1))
    normal = [rate for day in days if (rate := _rate(map(hours.get, day))) is not None]
    if latest is None or len(normal) < _FEWEST_DAYS:
        return 0.0
    return max(latest - median(normal), 0.0)


def _rate(counts: Iterable[EventCount | None]) -> float | None:
    """Return the rejected events in percent of all; None if there are too few."""
    known = [count for count in counts if count is not None]
    events = sum(count.events for count in known)
    return 100 * sum(count.rejected for count in known) / events if events >= _FEWEST_EVENTS else None
