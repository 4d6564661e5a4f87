"""The interfaces to the run table and to Step Functions, and the check whether an execution still runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from slackwater.errors import DayChanged
from slackwater.model import UpdatedRecord
from slackwater.runs.comparison_run import ComparisonRun, DueCost
from slackwater.runs.pipeline_records import ArrivalHistory, DefinitionNotice, LateDay, LedgerDay, RerunUsage
from slackwater.runs.record import ActiveRun, DayRecord, RunRecord

# DescribeExecution is eventually consistent: it may not know an execution that has just started. AWS documents no limit
# of the delay.
_START_GRACE_PERIOD = timedelta(minutes=2)


class RunTable(Protocol):
    """The run table as the library uses it. All methods raise `CloudError` when the table cannot be read or written."""

    def day(self, pipeline: str, date: str) -> DayRecord:
        """Return the day's record; the record of a day that was never run has version 0."""

    def days(
        self, pipeline: str, first: str, last: str, *, limit: int | None = None, latest_first: bool = False
    ) -> list[DayRecord]:
        """Return the records of the days from the date `first` to `last`, without those that were never run.

        They are in order of date, or the other way round with `latest_first`; with `limit` at most so many.
        """

    def first_published(self, pipeline: str) -> str | None:
        """Return the first day of the pipeline that has a published run, or None.

        The result may miss writes of the last seconds.
        """

    def notifications_due(self, pipeline: str, *, before: str) -> Iterator[str]:
        """Yield the days before the date `before` whose published version needs a notification, in order.

        The result may miss writes of the last seconds.
        """

    def held(self, pipeline: str) -> Iterator[str]:
        """Yield the days on hold of the pipeline, in order of date. The result may miss writes of the last seconds."""

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        """Return one attempt of the day, or None. Attempts are numbered from 1, over all runs of the day."""

    def runs(self, pipeline: str, date: str | None = None) -> list[RunRecord]:
        """Return all runs of the pipeline, or of one of its days, in order of date and attempt."""

    def runs_between(self, pipeline: str, first: str, last: str) -> list[RunRecord]:
        """Return the runs of the days from the date `first` to `last`, in order of date and attempt."""

    def save(self, *records: DayRecord | RunRecord) -> None:
        """Write a day and runs of it: all of them, or nothing.

        The stored day gets the next version. Raises `DayChanged` when the stored version is not that of the day.
        """

    def save_comparison(self, comparison: ComparisonRun) -> None:
        """Write a comparison that is about to start a job. A repeated call replaces it."""

    def comparisons(self, pipeline: str, date: str) -> list[ComparisonRun]:
        """Return the comparisons of a day that have started a job, in order of the later version."""

    def comparison(self, pipeline: str, due: DueCost) -> ComparisonRun | None:
        """Return a comparison, or None."""

    def costs_due(self, pipeline: str) -> Iterator[DueCost]:
        """Yield each run that has ended, and each comparison, without a final cost, in order of date and attempt.

        May miss writes of the last seconds.
        """

    def save_cost(self, record: RunRecord | ComparisonRun) -> bool:
        """Write a run that has ended, or a comparison, with its new cost, which is no longer due if it is complete.

        The stored record gets the next `cost_version`. Return False, without a change, if another process has written
        the cost since the record was read.
        """

    def rerun_usage(self, pipeline: str, date: str) -> RerunUsage:
        """Return the re-runs that checks have counted on a calendar day; version 0 and none of them without one."""

    def save_rerun_usage(self, usage: RerunUsage) -> None:
        """Write the re-runs of a calendar day with the next version.

        Raises `DayChanged`, without having written anything, when the stored version is not `usage.version`.
        """

    def definition_notice(self, pipeline: str) -> DefinitionNotice:
        """Return the latest message about a new definition of the pipeline; version 0 without one."""

    def save_definition_notice(self, notice: DefinitionNotice) -> None:
        """Write the notice with the next version.

        Raises `DayChanged`, without having written anything, when the stored version is not `notice.version`.
        """

    def record_late_day(self, pipeline: str, date: str, *, at: datetime, keys: Collection[str] = ()) -> None:
        """List a day with late data that was seen at `at`, UTC; `keys` are those of new objects.

        The same object counts once.
        """

    def late_day(self, pipeline: str, date: str) -> LateDay | None:
        """Return the day as it is listed, or None."""

    def late_days(self, pipeline: str, *, first: str = "", last: str) -> list[LateDay]:
        """Return the listed days from the date `first` to `last`, in order, at most 1,000.

        The result may miss writes of the last seconds.
        """

    def remove_late_day(self, pipeline: str, date: str, *, read_at: datetime) -> None:
        """Remove a day from the list, unless data was seen after `read_at`, UTC. A day that is not listed is no error.

        `read_at` is when its inputs were listed.
        """

    def remove_unchanged_late_day(self, pipeline: str, day: LateDay) -> None:
        """Remove a day from the list, unless data was seen since the list was read, by a clock that may be slower."""

    def record_ledger_day(self, pipeline: str, date: str, *, at: datetime) -> None:
        """List a day whose late data the ledger may lack, with data that was seen at `at`, UTC."""

    def ledger_days(self, pipeline: str) -> list[LedgerDay]:
        """Return the listed days in order, at most 1,000. The result may miss writes of the last seconds."""

    def remove_ledger_day(self, pipeline: str, day: LedgerDay) -> None:
        """Remove a day from the list, unless its data was seen since the list was read."""

    def rejects_until(self, pipeline: str) -> datetime | None:
        """Return the time up to which rejected events are in the ledger, UTC; None before the first ones."""

    def save_rejects_until(self, pipeline: str, until: datetime) -> None:
        """Write that time. Of two concurrent writes, the last one counts; the ledger has no row twice."""

    def arrival_history(self, pipeline: str) -> ArrivalHistory:
        """Return the hours in which the sources of the pipeline have delivered; an empty history without one."""

    def save_arrival_history(self, history: ArrivalHistory) -> None:
        """Write the history. Of two concurrent writes, the last one counts; later checks see the same arrivals."""


MAX_WRITES = 20
"""A write of a day fails only if another execution has changed it since it was read. Few work on one day, so that so
many failures in a row mean that something is wrong."""


RecordT = TypeVar("RecordT", bound=UpdatedRecord)


def update_record(
    read: Callable[[], RecordT], write: Callable[[RecordT], None], change: Callable[[RecordT], RecordT], *, what: str
) -> RecordT:
    """Write a record as `change` returns it, and return that; a record that is returned as it is stays.

    When somebody else has changed it meanwhile, so that `write` raises `DayChanged`, it is read again and `change`
    called again. Raises `DayChanged` with the message `what` when that happens 20 times.
    """
    for _ in range(MAX_WRITES):
        record = read()
        changed = change(record)
        try:
            if changed != record:
                write(changed)
        except DayChanged:
            continue
        return changed
    raise DayChanged(what)


def update_day(
    table: RunTable, pipeline: str, date: str, change: Callable[[DayRecord], DayRecord], *, what: str
) -> DayRecord:
    """Write a day as `change` returns it, and return that, with the version before: see `update_record`.

    `what` completes the message of `DayChanged`: "the day kept changing while ...".
    """
    what = f"{pipeline}: {date} kept changing while {what}"
    return update_record(lambda: table.day(pipeline, date), table.save, change, what=what)


class Executions(Protocol):
    """The executions of state machines as the library uses them."""

    def is_running(self, execution: str) -> bool | None:
        """Return whether the execution with this ARN still runs; None if Step Functions does not know it (yet)."""


def is_alive(executions: Executions, execution: str, *, since: datetime, now: datetime) -> bool:
    """Return whether the execution, an ARN, that claimed a day at `since` may still work on it.

    An execution that Step Functions does not know counts as alive for two minutes after the claim.
    """
    running = executions.is_running(execution)
    return now - since < _START_GRACE_PERIOD if running is None else running


def is_running(executions: Executions, active: ActiveRun | None, *, now: datetime) -> bool:
    """Return whether a day with this active run is running.

    A crash leaves the active run in the record of its day, so the state of its execution decides (`is_alive`).
    """
    return active is not None and is_alive(executions, active.execution, since=active.since, now=now)
