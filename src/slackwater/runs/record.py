"""Runs and days as the run table stores them, and the small `Run` that passes through Step Functions."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from slackwater.arrow.reference import ArrowReference, StepRecord
from slackwater.pipeline.definition import Aggregation
from slackwater.runs.day import parse_date
from slackwater.runs.inputs.manifest import Record
from slackwater.storage import split_uri


class RunState(StrEnum):
    """The state of a run; it is running until it has published its day or failed."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"


def run_identity(*, pipeline: str, date: str, manifest: str, definition: str) -> str:
    """Return the id of a run: 32 hex digits, which are equal if and only if all arguments are equal.

    `manifest` and `definition` are the digests of the input manifest and of the pipeline's definition.
    """
    # 128 bits of the SHA-256 leave room for the id in names of limited length, such as EMR's client token of 64.
    return hashlib.sha256("\n".join((pipeline, date, manifest, definition)).encode()).hexdigest()[:32]


def _iso_date(value: str) -> str:
    parse_date(value)
    return value


IsoDate = Annotated[str, AfterValidator(_iso_date)]
"""A date such as 2013-03-10."""

RUN_LIMIT = 1024
"""The largest size of a `Run` as JSON, in bytes: it passes through Step Functions, and every Spark job receives it as
one argument."""


ARROW_FILES = "arrow/"
"""Prefix of the keys of the Arrow files of all stages in the exchange bucket."""


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
    """URI prefix of everything that this attempt writes, except its Arrow files:
    `s3://exchange/runs/<pipeline>/<date>/<run_id>/<attempt>/`."""
    files: int
    """Objects in the input manifest."""
    rows: int
    """Events that count, in all objects."""
    bytes: int
    """Size of all objects."""

    def stage_prefix(self, stage: str) -> str:
        """Return the URI prefix of the manifest and the reference that this attempt writes for a stage."""
        return f"{self.prefix}{stage}/"

    @property
    def arrow_prefix(self) -> str:
        """URI prefix of the Arrow files of all stages of this attempt, each in the folder of its stage's name."""
        # A prefix of their own: a lifecycle rule of S3 removes them, and the manifests that describe them stay.
        bucket, key = split_uri(self.prefix)
        return f"s3://{bucket}/{ARROW_FILES}{key.removeprefix('runs/')}"

    @property
    def tag(self) -> str:
        """The Iceberg tag that keeps the table version of this attempt readable."""
        return version_tag(date=self.date, run_id=self.run_id, attempt=self.attempt)


def version_tag(*, date: str, run_id: str, attempt: int) -> str:
    """Return the Iceberg tag of the table version that an attempt publishes."""
    # Date and attempt make the tag unique; the start of the id shows a person which tags hold the same inputs.
    return f"{date}-{run_id[:12]}-{attempt}"


def failure_uri(prefix: str) -> str:
    """Return the URI at which a failed job of an attempt writes its error. `prefix` is `Run.prefix`."""
    return f"{prefix}failure.txt"


def publication_uri(prefix: str) -> str:
    """Return the URI at which the last stage's job of an attempt writes its `Publication`. `prefix` is `Run.prefix`."""
    # Outside of every `stage_prefix`, so that a stage may have any name.
    return f"{prefix}publication.json"


def loads_uri(prefix: str) -> str:
    """Return the URI at which the last stage's job of an attempt writes its `Loads`. `prefix` is `Run.prefix`."""
    return f"{prefix}loads.json"


class Loads(Record):
    """What the load steps of a run wrote, in order."""

    steps: tuple[StepRecord, ...]


class Publication(Record):
    """The result of publishing a day, as the job writes it."""

    table: str
    """The warehouse table, as `catalog.database.table`."""
    snapshot_id: str
    """The Iceberg snapshot of the commit."""
    rows: Annotated[int, Field(ge=0)]
    replaced: Annotated[int, Field(ge=0)]
    """Rows that the day had before, which the commit has removed."""
    seconds: Annotated[float, Field(ge=0)]
    """How long the audit, the commit and the tag took."""
    content: str = ""
    """Digest of the rows and their columns, in any order: equal for equal rows. Empty if an older version published."""


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
    files_not_taken: dict[str, int] = Field(default_factory=dict)
    """For each source: files of the day that could not be fetched before the inputs were listed, if there are any."""
    metrics: dict[str, Aggregation] = Field(default_factory=dict)
    """`publish.metrics` of the definition with which the run started."""


class ActiveRun(Record):
    """The execution that owns a day, and its run."""

    execution: str
    """ARN of the Step Functions execution."""
    run: Run
    since: datetime
    """When the execution claimed the day, UTC."""


class PublishedRun(Record):
    """The run whose output the warehouse holds for a day."""

    run: Run
    publication: Publication
    at: datetime
    """When the publication was recorded, UTC."""


class NotificationClaim(Record):
    """The execution that is about to notify people of a published version."""

    execution: str
    """ARN of the Step Functions execution."""
    attempt: int
    """The attempt that has published the version."""
    since: datetime
    """When the execution claimed the notification, UTC."""
    call: str = ""
    """Unique for each call: Step Functions may call the function of one execution more than once."""


class DayRecord(Record):
    """The state of one pipeline's day: the execution that runs it, and the published run.

    `version` counts the writes. A write succeeds only while the stored version is the one that was read, so of two
    concurrent writers one fails and reads again.
    """

    pipeline: str
    date: str
    version: int = 0
    attempts: int = 0
    """How many runs of the day have started. The latest attempt has this number."""
    active: ActiveRun | None = None
    outcome_unknown: bool = False
    """Whether a run has failed or was lost since `published` was recorded. It may have committed before, so the table
    may hold its rows instead."""
    published: PublishedRun | None = None
    notified_attempt: int = 0
    """The attempt that people were last notified of; the first published one counts as known."""
    notification_claim: NotificationClaim | None = None

    @property
    def notification_due(self) -> bool:
        """Whether people have not been notified of the published version."""
        return self.published is not None and self.notified_attempt < self.published.run.attempt
