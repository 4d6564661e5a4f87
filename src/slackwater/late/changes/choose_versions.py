"""Chooses the two published versions of a day to compare, and reads the result of comparing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import ValidationError

from slackwater.errors import AccessDenied, CloudError, InputError, ObjectMissing, RunFailed
from slackwater.late.changes.job_claims import (
    MAX_FAILED_JOBS,
    MAX_STARTED_JOBS,
    AbandonedComparison,
    JobClaim,
    abandoned_uri,
    claim_job,
    job_failures,
)
from slackwater.late.changes.pairs import (
    VersionPair,
    comparison_uri,
    comparisons_prefix,
    job_failure_uri,
    pair_prefix,
    pair_uri,
)
from slackwater.late.comparison import Comparison, ComparisonReference, PublishedVersion
from slackwater.metrics import Metric, PutsMetric
from slackwater.model import Record
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.outcome import failure_message
from slackwater.runs.record import DayRecord, RunRecord, RunState
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore, stored_reason


class CompareSince(StrEnum):
    """The earlier version that the published one is compared with."""

    NOTIFIED = "notified"
    """The version that people know: of the latest message, or the first version if there was none."""
    PREVIOUS = "previous"
    """The version that was published before the current one."""


class CompareAction(StrEnum):
    """What the state machine does after the choice."""

    COMPARE = "compare"
    KNOWN = "known"
    """The comparison of these two versions is stored already."""
    NOTHING = "nothing"
    """There are no two versions to compare."""


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
    """32 hex digits that identify the job. Executions that compare the same pair at the same time share a job."""
    correlation_id: str = ""
    """Of the job: that of the execution that was the first to compare the pair."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The published versions of days, and their stored comparisons."""

    store: ObjectStore
    table: RunTable
    exchange_bucket: str
    executions: Executions
    now: Callable[[], datetime]
    put_metric: PutsMetric

    def choose(
        self,
        *,
        pipeline: str,
        date: str,
        since: CompareSince,
        execution: str,
        correlation_id: str,
        before: int = 0,
        after: int = 0,
    ) -> ChosenVersions:
        """Choose the pair, and store it for the job. A repeated call of the same execution has the same result.

        `execution` is the ARN of the execution that compares, and `correlation_id` its own. `before` and `after` are
        the numbers of two versions that are compared instead, as in `published_versions`. Raises `InputError` for a
        day that was never published or has no such version, `CloudError` when the run table lacks what a version
        published, and, since the version that people know, `RunFailed` when the pair is abandoned (`MAX_FAILED_JOBS`,
        `MAX_STARTED_JOBS`).
        """
        day = self.table.day(pipeline, date)
        *earlier, later = published_versions(day, self.table.runs(pipeline, date), before=before, after=after)
        latest = later.run.attempt
        if not earlier:
            reason = f"{latest} is the first version" if after else f"{date} was published once"
            return _nothing_to_compare(latest, f"{reason}: there is no earlier version")
        if since is CompareSince.PREVIOUS:
            first = earlier[-1]
        elif day.notified_attempt >= latest:
            return _nothing_to_compare(latest, f"people were already notified of the published version of {date}")
        else:
            first = next((run for run in earlier if run.run.attempt == day.seen_attempt), earlier[0])
        pair = VersionPair(
            pipeline=pipeline,
            date=date,
            before=published_version(first),
            after=published_version(later),
            metrics=later.metrics,
        )
        comparisons = comparisons_prefix(self.exchange_bucket, pipeline, date)
        prefix = pair_prefix(comparisons, before=pair.before.attempt, after=pair.after.attempt)
        known = self._known(prefix)
        claim = None
        if known is None:
            # Before the job starts: it reads the pair from here.
            self.store.put(pair_uri(prefix), pair.model_dump_json().encode())
            # A person may try again as often as they like.
            own = JobClaim(
                execution=execution,
                correlation_id=correlation_id,
                at=self.now(),
                by_monitoring=since is CompareSince.NOTIFIED,
            )
            claim = claim_job(
                self.store,
                prefix,
                own,
                is_running=lambda it: is_alive(self.executions, it.execution, since=it.at, now=self.now()),
            )
            # An execution that has ended meanwhile has stored the comparison.
            known = self._known(prefix)
            if known is None and claim is None:
                raise RunFailed(self._abandon(pair, prefix, is_previous=first is earlier[-1]))
            if known is None and claim and claim.execution == execution:
                # Its cost is recorded later.
                versions = {"before": pair.before.attempt, "after": pair.after.attempt}
                run = ComparisonRun(pipeline=pipeline, date=date, **versions, execution=execution, started_at=claim.at)
                self.table.save_comparison(run)
        return ChosenVersions(
            action=CompareAction.KNOWN if known else CompareAction.COMPARE,
            comparison=known,
            before=pair.before.attempt,
            after=pair.after.attempt,
            prefix=prefix,
            job=claim.job(prefix) if claim else "",
            correlation_id=claim.correlation_id if claim else "",
        )

    def _known(self, prefix: str) -> ComparisonReference | None:
        """Return the reference to the stored comparison, or None if there is none with the fields of this release."""
        try:
            return self.compared(prefix)
        except (ObjectMissing, AccessDenied, ValidationError):
            return None

    def _abandon(self, pair: VersionPair, prefix: str, *, is_previous: bool) -> str:
        """Store that no monitoring compares the pair again, and return why, with the remedy.

        `is_previous` is whether `slackwater diff` compares the pair.
        """
        failures = job_failures(self.store, prefix)
        tries = (
            f"has failed {MAX_FAILED_JOBS} times"
            if len(failures) >= MAX_FAILED_JOBS
            else f"was tried {MAX_STARTED_JOBS} times without a result"
        )
        error = (
            f"Its error: {self.store.get(failures[-1].uri).decode()}"
            if failures
            else "No job has stored an error: the logs of the jobs show how they ended"
        )
        command = "slackwater diff" if is_previous else "slackwater run --force"
        abandoned = AbandonedComparison(
            pipeline=pair.pipeline,
            date=pair.date,
            before=pair.before.attempt,
            after=pair.after.attempt,
            reason=f"the comparison of {pair.pipeline} {pair.date}, version {pair.before.attempt} with "
            f"{pair.after.attempt}, {tries} and is not tried again: fix the cause, then "
            f"`{command} {pair.pipeline} --date {pair.date}`. {error}",
        )
        if not any(self.store.list(abandoned_uri(prefix))):
            # Before it is stored: after a crash in between, the next execution fires the alarm.
            self.put_metric(Metric.NOTIFICATION_OUTCOME_UNKNOWN, 1, pipeline=pair.pipeline)
            self.store.put(abandoned_uri(prefix), abandoned.model_dump_json().encode())
        return abandoned.reason

    def compared(self, prefix: str) -> ComparisonReference:
        """Return the reference to the comparison that a job has stored under `prefix`.

        Raises `ObjectMissing` or `AccessDenied` when there is none, and pydantic's `ValidationError` when it has other
        fields than this release.
        """
        uri = comparison_uri(prefix)
        comparison = Comparison.model_validate_json(self.store.get(uri))
        before, after, rows = comparison.before, comparison.after, comparison.rows
        return ComparisonReference(uri=uri, before=before.attempt, after=after.attempt, differing=rows.differing)

    def failure(self, *, prefix: str, job: str, error: str, cause: str) -> str:
        """Return in one line why the comparison failed.

        This is the message that the job has written. Without one, it is made from `error` and `cause`, which come from
        Step Functions.
        """
        try:
            return stored_reason(self.store, job_failure_uri(prefix, job))
        except (ObjectMissing, AccessDenied):  # without permission to list, S3 denies access to a missing object
            return failure_message(error, cause)


def published_versions(
    day: DayRecord, runs: Iterable[RunRecord], *, before: int = 0, after: int = 0
) -> list[RunRecord]:
    """Return the runs that have published a day, in order, up to the two versions to compare.

    `runs` are the runs of the day. The last one of the result is the version with the number `after`, by default the
    published one, and the one before it, if there is one, is `before`. A number of 0 asks for the default. Raises
    `InputError` for a day that was never published or has no such version.
    """
    if day.published is None:
        raise InputError(f"date: {day.pipeline} has published nothing for {day.date}")
    latest = day.published.run.attempt
    # A later attempt may have published meanwhile: the day's record decides which version is the published one.
    published = [run for run in runs if run.state is RunState.PUBLISHED and run.run.attempt <= latest]

    def up_to(versions: list[RunRecord], number: int, option: str, place: str = "") -> list[RunRecord]:
        kept = [run for run in versions if not number or run.run.attempt <= number]
        if number and (not kept or kept[-1].run.attempt != number):
            known = ", ".join(str(run.run.attempt) for run in versions) or "none"
            raise InputError(
                f"{option}: {day.pipeline} {day.date} has no published version {number}{place} (versions: {known})"
            )
        return kept

    *earlier, later = up_to(published, after, "--to")
    return [*up_to(earlier, before, "--from", f" before version {later.run.attempt}"), later]


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
        frozen_at=record.frozen_at,
        manifest=run.manifest,
        files_not_taken=record.files_not_taken,
        counts=record.counts,
        definition=record.definition,
        code=record.code,
        reads=record.reads,
        rollback=record.rollback.to if record.rollback else 0,
        cost=record.cost,
    )
