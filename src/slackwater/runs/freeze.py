"""Freezing a run's inputs: list the objects once, store the list as the input manifest, and claim the day."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from slackwater.errors import DayChanged, InputError
from slackwater.project import Project
from slackwater.runs.day import Day, day_of
from slackwater.runs.difference import Amount, difference
from slackwater.runs.inputs import InputListing, published_manifest
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
    """What the state machine does after freezing."""

    RUN = "run"
    WAIT = "wait"
    """Another execution runs this day: freeze again when it has ended."""
    UNCHANGED = "unchanged"
    """The published output already comes from these inputs and this definition."""


class Frozen(BaseModel):
    """The result of freezing: references, counts and identifiers only."""

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
    on_run_lost: Callable[[str], None]
    """Called with the pipeline when the day of a run whose execution is gone has been taken over."""

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
        """List the day's inputs, write the manifest, and claim the day for `execution`, an ARN.

        A second call by the same execution returns the same result. `force` runs the day even if its inputs and its
        definition are those of the published run.

        Raises `InputError` when `date` is not a date or has not begun, and when inputs of the published run are gone,
        unless `allow_fewer`; `UnknownName` when the project has no such pipeline.
        """
        day = self._day(pipeline, date)
        record = self.table.day(pipeline, date)
        if record.active and record.active.execution == execution:
            return Frozen(action=FreezeAction.RUN, run=record.active.run)
        if record.active and self._is_alive(record.active):
            return Frozen(action=FreezeAction.WAIT)
        published = record.published
        before = published_manifest(self.store, published) if published else None
        manifest = self.inputs.manifest(pipeline, day, known=before.objects if before else ())
        if before and not allow_fewer:
            _refuse_removed_inputs(before, manifest, sources=self.project.pipeline(pipeline).sources)
        run = self._run(manifest, record, correlation_id)
        # A run without a recorded outcome may have published: then the table may not hold what `published` says.
        is_outcome_known = record.active is None and not record.outcome_unknown
        if published and published.run.run_id == run.run_id and is_outcome_known and not force:
            return Frozen(action=FreezeAction.UNCHANGED, run=published.run, publication=published.publication)
        # The manifest comes first: a claimed day always has the manifest that its run refers to.
        self.store.put_new(run.manifest, manifest.model_dump_json().encode())
        try:
            # The lost run is closed before the claim removes the only reference to it.
            if record.active:
                self._close(record.active)
            self._claim(run, record, execution, manifest.frozen_at)
        except DayChanged:
            return Frozen(action=FreezeAction.WAIT)
        return Frozen(action=FreezeAction.RUN, run=run)

    def _day(self, pipeline: str, local_date: str) -> Day:
        """Return the day. Raises as `freeze` does for a wrong date or pipeline."""
        timezone = self.project.pipeline(pipeline).timezone
        try:
            day = day_of(date.fromisoformat(local_date), timezone)
        except ValueError as error:
            raise InputError(f"date: {local_date!r} is not a date such as 2013-03-10") from error
        if day.start > self.now():
            raise InputError(f"date: {local_date} has not begun in {timezone}")
        return day

    def _is_alive(self, active: ActiveRun) -> bool:
        return is_alive(self.executions, active.execution, since=active.since, now=self.now())

    def _run(self, manifest: InputManifest, record: DayRecord, correlation_id: str) -> Run:
        run_id = run_identity(
            pipeline=manifest.pipeline,
            date=manifest.date,
            manifest=manifest.digest,
            definition=self.project.definition_digest(manifest.pipeline),
        )
        path = f"{manifest.pipeline}/{manifest.date}"
        attempt = record.attempts + 1
        return Run(
            pipeline=manifest.pipeline,
            date=manifest.date,
            run_id=run_id,
            attempt=attempt,
            correlation_id=correlation_id,
            manifest=f"s3://{self.exchange_bucket}/manifests/{path}/{manifest.digest}.json",
            prefix=f"s3://{self.exchange_bucket}/runs/{path}/{run_id}/{attempt}/",
            files=len(manifest.objects),
            rows=manifest.rows,
            bytes=manifest.bytes,
        )

    def _close(self, lost: ActiveRun) -> None:
        """Record as failed a run whose execution ended without an outcome: it was stopped, or its machine was lost."""
        run = lost.run
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record and record.state is RunState.RUNNING:
            error = "its execution ended without recording an outcome"
            self.table.save(
                run=record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": error})
            )

    def _claim(self, run: Run, record: DayRecord, execution: str, started_at: datetime) -> None:
        """Record the run and that the day belongs to `execution`. Raises `DayChanged` when another one was faster."""
        claimed = record.model_copy(
            update={
                "attempts": run.attempt,
                "active": ActiveRun(execution=execution, run=run, since=started_at),
                "outcome_unknown": record.outcome_unknown or record.active is not None,
            }
        )
        started = RunRecord(run=run, state=RunState.RUNNING, execution=execution, started_at=started_at)
        self.table.save(run=started, day=claimed)
        # After the claim: of several executions that close the same lost run, only the one that gets the day reports
        # it.
        if record.active:
            self.on_run_lost(run.pipeline)


def _refuse_removed_inputs(before: InputManifest, now: InputManifest, *, sources: Collection[str]) -> None:
    """Raise `InputError` if inputs of `sources`, which the pipeline reads today, are gone."""
    removed = [item for source in difference(before, now, sources=sources) for item in source.removed]
    if removed:
        amount, first = sum((item.before for item in removed), Amount()), removed[0]
        raise InputError(
            f"{amount.objects} objects ({amount.rows} events) that the published run of {before.date} has read are "
            f"gone, such as those of {first.file or 'pushed events'} of {first.source} in {first.date} {first.hour}:00 "
            "UTC: if that is right, run the day with --allow-fewer"
        )
