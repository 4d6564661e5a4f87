"""Runs and days as they stand in the run table, and the small run that passes through Step Functions."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slackwater.arrow.reference import ArrowReference
from slackwater.runs.manifest import Record


class RunState(StrEnum):
    """A run is running until it has published its day or failed."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"


def run_identity(*, pipeline: str, date: str, manifest: str, definition: str) -> str:
    """Return 32 hex digits: the same for the same work, different for different work (design: run identity).

    `manifest` and `definition` are the digests of the input manifest and of the pipeline's definition.
    """
    return hashlib.sha256("\n".join((pipeline, date, manifest, definition)).encode()).hexdigest()[:32]


class Run(Record):
    """What passes through the orchestrator of a run: identifiers, addresses and counts."""

    pipeline: str
    date: str
    run_id: str
    attempt: Annotated[int, Field(ge=1)]
    correlation_id: str
    manifest: str
    """Address of the input manifest."""
    prefix: str
    """Where this attempt writes: `s3://exchange/runs/<pipeline>/<date>/<run_id>/<attempt>/`."""
    files: int
    rows: int
    bytes: int

    @property
    def tag(self) -> str:
        """The tag by which the version of the table that this attempt publishes stays reachable."""
        return version_tag(date=self.date, run_id=self.run_id, attempt=self.attempt)


def version_tag(*, date: str, run_id: str, attempt: int) -> str:
    """Return the tag of the version of the table that an attempt publishes."""
    return f"{date}-{run_id[:12]}-{attempt}"


def failure_uri(prefix: str) -> str:
    """Return the address at which a job of the attempt that writes under `prefix` says why it failed."""
    return f"{prefix}failure.txt"


class Publication(Record):
    """What publishing a day answered: the reference of a publish."""

    table: str
    snapshot_id: str
    rows: Annotated[int, Field(ge=0)]
    replaced: Annotated[int, Field(ge=0)]
    """Rows of the day before this publish."""
    seconds: Annotated[float, Field(ge=0)]


class StageRecord(Record):
    """A stage of the run that has ended, with the reference it left."""

    stage: str
    reference: ArrowReference


class RunRecord(Record):
    """One attempt of a run, as the run table keeps it."""

    run: Run
    state: RunState
    execution: str
    """ARN of the execution that carries it."""
    started_at: datetime
    ended_at: datetime | None = None
    stages: tuple[StageRecord, ...] = ()
    publication: Publication | None = None
    error: str | None = None


class ActiveRun(Record):
    """The execution that a day belongs to while it runs."""

    execution: str
    run: Run
    since: datetime


class PublishedRun(Record):
    """The run whose output stands in the warehouse for a day."""

    run: Run
    publication: Publication
    at: datetime


class NotificationClaim(Record):
    """Who is about to tell people of a published version, since when."""

    execution: str
    attempt: int
    since: datetime
    call: str = ""
    """Which try of the execution it is, by a name that no other has."""


class DayRecord(Record):
    """What is known of one pipeline's day: who runs it now, what stands published.

    `version` counts the writes: a write names the version it has seen, so that of two writers at once one must look
    again.
    """

    pipeline: str
    date: str
    version: int = 0
    attempts: int = 0
    active: ActiveRun | None = None
    unsure: bool = False
    """Whether a run has ended without saying whether it had published: what stands may not be `published`."""
    published: PublishedRun | None = None
    told: int = 0
    """The attempt whose output people know: the first published one, then the latest that they were told of."""
    telling: NotificationClaim | None = None

    @property
    def notification_due(self) -> bool:
        """Whether a version stands published that people have not been told of."""
        return self.published is not None and self.told < self.published.run.attempt
