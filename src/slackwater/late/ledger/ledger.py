"""Writes the ledger: the rows that it lacks after a monitoring, each exactly once.

The table itself is the only record of what has been written. Each attempt reads the rows of the days in question,
derives those that are missing, and commits them only if nobody else has committed since. So a call can be repeated
after a crash at any point. Pending checks are removed after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from slackwater.errors import DayChanged, ObjectMissing
from slackwater.late.changes.comparison import Comparison, MetricChange
from slackwater.late.changes.message import Message
from slackwater.late.changes.notify import message_uri
from slackwater.late.check.decision import CheckReport
from slackwater.late.ledger.entry import LedgerEntry, late_inputs
from slackwater.late.ledger.new_entries import Effect, TakenIn, cost_shares, new_entries
from slackwater.late.ledger.pending import PendingCheck, read_pending
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.inputs.table_inputs import without_former_tables
from slackwater.runs.record import RunRecord, RunState
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

# Another monitoring of any pipeline may commit at the same time; each conflict means that one of them has succeeded.
_MAX_COMMITS = 20


class LedgerState(NamedTuple):
    """Rows of the ledger, and the version of the table that has them."""

    entries: Sequence[LedgerEntry]
    version: int | None
    """Id of the snapshot; None for a table without one."""


class LedgerTable(Protocol):
    """The ledger's table. Both methods raise `CloudError` when AWS fails."""

    def read(self, pipeline: str, dates: Collection[str]) -> LedgerState:
        """Return the rows of these days, ISO dates, of a pipeline. Creates the table if it does not exist."""

    def write(self, entries: Sequence[LedgerEntry], *, replaced: Sequence[LedgerEntry], version: int | None) -> bool:
        """Add rows, and replace all rows of the attempts of `replaced` by these, in one commit.

        Return False, without a change, if the table has another version by now.
        """


class _Work(NamedTuple):
    """What one call handles."""

    checks: dict[str, PendingCheck]
    """By URI."""
    dates: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Writes the late inputs of a pipeline's days to the ledger."""

    project: Project
    store: ObjectStore
    runs: RunTable
    table: LedgerTable
    executions: Executions
    exchange_bucket: str
    now: Callable[[], datetime]

    def write(self, *, pipeline: str, report: str, execution: str) -> int:
        """Write what is missing after a monitoring, and return the number of new rows.

        `report` is the URI of the monitoring's `CheckReport`, and `execution` its ARN. Also writes what earlier
        executions have left. Raises `DayChanged` when the table keeps changing: the call can be repeated.
        """
        work = self._work(pipeline, CheckReport.model_validate_json(self.store.get(report)), execution)
        written = self._commit(self.project.pipeline(pipeline), work) if work.dates else 0
        self.store.delete(work.checks)
        return written

    def _work(self, pipeline: str, report: CheckReport, execution: str) -> _Work:
        """Return the pending checks and the days to handle; the days of other running executions are left to these."""
        checks, dates = {}, {day.date for day in report.days if day.attempt} | set(report.notifications_due)
        busy: set[str] = set()
        for uri, check in read_pending(self.store, exchange_bucket=self.exchange_bucket, pipeline=pipeline):
            days = {day.date for day in check.days}
            is_own = check.execution == execution
            if is_own or not is_alive(self.executions, check.execution, since=check.checked_at, now=self.now()):
                checks[uri] = check
                dates |= days
            else:
                busy |= days
        # A check of this call is handled as a whole, because its pending object is removed.
        own = {day.date for check in checks.values() for day in check.days}
        return _Work(checks, frozenset(dates - (busy - own)))

    def _commit(self, definition: Pipeline, work: _Work) -> int:
        """Commit the missing rows, and return how many there were."""
        for _ in range(_MAX_COMMITS):
            state = self.table.read(definition.pipeline, work.dates)
            taken_in = [item for date in sorted(work.dates) for item in self._taken_in(definition, date, state)]
            entries = new_entries(
                state.entries,
                pipeline=definition.pipeline,
                timezone=definition.timezone,
                checks=work.checks.values(),
                taken_in=taken_in,
            )
            priced = self._priced(definition.pipeline, state)
            if not (entries or priced) or self.table.write(entries, replaced=priced, version=state.version):
                return len(entries)
        raise DayChanged(f"{definition.pipeline}: the ledger kept changing while its rows were written")

    def _priced(self, pipeline: str, state: LedgerState) -> list[LedgerEntry]:
        """Return rows that were written while the cost of their run was unknown, with the cost that is known now."""
        unpriced: dict[tuple[str, int], list[LedgerEntry]] = {}
        for entry in state.entries:
            if entry.attempt is not None and entry.cost_usd is None:
                unpriced.setdefault((entry.date.isoformat(), entry.attempt), []).append(entry)
        costs = {
            (date, run.run.attempt): run.cost.usd
            for date in {date for date, _ in unpriced}
            for run in self.runs.runs(pipeline, date)
            if run.cost
        }
        return [
            entry._replace(cost_usd=share)
            for day, entries in unpriced.items()
            if (cost := costs.get(day)) is not None
            for entry, share in zip(entries, cost_shares(entries, cost), strict=True)
        ]

    def _taken_in(self, definition: Pipeline, date: str, state: LedgerState) -> Iterator[TakenIn]:
        """Yield what each published run of the day has taken in, of runs that the ledger does not have."""
        known = {entry.attempt for entry in state.entries if entry.date.isoformat() == date}
        published = [run for run in self.runs.runs(definition.pipeline, date) if run.state is RunState.PUBLISHED]
        for before, after in pairwise(published):
            # A rollback has read no inputs.
            if after.run.attempt in known or after.rollback:
                continue
            try:
                manifests = [
                    InputManifest.model_validate_json(self.store.get(run.run.manifest)) for run in (before, after)
                ]
            except ObjectMissing:
                # Without its inputs, nobody knows what a run has taken in; checks put such a day on hold.
                continue
            earlier, later = manifests
            inputs = late_inputs(without_former_tables(earlier, definition), later, sources=definition.inputs)
            if inputs:
                yield TakenIn(
                    date=date,
                    attempt=after.run.attempt,
                    started_at=after.started_at,
                    inputs=inputs,
                    cost_usd=after.cost.usd if after.cost else None,
                    effect=self._effect(after),
                )

    def _effect(self, record: RunRecord) -> Effect | None:
        """Return what the run's version has changed, from its stored comparison; None without a readable one."""
        run = record.run
        prefix = f"s3://{self.exchange_bucket}/comparisons/{run.pipeline}/{run.date}/"
        uris = [item.uri for item in self.store.list(prefix) if item.uri.endswith(f"-{run.attempt}/comparison.json")]
        for uri in reversed(uris):
            try:
                comparison = Comparison.model_validate_json(self.store.get(uri))
            except (ObjectMissing, ValidationError):  # stored by a release with other fields
                continue
            metric, percent = largest_change(comparison.metrics)
            return Effect(
                rows_differing=comparison.rows.differing,
                metric=metric,
                metric_change_percent=percent,
                notified=self._is_sent(uri),
            )
        return None

    def _is_sent(self, comparison: str) -> bool:
        try:
            return Message.model_validate_json(self.store.get(message_uri(comparison))).message_id is not None
        except ObjectMissing:
            return False


def largest_change(metrics: Sequence[MetricChange]) -> tuple[str | None, float | None]:
    """Return the metric whose total has changed most, and its change in percent of the earlier total.

    Totals that are missing or zero before have no percentage.
    """
    changes = {
        item.metric: 100 * (item.after - item.before) / abs(item.before)
        for item in metrics
        if item.moved and item.before and item.after is not None
    }
    if not changes:
        return None, None
    metric = max(changes, key=lambda name: abs(changes[name]))
    return metric, changes[metric]
