"""Recording the outcome of a run: its publication or its failure, and the stages that it has finished."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from slackwater.errors import (
    AuditFailed,
    CloudError,
    DataError,
    DayChanged,
    InputInvalid,
    ObjectMissing,
    SlackwaterError,
    Throttled,
    Unavailable,
)
from slackwater.metrics import Metric, PutsMetric, Warns
from slackwater.runs.arrivals import SendsArrivals, day_published
from slackwater.runs.attempt_files import failure_uri, publication_uri
from slackwater.runs.cost_recorder import CostRecorder, is_final
from slackwater.runs.finished_stages import finished_stages, stage_names
from slackwater.runs.holds import audit_hold, held, hold_ended, inputs_of
from slackwater.runs.period import is_hour
from slackwater.runs.pipeline_verdicts import PipelineVerdicts
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run, RunReason, RunRecord, RunState
from slackwater.runs.rollback import rollback_hold
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore, stored_reason

# Only a check of the pipeline writes the cost of a run at the same time.
_MAX_COST_WRITES = 3
# The function that records the outcome of a run has a minute.
COMPARED_HOURS = timedelta(hours=366)
"""How old the published version of an hour may be for the next one to be compared with it. Versions of hours stay
longer, and this is the largest window (`late.window_hours`)."""
_EARLIER_COSTS = timedelta(seconds=15)
# What EMR reports about a job that fails before its own code runs. Python exits with 2 for wrong arguments.
_NOT_STARTED = re.compile(r"\bExitCode: 2\b|NoSuchFile|ClassNotFound")
# Errors of a job that end before it commits.
_REFUSED = frozenset({AuditFailed.__name__, DataError.__name__, InputInvalid.__name__})
REMOVED_AT_ONCE = 5000
"""Arrow files that one call of `remove_arrow_files` removes: five pages of a listing."""


class Failure(NamedTuple):
    """Why a run failed."""

    reason: str
    """In one line."""
    is_transient: bool
    """Whether the same run may succeed when it is started again, because its job has lost its workers."""
    error_type: str = ""
    """Name of the error's class, if a job has written the reason."""
    is_new: bool = False
    """Whether this call has recorded it: a repeated call has not."""


class EndedInFailure(NamedTuple):
    """What the state machine needs to know of a run that has failed."""

    reason: str
    retry: bool
    """Whether to run the day once more."""


class RecordedPublication(NamedTuple):
    """What a run has published."""

    publication: Publication
    is_new: bool
    """Whether this call has recorded it: a repeated call has not, nor one for a run that was closed as lost."""


@dataclass(frozen=True, kw_only=True)
class RunRecorder:
    """Records the outcome of runs. Step Functions may repeat every call: a second call changes nothing.

    All methods raise `CloudError` for a run that the run table does not contain.
    """

    store: ObjectStore
    table: RunTable
    now: Callable[[], datetime]
    costs: CostRecorder | None = None
    """None leaves the costs of runs to the next check."""
    arrivals: SendsArrivals | None = None
    """None leaves days that have read earlier rows of a run's day to the daily check."""
    wake_day: Callable[[str, str], None] | None = None
    """Has the runs evaluated that wait for a day of a pipeline. None leaves them to their next evaluation."""
    verdicts: PipelineVerdicts | None = None
    """Gives the verdicts of pipelines about their inputs. None gives none."""
    on_ended: Callable[[Run], None] | None = None
    """Called with each run whose end is recorded, also in a repeated call: the first one may have ended before."""
    put_metric: PutsMetric | None = None
    """Called once for each run that has ended, unless the day runs once more."""
    warn: Warns | None = None
    keeps_arrow_files: bool = True
    """Whether Arrow files stay for some days after their run has published its day."""

    def end_published(self, run: Run) -> Publication:
        """Record the publication of a run, clear verdicts and record the cost; return the publication.

        Arrow files are removed unless they stay. An error in what follows the record is only logged: the next check of
        the days clears verdicts and records a cost that is missing, and the bucket's lifecycle rule removes files that
        are left. Raises what `record_published` raises, and `Throttled` and `Unavailable` if AWS is too busy to clear
        verdicts: no check looks at published hours.
        """
        publication, is_new = self.record_published(run)
        # Before all that may fail: a repeated call does not count it.
        if is_new and self.put_metric:
            self.put_metric(Metric.RUNS_PUBLISHED, 1, pipeline=run.pipeline)
        with self._best_effort("the verdicts of the pipeline were not cleared", unless=(Throttled, Unavailable)):
            self._clear_verdicts(run)
        with self._best_effort("the cost of the run was not recorded"):
            self.record_cost(run)
            self._record_earlier_costs(run)
        if not self.keeps_arrow_files:
            with self._best_effort("the Arrow files of the run were not removed"):
                self.remove_arrow_files(run)
        return publication

    def end_failed(self, run: Run, *, error: str, cause: str, retried: bool) -> EndedInFailure:
        """Record why the run failed, its verdict and its cost; return the reason, and whether to run the day once more.

        `error` and `cause` come from Step Functions. `retried` is whether the execution has run the day a second time
        already. An error in recording the cost is only logged. Raises what `record_failure` and
        `PipelineVerdicts.of_failed` raise.
        """
        failure = self.record_failure(run, error=error, cause=cause)
        ended = EndedInFailure(failure.reason, retry=failure.is_transient and not retried)
        if failure.is_new and self.put_metric and not ended.retry:
            self.put_metric(Metric.RUNS_FAILED, 1, pipeline=run.pipeline)
        # A run of an open day gives none: the events that come next may change it.
        if self.verdicts and not run.through and failure.error_type == InputInvalid.__name__:
            record = self._record(run)
            # One that a later run has closed as lost gives none: the later one may have published already.
            if record.error == failure.reason:
                self._give_verdicts(record, self.verdicts)
        with self._best_effort("the cost of the run was not recorded"):
            self.record_cost(run)
            self._record_earlier_costs(run)
        return ended

    def _give_verdicts(self, record: RunRecord, verdicts: PipelineVerdicts) -> None:
        """Give the verdicts of a failed run, unless a later one has published: nothing would clear them."""
        if not (later := self._later_publication(record.run)):
            verdicts.of_failed(record)
            # It may have published, and cleared what there was, before these were stored.
            later = self._later_publication(record.run)
        if later:
            # Also before a repeated call: the first one may have ended after it had stored them.
            verdicts.of_published([later])

    def _later_publication(self, run: Run) -> RunRecord | None:
        """Return the latest run after this one whose publication clears verdicts about the day's inputs."""
        runs = self.table.runs(run.pipeline, run.date)
        return next((each for each in reversed(runs) if each.run.attempt > run.attempt and _clears(each)), None)

    def _clear_verdicts(self, run: Run) -> None:
        if self.verdicts and _clears(record := self._record(run)):
            self.verdicts.of_published([record])

    @contextmanager
    def _best_effort(self, message: str, *, unless: tuple[type[SlackwaterError], ...] = ()) -> Iterator[None]:
        try:
            yield
        except SlackwaterError as error:
            if isinstance(error, unless):
                raise
            if self.warn:
                self.warn(message, reason=str(error))

    def record_published(self, run: Run) -> RecordedPublication:
        """Record and return the run's publication, make it the day's published run, and release the day.

        Raises `ObjectMissing` when the last stage's job has written no publication.
        """
        publication = Publication.model_validate_json(self.store.get(publication_uri(run.prefix)))
        day, record = self._day_and_record(run)
        now = self.now()
        is_changed = record.state is RunState.PUBLISHED or not _has_same_rows(day, publication)
        if run.through is None and record.run.through:
            # Its provisional version is to be the published one.
            if not _may_finish(day, run):
                return RecordedPublication(publication, is_new=False)
            # With the next version of the cost: who is writing a cost at this time reads the run again.
            changes = {"run": run, "reasons": (RunReason.FIRST,), "cost_version": record.cost_version + 1}
            finished = record.model_copy(update=changes)
            self.table.save(day.model_copy(update=self._published_as(day, run, publication, now=now)), finished)
        # A run that another execution has closed as lost stays failed: the day may belong to a later run already.
        is_new = record.state is RunState.RUNNING
        if is_new:
            stages = finished_stages(run, store=self.store)
            changes = {"state": RunState.PUBLISHED, "ended_at": now, "publication": publication, "stages": stages}
            ended = record.model_copy(update=changes)
            update = self._published_as(day, run, publication, now=now)
            day = hold_ended(day, reason=f"attempt {run.attempt} has published", inputs=inputs_of(run), now=now)
            if record.rollback:
                # In the same transaction: no check sees the earlier version without the hold.
                update["hold"] = rollback_hold(record, now=now)
            self.table.save(released(day, run).model_copy(update=update), ended)
        if record.state is RunState.FAILED:
            return RecordedPublication(publication, is_new)
        # Nobody but readers of the table learns of a version of a period that has not ended.
        if run.through is None:
            # After the publication: without it, the day still waits for a run.
            self.table.remove_late_day(run.pipeline, run.date, read_at=record.frozen_at)
            if is_changed:
                # Also in a repeated call: the first one may have ended before.
                self.request_checks(run)
            if self.wake_day:
                # Also with the same rows: this version has no verdict yet.
                self.wake_day(run.pipeline, run.date)
        if self.on_ended:
            self.on_ended(run)
        return RecordedPublication(publication, is_new)

    def _published_as(self, day: DayRecord, run: Run, publication: Publication, *, now: datetime) -> dict[str, object]:
        """Return the fields of the day that say what is published."""
        version = PublishedRun(run=run, publication=publication, at=now)
        update: dict[str, object] = {"outcome_unknown": False, "unreadable_since": None}
        if run.through:
            return {**update, "provisional": version}
        # The first version counts as notified: there is no earlier one to compare it with.
        notified = run.attempt if _is_first(day, now=now) else day.notified_attempt
        return {**update, "published": version, "provisional": None, "notified_attempt": notified}

    def request_checks(self, run: Run) -> None:
        """Have the days checked that have read earlier rows of the run's day. An error is only logged."""
        if self.arrivals:
            with self._best_effort("days wait for the daily check"):
                self.arrivals([(day_published(run.pipeline, run.date, time=self.now()).model_dump_json(), 0)])

    def record_failure(self, run: Run, *, error: str, cause: str) -> Failure:
        """Record why the run failed, release the day, and return the failure.

        `error` and `cause` come from Step Functions. They are used only if no job has written a message of its own.
        """
        try:
            reason = stored_reason(self.store, failure_uri(run.prefix))
            failure = Failure(reason, is_transient=False, error_type=reason.partition(": ")[0])
        except ObjectMissing:
            failure = Failure(failure_message(error, cause), is_transient=_has_lost_workers(error, cause))
        day, record = self._day_and_record(run)
        if record.state is RunState.RUNNING:
            stages = finished_stages(run, store=self.store)
            changes = {"state": RunState.FAILED, "ended_at": self.now(), "error": failure.reason, "stages": stages}
            ended = record.model_copy(update=changes)
            has_ended = _failed_job(error, cause) is not None
            self.table.save(self._failed_day(released(day, run), ended, failure, job_has_ended=has_ended), ended)
        if record.state is not RunState.PUBLISHED and self.on_ended:
            self.on_ended(run)
        return failure._replace(is_new=record.state is RunState.RUNNING)

    def _failed_day(self, day: DayRecord, record: RunRecord, failure: Failure, *, job_has_ended: bool) -> DayRecord:
        """Return the day after a failed run: on hold if another run with the same inputs would fail as well."""
        if record.run.through and failure.error_type in _REFUSED:
            # The next events may change it, and a person is asked once the period has ended.
            return day
        if record.rollback:
            # Its job refuses a version only before it commits.
            if failure.error_type in {AuditFailed.__name__, ObjectMissing.__name__} and not self._published(record):
                return day
        elif failure.error_type == AuditFailed.__name__ or (
            failure.error_type in {DataError.__name__, InputInvalid.__name__}
            and day.published
            and not self._published(record)
        ):
            hold = audit_hold(record.run, reason=failure.reason, execution=record.execution, now=self.now())
            return held(day, hold)
        # The last stage's job may have started, if all other stages are finished: it may have committed before it
        # failed, so the table may hold the rows of this run. A rollback has only the last stage, and stores no names.
        # It commits the rows that it has written for its stage: without these, a job that has ended has not committed.
        names, finished = stage_names(record.run, store=self.store), {item.stage for item in record.stages}
        may_have_published = finished.issuperset(names if job_has_ended else names[:-1])
        return day.model_copy(update={"outcome_unknown": day.outcome_unknown or may_have_published})

    def _published(self, record: RunRecord) -> bool:
        """Return whether the run has published: load steps, which follow, may fail with the errors of steps before."""
        try:
            self.store.get(publication_uri(record.run.prefix))
        except ObjectMissing:
            return False
        return True

    def record_cost(self, run: Run) -> None:
        """Record what is known about the cost of a run whose end is recorded.

        Raises `CloudError`, `AccessDenied`, and `DayChanged` when other processes keep recording the cost.
        """
        for _ in range(_MAX_COST_WRITES):
            record = self._record(run)
            if self.costs is None or is_final(record) or self.costs.record(record):
                return
        raise DayChanged(f"{run.pipeline}: the cost of {run.date} kept changing while it was recorded")

    def _record_earlier_costs(self, run: Run) -> None:
        """Record the costs of earlier hours, which AWS reports some time after a run. Of days, the checks do so."""
        if self.costs and is_hour(run.date):
            self.costs.record_due(run.pipeline, within=_EARLIER_COSTS)

    def remove_arrow_files(self, run: Run) -> int:
        """Remove the Arrow files of the run's stages if the run has published its day; return how many were removed.

        Only this attempt's jobs read them, and all of these have ended. One call removes at most `REMOVED_AT_ONCE`
        files: the bucket's lifecycle rule removes the rest, and the files of failed runs.
        """
        if self._record(run).state is not RunState.PUBLISHED:
            return 0
        uris = [item.uri for item in islice(self.store.list(run.arrow_prefix), REMOVED_AT_ONCE)]
        self.store.delete(uris)
        return len(uris)

    def _day_and_record(self, run: Run) -> tuple[DayRecord, RunRecord]:
        """Return the records of the run's day and of the run. Raises `CloudError`."""
        # The day is read first: if another execution closes the run as lost after that, the day cannot be written.
        return self.table.day(run.pipeline, run.date), self._record(run)

    def _record(self, run: Run) -> RunRecord:
        """Return the record of the run. Raises `CloudError` if the run table does not contain it."""
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record is None:
            raise CloudError(f"the run table has no attempt {run.attempt} of {run.pipeline} for {run.date}")
        return record


def _clears(record: RunRecord) -> bool:
    """Return whether a run has published what it has read: no earlier version again, and not before the day's end."""
    return record.state is RunState.PUBLISHED and not (record.rollback or record.run.through)


def _may_finish(day: DayRecord, run: Run) -> bool:
    """Return whether the day's provisional version is that of the run, and no other run may replace it."""
    version = day.provisional
    return version is not None and version.run.attempt == run.attempt and not day.active and not day.outcome_unknown


def _is_first(day: DayRecord, *, now: datetime) -> bool:
    """Return whether no version before is left to compare one with: of an hour, they end some time after the last."""
    if day.published is None:
        return True
    return is_hour(day.date) and not day.notification_due and day.published.at < now - COMPARED_HOURS


def _has_same_rows(day: DayRecord, publication: Publication) -> bool:
    """Return whether the day is published with the rows of the publication; False if an older version published it."""
    return day.published is not None and "" != publication.content == day.published.publication.content


def _has_lost_workers(error: str, cause: str) -> bool:
    """Return whether a Spark job has failed that wrote no error: a job that ends by itself always writes one.

    A job that somebody stopped, or that ran too long, is cancelled and has not failed. One that could not be started
    with its arguments, files or classes would fail again.
    """
    job = _failed_job(error, cause)
    return job is not None and not _NOT_STARTED.search(str(job.get("StateDetails")))


def _failed_job(error: str, cause: str) -> dict[str, object] | None:
    """Return what Step Functions says about a Spark job that has failed; None if none has."""
    try:
        job = json.loads(cause)
    except ValueError:
        return None
    is_failed = error == "States.TaskFailed" and isinstance(job, dict) and job.get("State") == "FAILED"
    return job if is_failed else None


def failure_message(error: str, cause: str) -> str:
    """Return an error of Step Functions in one line: its name and the last line of its cause.

    If `cause` is JSON that describes a job run or a function's exception, the line comes from the message in it.
    """
    try:
        details = json.loads(cause)
    except ValueError:
        details = None
    if isinstance(details, dict):
        cause = str(details.get("StateDetails") or details.get("errorMessage") or cause)
    # The last line of a stack trace is its message.
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    return f"{error}: {lines[-1] if lines else 'no cause was given'}"


def released(day: DayRecord, run: Run) -> DayRecord:
    """Return the day without its active run, unless another run has claimed it since."""
    is_active = day.active is not None and day.active.run.attempt == run.attempt
    return day.model_copy(update={"active": None}) if is_active else day
