"""Freezing a run's inputs: list once, write the list down, claim the day."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from slackwater.errors import DayChanged, InputError, ObjectMissing
from slackwater.project import Project
from slackwater.runs.day import Day, day_of
from slackwater.runs.difference import Amount, Change, difference
from slackwater.runs.inputs import InputListing
from slackwater.runs.manifest import InputManifest
from slackwater.runs.record import (
    ActiveRun,
    DayRecord,
    Publication,
    Run,
    RunRecord,
    RunState,
    run_identity,
)
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore


class FreezeAction(StrEnum):
    """What the state machine has to do after freezing."""

    RUN = "run"
    WAIT = "wait"
    """Another execution runs this day: look again when it has ended."""
    UNCHANGED = "unchanged"
    """The published output already comes from these inputs and this definition."""


class Frozen(BaseModel):
    """The answer of freezing: references, counts and identifiers only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: FreezeAction
    run: Run | None = None
    publication: Publication | None = None


@dataclass(frozen=True, kw_only=True)
class Freezer:
    """Freezes the inputs of a project's runs."""

    project: Project
    store: ObjectStore
    inputs: InputListing
    table: RunTable
    executions: Executions
    exchange_bucket: str
    now: Callable[[], datetime]
    lost: Callable[[str], None]
    """Called with the pipeline when a run that its execution left behind has been closed, and its day taken over."""

    def freeze(
        self,
        *,
        pipeline: str,
        date: str,
        execution: str,
        correlation_id: str,
        force: bool = False,
        allow_fewer: bool = False,
    ) -> Frozen:
        """List the day's inputs, write the manifest, and claim the day for `execution`.

        Called again by the same execution it gives the same answer. Raises `InputError` for a date that is none or
        has not begun, and for inputs of the published run that are gone, unless `allow_fewer`; `UnknownName` for a
        pipeline that is none.
        """
        day = self._day(pipeline, date)
        record = self.table.day(pipeline, date)
        if record.active and record.active.execution == execution:
            return Frozen(action=FreezeAction.RUN, run=record.active.run)
        if record.active and self._is_alive(record.active):
            return Frozen(action=FreezeAction.WAIT)
        before = self._before(record)
        manifest = self.inputs.manifest(pipeline, day, known=before.objects if before else ())
        if before and not allow_fewer:
            _refuse_if_vanished(before, manifest, sources=self.project.pipeline(pipeline).sources)
        run = self._run(manifest, record, correlation_id)
        sure = not force and record.active is None and not record.unsure
        if sure and record.published and record.published.run.run_id == run.run_id:
            return Frozen(
                action=FreezeAction.UNCHANGED, run=record.published.run, publication=record.published.publication
            )
        self.store.put_new(run.manifest, manifest.model_dump_json().encode())
        try:
            if record.active:
                self._close(record.active)
            self._claim(run, record, execution, manifest.frozen_at)
        except DayChanged:
            return Frozen(action=FreezeAction.WAIT)
        return Frozen(action=FreezeAction.RUN, run=run)

    def _day(self, pipeline: str, local_date: str) -> Day:
        try:
            day = day_of(date.fromisoformat(local_date), self.project.pipeline(pipeline).timezone)
        except ValueError as error:
            raise InputError(f"date: {local_date!r} is not a date such as 2013-03-10") from error
        if day.start > self.now():
            raise InputError(f"date: {local_date} has not begun in {self.project.pipeline(pipeline).timezone}")
        return day

    def _is_alive(self, active: ActiveRun) -> bool:
        return is_alive(self.executions, active.execution, since=active.since, now=self.now())

    def _before(self, record: DayRecord) -> InputManifest | None:
        """What the published run has read, if there is one and its manifest is still there."""
        if record.published is None:
            return None
        try:
            return InputManifest.model_validate_json(self.store.get(record.published.run.manifest))
        except ObjectMissing:
            return None

    def _run(self, manifest: InputManifest, record: DayRecord, correlation_id: str) -> Run:
        run_id = run_identity(
            pipeline=manifest.pipeline,
            date=manifest.date,
            manifest=manifest.digest,
            definition=self.project.definition_digest(manifest.pipeline),
        )
        where = f"{manifest.pipeline}/{manifest.date}"
        attempt = record.attempts + 1
        return Run(
            pipeline=manifest.pipeline,
            date=manifest.date,
            run_id=run_id,
            attempt=attempt,
            correlation_id=correlation_id,
            manifest=f"s3://{self.exchange_bucket}/manifests/{where}/{manifest.digest}.json",
            prefix=f"s3://{self.exchange_bucket}/runs/{where}/{run_id}/{attempt}/",
            files=len(manifest.objects),
            rows=manifest.rows,
            bytes=manifest.bytes,
        )

    def _close(self, abandoned: ActiveRun) -> None:
        """Record the failure of a run whose execution ended without saying so: stopped, or lost with its machine."""
        run = abandoned.run
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record and record.state is RunState.RUNNING:
            why = "its execution ended without recording an outcome"
            self.table.save(
                run=record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": why})
            )

    def _claim(self, run: Run, record: DayRecord, execution: str, started_at: datetime) -> None:
        claimed = record.model_copy(
            update={
                "attempts": run.attempt,
                "active": ActiveRun(execution=execution, run=run, since=started_at),
                "unsure": record.unsure or record.active is not None,
            }
        )
        started = RunRecord(run=run, state=RunState.RUNNING, execution=execution, started_at=started_at)
        self.table.save(run=started, day=claimed)
        if record.active:
            # Not before: of several that close it at once, only the one that gets the day may tell.
            self.lost(run.pipeline)


def _refuse_if_vanished(before: InputManifest, now: InputManifest, *, sources: Collection[str]) -> None:
    """Raise `InputError` if inputs are gone, other than those of a source that the pipeline reads no more."""
    found = difference(before, now, sources=sources)
    gone = [item for source in found for item in source.changes if item.change is Change.REMOVED]
    if gone:
        amount, first = sum((item.before for item in gone), Amount()), gone[0]
        raise InputError(
            f"{amount.objects} objects ({amount.rows} events) that the published run of {before.date} has read are "
            f"gone, such as those of {first.file or 'pushed events'} of {first.source} in {first.date} {first.hour}:00 "
            "UTC: if that is right, run the day with --allow-fewer"
        )
