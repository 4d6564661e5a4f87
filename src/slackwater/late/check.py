"""Checking a pipeline's finished days: what their inputs are now, against what the published runs have read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import chain, islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from slackwater.errors import CloudError, DayChanged, InputError, ObjectMissing, SlackwaterError, Throttled
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.evaluate_day import SourceThresholds, early_rule, evaluate_day, unreadable
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, Day, day_of
from slackwater.runs.difference import difference
from slackwater.runs.inputs import InputListing
from slackwater.runs.manifest import InputManifest, Record
from slackwater.runs.record import DayRecord, PublishedRun, RunRecord, RunState, run_identity
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

_DAYS_AT_ONCE = 2
"""Looking at a day is waiting for S3, up to 16 objects at once; its two manifests are held in memory meanwhile."""
_MAX_OWED = 100
"""Days before the window that one check has told: a Map's history and answer are bounded; the next check has more."""


class DayAction(StrEnum):
    """What the state machine has to do about a day."""

    RERUN = "rerun"
    TELL = "tell"
    """It stands as it should, but people have not been told of the published version."""


class DayToHandle(Record):
    """A day that something is to be done about."""

    date: str
    action: DayAction


class CheckedDay(NamedTuple):
    """One day of the window, looked at."""

    day: Day
    decision: DayDecision
    published: bool
    arrivals: dict[str, datetime | None]
    """By source: when its newest object of the day was written."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Looks at the days of a project's pipelines again."""

    project: Project
    inputs: InputListing
    table: RunTable
    executions: Executions
    store: ObjectStore
    exchange_bucket: str
    now: Callable[[], datetime]

    def check(self, *, pipeline: str, as_of: str | None) -> CheckReport:
        """Decide over the days of the pipeline's window before `as_of`, or before today, and look at that day too.

        Raises `UnknownName` for a pipeline that is none, `InputError` for an `as_of` that is no date or has not begun,
        and `DayChanged` when files keep changing while they are listed.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        days = _days(definition, as_of, checked_at)
        current, records = days[-1], {record.date: record for record in self.table.days(pipeline)}

        def look(day: Day) -> CheckedDay:
            date = day.date.isoformat()
            record = records.get(date) or DayRecord(pipeline=pipeline, date=date)
            return self._look(definition, day, record, current=day is current)

        with ThreadPoolExecutor(_DAYS_AT_ONCE) as pool:
            looked = list(pool.map(look, days))
        return CheckReport(
            pipeline=pipeline,
            as_of=current.date.isoformat(),
            checked_at=checked_at,
            seconds=round(time.perf_counter() - started, 3),
            days=tuple(found.decision for found in looked),
            overdue=_overdue(definition, looked[:-1], records.values(), checked_at),
            owed=self._owed(records.values(), days[0].date.isoformat()),
            last_arrivals={name: self._last_arrival(definition, looked, name) for name in sorted(definition.sources)},
        )

    def keep(self, report: CheckReport, *, execution: str) -> str:
        """Write the report of `execution` down, and return its address."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _look(self, definition: Pipeline, day: Day, record: DayRecord, *, current: bool) -> CheckedDay:
        """Look at one day; what is wrong with it holds this day, and leaves the others to be decided over."""
        rule = early_rule(record, current=current, running=self._is_running(record))
        try:
            return self._decide(definition, day, record, rule)
        except (DayChanged, Throttled, ObjectMissing):  # what is being replaced meanwhile: the machine checks again
            raise
        except (SlackwaterError, ValidationError) as error:
            decision, published = unreadable(record, _in_words(error)), record.published is not None
            return CheckedDay(day, decision, published, self._arrivals(definition, day))

    def _decide(self, definition: Pipeline, day: Day, record: DayRecord, rule: DecisionRule | None) -> CheckedDay:
        before = self._manifest(record.published) if rule is None and record.published else None
        frozen_at = self._frozen_at(record)
        if before is None:
            decision = evaluate_day(record, rule or DecisionRule.MANIFEST_GONE, standards={}, frozen_at=frozen_at)
            return CheckedDay(day, decision, record.published is not None, self._arrivals(definition, day))
        now = self.inputs.manifest(definition.pipeline, day, known=before.objects)
        found = difference(before, now, sources=definition.sources)
        standards, failed = self._standards(definition), self._failed(record, now)
        decision = evaluate_day(record, found, standards=standards, frozen_at=frozen_at, failed=failed)
        return CheckedDay(day, decision, True, _arrivals(now, definition.sources))

    def _failed(self, record: DayRecord, now: InputManifest) -> list[RunRecord]:
        """Return the latest attempts, in order, that have failed at what a run would do now."""
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

    def _owed(self, records: Iterable[DayRecord], first: str) -> tuple[str, ...]:
        """Return the days before the first of the window that people are owed word of, and that nobody runs now."""
        owing = (record for record in records if record.notification_due and record.date < first)
        return tuple(islice((record.date for record in owing if not self._is_running(record)), _MAX_OWED))

    def _arrivals(self, definition: Pipeline, day: Day) -> dict[str, datetime | None]:
        return {source: self.inputs.last_arrival(source, day) for source in definition.sources}

    def _is_running(self, record: DayRecord) -> bool:
        active = record.active
        return active is not None and is_alive(self.executions, active.execution, since=active.since, now=self.now())

    def _manifest(self, published: PublishedRun) -> InputManifest | None:
        run = published.run
        try:
            return InputManifest.model_validate_json(self.store.get(run.manifest))
        except ObjectMissing:
            return None
        except ValidationError as error:
            raise CloudError(
                f"{run.manifest} is not readable as an input manifest ({_in_words(error)}): remove it, and run the day "
                f"again by hand (slackwater run {run.pipeline} --date {run.date} --force)"
            ) from error

    def _frozen_at(self, record: DayRecord) -> datetime | None:
        """When the published run listed its inputs; an equal manifest may have been written by an earlier run."""
        if record.published is None:
            return None
        run = self.table.run(record.pipeline, record.date, record.published.run.attempt)
        return run.started_at if run else None

    def _standards(self, definition: Pipeline) -> dict[str, SourceThresholds]:
        own = definition.late.thresholds
        return {
            name: SourceThresholds(
                definition.thresholds(self.project.source(name)),
                f"pipeline {definition.pipeline}" if name in own else "its source",
            )
            for name in definition.sources
        }

    def _last_arrival(self, definition: Pipeline, looked: Sequence[CheckedDay], source: str) -> datetime | None:
        """The newest arrival of the days looked at; without any, of those before, as far as it may be silent."""
        if found := max((when for one in looked if (when := one.arrivals[source])), default=None):
            return found
        day, since = looked[0].day, self.now() - self.project.source(source).silent_hours * HOUR
        while not found and day.start > since:
            day = day_of(day.date - timedelta(days=1), definition.timezone)
            found = self.inputs.last_arrival(source, day)
        return found


def actions(report: CheckReport) -> tuple[DayToHandle, ...]:
    """Return what is to be done, in order of date; people are told of a day on hold too, if that is still owed."""
    owed = ((date, DayAction.TELL) for date in report.owed)
    found = chain(owed, ((day.date, _action(day)) for day in report.days))
    return tuple(DayToHandle(date=date, action=action) for date, action in found if action)


def report_uri(exchange_bucket: str, pipeline: str, as_of: str, execution: str) -> str:
    """Return the address of the report that the execution of that ARN leaves."""
    return f"s3://{exchange_bucket}/checks/{pipeline}/{as_of}/{execution.rpartition(':')[2]}.json"


def today(definition: Pipeline, now: datetime) -> date:
    """Return the day that it is in the pipeline's time zone."""
    return now.astimezone(ZoneInfo(definition.timezone)).date()


def window_start(definition: Pipeline, as_of: str) -> datetime:
    """Return when the first day begins that a check as of that date looks at."""
    first = date.fromisoformat(as_of) - timedelta(days=definition.late.window_days)
    return day_of(first, definition.timezone).start


def _days(definition: Pipeline, as_of: str | None, now: datetime) -> list[Day]:
    """The days of the window in order, and the current one."""
    try:
        current = date.fromisoformat(as_of) if as_of is not None else today(definition, now)
        before = range(definition.late.window_days, -1, -1)
        days = [day_of(current - timedelta(days=back), definition.timezone) for back in before]
    except (ValueError, OverflowError) as error:
        raise InputError(f"as_of: {as_of!r} is not a date such as 2013-03-10") from error
    if days[-1].start > now:
        raise InputError(f"as_of: {as_of} has not begun in {definition.timezone}: name a day up to today, or none")
    return days


def _action(day: DayDecision) -> DayAction | None:
    if day.decision is LateDecision.RERUN:
        return DayAction.RERUN
    return (
        DayAction.TELL
        if day.notification_due and day.rule not in {DecisionRule.RUNNING, DecisionRule.CURRENT}
        else None
    )


def _overdue(
    definition: Pipeline, window: Sequence[CheckedDay], records: Iterable[DayRecord], now: datetime
) -> tuple[str, ...]:
    deadline = definition.deadline_hours * HOUR
    first = min((record.date for record in records if record.published), default=None)
    missing = [found.day for found in window if not found.published and found.day.end + deadline < now]
    return tuple(date for day in missing if first and (date := day.date.isoformat()) > first)


def _in_words(error: SlackwaterError | ValidationError) -> str:
    """Return an error in one line: of what does not fit a model, the first place and what is wrong there."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{error.title}: {'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg']}"
    return str(error)


def _arrivals(manifest: InputManifest, sources: Sequence[str]) -> dict[str, datetime | None]:
    return {name: max((item.arrived for item in manifest.of_source(name)), default=None) for name in sources}
