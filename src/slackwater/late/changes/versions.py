"""Chooses the two published versions of a day to compare, and reads the result of comparing them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field, ValidationError

from slackwater.errors import AccessDenied, CloudError, InputError, ObjectMissing
from slackwater.late.changes.comparison import (
    Comparison,
    ComparisonReference,
    PublishedVersion,
    comparison_uri,
    reference_to,
)
from slackwater.pipeline.definition import Aggregation
from slackwater.runs.inputs.manifest import Record
from slackwater.runs.outcome import failure_message
from slackwater.runs.record import RunRecord, RunState, failure_uri
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore


class CompareSince(StrEnum):
    """The earlier version that the published one is compared with."""

    NOTIFIED = "notified"
    """The version that people were last notified of, or the first version if they never were."""
    PREVIOUS = "previous"
    """The version that was published before the current one."""


class CompareAction(StrEnum):
    """What the state machine does after the choice."""

    COMPARE = "compare"
    KNOWN = "known"
    """The comparison of these two versions is stored already."""
    NOTHING = "nothing"
    """There are no two versions to compare."""


class VersionPair(Record):
    """The two versions that a job compares: the content of the object at `pair_uri`."""

    pipeline: str
    date: str
    before: PublishedVersion
    after: PublishedVersion
    metrics: dict[str, Aggregation] = Field(default_factory=dict)
    """`publish.metrics` of the later version's run, so that the same pair always has the same metrics."""


class ChosenVersions(Record):
    """The result of the choice: only URIs and numbers, because it passes through Step Functions."""

    action: CompareAction
    comparison: ComparisonReference | None = None
    """None when the job has to run first."""
    before: int = 0
    """Attempt of the earlier version."""
    after: int = 0
    """Attempt of the later version."""
    prefix: str = ""
    """Where the comparison is stored: `s3://<exchange bucket>/comparisons/<pipeline>/<date>/<before>-<after>/`."""
    job: str = ""
    """32 hex digits that identify the job. They are equal when an execution compares the same pair again."""


def pair_uri(prefix: str) -> str:
    """Return the URI of the `VersionPair` that is compared under `prefix`."""
    return f"{prefix}pair.json"


def job_failure_uri(prefix: str, job: str) -> str:
    """Return the URI at which a failed job writes its error; two executions may compare the same pair."""
    return failure_uri(f"{prefix}jobs/{job}/")


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The published versions of days, and their stored comparisons."""

    store: ObjectStore
    table: RunTable
    exchange_bucket: str

    def choose(self, *, pipeline: str, date: str, since: CompareSince, execution: str) -> ChosenVersions:
        """Choose the pair, and store it for the job. A repeated call of the same execution has the same result.

        `execution` is the ARN of the execution that compares. Raises `InputError` for a day that was never published,
        and `CloudError` when the run table lacks what a version published.
        """
        day = self.table.day(pipeline, date)
        if day.published is None:
            raise InputError(f"date: {pipeline} has published nothing for {date}")
        latest = day.published.run.attempt
        # A later attempt may have published meanwhile: the day's record decides which version is the published one.
        runs = [run for run in self.table.runs(pipeline, date) if run.state is RunState.PUBLISHED]
        *earlier, after = [run for run in runs if run.run.attempt <= latest]
        if not earlier:
            return _nothing_to_compare(latest, f"{date} was published once: there is no earlier version")
        if since is CompareSince.PREVIOUS:
            before = earlier[-1]
        elif day.notified_attempt >= latest:
            return _nothing_to_compare(latest, f"people were already notified of the published version of {date}")
        else:
            before = next((run for run in earlier if run.run.attempt == day.notified_attempt), earlier[0])
        pair = VersionPair(
            pipeline=pipeline,
            date=date,
            before=published_version(before),
            after=published_version(after),
            metrics=after.metrics,
        )
        prefix = (
            f"s3://{self.exchange_bucket}/comparisons/{pipeline}/{date}/{pair.before.attempt}-{pair.after.attempt}/"
        )
        known: ComparisonReference | None
        try:
            known = self.compared(prefix)
        except (ObjectMissing, AccessDenied, ValidationError):  # missing, or stored by a release with other fields
            known = None
            # Before the job starts: it reads the pair from here.
            self.store.put(pair_uri(prefix), pair.model_dump_json().encode())
        return ChosenVersions(
            action=CompareAction.KNOWN if known else CompareAction.COMPARE,
            comparison=known,
            before=pair.before.attempt,
            after=pair.after.attempt,
            prefix=prefix,
            job=hashlib.sha256(f"{execution}\n{prefix}".encode()).hexdigest()[:32],
        )

    def compared(self, prefix: str) -> ComparisonReference:
        """Return the reference to the comparison that a job has stored under `prefix`.

        Raises `ObjectMissing` or `AccessDenied` when there is none, and pydantic's `ValidationError` when it has other
        fields than this release.
        """
        return reference_to(Comparison.model_validate_json(self.store.get(comparison_uri(prefix))), prefix)

    def failure(self, *, prefix: str, job: str, error: str, cause: str) -> str:
        """Return in one line why the comparison failed.

        This is the message that the job has written. Without one, it is made from `error` and `cause`, which come from
        Step Functions.
        """
        try:
            return self.store.get(job_failure_uri(prefix, job)).decode()
        except (ObjectMissing, AccessDenied):  # without permission to list, S3 denies access to a missing object
            return failure_message(error, cause)


def _nothing_to_compare(after: int, reason: str) -> ChosenVersions:
    comparison = ComparisonReference(uri="", before=0, after=after, differing=0, reason=reason)
    return ChosenVersions(action=CompareAction.NOTHING, comparison=comparison, after=after)


def published_version(record: RunRecord) -> PublishedVersion:
    """Return a published run as a version. Raises `CloudError` when the run table lacks what it published."""
    run, publication, published_at = record.run, record.publication, record.ended_at
    if publication is None or published_at is None:
        raise CloudError(f"the run table lacks what attempt {run.attempt} of {run.pipeline} for {run.date} published")
    return PublishedVersion(
        attempt=run.attempt,
        run_id=run.run_id,
        tag=run.tag,
        snapshot_id=publication.snapshot_id,
        published_at=published_at,
        frozen_at=record.started_at,
        manifest=run.manifest,
        files_not_taken=record.files_not_taken,
    )
