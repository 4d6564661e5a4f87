"""Recording the outcome of a run: its stages as they end, its publication or its failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from slackwater.arrow.reference import ArrowReference
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


@dataclass(frozen=True, kw_only=True)
class RunRecorder:
    """Records the outcome of runs. Every call may be repeated: the second one changes nothing."""

    store: ObjectStore
    table: RunTable
    now: Callable[[], datetime]

    def record_stage(self, run: Run, stage: str) -> ArrowReference:
        """Record and return the reference that a stage has written. Raises `ObjectMissing` when there is none."""
        reference = ArrowReference.model_validate_json(self.store.get(f"{run.prefix}{stage}/reference.json"))
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
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.PUBLISHED, "ended_at": now, "publication": publication})
            update = {
                "published": PublishedRun(run=run, publication=publication, at=now),
                "outcome_unknown": False,
                # Nobody is notified of the first version: there is nothing to compare it with.
                "notified_attempt": day.notified_attempt if day.published else run.attempt,
            }
            self.table.save(run=ended, day=released(day, run).model_copy(update=update))
        return publication

    def record_failure(self, run: Run, *, error: str, cause: str) -> str:
        """Record and return in one line why the run failed, and release the day.

        The message that a failed job has written wins over `error` and `cause`, which come from Step Functions.
        """
        try:
            message = self.store.get(failure_uri(run.prefix)).decode()
        except (ObjectMissing, AccessDenied):  # without permission to list, S3 denies access to a missing object
            message = failure_message(error, cause)
        record, day = self._record(run), self.table.day(run.pipeline, run.date)
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": message})
            # The last stage's job may have committed before it failed.
            self.table.save(run=ended, day=released(day, run).model_copy(update={"outcome_unknown": True}))
        return message

    def _record(self, run: Run) -> RunRecord:
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record is None:
            raise CloudError(f"the run table does not know attempt {run.attempt} of {run.pipeline} for {run.date}")
        return record


def failure_message(error: str, cause: str) -> str:
    """Return a failure of Step Functions in one line: the error's name and the last line of its cause.

    Where `cause` describes a job run or a function's exception as JSON, the line comes from its message.
    """
    try:
        details = json.loads(cause)
    except ValueError:
        details = None
    if isinstance(details, dict):
        cause = str(details.get("StateDetails") or details.get("errorMessage") or cause)
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    return f"{error}: {lines[-1] if lines else 'no cause was given'}"


def released(day: DayRecord, run: Run) -> DayRecord:
    """Return the day without its active run, unless another run has claimed it since."""
    is_active = day.active is not None and day.active.run.attempt == run.attempt
    return day.model_copy(update={"active": None}) if is_active else day
