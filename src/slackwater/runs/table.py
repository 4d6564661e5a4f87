"""The port to the run table: days and runs, changed together or not at all; and whether who claimed a day is alive."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from slackwater.runs.record import DayRecord, RunRecord

_GRACE = timedelta(minutes=2)
"""Step Functions may not know an execution yet that has claimed a day: so young a claim is taken to be alive."""


class RunTable(Protocol):
    """What the library asks of the run table."""

    def day(self, pipeline: str, date: str) -> DayRecord:
        """Return the day's record; a day never run has version 0."""

    def days(self, pipeline: str) -> list[DayRecord]:
        """Return the records of all days that the pipeline was ever run for, in order of date."""

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        """Return one attempt of the day, if there is one. Attempts count up over all runs of a day."""

    def runs(self, pipeline: str, date: str | None = None) -> list[RunRecord]:
        """Return all runs of the pipeline, or of one of its days, in order of date and attempt."""

    def save_day(self, day: DayRecord) -> None:
        """Write a day alone. Raises `DayChanged` as `save` does."""

    def save(self, *, run: RunRecord, day: DayRecord | None = None) -> None:
        """Write a run and, with it, its day.

        Raises `DayChanged`, having written nothing, when the day's version is no longer `day.version`; what is written
        has the next version.
        """


class Executions(Protocol):
    """What the library asks of Step Functions about executions."""

    def is_running(self, execution: str) -> bool | None:
        """Say whether the execution of that ARN still runs; None when it is not known, as one that has just begun."""


def is_alive(executions: Executions, execution: str, *, since: datetime, now: datetime) -> bool:
    """Say whether the execution that has claimed a day at `since` may still be at work."""
    running = executions.is_running(execution)
    return now - since < _GRACE if running is None else running
