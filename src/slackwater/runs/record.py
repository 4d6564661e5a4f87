"""Runs and days as the run table stores them, and the small `Run` that passes through Step Functions."""

from __future__ import annotations

import hashlib
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from slackwater.arrow.reference import ArrowReference
from slackwater.runs.manifest import Record


class RunState(StrEnum):
    """The state of a run; it is running until it has published its day or failed."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"


def run_identity(*, pipeline: str, date: str, manifest: str, definition: str) -> str:
    """Return 32 hex digits that are equal for equal work and different for different work.

    `manifest` and `definition` are the digests of the input manifest and of the pipeline's definition.
    """
    return hashlib.sha256("\n".join((pipeline, date, manifest, definition)).encode()).hexdigest()[:32]


def _iso_date(value: str) -> str:
    date.fromisoformat(value)
    return value


IsoDate = Annotated[str, AfterValidator(_iso_date)]
"""A date such as 2013-03-10."""

RUN_LIMIT = 1024
"""Bytes that a run may take as JSON: it is passed through Step Functions and is one argument of every Spark job."""


class Run(Record):
    """A run as Step Functions and Spark jobs receive it: identifiers, URIs and counts."""

    pipeline: str
    date: IsoDate
    run_id: str
    attempt: Annotated[int, Field(ge=1)]
    correlation_id: Annotated[str, Field(max_length=128)]
    manifest: str
    """URI of the input manifest."""
    prefix: str
    """URI prefix of everything that this attempt writes: `s3://exchange/runs/<pipeline>/<date>/<run_id>/<attempt>/`."""
    files: int
    rows: int
    bytes: int

    @property
    def tag(self) -> str:
        """The Iceberg tag that keeps the table version of this attempt readable."""
        return version_tag(date=self.date, run_id=self.run_id, attempt=self.attempt)


def version_tag(*, date: str, run_id: str, attempt: int) -> str:
    """Return the Iceberg tag of the table version that an attempt publishes."""
    return f"{date}-{run_id[:12]}-{attempt}"


def failure_uri(prefix: str) -> str:
    """Return the URI at which a failed job of the attempt with that prefix writes its error."""
    return f"{prefix}failure.txt"


def publication_uri(prefix: str) -> str:
    """Return the URI of the publication that the attempt under `prefix` leaves."""
    return f"{prefix}publish/reference.json"


class Publication(Record):
    """The result of publishing a day, as the job writes it."""

    table: str
    snapshot_id: str
    rows: Annotated[int, Field(ge=0)]
    replaced: Annotated[int, Field(ge=0)]
    """Rows that the day had before this publish."""
    seconds: Annotated[float, Field(ge=0)]


class StageRecord(Record):
    """A finished stage of the run, with its Arrow reference."""

    stage: str
    reference: ArrowReference


class RunRecord(Record):
    """One attempt of a run, as the run table stores it."""

    run: Run
    state: RunState
    execution: str
    """ARN of the Step Functions execution."""
    started_at: datetime
    ended_at: datetime | None = None
    stages: tuple[StageRecord, ...] = ()
    publication: Publication | None = None
    error: str | None = None


class ActiveRun(Record):
    """The execution that owns a day, and its run."""

    execution: str
    run: Run
    since: datetime


class PublishedRun(Record):
    """The run whose output the warehouse has for a day."""

    run: Run
    publication: Publication
    at: datetime


class NotificationClaim(Record):
    """The execution that is about to notify people of a published version."""

    execution: str
    attempt: int
    """Of the published version."""
    since: datetime
    call: str = ""
    """Unique for each call: Step Functions may call the function of one execution more than once."""


class DayRecord(Record):
    """The state of one pipeline's day: the execution that runs it, and the published run.

    `version` counts the writes. A write is conditional on the version that was read, so of two writers at the same
    time one fails and reads again.
    """

    pipeline: str
    date: str
    version: int = 0
    attempts: int = 0
    active: ActiveRun | None = None
    outcome_unknown: bool = False
    """Whether a later run has ended without an outcome: it may have published, so the table may not hold `published`.
    """
    published: PublishedRun | None = None
    notified_attempt: int = 0
    """The attempt whose output people know: the first published one, then the latest one they were notified of."""
    notification_claim: NotificationClaim | None = None

    @property
    def notification_due(self) -> bool:
        """Whether people have not been notified of the published version."""
        return self.published is not None and self.notified_attempt < self.published.run.attempt
