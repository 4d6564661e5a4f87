"""Has days checked again: when they may run again, have waited long enough, or could not be decided about."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from slackwater.late.arrival_messages import DayDeferred, day_deferred
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision

# After this time, a day is checked again that was running, or could not be read.
_AGAIN = timedelta(minutes=5)


def later_checks(report: CheckReport) -> Iterator[DayDeferred]:
    """Yield a message for each day of the report that has to be checked again.

    These are deferred days that may run again later by themselves, days whose late data reaches `max_age_hours` before
    the next daily check, days with an error that may pass, and in a check of some days only those that are running: the
    messages about their late data have led to this check, and are gone. Also if a scheduled check comes first: its
    schedule may be turned off, and an additional check costs 0.0002 USD.
    """
    for day in report.days:
        if not_before := _not_before(day, report):
            yield day_deferred(day.pipeline, day.date, not_before=not_before)


def _not_before(day: DayDecision, report: CheckReport) -> datetime | None:
    """Return when the day is checked again, UTC; None if only the next scheduled check has to."""
    if day.error_may_pass or (day.rule is DecisionRule.RUNNING and not report.complete):
        return report.checked_at + _AGAIN
    if day.rule in {DecisionRule.BELOW, DecisionRule.NOT_WORTH}:
        return day.ages_at
    return day.figures.not_before if day.figures and day.decision is LateDecision.DEFER else None
