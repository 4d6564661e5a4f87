"""Checking a pipeline's finished days: their inputs now are compared with those that the published runs have read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from slackwater.errors import DayChanged, InputError, ObjectMissing, SlackwaterError, Throttled
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.evaluate_day import SourceThresholds, decide_early, early_rule, evaluate_day, unreadable_day
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, Day, day_of
from slackwater.runs.difference import difference
from slackwater.runs.inputs import InputListing, first_error, published_manifest
from slackwater.runs.manifest import InputManifest, Record
from slackwater.runs.record import DayRecord, RunRecord, RunState, run_identity
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

# A day waits for S3 most of the time, with up to 16 requests at once, and holds two manifests in memory meanwhile.
_DAYS_AT_ONCE = 2
# A Map state's history and output are bounded. The next check reports the remaining days.
_MAX_DAYS_TO_NOTIFY = 100


class DayAction(StrEnum):
    """What the monitoring machine does with a day."""

    RERUN = "rerun"
    """Run the day again, then compare the versions and notify people."""
    NOTIFY = "notify"
    """Compare the published version with the one that people know, and notify them."""


class DayTask(Record):
    """A day that the monitoring machine has to work on."""

    date: str
    action: DayAction


class CheckedDay(NamedTuple):
    """The result of checking one day of the window."""

    day: Day
    decision: DayDecision
    is_published: bool
    arrivals: dict[str, datetime | None]
    """By source: when its newest object of the day was written."""


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

    def check(self, *, pipeline: str, as_of: str | None) -> CheckReport:
        """Decide about the day `as_of`, or today, and the days of the pipeline's window before it.

        An error with one day holds that day; the others are decided about.

        Raises `UnknownName` when the project has no such pipeline, `InputError` when `as_of` is not a date or has not
        begun, and `DayChanged`, `Throttled` or `ObjectMissing` when objects change during the check: try again then.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        days = check_window(definition, as_of, checked_at)
        current, records = days[-1], {record.date: record for record in self.table.days(pipeline)}

        def check_day(day: Day) -> CheckedDay:
            date = day.date.isoformat()
            record = records.get(date) or DayRecord(pipeline=pipeline, date=date)
            return self._check_day(definition, day, record, current=day is current)

        with ThreadPoolExecutor(_DAYS_AT_ONCE) as pool:
            checked = list(pool.map(check_day, days))
        return CheckReport(
            pipeline=pipeline,
            as_of=current.date.isoformat(),
            checked_at=checked_at,
            seconds=round(time.perf_counter() - started, 3),
            days=tuple(item.decision for item in checked),
            overdue=overdue_days(definition, checked[:-1], records.values(), checked_at),
            notifications_due=self._notifications_due(records.values(), before=days[0].date.isoformat()),
            last_arrivals={name: self._last_arrival(definition, checked, name) for name in sorted(definition.sources)},
        )

    def save(self, report: CheckReport, *, execution: str) -> str:
        """Store the report of the execution with that ARN, and return its URI."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _check_day(self, definition: Pipeline, day: Day, record: DayRecord, *, current: bool) -> CheckedDay:
        rule = early_rule(record, current=current, running=self._is_running(record))
        try:
            decision, manifest = self._decide(definition, day, record, rule)
        except (DayChanged, Throttled, ObjectMissing):  # temporary: the state machine checks again
            raise
        except (SlackwaterError, ValidationError) as error:
            message = first_error(error) if isinstance(error, ValidationError) else str(error)
            decision, manifest = unreadable_day(record, message), None
        arrivals = {
            name: max((item.arrived for item in manifest.of_source(name)), default=None)
            if manifest
            else self.inputs.last_arrival(name, day)
            for name in definition.sources
        }
        return CheckedDay(day, decision, record.published is not None, arrivals)

    def _decide(
        self, definition: Pipeline, day: Day, record: DayRecord, rule: DecisionRule | None
    ) -> tuple[DayDecision, InputManifest | None]:
        """Return the decision about a day, and its inputs now if they were listed."""
        published = record.published
        before = published_manifest(self.store, published) if rule is None and published else None
        # Not the manifest's own time: an equal manifest may have been written by an earlier run.
        run = self.table.run(record.pipeline, record.date, published.run.attempt) if published else None
        frozen_at = run.started_at if run else None
        if before is None:
            return decide_early(record, rule or DecisionRule.MANIFEST_GONE, frozen_at=frozen_at), None
        now = self.inputs.manifest(definition.pipeline, day, known=before.objects)
        own = definition.late.thresholds
        thresholds = {
            name: SourceThresholds(
                definition.thresholds(self.project.source(name)),
                f"pipeline {definition.pipeline}" if name in own else "its source",
            )
            for name in definition.sources
        }
        decision = evaluate_day(
            record,
            difference(before, now, sources=definition.sources),
            thresholds=thresholds,
            frozen_at=frozen_at,
            failed=self._failed_runs(record, now),
        )
        return decision, now

    def _failed_runs(self, record: DayRecord, now: InputManifest) -> list[RunRecord]:
        """Return the latest attempts, in order, that have failed with the identity that a new run would have."""
        if record.published is None or record.attempts <= record.published.run.attempt:
            return []
        identity = run_identity(
            pipeline=record.pipeline,
            date=record.date,
            manifest=now.digest,
            definition=self.project.definition_digest(record.pipeline),
        )
        latest = reversed(self.table.runs(record.pipeline, record.date))
        failed = takewhile(lambda run: run.state is RunState.FAILED and run.run.run_id == identity, latest)
        return list(failed)[::-1]

    def _notifications_due(self, records: Iterable[DayRecord], *, before: str) -> tuple[str, ...]:
        """Return the days before that date with a version that people do not know, without days that run now."""
        due = (record for record in records if record.notification_due and record.date < before)
        dates = (record.date for record in due if not self._is_running(record))
        return tuple(islice(dates, _MAX_DAYS_TO_NOTIFY))

    def _is_running(self, record: DayRecord) -> bool:
        active = record.active
        return active is not None and is_alive(self.executions, active.execution, since=active.since, now=self.now())

    def _last_arrival(self, definition: Pipeline, checked: Sequence[CheckedDay], source: str) -> datetime | None:
        """Return the newest arrival in the checked days or, without one, in the days before up to `silent_hours`."""
        newest = max((arrived for item in checked if (arrived := item.arrivals[source])), default=None)
        day, since = checked[0].day, self.now() - self.project.source(source).silent_hours * HOUR
        while newest is None and day.start > since:
            day = day_of(day.date - timedelta(days=1), definition.timezone)
            newest = self.inputs.last_arrival(source, day)
        return newest


def day_tasks(report: CheckReport) -> tuple[DayTask, ...]:
    """Return the days that the monitoring machine has to work on, in order of date.

    People are notified of a day on hold, too, if they do not know its published version.
    """
    tasks = [DayTask(date=date, action=DayAction.NOTIFY) for date in report.notifications_due]
    for day in report.days:
        if day.decision is LateDecision.RERUN:
            tasks.append(DayTask(date=day.date, action=DayAction.RERUN))
        elif day.notification_due and day.rule not in {DecisionRule.RUNNING, DecisionRule.CURRENT}:
            tasks.append(DayTask(date=day.date, action=DayAction.NOTIFY))
    return tuple(tasks)


def report_uri(exchange_bucket: str, pipeline: str, as_of: str, execution: str) -> str:
    """Return the URI of the report of the execution with that ARN."""
    return f"s3://{exchange_bucket}/checks/{pipeline}/{as_of}/{execution.rpartition(':')[2]}.json"


def today(definition: Pipeline, now: datetime) -> date:
    """Return the current date in the pipeline's timezone."""
    return now.astimezone(ZoneInfo(definition.timezone)).date()


def window_start(definition: Pipeline, as_of: str) -> datetime:
    """Return when the first day of the window before `as_of` begins, UTC."""
    first = date.fromisoformat(as_of) - timedelta(days=definition.late.window_days)
    return day_of(first, definition.timezone).start


def check_window(definition: Pipeline, as_of: str | None, now: datetime) -> list[Day]:
    """Return the days of the window in order, the current day last. Raises `InputError` as `Checker.check` does."""
    try:
        current = date.fromisoformat(as_of) if as_of is not None else today(definition, now)
        days_back = range(definition.late.window_days, -1, -1)
        days = [day_of(current - timedelta(days=back), definition.timezone) for back in days_back]
    except (ValueError, OverflowError) as error:
        raise InputError(f"as_of: {as_of!r} is not a date such as 2013-03-10") from error
    if days[-1].start > now:
        raise InputError(f"as_of: {as_of} has not begun in {definition.timezone}: use today or an earlier day")
    return days


def overdue_days(
    definition: Pipeline, window: Sequence[CheckedDay], records: Iterable[DayRecord], now: datetime
) -> tuple[str, ...]:
    """Return the days past their deadline without a published run, after the first day that was ever published."""
    deadline = definition.deadline_hours * HOUR
    first = min((record.date for record in records if record.published), default=None)
    overdue = [item.day for item in window if not item.is_published and item.day.end + deadline < now]
    return tuple(date for day in overdue if first and (date := day.date.isoformat()) > first)
