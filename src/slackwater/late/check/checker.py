"""Checks the finished days of a pipeline: compares their current inputs with those that the published runs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from slackwater.errors import DayChanged, ObjectInvalid, ObjectMissing, SlackwaterError
from slackwater.late.check.facts import TRANSIENT_ERRORS, DayFacts
from slackwater.late.check.limits import decide_and_count
from slackwater.late.check.missing_events import missing_events, total_missing
from slackwater.late.check.older import update_late_days
from slackwater.late.check.passed_over import PassedOverReader
from slackwater.late.check.read_facts import FactReader
from slackwater.late.check.record_holds import day_with_decision, ends_older_hold, older_days
from slackwater.late.check.rules import decide
from slackwater.late.check.silences import CheckedDay, arrivals_of_day, last_arrivals, usual_silences
from slackwater.late.check.window_dates import check_window, overdue_days
from slackwater.late.decision import CheckReport, DayDecision, LateDecision, PassedOver, report_uri
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.inputs.listing import DayListing, InputListing
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import Period, period_of
from slackwater.runs.table import Executions, RunTable, is_running
from slackwater.state.verdicts import VerdictTable
from slackwater.storage import ObjectStore

# Checking a day is mostly waiting for S3, with up to 16 parallel requests, and keeps two manifests in memory. Two days
# in parallel fill the waiting time and stay within the connection pool (32) and the memory of the function. Of hours,
# which have a 24th of the objects, eight do.
_PARALLEL = {"day": 2, "hour": 8}
# Each day of a Map state adds events to the history of the execution, which Step Functions limits to 25,000 events, and
# a result to its output, which is limited to 256 KiB. The checks of the next days report the others.
_MAX_DAYS_TO_NOTIFY = 30
# These concern one day: its files or objects change during the check, or one of its objects is invalid. Any other error
# may concern all days.
_ERRORS_OF_ONE_DAY = (DayChanged, ObjectMissing, ObjectInvalid)


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Checks the days of a project's pipelines."""

    project: Project
    inputs: InputListing
    counts: CountsReader
    table: RunTable
    executions: Executions
    store: ObjectStore
    verdicts: VerdictTable | None
    """None if the deployment stores no verdicts."""
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
        """Return the decisions about the day `as_of` and the days of the pipeline's window before it, or its hours.

        `as_of` is as in `check_window`, or None for the current one. With `dates`, names of days or hours, only those
        of the window are checked, and with a budget those that wait for a run: no overdue days, notifications that are
        due, or last arrivals. A day that cannot be checked is put on hold; the other days are checked nevertheless.
        `execution` is the ARN of the monitoring, which the record of a day on hold keeps.

        Raises `UnknownName` when the project has no such pipeline, `InputError` when `as_of` names none or has not
        begun, and the error of a day when AWS fails for all days: the same call can be repeated.
        """
        definition, checked_at, started = self.project.pipeline(pipeline), self.now(), time.perf_counter()
        reader, window, complete = self._reader(definition), check_window(definition, as_of, checked_at), dates is None
        waiting, days = set[str](), window
        if dates is not None:
            if definition.late.budget_per_day is not None:
                # The oldest days that wait for a run use what is left of a budget first, so they are checked as well.
                first, last = window[0].name, window[-1].name
                listed = self.table.late_days(pipeline, first=first, last=last)
                waiting = {item.date for item in listed} - {*dates}
            days = [day for day in window if day.name in waiting.union(dates)]
        checked = self._read_days(reader, days, current=window[-1], waiting=waiting)
        _raise_if_all_failed(checked)
        recorded = self._decide_and_record(reader, checked, current=window[-1], now=checked_at, execution=execution)
        checked, decisions = [item for item, _ in recorded], tuple(decision for _, decision in recorded)
        report = CheckReport(
            pipeline=pipeline,
            as_of=window[-1].name,
            checked_at=checked_at,
            correlation_id=correlation_id,
            seconds=round(time.perf_counter() - started, 3),
            complete=complete,
            days=decisions,
            older=update_late_days(definition, decisions, table=self.table, complete=complete, now=checked_at),
        )
        return self._completed(report, definition, checked, execution) if complete else report

    def _read_days(
        self, reader: FactReader, days: Sequence[Period], *, current: Period, waiting: Collection[str] = ()
    ) -> list[CheckedDay]:
        """Read the records of the days, list their objects, and read the facts of each day.

        A day of `waiting`, ISO dates, whose record decides is left out: it needs nothing from this check.
        """

        def read_record(day: Period) -> DayFacts:
            return reader.read_record(day, is_in_window=True, is_current=day is current)

        def read(facts: DayFacts, listed: DayListing | None) -> CheckedDay:
            facts, manifest = reader.read_inputs(facts, listed)
            arrivals, unlisted = arrivals_of_day(reader.definition, facts.day, manifest, listed, inputs=self.inputs)
            missing = missing_events(reader.definition, facts, listed, counts=self.counts, now=self.now())
            return CheckedDay(facts, arrivals, facts.error or unlisted, missing)

        def read_again(item: CheckedDay) -> CheckedDay:
            return read(read_record(item.facts.day), None) if isinstance(item.error, TRANSIENT_ERRORS) else item

        with ThreadPoolExecutor(_PARALLEL[reader.definition.period]) as pool:
            facts = [
                each for each in pool.map(read_record, days) if not each.is_early or each.record.date not in waiting
            ]
            # Without them, each day is listed by itself, and has its own error.
            listings: Sequence[DayListing | None] = [None] * len(facts)
            with suppress(SlackwaterError):
                listings = self.inputs.list_days(reader.definition.pipeline, [each.day for each in facts])
            checked = list(pool.map(read, facts, listings))
            return list(pool.map(read_again, checked))

    def _decide_and_record(
        self, reader: FactReader, checked: Sequence[CheckedDay], *, current: Period, now: datetime, execution: str
    ) -> list[tuple[CheckedDay, DayDecision]]:
        """Decide about the days, and record which are on hold: return each day with its decision.

        A day whose record has changed since it was read is read, decided and recorded once more, and so is one that AWS
        is too busy to record. A day that cannot be recorded has the error, and the decision about that.

        Raises the error when AWS fails for all days.
        """

        def record(
            item: CheckedDay, decision: DayDecision, *, once_more: bool = True
        ) -> tuple[CheckedDay, DayDecision]:
            if item.facts.error:
                return item, decision
            try:
                self._record_hold(item.facts, decision, execution=execution)
            except (SlackwaterError, ValidationError) as raised:
                failed = item.facts.failed(raised)
            else:
                return item, decision
            if once_more and isinstance(failed.error, TRANSIENT_ERRORS):
                (item,) = self._read_days(reader, [failed.day], current=current)
                (decision,) = decide_and_count(reader.definition, [item.facts], table=self.table, now=now)
                return record(item, decision, once_more=False)
            return item._replace(facts=failed, error=failed.error), decide(failed)

        limited = decide_and_count(reader.definition, [item.facts for item in checked], table=self.table, now=now)
        with ThreadPoolExecutor(_PARALLEL[reader.definition.period]) as pool:
            recorded = list(pool.map(record, checked, limited))
        # Before errors are recorded: a failure of AWS for all days is no reason to hold each of them.
        _raise_if_all_failed([item for item, _ in recorded])
        for item, decision in recorded:
            if item.facts.error and item.facts.is_published:
                # After another error, a later check looks at the day.
                with suppress(SlackwaterError, ValidationError):
                    self._record_hold(item.facts, decision, execution=execution)
        return recorded

    def _completed(
        self, report: CheckReport, definition: Pipeline, checked: Sequence[CheckedDay], execution: str
    ) -> CheckReport:
        """Return the report of a check of the whole window with what only such a check finds."""
        first, now = self.table.first_published(report.pipeline), report.checked_at
        for date in older_days(self.table.held(report.pipeline), first=report.days[0].date):
            # After an error, a later check looks at the day.
            with suppress(SlackwaterError, ValidationError):
                self.update_hold(pipeline=report.pipeline, date=date, execution=execution)
        more: dict[str, object] = {
            "overdue": overdue_days(definition, [item.facts for item in checked[:-1]], first, now),
            "notifications_due": self._notifications_due(report.pipeline, before=report.days[0].date),
        }
        if definition.period == "day":
            # Alarms of sources follow the checks of days, which look at them as often as these.
            arrivals = last_arrivals(definition, checked, project=self.project, inputs=self.inputs, now=now)
            more |= {
                "last_arrivals": arrivals,
                "events_missing": total_missing(checked),
                "usual_silences": usual_silences(definition, checked, arrivals, table=self.table, now=now),
            }
        return report.model_copy(update=more)

    def passed_over(self, report: CheckReport) -> PassedOver:
        """Return the late inputs that a check of the whole window has passed over. Raises `CloudError`."""
        return PassedOverReader(reader=self._reader(self.project.pipeline(report.pipeline)), report=report).read()

    def settle(self, pipeline: str, passed: PassedOver) -> None:
        """Note that the ledger gets what was passed over. Raises `CloudError`: then another check finds it again."""
        for date in passed.unpublished:
            self.table.record_ledger_day(pipeline, date, at=self.now())
        for day in passed.settled:
            self.table.remove_ledger_day(pipeline, day)
        if passed.rejects_until:
            self.table.save_rejects_until(pipeline, passed.rejects_until)

    def save(self, report: CheckReport, *, execution: str) -> str:
        """Store the report under the name of the execution, given by its ARN, and return the report's URI."""
        uri = report_uri(self.exchange_bucket, report.pipeline, report.as_of, execution)
        self.store.put(uri, report.model_dump_json().encode())
        return uri

    def _reader(self, definition: Pipeline) -> FactReader:
        return FactReader(
            definition=definition,
            project=self.project,
            inputs=self.inputs,
            counts=self.counts,
            table=self.table,
            executions=self.executions,
            store=self.store,
            verdicts=self.verdicts,
            now=self.now,
        )

    def _read_past_record(self, reader: FactReader, date: str) -> DayFacts:
        """Read the record of a day before today, an ISO date of any age."""
        first = check_window(reader.definition, None, self.now())[0]
        day = period_of(date, reader.definition.timezone)
        return reader.read_record(day, is_in_window=day.name >= first.name)

    def decide(self, *, pipeline: str, dates: Iterable[str]) -> tuple[DayDecision, ...]:
        """Return the decision about each of the days, ISO dates before today, of any age. Nothing is written.

        Limits of re-runs do not count. A day that cannot be read has the rule for its error. Raises `UnknownName`.
        """
        reader = self._reader(self.project.pipeline(pipeline))

        def decide_day(date: str) -> DayDecision:
            return decide(reader.read_inputs(self._read_past_record(reader, date))[0])

        with ThreadPoolExecutor(_PARALLEL[reader.definition.period]) as pool:
            return tuple(pool.map(decide_day, dates))

    def update_hold(self, *, pipeline: str, date: str, execution: str = "") -> DayDecision:
        """Decide again about a day on hold, an ISO date of any age; record its present reason, or that the hold ends.

        A day that would run again stays on hold, unless the hold is that of an error: then the day is listed as late.
        Raises `UnknownName`, `DayChanged`, and the error of reading the day.
        """
        reader = self._reader(self.project.pipeline(pipeline))
        facts, listed_at = self._read_past_record(reader, date), self.now()
        facts, _ = reader.read_inputs(facts)
        if facts.error:
            raise facts.error
        decision = decide(facts)
        if ends_older_hold(facts.record, decision):
            if decision.decision is LateDecision.RERUN:
                # First: a day that is on no list any more is forgotten.
                self.table.record_late_day(pipeline, date, at=listed_at)
            self._record_hold(facts, decision, execution=execution)
        return decision

    def _record_hold(self, facts: DayFacts, decision: DayDecision, *, execution: str) -> None:
        """Record that the decision puts the day on hold, or that the cause of its hold is gone.

        Raises `DayChanged` if another execution or a person has changed the day since it was read.
        """
        record = facts.record
        changed = day_with_decision(record, decision, inputs=facts.digest, execution=execution, now=self.now())
        if changed != record:
            self.table.save(changed)

    def _notifications_due(self, pipeline: str, *, before: str) -> tuple[str, ...]:
        """Return the days before the ISO date `before` whose published version still needs a notification.

        A running day is left out: it is compared when its new version is published. A day that cannot be read is
        compared now.
        """

        def is_due(date: str) -> bool:
            try:
                record = self.table.day(pipeline, date)
                return record.notification_due and not is_running(self.executions, record.active, now=self.now())
            except (SlackwaterError, ValidationError):
                return True

        # Others each day: days whose comparison fails stay due, and must not block the others.
        dates = self.table.notifications_due(pipeline, before=before)
        return tuple(sorted(filter(is_due, older_days(dates, first=before, most=_MAX_DAYS_TO_NOTIFY))))


def _raise_if_all_failed(checked: Sequence[CheckedDay]) -> None:
    """Raise an error of the checked days if no day could be read, and not only because of the days themselves.

    Only days whose inputs had to be compared count, if there are any: reading the others needs less of AWS.
    """
    compared = [item for item in checked if not item.facts.is_early] or checked
    errors = [item.error for item in compared if item.error]
    shared = [error for error in errors if not isinstance(error, _ERRORS_OF_ONE_DAY)]
    if shared and len(errors) == len(compared):
        raise shared[0]
