"""Late inputs about which no rule of a check decides, for the ledger: with the reason why nothing is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs
from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.check.late_rejects import RejectedInputs
from slackwater.late.check.read_facts import FactReader
from slackwater.late.check.record_holds import older_days
from slackwater.late.decision import CheckReport, DecisionRule, LateDecision, PassedOver, PendingDay
from slackwater.late.entry import OLDER, LateInput, late_inputs
from slackwater.runs.inputs.manifest import published_manifest
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.period import period_kind, period_of
from slackwater.runs.pipeline_records import LedgerDay
from slackwater.runs.record import DayRecord
from slackwater.runs.table import is_running

_PARALLEL_DAYS = 2
MAX_OLDER_DAYS = 30
"""Most listed days before the window that one check looks at."""
# No check compares the inputs of these days.
_WITHOUT_INPUTS = frozenset({DecisionRule.ROLLED_BACK, DecisionRule.MANIFEST_GONE})
# A later check decides about these.
_UNDECIDED = frozenset(
    {DecisionRule.RUNNING, DecisionRule.CURRENT, DecisionRule.CHANGING, DecisionRule.UNREADABLE}
    | {DecisionRule.NEVER_PUBLISHED}
)


_Why = tuple[LateDecision, str, str]
"""Decision, rule and reason."""
_OLDER: _Why = (LateDecision.IGNORE, OLDER, "the day is before the window: a person may run it")
_NEVER_RUN: _Why = (
    LateDecision.IGNORE,
    DecisionRule.NEVER_PUBLISHED,
    "the day has no published run, and is before the window",
)


class _Looked(NamedTuple):
    """What a look at a listed day has found."""

    day: PendingDay | None = None
    is_published: bool = False
    is_settled: bool = False


@dataclass(frozen=True, kw_only=True)
class PassedOverReader:
    """Reads what a check of the whole window has passed over. Another check reads what fails."""

    reader: FactReader
    report: CheckReport

    def read(self) -> PassedOver:
        """Return the late inputs of the window, of listed days before it, and the rejected events.

        Raises `CloudError` when the lists cannot be read.
        """
        table, report = self.reader.table, self.report
        first, pipeline = report.days[0].date, report.pipeline
        listed = {day.date: day for day in table.ledger_days(pipeline)}
        first_published = table.first_published(pipeline)
        # No message leads to the data that a rollback leaves out.
        held = older_days(table.held(pipeline), first=first)
        older = list(dict.fromkeys([*older_days(listed, first=first, most=MAX_OLDER_DAYS), *held]))
        with ThreadPoolExecutor(_PARALLEL_DAYS) as pool:
            of_window = [day for day in pool.map(self._of_window, self._dates_of_window()) if day]
            looks = dict(zip(older, pool.map(lambda date: self._look(date, first_published), older), strict=True))
        rejects = RejectedInputs(reader=self.reader, first_published=first_published, now=report.checked_at).read()
        decided = self._decided(listed.values())
        settled = [listed[date] for date, look in looks.items() if look.is_settled and date in listed]
        # The first run of such a day may publish it shortly before it leaves the window.
        never = [day.date for day in of_window if day.rule == DecisionRule.NEVER_PUBLISHED]
        return PassedOver(
            days=(*of_window, *filter(None, (look.day for look in looks.values())), *rejects.days),
            published=(*(date for date, look in looks.items() if look.is_published), *(day.date for day in decided)),
            settled=(*settled, *decided),
            unpublished=tuple(date for date in never if date not in listed),
            rejects_until=rejects.until,
        )

    def _dates_of_window(self) -> Sequence[str]:
        """Return the days of the window whose inputs the check has not compared, and will not soon."""
        report, never = self.report, DecisionRule.NEVER_PUBLISHED
        return [
            day.date
            for day in report.days
            if day.rule in _WITHOUT_INPUTS or (day.rule is never and day.date in report.overdue)
        ]

    def _of_window(self, date: str) -> PendingDay | None:
        (decided,) = (day for day in self.report.days if day.date == date)
        why = (decided.decision, decided.rule, decided.reason)
        if decided.rule is DecisionRule.NEVER_PUBLISHED:
            why = (*why[:2], f"the {period_kind(date)} is past its deadline and has no published run: {decided.reason}")
        with suppress(SlackwaterError, ValidationError):
            record = self.reader.table.day(self.report.pipeline, date)
            # Otherwise the decision is about another version.
            if (record.published.run.attempt if record.published else None) == decided.attempt:
                return _pending(date, self._inputs(record), why, decided.attempt or 0)
        return None

    def _decided(self, listed: Iterable[LedgerDay]) -> list[LedgerDay]:
        """Return the listed days of the window about which this check has decided, with all of their data."""
        rules = {day.date: day.rule for day in self.report.days}
        return [
            day
            for day in listed
            if rules.get(day.date, DecisionRule.RUNNING) not in _UNDECIDED and day.last <= self.report.checked_at
        ]

    def _look(self, date: str, first_published: str | None) -> _Looked:
        """Look at a listed day before the window. A day that was never published is looked at until it is."""
        table, now = self.reader.table, self.reader.now()
        with suppress(SlackwaterError, ValidationError):
            record = table.day(self.report.pipeline, date)
            published, hold = record.published, record.hold
            if published is None and (first_published is None or date < first_published):
                return _Looked(is_settled=True)  # A new pipeline does not process its past.
            if is_running(self.reader.executions, record.active, now=now):
                return _Looked()
            inputs = self._inputs(record)
            if published is None:
                return _Looked(_pending(date, inputs, _NEVER_RUN, 0))
            why = (LateDecision.HOLD, hold.rule, hold.reason) if hold else _OLDER
            return _Looked(_pending(date, inputs, why, published.run.attempt), is_published=True, is_settled=True)
        return _Looked()

    def _inputs(self, record: DayRecord) -> tuple[LateInput, ...]:
        """Return the late inputs of a day: what differs from the inputs of its published run, or all without one.

        If the manifest of the run is gone, they are the objects that were written after it.
        """
        reader, published = self.reader, record.published
        run = reader.table.run(record.pipeline, record.date, published.run.attempt) if published else None
        if published and run is None:
            return ()
        before = published_manifest(reader.store, published) if published else None
        # An unpublished day of a table is no reason to leave out the other inputs.
        unread = [each.name for each in reader.reads.tables if not (run and run.reads and each in run.reads.tables)]
        day = period_of(record.date, reader.definition.timezone)
        now = reader.inputs.manifest(record.pipeline, day, known=before, unread=unread)
        if before is None:
            objects = tuple(item for item in now.objects if run is None or item.arrived > run.frozen_at)
            before, now = structs.replace(now, objects=()), structs.replace(now, objects=objects)
        shared = shared_inputs(before, now, former=run.reads if run else None, present=reader.reads)
        return late_inputs(shared.before, shared.now, sources=reader.reads.inputs)


def _pending(date: str, inputs: tuple[LateInput, ...], why: _Why, attempt: int) -> PendingDay | None:
    if not inputs:
        return None
    decision, rule, reason = why
    return PendingDay(date=date, decision=decision, rule=rule, reason=reason, attempt=attempt, inputs=inputs)
