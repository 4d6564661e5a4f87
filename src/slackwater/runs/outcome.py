"""Recording what became of a run: its stages as they end, its publication or its failure."""

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
)
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Writes the outcome of runs. Every call may be repeated: the second one changes nothing."""

    store: ObjectStore
    table: RunTable
    now: Callable[[], datetime]

    def stage(self, run: Run, stage: str) -> ArrowReference:
        """Keep and return the reference that a stage has left. Raises `ObjectMissing` when it left none."""
        reference = ArrowReference.model_validate_json(self.store.get(f"{run.prefix}{stage}/reference.json"))
        record = self._record(run)
        others = tuple(done for done in record.stages if done.stage != stage)
        stages = (*others, StageRecord(stage=stage, reference=reference))
        self.table.save(run=record.model_copy(update={"stages": stages}))
        return reference

    def published(self, run: Run) -> Publication:
        """Keep and return what publishing has left, and make it what stands for the day."""
        publication = Publication.model_validate_json(self.store.get(f"{run.prefix}publish/reference.json"))
        record, day, now = self._record(run), self.table.day(run.pipeline, run.date), self.now()
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.PUBLISHED, "ended_at": now, "publication": publication})
            update = {
                "published": PublishedRun(run=run, publication=publication, at=now),
                "unsure": False,
                # The first version is news to nobody: there is nothing to compare it with.
                "told": day.told if day.published else run.attempt,
            }
            self.table.save(run=ended, day=_released(day, run).model_copy(update=update))
        return publication

    def failed(self, run: Run, *, error: str, cause: str) -> str:
        """Keep and return why the run failed, in one line, and let go of the day.

        A job that failed has left its own words; an error of another kind is told by its cause.
        """
        try:
            why = self.store.get(failure_uri(run.prefix)).decode()
        except (ObjectMissing, AccessDenied):  # S3 says either of an object that is not there
            why = reason(error, cause)
        record, day = self._record(run), self.table.day(run.pipeline, run.date)
        if record.state is RunState.RUNNING:
            ended = record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": why})
            # Its publishing job may have committed before it failed.
            self.table.save(run=ended, day=_released(day, run).model_copy(update={"unsure": True}))
        return why

    def _record(self, run: Run) -> RunRecord:
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record is None:
            raise CloudError(f"the run table does not know attempt {run.attempt} of {run.pipeline} for {run.date}")
        return record


def _released(day: DayRecord, run: Run) -> DayRecord:
    """The day without its active run, if that is still this one."""
    mine = day.active is not None and day.active.run.attempt == run.attempt
    return day.model_copy(update={"active": None}) if mine else day


def reason(error: str, cause: str) -> str:
    """Return a failure in one line: the driver's own words where the cause holds a job run, else the cause itself."""
    try:
        detail = json.loads(cause)
    except ValueError:
        detail = None
    if isinstance(detail, dict):
        cause = str(detail.get("StateDetails") or detail.get("errorMessage") or cause)
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    return f"{error}: {lines[-1] if lines else 'no cause was given'}"
