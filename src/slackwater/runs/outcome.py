"""Recording the outcome of a run: its stages as they end, its publication or its failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from slackwater.arrow.reference import ArrowReference, reference_uri
from slackwater.errors import AccessDenied, CloudError, ObjectMissing
from slackwater.runs.record import (
    DayRecord,
    Publication,
    PublishedRun,
    Run,
    RunRecord,
    RunState,
    StageRecord,
    failure_uri,
    publication_uri,
)
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore

REMOVED_AT_ONCE = 5000
"""Arrow files that one call of `remove_arrow_files` removes: five pages of a listing."""


@dataclass(frozen=True, kw_only=True)
class RunRecorder:
    """Records the outcome of runs. Step Functions may repeat every call: a second call changes nothing.

    All methods raise `CloudError` for a run that the run table does not contain.
    """

    store: ObjectStore
    table: RunTable
    now: Callable[[], datetime]

    def record_stage(self, run: Run, stage: str) -> ArrowReference:
        """Record and return the reference that a stage has written. Raises `ObjectMissing` when there is none."""
        uri = reference_uri(run.stage_prefix(stage))
        reference = ArrowReference.model_validate_json(self.store.get(uri))
        record = self._record(run)
        others = tuple(item for item in record.stages if item.stage != stage)
        stages = (*others, StageRecord(stage=stage, reference=reference))
        self.table.save(run=record.model_copy(update={"stages": stages}))
        return reference

    def record_published(self, run: Run) -> Publication:
        """Record and return the run's publication, make it the day's published run, and release the day.

        Raises `ObjectMissing` when the last stage's job has written no publication.
        """
        publication = Publication.model_validate_json(self.store.get(publication_uri(run.prefix)))
        record, day, now = self._record(run), self.table.day(run.pipeline, run.date), self.now()
        # A run that another execution has closed as lost stays failed: the day may belong to a later run already.
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.PUBLISHED, "ended_at": now, "publication": publication})
            update = {
                "published": PublishedRun(run=run, publication=publication, at=now),
                "outcome_unknown": False,
                # The first version counts as notified: there is no earlier one to compare it with.
                "notified_attempt": day.notified_attempt if day.published else run.attempt,
            }
            self.table.save(run=ended, day=released(day, run).model_copy(update=update))
        return publication

    def record_failure(self, run: Run, *, error: str, cause: str) -> str:
        """Record why the run failed, release the day, and return the reason in one line.

        `error` and `cause` come from Step Functions. They are used only if no job has written a message of its own.
        """
        try:
            message = self.store.get(failure_uri(run.prefix)).decode()
        except (ObjectMissing, AccessDenied):
            # Without the permission to list the bucket, S3 answers 403 instead of 404 for a missing object.
            message = failure_message(error, cause)
        record, day = self._record(run), self.table.day(run.pipeline, run.date)
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": message})
            # The last stage's job may have committed before it failed, so the table may hold the rows of this run.
            self.table.save(run=ended, day=released(day, run).model_copy(update={"outcome_unknown": True}))
        return message

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

    def _record(self, run: Run) -> RunRecord:
        """Return the record of the run. Raises `CloudError` if the run table does not contain it."""
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record is None:
            raise CloudError(f"the run table has no attempt {run.attempt} of {run.pipeline} for {run.date}")
        return record


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
