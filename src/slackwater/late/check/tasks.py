"""The days that the monitoring machine has to work on after a check."""

from __future__ import annotations

from enum import StrEnum

from slackwater.late.check.decision import CheckReport, DecisionRule, LateDecision
from slackwater.runs.inputs.manifest import Record


class DayAction(StrEnum):
    """What the monitoring machine does with a day."""

    RERUN = "rerun"
    """Run the day again, then compare the versions and notify people."""
    NOTIFY = "notify"
    """Compare the published version with the one that people were last notified of, and notify them."""


class DayTask(Record):
    """A day that the monitoring machine has to work on."""

    date: str
    action: DayAction


def day_tasks(report: CheckReport) -> tuple[DayTask, ...]:
    """Return the days that the monitoring machine has to work on, in order of date.

    A day on hold is among them if its published version still needs a notification.
    """
    tasks = [DayTask(date=date, action=DayAction.NOTIFY) for date in report.notifications_due]
    for day in report.days:
        # After a check of some days, the next complete one does this: another execution may be comparing the day.
        is_due = report.complete and day.notification_due and day.date != report.as_of
        if day.decision is LateDecision.RERUN:
            tasks.append(DayTask(date=day.date, action=DayAction.RERUN))
        elif is_due and day.rule is not DecisionRule.RUNNING:
            tasks.append(DayTask(date=day.date, action=DayAction.NOTIFY))
    return tuple(tasks)
