"""Freezing a run's inputs: list the objects once, store the list as the input manifest, and claim the day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from slackwater.errors import CloudError, DayChanged, InputError
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.added_objects import LARGE_ROWS, store_earlier_stages
from slackwater.runs.finished_stages import keep_finished_stages, stage_identities
from slackwater.runs.holds import (
    decision_about,
    hold_ended,
    inputs_of,
    needs_force,
    refuse_lost_rows,
    refuse_moved_hours,
)
from slackwater.runs.inputs.input_definition import input_definition
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest, published_manifest, read_manifest, store_manifest
from slackwater.runs.inputs.rejected_again import describe_rejected
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.inputs.unstored_files import unstored_files
from slackwater.runs.period import Period, check_kind, period_of
from slackwater.runs.record import (
    LOST_RUN,
    ActiveRun,
    DayRecord,
    JobFiles,
    Publication,
    PublishedRun,
    ResolutionAction,
    Run,
    RunReason,
    RunRecord,
    RunState,
)
from slackwater.runs.rollback import (
    refuse_if_rolled_back,
    rollback_record,
    version_to_restore,
)
from slackwater.runs.run_identity import new_run_id, run_reasons
from slackwater.runs.table import Executions, RunTable, is_running
from slackwater.storage import ObjectStore

# How many earlier attempts of a day are searched for finished stages.
_ATTEMPTS = 5


class FreezeAction(StrEnum):
    """What the state machine does after freezing."""

    RUN = "run"
    WAIT = "wait"
    """Another execution runs this day: freeze again when it has ended."""
    UNCHANGED = "unchanged"
    """The published output already comes from these inputs and this definition."""
    FINISH = "finish"
    """The provisional version comes from them: it is recorded as the published one, without a job."""


class Frozen(BaseModel):
    """The result of freezing: references, counts and identifiers only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: FreezeAction
    run: Run | None = None
    publication: Publication | None = None
    finished: tuple[int, ...] = ()
    """Positions of the stages that need no job, because an earlier attempt has finished them."""
    restore: str = ""
    """For a rollback: the tag of the version that the job of the last stage publishes again."""


@dataclass(frozen=True, kw_only=True)
class KeptStages:
    """Which stages of earlier attempts a run may keep: those whose Arrow files exist until the run has ended."""

    age: timedelta
    """At most so long ago were they written. Lifecycle rules remove files by their age."""
    published: bool
    """Whether also stages of attempts that have published their day, whose files are not removed at once then."""


@dataclass(frozen=True, kw_only=True)
class Freezer:
    """Freezes the inputs of a project's runs."""

    project: Project
    store: ObjectStore
    inputs: InputListing
    counts: CountsReader
    table: RunTable
    executions: Executions
    exchange_bucket: str
    keeps: KeptStages
    now: Callable[[], datetime]
    on_run_lost: Callable[[str], None]
    """Called with the name of the pipeline after the day of a lost run was claimed by another execution."""
    on_started: Callable[[Run], None] | None = None
    """Called with each run that has claimed its day, also in a repeated call: the first one may have ended before."""
    on_ended: Callable[[Run], None] | None = None
    """Called with each lost run that was recorded as failed."""
    large_rows: int = LARGE_ROWS
    """From how many events on a stage may compute added objects alone."""

    def freeze(  # noqa: PLR0911 - what ends it early, in order
        self,
        *,
        pipeline: str,
        date: str,
        execution: str,
        correlation_id: str,
        force: bool = False,
        profile: bool = False,
        moves_hours: bool = False,
        rollback: int | None = None,
        reason: str = "",
        missing: str = "",
        live: bool = False,
        files: JobFiles | None = None,
    ) -> Frozen:
        """List the day's inputs, write the manifest, and claim the day for an execution.

        `execution` is the ARN of the Step Functions execution; a second call for it returns the run that it has
        claimed. `force` runs the day even if its inputs and its definition are those of the published run, and computes
        all of its stages; so does `profile`, and the run measures each step. With `moves_hours`, a day that was
        published with another timezone may run: the caller also runs the days around it. `rollback` is the number of an
        earlier version that the run publishes again, for a `reason`; it lists no inputs. `missing` is what the run has
        waited for in vain, in lines. With `live`, only an open day runs that has no published version, that no other
        execution runs, and whose latest attempt has not failed with the same inputs. `files` are those of the run's
        jobs. Only the action `RUN` claims the day.

        Raises `InputError` for a version that cannot be published again, for a day that is on hold after a rollback,
        when `date` is not a date such as 2013-03-10 or has not begun, and, unless a person has released the day with
        these inputs, when they have lost rows of the published run or the timezone has changed; `UnknownName` when the
        project has no such pipeline; `DayChanged` when files keep changing meanwhile; and `CloudError`.
        """
        day, force = self._day(pipeline, date), force or profile
        # The record is read before the objects are listed. The claim below is conditional on its version, so it fails
        # when another execution has published the day in between: this listing may be older than the other one's.
        record = self.table.day(pipeline, date)
        active = record.active
        if active and active.execution == execution:
            return self._claimed(active.run, record, force=force, is_rollback=rollback is not None)
        is_open, is_active = day.end > self.now(), is_running(self.executions, active, now=self.now())
        if is_active or (live and (not is_open or record.published)):
            # A later run of the schedule does what a live one would do.
            return Frozen(action=FreezeAction.UNCHANGED if live else FreezeAction.WAIT)
        if rollback is not None:
            return self._roll_back(record, rollback, reason, execution, correlation_id)
        refuse_if_rolled_back(record)
        published = record.published
        before = published_manifest(self.store, published) if published else None
        published_run = self.table.run(pipeline, date, published.run.attempt) if published else None
        # Counted before the objects are listed: a file that is stored in between may be missing in the list.
        files_not_taken = unstored_files(self.project, pipeline, day, files=self.inputs.files)
        graph, provisional = self.project.pipeline(pipeline), record.provisional
        latest = provisional or published
        earlier = published_manifest(self.store, provisional) if provisional else before
        manifest = self.inputs.manifest(pipeline, day, known=earlier)
        digest = manifest.digest
        is_provisional = published is None and is_open and (live or graph.live is not None)
        former = published_run.reads if published_run else None
        reads = input_definition(graph, self.project.pipelines)
        differences = shared_inputs(before, manifest, former=former, present=reads).differences if before else ()
        rerun_inputs = [source for source in differences if source.source in graph.rerun_inputs]
        rejected = describe_rejected(before, rerun_inputs, files=self.inputs.files) if before else ()
        refuse_lost_rows(record, rerun_inputs, inputs=digest, rejected=rejected)
        if former and former.timezone != reads.timezone and not moves_hours:
            refuse_moved_hours(record, inputs=digest)
        changed = tuple(source.source for source in differences if source.changes)
        own = {"profiled": profile, "through": manifest.frozen_at if is_provisional else None}
        run = self._next_run(manifest, digest, record, correlation_id).model_copy(update=own)
        definition, code = self.project.written_digest(pipeline), self.project.code_digest(pipeline)
        # Without the published manifest, only its name is known, the digest of all of its inputs.
        is_late = bool(changed) if before or not published else inputs_of(published.run) != digest
        # A run without a recorded outcome may have committed: the table may hold its rows, not those of `published`.
        is_outcome_known = active is None and not record.outcome_unknown
        if published and published.run.run_id == run.run_id and is_outcome_known and not force:
            self.table.remove_late_day(pipeline, date, read_at=manifest.frozen_at)
            if record.hold and not needs_force(record.hold):
                reason = "a run has found that the inputs are those of the published version"
                self.table.save(hold_ended(record, reason=reason, inputs=digest, now=self.now()))
            return Frozen(action=FreezeAction.UNCHANGED, run=published.run, publication=published.publication)
        counts, lines = self.counts.totals(pipeline, day, manifest), tuple(missing.splitlines())
        if live and self._has_failed(run, record, execution):
            return Frozen(action=FreezeAction.UNCHANGED)
        if provisional and provisional.run.run_id == run.run_id and is_outcome_known and not force:
            known = {"files_not_taken": files_not_taken, "counts": counts, "missing": lines}
            return self._kept_provisional(record, provisional, known=None if is_provisional else known)
        # The manifest comes first, so that a claimed day always has the manifest that its run refers to. Its name has
        # the digests of the definition and of the inputs: if it exists, an earlier run has read the same ones. It is
        # replaced if it differs, because the snapshot that the earlier run has read may be expired.
        is_stored = latest is not None and latest.run.manifest == run.manifest and manifest.lists_as(earlier)
        if not is_stored:
            store_manifest(self.store, run.manifest, manifest)
        started = RunRecord(
            run=run,
            state=RunState.RUNNING,
            execution=execution,
            started_at=manifest.frozen_at,
            files_not_taken=files_not_taken,
            counts=counts,
            missing=lines,
            metrics=graph.publish.metrics,
            definition=definition,
            code=code,
            reads=reads,
            files=files,
            changed_inputs=changed,
            reasons=(RunReason.LIVE,)
            if is_provisional
            else run_reasons(run, published_run, is_late=is_late, definition=definition, code=code, force=force),
        )
        if not self._claim_day(record, started):
            return Frozen(action=FreezeAction.WAIT)
        return self._started(run, manifest, record, force=force)

    def _has_failed(self, run: Run, record: DayRecord, execution: str) -> bool:
        """Return whether the latest attempt has failed with the inputs of `run`, in another execution."""
        latest = self.table.run(run.pipeline, run.date, record.attempts) if record.attempts else None
        if latest is None or latest.state is not RunState.FAILED or latest.execution == execution:
            return False
        return latest.run.run_id == run.run_id

    def _kept_provisional(
        self, record: DayRecord, provisional: PublishedRun, *, known: Mapping[str, object] | None
    ) -> Frozen:
        """Return what happens to the provisional version, whose inputs are the present ones.

        It stays with None. Otherwise the period has ended, and the record of the run gets what is known now.
        """
        run = provisional.run
        if known is None:
            return Frozen(action=FreezeAction.UNCHANGED, run=run, publication=provisional.publication)
        attempt = self.table.run(run.pipeline, run.date, run.attempt)
        if attempt is None:
            raise CloudError(f"the run table has no attempt {run.attempt} of {run.pipeline} for {run.date}")
        try:
            self.table.save(record, attempt.model_copy(update={**known, "cost_version": attempt.cost_version + 1}))
        except DayChanged:
            return Frozen(action=FreezeAction.WAIT)
        return Frozen(action=FreezeAction.FINISH, run=run.model_copy(update={"through": None}))

    def _roll_back(self, record: DayRecord, to: int, reason: str, execution: str, correlation_id: str) -> Frozen:
        """Claim the day for a run that publishes an earlier version again. Raises `InputError`."""
        attempt = self.table.run(record.pipeline, record.date, to)
        earlier = version_to_restore(record, attempt, to=to, reason=reason)
        number, path = record.attempts + 1, f"{record.pipeline}/{record.date}/{earlier.run.run_id}"
        prefix = f"s3://{self.exchange_bucket}/runs/{path}/{number}/"
        own = {
            "attempt": number,
            "correlation_id": correlation_id,
            "prefix": prefix,
            "accepts_audit": False,
            "profiled": False,
        }
        run = earlier.run.model_copy(update=own)
        started = rollback_record(earlier, reason=reason, run=run, execution=execution, now=self.now())
        return self._restoring(run) if self._claim_day(record, started) else Frozen(action=FreezeAction.WAIT)

    def _restoring(self, run: Run) -> Frozen:
        """Return the rollback that has claimed the day: only the job of the last stage runs, to publish the version.

        Raises `CloudError` if the claimed run is no rollback.
        """
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record is None or record.rollback is None:
            raise CloudError(f"the run table has no rollback with attempt {run.attempt} of {run.pipeline} {run.date}")
        finished = tuple(range(len(stages(self.project.pipeline(run.pipeline))) - 1))
        return Frozen(action=FreezeAction.RUN, run=run, finished=finished, restore=record.rollback.tag)

    def _claimed(self, run: Run, record: DayRecord, *, force: bool, is_rollback: bool) -> Frozen:
        """Return the run for which the same execution has claimed the day in an earlier call."""
        if self.on_started:
            self.on_started(run)
        if is_rollback:
            return self._restoring(run)
        manifest = read_manifest(self.store, run.manifest)
        return self._started(run, manifest, record, force=force)

    def _started(self, run: Run, manifest: InputManifest, record: DayRecord, *, force: bool) -> Frozen:
        """Return the run that has claimed the day, with the stages that it need not compute: none with `force`."""
        numbers = [] if force else range(run.attempt - 1, max(run.attempt - 1 - _ATTEMPTS, 0), -1)
        attempts = (self.table.run(run.pipeline, run.date, number) for number in numbers)
        earlier = [item for item in attempts if item and (self.keeps.published or item.state is not RunState.PUBLISHED)]
        since = self.now() - self.keeps.age
        published = record.published.run.attempt if record.published else 0
        identities = stage_identities(self.project, run, manifest, published=published)
        kept = keep_finished_stages(
            run,
            identities,
            [item.run for item in earlier],
            since=since,
            store=self.store,
            all_versions=self.project.pipeline(run.pipeline).versions == "all",
        )
        store_earlier_stages(
            self.project, run, manifest, earlier, since=since, store=self.store, large_rows=self.large_rows
        )
        # The job of the last stage runs in any case, because it publishes the day.
        finished = tuple(position for position, stage in enumerate(list(identities)[:-1]) if stage in kept)
        return Frozen(action=FreezeAction.RUN, run=run, finished=finished)

    def _day(self, pipeline: str, local_date: str) -> Period:
        """Return the day. Raises `InputError` for a wrong date or pipeline."""
        definition = self.project.pipeline(pipeline)
        check_kind(local_date, definition)
        day = period_of(local_date, definition.timezone)
        timezone = "UTC" if definition.period == "hour" else definition.timezone
        if day.start > self.now():
            raise InputError(f"date: {local_date} has not begun in {timezone}")
        return day

    def _next_run(self, manifest: InputManifest, digest: str, record: DayRecord, correlation_id: str) -> Run:
        """Return the day's next attempt, which reads the manifest with this digest. Nothing is stored yet."""
        run_id = new_run_id(self.project, manifest.pipeline, manifest.date, inputs=digest)
        path = f"{manifest.pipeline}/{manifest.date}"
        # Another definition may read the same days of a table with other names.
        definition = self.project.written_digest(manifest.pipeline)[:16]
        attempt = record.attempts + 1
        return Run(
            pipeline=manifest.pipeline,
            date=manifest.date,
            run_id=run_id,
            attempt=attempt,
            correlation_id=correlation_id,
            manifest=f"s3://{self.exchange_bucket}/manifests/{path}/{definition}/{digest}.json",
            prefix=f"s3://{self.exchange_bucket}/runs/{path}/{run_id}/{attempt}/",
            files=len(manifest.objects),
            rows=manifest.rows,
            bytes=manifest.bytes,
            read_bytes=manifest.read_bytes,
            accepts_audit=decision_about(record, digest) is ResolutionAction.RELEASED,
        )

    def _claim_day(self, record: DayRecord, started: RunRecord) -> bool:
        """Record the started run, and that its execution owns the day; return False if the day's record has changed."""
        run = started.run
        claimed = record.model_copy(
            update={
                "attempts": run.attempt,
                "active": ActiveRun(execution=started.execution, run=run, since=started.started_at),
                "outcome_unknown": record.outcome_unknown or record.active is not None,
                "unreadable_since": None,
            }
        )
        try:
            # One transaction: a function of the lost run may still work, and record that it has published the day.
            lost = self.table.run(run.pipeline, run.date, record.active.run.attempt) if record.active else None
            is_open = lost is not None and lost.state is RunState.RUNNING
            if lost and is_open:
                ended = {"state": RunState.FAILED, "ended_at": self.now(), "error": LOST_RUN}
                self.table.save(claimed, started, lost.model_copy(update=ended))
            else:
                self.table.save(claimed, started)
        except DayChanged:
            return False
        if lost and is_open and self.on_ended:
            self.on_ended(lost.run)
        if self.on_started:
            self.on_started(run)
        if record.active:
            self.on_run_lost(run.pipeline)
        return True
