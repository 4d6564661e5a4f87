"""What a scheduled task starts at an instant: the name and the input of the execution.

Airflow, which has no library of ours, computes the same input in `mwaa_dags/schedule.py`; a test compares the two.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime

from slackwater.model import Model
from slackwater.project.clock_changes import skipped_time
from slackwater.project.cron import cron_matches
from slackwater.project.schedule import ScheduledTask

# An execution's name has at most 80 characters, of which the scheduled time takes 17; a schedule's name has 64.
_LONGEST_NAME = 60
_DIGEST_LENGTH = 8


class ScheduledStart(Model):
    """A task at one of its scheduled times, as a scheduler passes it to the function that starts it."""

    task: ScheduledTask
    scheduled_at: AwareDatetime
    """When it was due, however late it starts."""
    for_skipped_time: bool = False
    """Start only if a clock change has just skipped a time of the task. The scheduler starts nothing at such a time."""

    @property
    def due(self) -> bool:
        """Whether the task starts at the scheduled time."""
        if not self.for_skipped_time:
            return True
        skipped = skipped_time(self.scheduled_at, self.task.timezone)
        return skipped is not None and cron_matches(self.task.cron, skipped)

    @property
    def name(self) -> str:
        """The execution's name: the same for every delivery of this start, so that it is started once."""
        return f"{task_name(self.task)}-{self.scheduled_at.astimezone(UTC):%Y%m%dT%H%M%SZ}"

    @property
    def input(self) -> dict[str, str | bool]:
        """The execution's input."""
        date = scheduled_date(self.task, self.scheduled_at)
        return {**self.task.input, self.task.date_key: date, "correlation_id": self.name}


def scheduled_date(task: ScheduledTask, scheduled_at: datetime) -> str:
    """Return the ISO date, or the hour such as 2013-03-10T15, that a task gets at a scheduled instant.

    For a run, it is the latest one that ended at least the buffer before. It is elapsed time, also when the clocks
    change.
    """
    at = scheduled_at - timedelta(hours=task.buffer_hours + task.hours_before, minutes=task.buffer_minutes)
    if task.period == "hour":
        return f"{at.astimezone(UTC):%Y-%m-%dT%H}"
    local = at.astimezone(ZoneInfo(task.timezone))
    return (local.date() - timedelta(days=task.days_before)).isoformat()


def task_name(task: ScheduledTask) -> str:
    """Return a name of the task within its project, of at most 60 characters: the end of a longer one is a digest."""
    name = f"{task.work}-{task.subject}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _LONGEST_NAME - _DIGEST_LENGTH - 1]}-{digest}"
