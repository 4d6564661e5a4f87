"""Checks the finished days of a pipeline: compares their current inputs with those that the published runs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from slackwater.errors import (
    DayChanged,
    InputError,
    ObjectInvalid,
    ObjectMissing,
    SlackwaterError,
    Throttled,
    Unavailable,
)
from slackwater.late.check.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.check.evaluate_day import SourceThresholds, decide_early, early_rule, evaluate_day, unreadable_day
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, Day, day_of, parse_date
from slackwater.runs.inputs.difference import difference
from slackwater.runs.inputs.listing import InputListing, first_error, published_manifest
from slackwater.runs.inputs.manifest import InputManifest, Record
from slackwater.runs.inputs.table_inputs import without_former_tables
from slackwater.runs.record import DayRecord, RunRecord, RunState, run_identity
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

# Checking a day is mostly waiting for S3, with up to 16 parallel requests, and keeps two manifests in memory. Two days
# in parallel fill the waiting time and stay within the connection pool (32) and the memory of the function.
_PARALLEL_DAYS = 2
# Each day of a Map state adds events to the history of the execution, which Step Functions limits to 25,000 events, and
# a result to its output, which is limited to 256 KiB. The next check reports the remaining days.
_MAX_DAYS_TO_NOTIFY = 30
# These may pass within seconds, so the day is checked once more.
_TRANSIENT_ERRORS = (DayChanged, ObjectMissing, Throttled, Unavailable)
# These concern one day: its files or objects change during the check, or one of its objects is invalid. Any other error
# may concern all days.
_ERRORS_OF_ONE_DAY = (DayChanged, ObjectMissing, ObjectInvalid)
# Rules that decide about a day without its inputs, as `early_rule` returns them.
_EARLY_RULES = frozenset({DecisionRule.RUNNING, DecisionRule.CURRENT, DecisionRule.NEVER_PUBLISHED})


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


class CheckedDay(NamedTuple):
    """The result of checking one day of the window."""

    day: Day
    decision: DayDecision
    is_published: bool | None
    """None if the day's record could not be read."""
    arrivals: dict[str, datetime | None]
    """By source: when its newest object of the day was written. A source that could not be listed is left out."""
    error: SlackwaterError | None = None
    """Why the day's inputs, or its arrivals, could not be read."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Checks the days of a project's pipelines."""

    project: Project
    inputs: InputListing
    table: RunTable
    executions: Executions
    store: ObjectStore
    exchange_bucket: str
    now: Callable[[], datetime]

    def check(self, *, pipeline: str, as_of: str | None, correlation_id: str = "") -> CheckReport:
        """Return the decisions about the day `as_of` and the days of the pipeline's window before it.

        `as_of` is an ISO date, or None for today in the pipeline's timezone. A day that cannot be checked is put on
        hold; the other days are checked nevertheless.

        Raises `UnknownName` when the project has no such pipeline, `InputError` when `as_of` is not a date or has not
        begun, and the error of `raise_if_all_failed` when AWS fails for all days: the same call can be repeated.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        days = check_window(definition, as_of, checked_at)
        current = days[-1]

        def check_day(day: Day) -> CheckedDay:
            return self._check_day(definition, day, current=day is current)

        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            checked = list(pool.map(check_day, days))
            checked = list(
                pool.map(
                    lambda item: check_day(item.day) if isinstance(item.error, _TRANSIENT_ERRORS) else item, checked
                )
            )
        raise_if_all_failed(checked)
        return CheckReport(
            pipeline=pipeline,
            as_of=current.date.isoformat(),
            checked_at=checked_at,
            correlation_id=correlation_id,
            seconds=round(time.perf_counter() - started, 3),
            days=tuple(item.decision for item in checked),
            overdue=overdue_days(definition, checked[:-1], self.table.first_published(pipeline), checked_at),
            notifications_due=self._notifications_due(pipeline, before=days[0].date.isoformat()),
            last_arrivals=self._last_arrivals(definition, checked),
        )

    def save(self, report: CheckReport, *, execution: str) -> str:
        """Store the report under the name of the execution, given by its ARN, and return the report's URI."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _check_day(self, definition: Pipeline, day: Day, *, current: bool) -> CheckedDay:
        """Decide about one day. A day that cannot be read is put on hold."""
        error: SlackwaterError | None = None
        record = DayRecord(pipeline=definition.pipeline, date=day.date.isoformat())
        is_published: bool | None = None
        try:
            record = self.table.day(record.pipeline, record.date)
            is_published = record.published is not None
            rule = early_rule(record, current=current, running=self._is_running(record))
            decision, manifest = self._decide(definition, day, record, rule)
        except (SlackwaterError, ValidationError) as raised:
            error = raised if isinstance(raised, SlackwaterError) else ObjectInvalid(first_error(raised))
            decision, manifest = unreadable_day(record, error), None
        arrivals: dict[str, datetime | None] = {}
        for name in definition.sources:
            try:
                arrivals[name] = (
                    max((item.arrived for item in manifest.of_source(name)), default=None)
                    if manifest
                    else self.inputs.last_arrival(name, day)
                )
            except SlackwaterError as raised:
                error = error or raised
        return CheckedDay(day, decision, is_published, arrivals, error)

    def _decide(
        self, definition: Pipeline, day: Day, record: DayRecord, rule: DecisionRule | None
    ) -> tuple[DayDecision, InputManifest | None]:
        """Return the decision about a day, and its current inputs, or None for the inputs if they were not listed.

        `rule` is the result of `early_rule`: with a rule, the inputs are not listed.
        """
        published = record.published
        published_inputs = published_manifest(self.store, published) if rule is None and published else None
        # The manifest's own time would be too early if an earlier run has written an equal manifest.
        run = self.table.run(record.pipeline, record.date, published.run.attempt) if published else None
        frozen_at = run.started_at if run else None
        if published_inputs is None:
            return decide_early(record, rule or DecisionRule.MANIFEST_GONE, frozen_at=frozen_at), None
        # Without the known objects, the check would read the metadata of each object of the window again.
        current_inputs = self.inputs.manifest(definition.pipeline, day, known=published_inputs.objects)
        pipeline_thresholds = definition.late.thresholds
        own = f"pipeline {definition.pipeline}"
        thresholds = {
            name: SourceThresholds(
                definition.thresholds(self.project.source(name)), own if name in pipeline_thresholds else "its source"
            )
            for name in definition.sources
        } | {name: SourceThresholds(definition.table_thresholds(name), own) for name in definition.tables}
        decision = evaluate_day(
            record,
            difference(without_former_tables(published_inputs, definition), current_inputs, sources=definition.inputs),
            thresholds=thresholds,
            frozen_at=frozen_at,
            failed=self._failed_runs(record, current_inputs),
        )
        return decision, current_inputs

    def _failed_runs(self, record: DayRecord, current_inputs: InputManifest) -> list[RunRecord]:
        """Return the latest attempts, in order, that failed with the identity that a new run would have."""
        if record.published is None or record.attempts <= record.published.run.attempt:
            return []
        identity = run_identity(
            pipeline=record.pipeline,
            date=record.date,
            manifest=current_inputs.digest,
            definition=self.project.definition_digest(record.pipeline),
        )
        latest = reversed(self.table.runs(record.pipeline, record.date))
        failed = takewhile(lambda run: run.state is RunState.FAILED and run.run.run_id == identity, latest)
        return list(failed)[::-1]

    def _notifications_due(self, pipeline: str, *, before: str) -> tuple[str, ...]:
        """Return the days before the ISO date `before` whose published version still needs a notification.

        A running day is left out: it is compared when its new version is published. A day that cannot be read is
        compared now.
        """

        def is_due(date: str) -> bool:
            try:
                record = self.table.day(pipeline, date)
                return record.notification_due and not self._is_running(record)
            except (SlackwaterError, ValidationError):
                return True

        dates = self.table.notifications_due(pipeline, before=before)
        return tuple(islice(filter(is_due, dates), _MAX_DAYS_TO_NOTIFY))

    def _is_running(self, record: DayRecord) -> bool:
        # A crash leaves the active run in the day's record, so the state of its execution decides.
        active = record.active
        return active is not None and is_alive(self.executions, active.execution, since=active.since, now=self.now())

    def _last_arrivals(self, definition: Pipeline, checked: Sequence[CheckedDay]) -> dict[str, datetime | None]:
        """Return the last arrival of each source, in order of name, without sources that could not be listed."""
        arrivals: dict[str, datetime | None] = {}
        for name in sorted(definition.sources):
            if all(name in item.arrivals for item in checked):
                # Without a new value, the alarm for a silent source keeps its state.
                with suppress(SlackwaterError):
                    arrivals[name] = self._last_arrival(definition, checked, name)
        return arrivals

    def _last_arrival(self, definition: Pipeline, checked: Sequence[CheckedDay], source: str) -> datetime | None:
        """Return when the newest object of the source was written, UTC, or None.

        Reads the checked days first. Only if they have no object, it lists earlier days, one by one, as far back as the
        source's `silent_hours`: an older object would fire the alarm anyway.
        """
        newest = max((arrived for item in checked if (arrived := item.arrivals[source])), default=None)
        day, since = checked[0].day, self.now() - self.project.source(source).silent_hours * HOUR
        while newest is None and day.start > since:
            day = day_of(day.date - timedelta(days=1), definition.timezone)
            newest = self.inputs.last_arrival(source, day)
        return newest


def raise_if_all_failed(checked: Sequence[CheckedDay]) -> None:
    """Raise an error of the checked days if no day could be read, and not only because of the days themselves.

    Only days whose inputs had to be compared count, if there are any: reading the others needs less of AWS.
    """
    compared = [item for item in checked if item.decision.rule not in _EARLY_RULES] or checked
    errors = [item.error for item in compared if item.error]
    shared = [error for error in errors if not isinstance(error, _ERRORS_OF_ONE_DAY)]
    if shared and len(errors) == len(compared):
        raise shared[0]


def day_tasks(report: CheckReport) -> tuple[DayTask, ...]:
    """Return the days that the monitoring machine has to work on, in order of date.

    A day on hold is among them if its published version still needs a notification.
    """
    tasks = [DayTask(date=date, action=DayAction.NOTIFY) for date in report.notifications_due]
    for day in report.days:
        if day.decision is LateDecision.RERUN:
            tasks.append(DayTask(date=day.date, action=DayAction.RERUN))
        elif day.notification_due and day.rule is not DecisionRule.RUNNING and day.date != report.as_of:
            tasks.append(DayTask(date=day.date, action=DayAction.NOTIFY))
    return tuple(tasks)


def report_uri(exchange_bucket: str, pipeline: str, as_of: str, execution: str) -> str:
    """Return the URI of the report of the execution with that ARN."""
    return f"s3://{exchange_bucket}/checks/{pipeline}/{as_of}/{execution.rpartition(':')[2]}.json"


def today(definition: Pipeline, now: datetime) -> date:
    """Return the date of the instant `now` in the pipeline's timezone."""
    return now.astimezone(ZoneInfo(definition.timezone)).date()


def window_start(definition: Pipeline, as_of: str) -> datetime:
    """Return when the first day of the window before `as_of`, an ISO date, begins, UTC."""
    first = date.fromisoformat(as_of) - timedelta(days=definition.late.window_days)
    return day_of(first, definition.timezone).start


def check_window(definition: Pipeline, as_of: str | None, now: datetime) -> list[Day]:
    """Return the days of the window in order, the day `as_of` (by default today) last.

    Raises `InputError` when `as_of` is not a date or has not begun.
    """
    try:
        current = parse_date(as_of) if as_of is not None else today(definition, now)
        days_back = range(definition.late.window_days, -1, -1)
        days = [day_of(current - timedelta(days=back), definition.timezone) for back in days_back]
    except (ValueError, OverflowError) as error:
        raise InputError(f"as_of: {as_of!r} is not a date such as 2013-03-10") from error
    if days[-1].start > now:
        raise InputError(f"as_of: {as_of} has not begun in {definition.timezone}: use today or an earlier day")
    return days


def overdue_days(
    definition: Pipeline, window: Sequence[CheckedDay], first: str | None, now: datetime
) -> tuple[str, ...]:
    """Return the days past their deadline without a published run, after the first day that was ever published.

    `window` are the checked days without the current one, `first` is that first day.
    """
    # Days before the first published one are not overdue: a new pipeline does not process its past.
    deadline = definition.deadline_hours * HOUR
    overdue = [item.day for item in window if item.is_published is False and item.day.end + deadline < now]
    return tuple(date for day in overdue if first and (date := day.date.isoformat()) > first)
