"""The port to the run table, and the check whether the execution that has claimed a day still runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from slackwater.runs.record import DayRecord, RunRecord

# DescribeExecution is eventually consistent: it may not know an execution that has just started.
_START_GRACE_PERIOD = timedelta(minutes=2)


class RunTable(Protocol):
    """What the library asks of the run table."""

    def day(self, pipeline: str, date: str) -> DayRecord:
        """Return the day's record; the record of a day that was never run has version 0."""

    def days(self, pipeline: str) -> list[DayRecord]:
        """Return the records of all days that the pipeline was ever run for, in order of date."""

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        """Return one attempt of the day, or None. Attempts are numbered over all runs of a day."""

    def runs(self, pipeline: str, date: str | None = None) -> list[RunRecord]:
        """Return all runs of the pipeline, or of one of its days, in order of date and attempt."""

    def save_day(self, day: DayRecord) -> None:
        """Write a day alone. Raises `DayChanged` as `save` does."""

    def save(self, *, run: RunRecord, day: DayRecord | None = None) -> None:
        """Write a run and, in the same transaction, its day.

        The stored day gets the next version. Raises `DayChanged`, without having written anything, when the stored
        version is not `day.version`.
        """


class Executions(Protocol):
    """What the library asks of Step Functions about executions."""

    def is_running(self, execution: str) -> bool | None:
        """Return whether the execution of that ARN still runs; None when Step Functions does not know it (yet)."""


def is_alive(executions: Executions, execution: str, *, since: datetime, now: datetime) -> bool:
    """Return whether the execution that claimed a day at `since` may still work on it."""
    running = executions.is_running(execution)
    return now - since < _START_GRACE_PERIOD if running is None else running
