"""Writes the ledger: the rows that it lacks after a monitoring, each exactly once.

The table itself is the only record of what has been written. Each attempt reads the rows of the days in question,
derives those that are missing, completes those whose cost, effect or message was unknown, and commits both only if
nobody else has committed since. So a call can be repeated after a crash at any point. Pending checks are removed after
the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple, Protocol

from slackwater.errors import DayChanged
from slackwater.late.decision import CheckReport
from slackwater.late.documents import OnUnreadable, read_document
from slackwater.late.effects import Effect, effects_of_day
from slackwater.late.entry import LateInput, LedgerEntry, definition_input, late_inputs
from slackwater.late.new_entries import RunInputs, completed_entries, is_complete, new_entries
from slackwater.late.pending import PendingCheck, read_pending
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.comparison_run import attempt_usd
from slackwater.runs.inputs.input_definition import InputDefinition, input_definition, shared_inputs
from slackwater.runs.inputs.manifest import InputManifest
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
    """By URI: of this execution, and of those that have ended."""
    running: list[PendingCheck]
    """Of other executions that have not ended; these write them."""
    dates: frozenset[str]


class _DayRows(NamedTuple):
    """What the ledger lacks about the published runs of a day."""

    read_by_runs: Sequence[RunInputs]
    """Of runs without rows."""
    completed: Sequence[LedgerEntry]
    """All rows of each run of which more is known now than when they were written."""


class _Read(NamedTuple):
    """What a run has read."""

    manifest: str
    """URI of its input manifest."""
    definition: InputDefinition | None
    """None for a run of an older version."""


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
        """Return the pending checks, and the days to handle: those of the report and of the checks."""
        checks, running = dict[str, PendingCheck](), list[PendingCheck]()
        for uri, check in read_pending(
            self.store, exchange_bucket=self.exchange_bucket, pipeline=pipeline, on_unreadable=self.on_unreadable
        ):
            is_own = check.execution == execution
            if is_own or not is_alive(self.executions, check.execution, since=check.checked_at, now=self.now()):
                checks[uri] = check
            else:
                running.append(check)
        dates = {day.date for day in report.days if day.attempt}
        return _Work(checks, running, frozenset(dates.union(*(check.dates for check in checks.values()))))

    def _commit(self, definition: Pipeline, work: _Work) -> int:
        """Commit what the ledger lacks, and return the number of new rows."""
        runs = {date: self.runs.runs(definition.pipeline, date) for date in sorted(work.dates)}
        # Manifests do not change, so that each attempt to commit needs the same late inputs.
        inputs = cache(partial(self._late_inputs, definition))
        for _ in range(_MAX_COMMITS):
            state = self.table.read(definition.pipeline, work.dates)
            days = [
                self._day(definition.pipeline, date, runs[date], _rows_by_attempt(state, date), inputs) for date in runs
            ]
            entries = new_entries(
                state.entries,
                pipeline=definition.pipeline,
                timezone=definition.timezone,
                checks=list(work.checks.values()),
                running=work.running,
                read_by_runs=[item for day in days for item in day.read_by_runs],
            )
            completed = [entry for day in days for entry in day.completed]
            if not (entries or completed) or self.table.write(entries, replaced=completed, version=state.version):
                return len(entries)
        raise DayChanged(f"{definition.pipeline}: the ledger kept changing while its rows were written")

    def _day(
        self,
        pipeline: str,
        date: str,
        runs: Sequence[RunRecord],
        rows: Mapping[int, list[LedgerEntry]],
        inputs_between: Callable[[_Read, _Read], tuple[LateInput, ...]],
    ) -> _DayRows:
        """Return what the ledger lacks about the published runs of a day. `rows` are those that it has, by attempt.

        `inputs_between` returns the late inputs of a run, from what the run before it and the run itself have read.
        """
        new = {
            after.run.attempt: (after, inputs)
            for before, after in _input_pairs(runs)
            if after.run.attempt not in rows
            and (inputs := (*inputs_between(_read(before), _read(after)), *_definition_inputs(before, after)))
        }
        incomplete = {attempt: entries for attempt, entries in rows.items() if not all(map(is_complete, entries))}
        if not (new or incomplete):
            return _DayRows((), ())
        costs = self._costs(pipeline, date, runs)
        effects = self._effects(pipeline, date, (*new, *incomplete))
        read_by_runs = [
            RunInputs(
                date=date,
                attempt=attempt,
                started_at=run.started_at,
                inputs=inputs,
                cost_usd=costs[attempt],
                table_rows=run.publication.rows if run.publication else None,
                effect=effects[attempt],
            )
            for attempt, (run, inputs) in new.items()
        ]
        completed = [
            (entries, completed_entries(entries, cost_usd=costs.get(attempt), effect=effects[attempt]))
            for attempt, entries in incomplete.items()
        ]
        return _DayRows(read_by_runs, [entry for known, now in completed if known != now for entry in now])

    def _late_inputs(self, definition: Pipeline, before: _Read, after: _Read) -> tuple[LateInput, ...]:
        """Return what a run has read and the run before it has not, of the inputs that the definitions of both name.

        Nothing if that is not known any more.
        """
        if before.manifest == after.manifest:
            return ()
        earlier, later = (
            read_document(self.store, each.manifest, InputManifest, on_unreadable=self.on_unreadable)
            for each in (before, after)
        )
        if earlier is None or later is None:
            # Checks put a day on hold whose manifest is gone or damaged.
            return ()
        present = after.definition or input_definition(definition)
        shared = shared_inputs(earlier, later, former=before.definition, present=present)
        return late_inputs(*shared, sources=present.inputs)

    def _costs(self, pipeline: str, date: str, runs: Iterable[RunRecord]) -> dict[int, float | None]:
        """Return by attempt what the run and the comparisons of its version have cost in USD; None while unknown."""
        compared = self.runs.comparisons(pipeline, date)
        return {run.run.attempt: attempt_usd(run, compared) for run in runs}

    def _effects(self, pipeline: str, date: str, attempts: Iterable[int]) -> dict[int, Effect]:
        return effects_of_day(
            self.store,
            exchange_bucket=self.exchange_bucket,
            pipeline=pipeline,
            date=date,
            attempts=tuple(attempts),
            on_unreadable=self.on_unreadable,
        )


def _input_pairs(runs: Sequence[RunRecord]) -> list[tuple[RunRecord, RunRecord]]:
    """Return each published run of a day with the one before it, except rollbacks: they read no inputs."""
    published = [run for run in runs if run.state is RunState.PUBLISHED]
    return [(before, after) for before, after in pairwise(published) if not after.rollback]


def _read(run: RunRecord) -> _Read:
    return _Read(run.run.manifest, run.reads)


def _definition_inputs(before: RunRecord, after: RunRecord) -> list[LateInput]:
    """Return the definition of a run as a late input if it differs from that of the run before."""
    is_known = before.reads is not None and after.reads is not None
    is_new = is_known and before.definition != after.definition
    return [definition_input(after.definition, at=after.started_at)] if is_new else []


def _rows_by_attempt(state: LedgerState, date: str) -> dict[int, list[LedgerEntry]]:
    """Return the rows that the published runs of a day have."""
    rows: dict[int, list[LedgerEntry]] = {}
    for entry in state.entries:
        if entry.attempt is not None and entry.date.isoformat() == date:
            rows.setdefault(entry.attempt, []).append(entry)
    return rows
