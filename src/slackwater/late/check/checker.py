"""Checks the finished days of a pipeline: compares their current inputs with those that the published runs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.check.decision import CheckReport, DayDecision, DecisionRule, LateDecision, report_uri
from slackwater.late.check.errors import TRANSIENT_ERRORS, as_slackwater_error, raise_if_all_failed
from slackwater.late.check.evaluate_day import decide_early, early_rule, unreadable_day
from slackwater.late.check.holds import ERROR_RULES, day_with_decision, ends_older_hold, older_days
from slackwater.late.check.limits.reservations import reserve_reruns
from slackwater.late.check.older import update_late_days, waiting_dates
from slackwater.late.check.published_day import PublishedDay
from slackwater.late.check.source_alarms.arrivals import arrival_hours, arrivals_of_day, last_arrivals, usual_silences
from slackwater.late.check.window import CheckedDay, DayState, check_window, overdue_days
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import Day, day_of, parse_date
from slackwater.runs.inputs.input_definition import input_definition
from slackwater.runs.inputs.listing import InputListing, published_manifest
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.inputs.window_listing import WindowListing
from slackwater.runs.record import DayRecord
from slackwater.runs.table import Executions, RunTable, is_running
from slackwater.storage import ObjectStore

# Checking a day is mostly waiting for S3, with up to 16 parallel requests, and keeps two manifests in memory. Two days
# in parallel fill the waiting time and stay within the connection pool (32) and the memory of the function.
_PARALLEL_DAYS = 2
# Each day of a Map state adds events to the history of the execution, which Step Functions limits to 25,000 events, and
# a result to its output, which is limited to 256 KiB. The checks of the next days report the others.
_MAX_DAYS_TO_NOTIFY = 30


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

    def check(
        self,
        *,
        pipeline: str,
        as_of: str | None,
        dates: Collection[str] | None = None,
        correlation_id: str = "",
        execution: str = "",
    ) -> CheckReport:
        """Return the decisions about the day `as_of` and the days of the pipeline's window before it.

        `as_of` is an ISO date, or None for today in the pipeline's timezone. With `dates`, ISO dates, only those days
        of the window are checked, and with a budget those that wait for a run: no overdue days, notifications that are
        due, or last arrivals. A day that cannot be checked is put on hold; the other days are checked nevertheless.
        `execution` is the ARN of the monitoring, which the record of a day on hold keeps.

        Raises `UnknownName` when the project has no such pipeline, `InputError` when `as_of` is not a date or has not
        begun, and the error of `raise_if_all_failed` when AWS fails for all days: the same call can be repeated.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        window = check_window(definition, as_of, checked_at)
        waiting = set[str]() if dates is None else waiting_dates(definition, window, table=self.table) - {*dates}
        days = window if dates is None else [day for day in window if day.date.isoformat() in waiting.union(dates)]
        current = window[-1]

        def read_day(day: Day) -> DayState:
            return self._read_day(definition, day, is_in_window=True, current=day is current)

        def check_again(item: CheckedDay) -> CheckedDay:
            if not isinstance(item.error, TRANSIENT_ERRORS):
                return item
            return self._check_day(definition, read_day(item.day), window=None, execution=execution)

        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            # The records are read before the objects are listed. Otherwise objects that a run has read in between would
            # be missing in the listing.
            # A waiting day whose run is active needs nothing from this check.
            states = [each for each in pool.map(read_day, days) if each.rule is None or each.record.date not in waiting]
            listed = self._list_days(pipeline, [each.day for each in states])
            checked = list(
                pool.map(lambda state: self._check_day(definition, state, window=listed, execution=execution), states)
            )
            checked = list(pool.map(check_again, checked))
        raise_if_all_failed(checked)
        # After that: a failure of AWS for all days is no reason to hold each of them.
        self._record_errors(checked, execution=execution)
        decisions = reserve_reruns(definition, [item.decision for item in checked], table=self.table, now=checked_at)
        decisions = tuple(self._end_hold(item, each, execution) for item, each in zip(checked, decisions, strict=True))
        older = update_late_days(definition, decisions, table=self.table, complete=dates is None, now=checked_at)
        report = CheckReport(
            pipeline=pipeline,
            as_of=current.date.isoformat(),
            checked_at=checked_at,
            correlation_id=correlation_id,
            seconds=round(time.perf_counter() - started, 3),
            complete=dates is None,
            days=decisions,
            older=older,
        )
        return report if dates is not None else self._completed(report, definition, checked, execution)

    def _completed(
        self, report: CheckReport, definition: Pipeline, checked: Sequence[CheckedDay], execution: str
    ) -> CheckReport:
        """Return the report of a check of the whole window with what only such a check finds."""
        first, now = self.table.first_published(report.pipeline), report.checked_at
        self._update_older_holds(report.pipeline, first=report.days[0].date, execution=execution)
        arrivals = last_arrivals(definition, checked, project=self.project, inputs=self.inputs, now=now)
        more = {
            "overdue": overdue_days(definition, checked[:-1], first, now),
            "notifications_due": self._notifications_due(report.pipeline, before=report.days[0].date),
            "last_arrivals": arrivals,
            "usual_silences": usual_silences(definition, checked, arrivals, table=self.table, now=now),
        }
        return report.model_copy(update=more)

    def save(self, report: CheckReport, *, execution: str) -> str:
        """Store the report under the name of the execution, given by its ARN, and return the report's URI."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _read_past_day(self, definition: Pipeline, date: str) -> DayState:
        """Read the record of a day before today, an ISO date of any age, and whether the day is running."""
        first = check_window(definition, None, self.now())[0]
        day = day_of(parse_date(date), definition.timezone)
        return self._read_day(definition, day, is_in_window=day.date >= first.date, current=False)

    def _read_day(self, definition: Pipeline, day: Day, *, is_in_window: bool, current: bool) -> DayState:
        """Read the record of a day, and whether the day is running."""
        state = DayState(day, DayRecord(pipeline=definition.pipeline, date=day.date.isoformat()), is_in_window)
        try:
            record = self.table.day(definition.pipeline, day.date.isoformat())
            state = state._replace(record=record, is_published=record.published is not None)
            rule = early_rule(record, current=current, running=self._is_running(record))
            return state._replace(rule=rule)
        except (SlackwaterError, ValidationError) as raised:
            return state._replace(error=as_slackwater_error(raised))

    def _list_days(self, pipeline: str, days: Sequence[Day]) -> WindowListing | None:
        """List the objects of the days together; None if that fails: then each day is listed, and has its own error."""
        try:
            return self.inputs.list_days(pipeline, days)
        except SlackwaterError:
            return None

    def _check_day(
        self, definition: Pipeline, state: DayState, *, window: WindowListing | None, execution: str
    ) -> CheckedDay:
        """Decide about one day. `_record_errors` follows for a day that cannot be read."""
        record, error = state.record, state.error
        try:
            decision, manifest = self._decide(definition, state, window)
            # Limits may still forbid a re-run: `_end_hold` follows them.
            if decision.decision is not LateDecision.RERUN:
                self._record_hold(record, decision, inputs=manifest.digest if manifest else "", execution=execution)
        except (SlackwaterError, ValidationError) as raised:
            error = as_slackwater_error(raised)
            decision, manifest = unreadable_day(record, error), None
        arrivals, unlisted = arrivals_of_day(definition, state.day, manifest, window, inputs=self.inputs)
        inputs = manifest.digest if manifest else ""
        hours = arrival_hours(definition, state.day, manifest, window)
        return CheckedDay(state.day, decision, record, state.is_published, arrivals, error or unlisted, inputs, hours)

    def _end_hold(self, item: CheckedDay, decision: DayDecision, execution: str) -> DayDecision:
        """Return the final decision about a day after its hold has ended, if the day runs again or is deferred."""
        if item.decision.decision is not LateDecision.RERUN:
            return decision
        try:
            self._record_hold(item.record, decision, inputs=item.inputs, execution=execution)
        except SlackwaterError as raised:
            return unreadable_day(item.record, raised)
        return decision

    def decide(self, *, pipeline: str, dates: Iterable[str]) -> tuple[DayDecision, ...]:
        """Return the decision about each of the days, ISO dates before today, of any age. Nothing is written.

        Limits of re-runs do not count. A day that cannot be read has the rule for its error. Raises `UnknownName`.
        """
        definition = self.project.pipeline(pipeline)

        def decide_day(date: str) -> DayDecision:
            state = self._read_past_day(definition, date)
            try:
                return self._decide(definition, state)[0]
            except (SlackwaterError, ValidationError) as raised:
                return unreadable_day(state.record, as_slackwater_error(raised))

        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            return tuple(pool.map(decide_day, dates))

    def update_hold(self, *, pipeline: str, date: str, execution: str = "") -> DayDecision:
        """Decide again about a day on hold, an ISO date of any age; record its present reason, or that the hold ends.

        A day that would run again stays on hold, unless the hold is that of an error: then the day is listed as late.
        Raises `UnknownName`, `DayChanged`, and the error of reading the day.
        """
        definition = self.project.pipeline(pipeline)
        state = self._read_past_day(definition, date)
        listed_at = self.now()
        decision, manifest = self._decide(definition, state)
        if ends_older_hold(state.record, decision):
            if decision.decision is LateDecision.RERUN:
                # First: a day that is on no list any more is forgotten.
                self.table.record_late_day(pipeline, date, at=listed_at)
            self._record_hold(state.record, decision, inputs=manifest.digest if manifest else "", execution=execution)
        return decision

    def _update_older_holds(self, pipeline: str, *, first: str, execution: str) -> None:
        """Update the holds of days before the ISO date `first`; after an error, a later check looks at the day."""
        for date in older_days(self.table.held(pipeline), first=first):
            with suppress(SlackwaterError, ValidationError):
                self.update_hold(pipeline=pipeline, date=date, execution=execution)

    def _decide(
        self, definition: Pipeline, state: DayState, window: WindowListing | None = None
    ) -> tuple[DayDecision, InputManifest | None]:
        """Return the decision about a day, and its current inputs, or None for the inputs if they were not compared.

        Without `window`, a listing that has the day, its objects are listed. Raises the error of `state`.
        """
        if state.error:
            raise state.error
        record, rule, published = state.record, state.rule, state.record.published
        published_inputs = published_manifest(self.store, published) if rule is None and published else None
        # The manifest's own time would be too early if an earlier run has written an equal manifest.
        run = self.table.run(record.pipeline, record.date, published.run.attempt) if published else None
        frozen_at = run.frozen_at if run else None
        if published_inputs is None:
            return decide_early(record, rule or DecisionRule.MANIFEST_GONE, frozen_at=frozen_at), None
        # What only the present definition reads decides nothing about the day.
        unread = run.reads.unread_tables(input_definition(definition)) if run and run.reads else ()
        # Without the known objects, the check would read the metadata of each object of the window again.
        current_inputs = self.inputs.manifest(
            definition.pipeline, state.day, known=published_inputs.objects, window=window, unread=unread
        )
        day = PublishedDay(record=record, run=run, before=published_inputs, now=current_inputs)
        decision = day.decide(
            definition,
            project=self.project,
            table=self.table,
            files=self.inputs.files,
            now=self.now(),
            is_in_window=state.is_in_window,
        )
        if unread and decision.decision is LateDecision.RERUN:
            # The run would read these tables too. If it cannot, it takes the place of no other re-run.
            self.inputs.manifest(definition.pipeline, state.day, known=current_inputs.objects, window=window)
        return decision, current_inputs

    def _record_hold(self, record: DayRecord, decision: DayDecision, *, inputs: str, execution: str) -> None:
        """Record that the decision puts the day on hold, or that the cause of its hold is gone.

        Raises `DayChanged` if another execution or a person has changed the day since it was read.
        """
        changed = day_with_decision(record, decision, inputs=inputs, execution=execution, now=self.now())
        if changed != record:
            self.table.save_day(changed)

    def _record_errors(self, checked: Iterable[CheckedDay], *, execution: str) -> None:
        """Put published days that cannot be read on hold; those with an error that may pass only after some hours."""
        for item in checked:
            if item.is_published and item.decision.rule in ERROR_RULES:
                with suppress(SlackwaterError):
                    self._record_hold(item.record, item.decision, inputs="", execution=execution)

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

        # Others each day: days whose comparison fails stay due, and must not block the others.
        dates = self.table.notifications_due(pipeline, before=before)
        return tuple(sorted(filter(is_due, older_days(dates, first=before, most=_MAX_DAYS_TO_NOTIFY))))

    def _is_running(self, record: DayRecord) -> bool:
        return is_running(self.executions, record.active, now=self.now())
