"""Checks the finished days of a pipeline: compares their current inputs with those that the published runs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.check.arrivals import last_arrivals
from slackwater.late.check.decision import CheckReport, DayDecision, DecisionRule, LateDecision, report_uri
from slackwater.late.check.errors import TRANSIENT_ERRORS, as_slackwater_error, raise_if_all_failed
from slackwater.late.check.evaluate_day import SourceThresholds, decide_early, early_rule, evaluate_day, unreadable_day
from slackwater.late.check.holds import day_with_decision, older_days
from slackwater.late.check.older import update_late_days
from slackwater.late.check.reservations import reserve_reruns
from slackwater.late.check.window import CheckedDay, check_window, overdue_days
from slackwater.late.ledger.entry import late_inputs
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, Day, day_of, parse_date
from slackwater.runs.inputs.difference import difference, oldest_arrival
from slackwater.runs.inputs.listing import InputListing, published_manifest
from slackwater.runs.inputs.manifest import InputManifest
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
        of the window are checked, and nothing else: no overdue days, notifications that are due, or last arrivals. A
        day that cannot be checked is put on hold; the other days are checked nevertheless. `execution` is the ARN of
        the monitoring, which the record of a day on hold keeps.

        Raises `UnknownName` when the project has no such pipeline, `InputError` when `as_of` is not a date or has not
        begun, and the error of `raise_if_all_failed` when AWS fails for all days: the same call can be repeated.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        window = check_window(definition, as_of, checked_at)
        days = window if dates is None else [day for day in window if day.date.isoformat() in dates]
        current = window[-1]

        def check_day(day: Day) -> CheckedDay:
            return self._check_day(definition, day, current=day is current, execution=execution)

        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            checked = list(pool.map(check_day, days))
            checked = list(
                pool.map(
                    lambda item: check_day(item.day) if isinstance(item.error, TRANSIENT_ERRORS) else item, checked
                )
            )
        raise_if_all_failed(checked)
        decisions = reserve_reruns(definition, [item.decision for item in checked], table=self.table, now=checked_at)
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
        self._end_older_holds(definition, first=report.days[0].date, execution=execution)
        more = {
            "overdue": overdue_days(definition, checked[:-1], first, now),
            "notifications_due": self._notifications_due(report.pipeline, before=report.days[0].date),
            "last_arrivals": last_arrivals(definition, checked, project=self.project, inputs=self.inputs, now=now),
        }
        return report.model_copy(update=more)

    def save(self, report: CheckReport, *, execution: str) -> str:
        """Store the report under the name of the execution, given by its ARN, and return the report's URI."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _check_day(self, definition: Pipeline, day: Day, *, current: bool, execution: str) -> CheckedDay:
        """Decide about one day. A day that cannot be read is put on hold."""
        error: SlackwaterError | None = None
        record = DayRecord(pipeline=definition.pipeline, date=day.date.isoformat())
        is_published: bool | None = None
        try:
            record = self.table.day(record.pipeline, record.date)
            is_published = record.published is not None
            rule = early_rule(record, current=current, running=self._is_running(record))
            decision, manifest = self._decide(definition, day, record, rule)
            self._record_hold(record, decision, inputs=manifest.digest if manifest else "", execution=execution)
        except (SlackwaterError, ValidationError) as raised:
            error = as_slackwater_error(raised)
            decision, manifest = unreadable_day(record, error), None
            # An error that may pass within seconds is no reason to wait for a person.
            if is_published and not isinstance(error, TRANSIENT_ERRORS):
                with suppress(SlackwaterError):
                    self._record_hold(record, decision, inputs="", execution=execution)
        arrivals, unlisted = self._arrivals(definition, day, manifest)
        return CheckedDay(day, decision, is_published, arrivals, error or unlisted)

    def decide(self, *, pipeline: str, dates: Iterable[str]) -> tuple[DayDecision, ...]:
        """Return the decision about each of the days, ISO dates before today, of any age. Nothing is written.

        Limits of re-runs do not count. A day that cannot be read has the rule for its error. Raises `UnknownName`.
        """
        definition = self.project.pipeline(pipeline)

        def decide_day(date: str) -> DayDecision:
            record = DayRecord(pipeline=pipeline, date=date)
            try:
                record = self.table.day(pipeline, date)
                rule = early_rule(record, current=False, running=self._is_running(record))
                return self._decide(definition, day_of(parse_date(date), definition.timezone), record, rule)[0]
            except (SlackwaterError, ValidationError) as raised:
                return unreadable_day(record, as_slackwater_error(raised))

        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            return tuple(pool.map(decide_day, dates))

    def _end_older_holds(self, definition: Pipeline, *, first: str, execution: str) -> None:
        """End the holds of days before the ISO date `first` whose cause is gone. Nothing runs such a day again.

        A day that would run again stays on hold, because only a person can start its run.
        """
        for date in older_days(self.table.held(definition.pipeline), first=first):
            # The day of an error stays on hold, and a later check looks at it again.
            with suppress(SlackwaterError, ValidationError):
                record = self.table.day(definition.pipeline, date)
                rule = early_rule(record, current=False, running=self._is_running(record))
                day = day_of(parse_date(date), definition.timezone)
                decision, manifest = self._decide(definition, day, record, rule)
                if decision.decision is LateDecision.IGNORE:
                    inputs = manifest.digest if manifest else ""
                    self._record_hold(record, decision, inputs=inputs, execution=execution)

    def _arrivals(
        self, definition: Pipeline, day: Day, manifest: InputManifest | None
    ) -> tuple[dict[str, datetime | None], SlackwaterError | None]:
        """Return the last arrivals of a day by source, without sources that cannot be listed, and the first error.

        `manifest` are the day's inputs if they were listed.
        """
        if manifest is not None:
            newest: dict[str, datetime | None] = dict.fromkeys(definition.sources)
            for item in manifest.objects:
                if item.source in newest:
                    newest[item.source] = max(newest[item.source] or item.arrived, item.arrived)
            return newest, None
        answers = self.inputs.last_arrivals(definition.sources, day)
        errors = [answer for answer in answers.values() if isinstance(answer, SlackwaterError)]
        arrivals = {name: answer for name, answer in answers.items() if not isinstance(answer, SlackwaterError)}
        return arrivals, errors[0] if errors else None

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
        frozen_at = run.frozen_at if run else None
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
            oldest_wait_hours=self._wait(published_inputs, current_inputs, definition),
            max_age_hours=definition.late.max_age_hours,
            inputs=current_inputs.digest,
            on_change={name: item.on_change for name, item in definition.published_tables.items()},
        )
        earlier = without_former_tables(published_inputs, definition)
        late = late_inputs(earlier, current_inputs, sources=definition.inputs)
        return decision.model_copy(update={"late_inputs": late}), current_inputs

    def _record_hold(self, record: DayRecord, decision: DayDecision, *, inputs: str, execution: str) -> None:
        """Record that the decision puts the day on hold, or that the cause of its hold is gone.

        Raises `DayChanged` if another execution or a person has changed the day since it was read.
        """
        changed = day_with_decision(record, decision, inputs=inputs, execution=execution, now=self.now())
        if changed != record:
            self.table.save_day(changed)

    def _wait(self, before: InputManifest, now: InputManifest, definition: Pipeline) -> float | None:
        """Return for how many hours the oldest object that the published run has not read has waited, or None."""
        arrived = oldest_arrival(before, now, sources=definition.deciding_inputs)
        return None if arrived is None else (self.now() - arrived) / HOUR

    def _failed_runs(self, record: DayRecord, current_inputs: InputManifest) -> list[RunRecord]:
        """Return the latest attempts, in order, that failed with the identity that a new run would have.

        An attempt that is still recorded as running counts, because no execution of the day is alive.
        """
        if record.published is None or record.attempts <= record.published.run.attempt:
            return []
        identity = run_identity(
            pipeline=record.pipeline,
            date=record.date,
            manifest=current_inputs.digest,
            definition=self.project.definition_digest(record.pipeline),
        )
        latest = reversed(self.table.runs(record.pipeline, record.date))
        failed = takewhile(lambda run: run.state is not RunState.PUBLISHED and run.run.run_id == identity, latest)
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
