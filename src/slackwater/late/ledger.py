"""Writes the ledger: the rows that it lacks after a monitoring, each exactly once.

The table itself is the only record of what has been written. Each attempt reads the rows of the days in question,
derives those that are missing, completes those whose cost, effect or message was unknown, and commits both only if
nobody else has committed since. So a call can be repeated after a crash at any point. Pending checks are removed after
the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, Protocol

from slackwater.errors import DayChanged, ObjectInvalid
from slackwater.late.decision import CheckReport, DecisionRule
from slackwater.late.documents import OnUnreadable
from slackwater.late.effects import effects_of_day
from slackwater.late.entry import LateInput, LedgerEntry, definition_input, late_inputs
from slackwater.late.ledger_counts import counts_of
from slackwater.late.new_entries import (
    RunInputs,
    completed_entries,
    input_of,
    is_complete,
    new_entries,
    waiting_inputs,
)
from slackwater.late.pending import PendingCheck, read_pending
from slackwater.metrics import PutsMetric
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.comparison_run import attempt_usd
from slackwater.runs.inputs.input_definition import input_definition
from slackwater.runs.inputs.manifest import InputManifest, run_manifest
from slackwater.runs.inputs.shared_inputs import shared_inputs
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
        """Return the rows of these days or hours of a pipeline. Creates the table if it does not exist."""

    def write(self, entries: Sequence[LedgerEntry], *, replaced: Sequence[LedgerEntry], version: int | None) -> bool:
        """Add rows, and replace all rows of the attempts of `replaced` by these, in one commit.

        Return False, without a change, if the table has another version by now.
        """


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
    on_unreadable: OnUnreadable
    """A damaged document stays as it is, and does not stop the others."""
    put_metric: PutsMetric
    """Called with the counts of the rows that a commit has added."""

    def write(self, *, pipeline: str, report: str, execution: str) -> int:
        """Write what is missing after a monitoring, and return the number of new rows.

        `report` is the URI of the monitoring's `CheckReport`, and `execution` its ARN. Also writes what earlier
        executions have left. Raises `DayChanged` when the table keeps changing: the call can be repeated.
        """
        checks, running = dict[str, PendingCheck](), list[PendingCheck]()
        for uri, check in read_pending(
            self.store, exchange_bucket=self.exchange_bucket, pipeline=pipeline, on_unreadable=self.on_unreadable
        ):
            is_own = check.execution == execution
            if is_own or not is_alive(self.executions, check.execution, since=check.checked_at, now=self.now()):
                checks[uri] = check
            else:
                running.append(check)  # Its own execution writes it.
        of_report = CheckReport.model_validate_json(self.store.get(report)).days
        dates = {day.date for day in of_report if day.attempt}.union(*(check.dates for check in checks.values()))
        written = self._commit(self.project.pipeline(pipeline), dates, list(checks.values()), running) if dates else 0
        self.store.delete(checks)
        return written

    def _commit(
        self,
        definition: Pipeline,
        dates: Collection[str],
        checks: Sequence[PendingCheck],
        running: Sequence[PendingCheck],
    ) -> int:
        """Commit what the ledger lacks about the days, and return the number of new rows."""
        runs = {date: self.runs.runs(definition.pipeline, date) for date in sorted(dates)}
        # Manifests do not change, so that each attempt to commit needs the same late inputs.
        late = dict[tuple[str, int], tuple[LateInput, ...]]()
        for _ in range(_MAX_COMMITS):
            state, read, completed = self.table.read(definition.pipeline, dates), list[RunInputs](), list[LedgerEntry]()
            for date, of_day in runs.items():
                known = [entry for entry in state.entries if entry.period == date]
                new, of_known = self._day(definition, date, of_day, known, late)
                read += new
                completed += of_known
            entries = new_entries(
                state.entries,
                pipeline=definition.pipeline,
                timezone=definition.timezone,
                checks=checks,
                running=running,
                read_by_runs=read,
            )
            if not (entries or completed) or self.table.write(entries, replaced=completed, version=state.version):
                for metric, count in counts_of(state.entries, entries).items():
                    if count:
                        self.put_metric(metric, count, pipeline=definition.pipeline)
                return len(entries)
        raise DayChanged(f"{definition.pipeline}: the ledger kept changing while its rows were written")

    def _day(
        self,
        definition: Pipeline,
        date: str,
        runs: Sequence[RunRecord],
        known: Sequence[LedgerEntry],
        late: dict[tuple[str, int], tuple[LateInput, ...]],
    ) -> tuple[list[RunInputs], list[LedgerEntry]]:
        """Return the late inputs of a day's published runs without rows, and all rows of those with more known now.

        `known` are the rows of the day, and `late` the late inputs that were found before.
        """
        rows: dict[int, list[LedgerEntry]] = {}
        for entry in known:
            if entry.attempt is not None:
                rows.setdefault(entry.attempt, []).append(entry)
        published = [run for run in runs if run.state is RunState.PUBLISHED]
        new = dict[int, tuple[RunRecord, tuple[LateInput, ...]]]()
        for before, after in pairwise(published):
            attempt = after.run.attempt
            if after.rollback or attempt in rows:  # A rollback reads no inputs.
                continue
            if (date, attempt) not in late:
                late[date, attempt] = self._late_inputs(definition, before, after)
            if late[date, attempt]:
                new[attempt] = after, late[date, attempt]
        first = published[0].run.attempt if published else 0
        # Also inputs of a run that has rows: a check that was slow may have stored them later.
        for run, inputs in self._taken_in(waiting_inputs(known), published):
            _, others = new.get(run.run.attempt, (run, ()))
            taken_in = tuple(late for late in inputs if late.key not in {other.key for other in others})
            if taken_in:
                new[run.run.attempt] = run, (*others, *taken_in)
        incomplete = {
            attempt: entries
            for attempt, entries in rows.items()
            if not all(is_complete(entry, is_first=attempt == first) for entry in entries)
        }
        if not (new or incomplete):
            return [], []
        compared = self.runs.comparisons(definition.pipeline, date)
        costs = {run.run.attempt: attempt_usd(run, compared) for run in runs}
        effects = effects_of_day(
            self.store,
            exchange_bucket=self.exchange_bucket,
            pipeline=definition.pipeline,
            date=date,
            attempts=(*new, *incomplete),
            on_unreadable=self.on_unreadable,
        )
        read = [
            RunInputs(
                date=date,
                attempt=attempt,
                started_at=run.started_at,
                inputs=inputs,
                # The other rows of the run have its whole cost until they are completed.
                cost_usd=0.0 if attempt in rows else costs[attempt],
                is_addition=attempt in rows,
                table_rows=run.publication.rows if run.publication else None,
                effect=effects[attempt],
            )
            for attempt, (run, inputs) in new.items()
        ]
        completed = [
            (entries, completed_entries(entries, cost_usd=costs.get(attempt), effect=effects[attempt]))
            for attempt, entries in incomplete.items()
        ]
        return read, [entry for known, now in completed if known != now for entry in now]

    def _taken_in(
        self, waiting: Sequence[LedgerEntry], published: Sequence[RunRecord]
    ) -> Iterator[tuple[RunRecord, list[LateInput]]]:
        """Yield the published runs that may have read waiting inputs first, and those that they have read."""
        of_run = dict[int, list[LedgerEntry]]()
        for entry in waiting:
            later = (
                run
                for run in published
                if not run.rollback
                and (entry.rule == DecisionRule.NEVER_PUBLISHED or run.started_at > entry.decided_at)
            )
            if run := next(later, None):
                of_run.setdefault(run.run.attempt, []).append(entry)
        for run in published:
            if entries := of_run.get(run.run.attempt):
                manifest = self._manifest(run)
                read = {(item.source, item.uri, item.etag) for item in manifest.objects} if manifest else set()
                yield run, [input_of(entry) for entry in entries if (entry.source, entry.uri, entry.etag) in read]

    def _manifest(self, run: RunRecord) -> InputManifest | None:
        """Return the input manifest of a run; None if it is missing, or not readable, which is reported."""
        try:
            return run_manifest(self.store, run.run)
        except ObjectInvalid as error:
            self.on_unreadable(run.run.manifest, str(error))
            return None

    def _late_inputs(self, definition: Pipeline, before: RunRecord, after: RunRecord) -> tuple[LateInput, ...]:
        """Return what a run has read and the run before it has not, of the inputs that the definitions of both name.

        A new definition is one of them. Inputs that are not known any more are left out.
        """
        # The definition is a late input of its own.
        is_new = before.reads and after.reads and before.definition != after.definition
        definitions = [definition_input(after.definition, at=after.started_at)] if is_new else []
        if before.run.manifest == after.run.manifest:
            return tuple(definitions)
        earlier, later = self._manifest(before), self._manifest(after)
        if earlier is None or later is None:
            # Checks put a day on hold whose manifest is gone or damaged.
            return tuple(definitions)
        present = after.reads or input_definition(definition, self.project.pipelines)
        shared = shared_inputs(earlier, later, former=before.reads, present=present)
        return (*late_inputs(shared.before, shared.now, sources=present.inputs), *definitions)
