"""Runs and days as the run table stores them, and the small `Run` that passes through Step Functions."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slackwater.arrow.reference import ArrowReference, StepRecord
from slackwater.costs.cost import RunCost
from slackwater.model import PeriodName, Record, UpdatedRecord
from slackwater.pipeline.definition import Aggregation
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.state.completeness import SourceCounts
from slackwater.storage import split_uri


class RunState(StrEnum):
    """The state of a run; it is running until it has published its day or failed."""

    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"


RUN_LIMIT = 1024
"""The largest size of a `Run` as JSON, in bytes: it passes through Step Functions, and every Spark job receives it as
one argument."""


LOST_RUN = "its execution ended without recording an outcome"
"""The error of a run that a later run of the day has closed."""
STOPPED = "Stopped"
"""The beginning of the error of a run that a person has stopped."""


ARROW_FILES = "arrow/"
"""Prefix of the keys of the Arrow files of all stages in the exchange bucket."""
REJECTED = "rejected"
"""Prefix of the keys of the rows that steps of runs have rejected in the raw bucket, and the folder of an attempt with
their manifests."""


class Run(UpdatedRecord):
    """A run as Step Functions and Spark jobs receive it: identifiers, URIs and counts."""

    pipeline: str
    date: PeriodName
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
    read_bytes: int = 0
    """Size of the objects that have the rows, which the jobs read: of packed hours, that of their packed objects. 0 in
    runs of earlier releases."""
    accepts_audit: bool = False
    """Whether the day is published although it has fewer rows, or lacks columns of the table: a person has released
    it."""
    profiled: bool = False
    """Whether its steps are computed one after the other, so that each has seconds of its own."""
    through: datetime | None = None
    """When the inputs of a provisional version were listed, UTC: the period had not ended. None for other versions."""

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


VERSION_TAG = re.compile(r"(\d{4}-\d\d-\d\d(?:T\d\d)?)-\w{12}-(\d+)")
"""Matches a `version_tag`: the period's name and the attempt. Tags of other systems are not ours."""


def version_tag(*, date: str, run_id: str, attempt: int) -> str:
    """Return the Iceberg tag of the table version that an attempt publishes."""
    # Date and attempt make the tag unique; the start of the id shows a person which tags hold the same inputs.
    return f"{date}-{run_id[:12]}-{attempt}"


def tagged_attempt(tag: str | None) -> int:
    """Return the attempt that has published the version with this Iceberg tag; 0 for a tag of another system."""
    match = VERSION_TAG.fullmatch(tag or "")
    return int(match[2]) if match else 0


class Loads(Record):
    """What the load steps of a run wrote, in order."""

    steps: tuple[StepRecord, ...]


class Publication(UpdatedRecord):
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


class StageRecord(UpdatedRecord):
    """A finished stage of the run, with its Arrow reference."""

    stage: str
    reference: ArrowReference


class RunReason(StrEnum):
    """Why a run started; several may apply at once."""

    FIRST = "first"
    """The day had no published version."""
    LATE_DATA = "late_data"
    """Inputs that both definitions read differ from those of the published version."""
    NEW_DEFINITION = "new_definition"
    """The pipeline or the columns of its sources have changed since the published version."""
    NEW_CODE = "new_code"
    """The code of the pipeline's steps or of the Spark job has changed since the published version."""
    MANUAL = "manual"
    """A person ran the day again with `--force`, although nothing had changed."""
    REPAIR = "repair"
    """Nothing had changed, but an earlier attempt had ended without an outcome and might have published."""
    LIVE = "live"
    """The period has not ended: the version is provisional."""
    ROLLBACK = "rollback"
    """A person published an earlier version of the day again."""


class Rollback(UpdatedRecord):
    """Which earlier version of the day a run publishes again."""

    to: Annotated[int, Field(ge=1)]
    """The number of the version: the attempt that published it."""
    tag: str
    """The Iceberg tag of the version."""
    reason: str
    """Why, as the person wrote it."""
    frozen_at: datetime
    """When the inputs of the version were listed, UTC."""


UNDEPLOYED_PROJECTS = "projects/"
"""The prefix, in the exchange bucket, of the project.json of pipelines that are run from a file."""


class JobFiles(UpdatedRecord):
    """URIs of the deployed files that the Spark jobs of a run are started with; their names have digests."""

    project: str
    """project.json, with the definitions."""
    archive: str
    """The archive of the library and of what it needs."""
    entry_point: str
    """The program of a stage's job."""

    @property
    def is_undeployed(self) -> bool:
        """Whether the pipeline was run from a file, without being deployed."""
        return f"/{UNDEPLOYED_PROJECTS}" in self.project


class RunRecord(UpdatedRecord):
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
    counts: tuple[SourceCounts, ...] = ()
    """What the sources with `counts` had sent when the inputs were listed, against the rows of the manifest."""
    missing: tuple[str, ...] = ()
    """What the run had waited for in vain when it started without it (`when` in the definition), for people."""
    metrics: dict[str, Aggregation] = Field(default_factory=dict)
    """`publish.metrics` of the definition with which the run started."""
    definition: str = ""
    """Digest of the pipeline's definition (`Project.written_digest`); empty for runs of older versions."""
    code: str = ""
    """Digest of the code that the run executes (`Project.code_digest`); empty for runs of older versions."""
    reads: InputDefinition | None = None
    """The inputs that its definition names; None for runs of older versions."""
    files: JobFiles | None = None
    """Definition and code of its jobs; None for runs of older versions."""
    changed_inputs: tuple[str, ...] = ()
    """Inputs that differ from those of the version that was published when the run started, as far as both definitions
    read them."""
    reasons: tuple[RunReason, ...] = ()
    """Why the run started; empty if that is unknown."""
    rollback: Rollback | None = None
    """The version that a run of `slackwater rollback` publishes again; its definition and code are that version's."""
    cost: RunCost | None = None
    """None until AWS was first asked, and for runs of older versions."""
    cost_version: int = 0
    """Counts the writes of the cost: one succeeds only while the stored number is the one that was read."""
    estimated_usd: float | None = None
    """What the run was expected to cost by the price of the runs before it; None if it shows no price of its own."""

    @property
    def frozen_at(self) -> datetime:
        """When the inputs of the run's rows were listed, UTC: for a rollback, those of the earlier version."""
        return self.rollback.frozen_at if self.rollback else self.started_at


class ActiveRun(UpdatedRecord):
    """The execution that owns a day, and its run."""

    execution: str
    """ARN of the Step Functions execution."""
    run: Run
    since: datetime
    """When the execution claimed the day, UTC."""


class PublishedRun(UpdatedRecord):
    """The run whose output the warehouse holds for a day."""

    run: Run
    publication: Publication
    at: datetime
    """When the publication was recorded, UTC."""

    @property
    def rows_digest(self) -> str:
        """What identifies the rows, for their readers: of a version that an older release has published, its tag."""
        return self.publication.content or self.run.tag


class NotificationClaim(UpdatedRecord):
    """The execution that is about to notify people of a published version."""

    execution: str
    """ARN of the Step Functions execution."""
    attempt: int
    """The attempt that has published the version."""
    since: datetime
    """When the execution claimed the notification, UTC."""
    call: str = ""
    """Unique for each call: Step Functions may call the function of one execution more than once."""


class Hold(UpdatedRecord):
    """Why a day waits for a person. Nothing runs it again by itself until the hold ends."""

    rule: str
    """A `slackwater.late.decision.DecisionRule`: the rule that put the day on hold."""
    reason: str
    """With its numbers, in one line."""
    since: datetime
    """When the day was put on hold, UTC."""
    inputs: str = ""
    """Digest of the inputs that the rule was applied to (`InputManifest.digest`); empty if they were not listed."""
    attempt: int = 0
    """The attempt that caused the hold, if the failure of one did: of the rule `audit`."""
    execution: str = ""
    """ARN of the Step Functions execution that put the day on hold."""


class TableNotice(UpdatedRecord):
    """The latest message that days of other pipelines have changed, which the published version has read."""

    versions: dict[str, str]
    """By input and day, such as `days daily_sales 2013-03-10`: the version that a message has named."""
    earlier: dict[str, str] = {}
    """`versions` before this message: they count if the message is refused."""
    attempt: int
    """The published attempt that has read the earlier days."""
    reason: str
    """What has changed since the version was published, in one line."""
    since: datetime
    """UTC."""
    execution: str
    """ARN of the Step Functions execution that sends the message."""
    call: str
    """Unique for each message."""
    is_settled: bool = False
    """Whether the message was sent, refused, or may have been sent; until then, the execution is about to send it."""


class ResolutionAction(StrEnum):
    """How a hold ended."""

    RELEASED = "released"
    """A person has the day run again with its present inputs."""
    KEPT = "rejected"
    """A person keeps the published version although the inputs differ."""
    ENDED = "ended"
    """The cause of the hold is gone."""

    @property
    def label(self) -> str:
        """In the words of a reason: `released`, `kept`, `ended`."""
        return self.name.lower()


class Resolution(UpdatedRecord):
    """How the latest hold of a day ended, or a release of a day that was not on hold yet."""

    action: ResolutionAction
    reason: str
    principal: str
    """ARN of the identity that decided; empty if the cause was gone."""
    at: datetime
    """UTC."""
    inputs: str = ""
    """Digest of the inputs that the decision is about (`InputManifest.digest`)."""
    attempt: int = 0
    """The published attempt at that time; 0 without one. The decision does not apply to a later version."""
    hold: Hold | None = None
    """The hold that ended."""


class DayRecord(UpdatedRecord):
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
    """Whether a run was lost since `published` was recorded, or has failed and its last stage may have started. It may
    have committed before, so the table may hold its rows instead."""
    published: PublishedRun | None = None
    provisional: PublishedRun | None = None
    """The version of a period that was open when its inputs were listed, until the first other version is published.
    Nobody but readers of the table uses it: the period counts as unpublished."""
    notified_attempt: int = 0
    """The latest attempt that needs no message any more: people were notified of it, or its effect was too small. The
    first published one counts as known."""
    baseline_attempt: int = 0
    """The attempt that people know, if later ones changed too little for a message: the next comparison begins with it.
    0 if people know `notified_attempt`."""
    notification_claim: NotificationClaim | None = None
    hold: Hold | None = None
    """Why the day waits for a person; None if it does not."""
    resolution: Resolution | None = None
    """The latest decision about the day that a person has made, or how its latest hold ended by itself."""
    earlier_resolutions: tuple[Resolution, ...] = ()
    """Those before `resolution`, the oldest first; at most `slackwater.runs.holds.MAX_EARLIER`."""
    table_notice: TableNotice | None = None
    unreadable_since: datetime | None = None
    """Since when checks could not read the day because of an error that may pass, UTC; None if the latest one could."""

    @property
    def seen_attempt(self) -> int:
        """The attempt that people know: of the latest message, or the first published one."""
        return self.baseline_attempt or self.notified_attempt

    @property
    def notification_due(self) -> bool:
        """Whether people have not been notified of the published version."""
        return self.published is not None and self.notified_attempt < self.published.run.attempt
