"""The days that the monitoring machine has to work on after a check."""

from __future__ import annotations

from enum import StrEnum

from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.model import Record

MOST_TASKS = 366
"""With more days, the history of an execution could have more than 25,000 events, with all of its retries."""


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
    """Return at most 366 days that the monitoring machine has to work on, in the order in which it starts them.

    Re-runs come first, the oldest day before the others, and then notifications that are due, by date: comparisons
    that take long delay no re-run. A day on hold is among them if its published version still needs a notification.
    Notifications of further days stay due.
    """
    due, reruns = list(report.notifications_due), list[DayDecision]()
    for day in report.days:
        # After a check of some days, the next complete one does this: another execution may be comparing the day.
        is_due = report.complete and day.notification_due and day.date != report.as_of
        if day.decision is LateDecision.RERUN:
            reruns.append(day)
        elif is_due and day.rule is not DecisionRule.RUNNING:
            due.append(day.date)
    reruns.sort(key=lambda day: day.figures.position or 0 if day.figures else 0)
    tasks = (
        *(DayTask(date=day.date, action=DayAction.RERUN) for day in reruns),
        *(DayTask(date=date, action=DayAction.NOTIFY) for date in due),
    )
    return tasks[:MOST_TASKS]
