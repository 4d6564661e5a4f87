"""Which two published versions of a day are to be compared, and what has become of comparing them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from slackwater.errors import AccessDenied, CloudError, InputError, ObjectMissing
from slackwater.late.comparison import Comparison, ComparisonReference, PublishedVersion, comparison_uri, reference_to
from slackwater.runs.manifest import Record
from slackwater.runs.outcome import reason
from slackwater.runs.record import RunRecord, RunState, failure_uri
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore


class CompareSince(StrEnum):
    """With which earlier version the published one is compared."""

    TOLD = "told"
    """The one that people know."""
    PREVIOUS = "previous"


class CompareAction(StrEnum):
    """What the state machine has to do after choosing."""

    COMPARE = "compare"
    KNOWN = "known"
    """These two versions have been compared before."""
    NOTHING = "nothing"
    """There are no two versions to compare."""


class VersionPair(Record):
    """The two versions that a job compares, as it finds them under its prefix."""

    pipeline: str
    date: str
    before: PublishedVersion
    after: PublishedVersion


class ChosenVersions(Record):
    """The answer of choosing: addresses and numbers only."""

    action: CompareAction
    comparison: ComparisonReference | None = None
    """None when it has yet to be made."""
    before: int = 0
    after: int = 0
    prefix: str = ""
    """Where the comparison is kept: `s3://exchange/comparisons/<pipeline>/<date>/<before>-<after>/`."""
    job: str = ""
    """32 hex digits: this execution's comparing of this pair, and no other's."""


def pair_uri(prefix: str) -> str:
    """Return the address of the `VersionPair` that is compared under `prefix`."""
    return f"{prefix}pair.json"


def job_failure_uri(prefix: str, job: str) -> str:
    """Return the address at which one execution's job says why it failed: another one may compare the same pair."""
    return failure_uri(f"{prefix}jobs/{job}/")


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The published versions of days, and the comparisons that are kept of them."""

    store: ObjectStore
    table: RunTable
    exchange_bucket: str

    def choose(self, *, pipeline: str, date: str, since: CompareSince, execution: str) -> ChosenVersions:
        """Choose the pair and write it down for the job of `execution`; asked again, the answer is the same.

        Raises `InputError` for a day that was never published.
        """
        day = self.table.day(pipeline, date)
        if day.published is None:
            raise InputError(f"date: {pipeline} has published nothing for {date}")
        latest = day.published.run.attempt
        runs = [run for run in self.table.runs(pipeline, date) if run.state is RunState.PUBLISHED]
        *earlier, after = [run for run in runs if run.run.attempt <= latest]
        if not earlier:
            return _nothing(after=latest, why=f"{date} was published once: there is no earlier version")
        if since is CompareSince.TOLD and day.told >= latest:
            return _nothing(after=latest, why=f"people know the published version of {date} already")
        before = _told(earlier, day.told) if since is CompareSince.TOLD else earlier[-1]
        return self._pair(
            VersionPair(pipeline=pipeline, date=date, before=_version(before), after=_version(after)), execution
        )

    def compared(self, prefix: str) -> ComparisonReference:
        """Return the reference of the comparison that a job has left. Raises `ObjectMissing` when it left none."""
        return reference_to(Comparison.model_validate_json(self.store.get(comparison_uri(prefix))), prefix)

    def failed(self, *, prefix: str, job: str, error: str, cause: str) -> str:
        """Return why comparing failed, in one line: the job's own words where it has left some."""
        try:
            return self.store.get(job_failure_uri(prefix, job)).decode()
        except (ObjectMissing, AccessDenied):  # S3 says either of an object that is not there
            return reason(error, cause)

    def _pair(self, pair: VersionPair, execution: str) -> ChosenVersions:
        before, after = pair.before.attempt, pair.after.attempt
        prefix = f"s3://{self.exchange_bucket}/comparisons/{pair.pipeline}/{pair.date}/{before}-{after}/"
        known = self._known(prefix)
        if known is None:
            self.store.put(pair_uri(prefix), pair.model_dump_json().encode())
        return ChosenVersions(
            action=CompareAction.KNOWN if known else CompareAction.COMPARE,
            comparison=known,
            before=before,
            after=after,
            prefix=prefix,
            job=hashlib.sha256(f"{execution}\n{prefix}".encode()).hexdigest()[:32],
        )

    def _known(self, prefix: str) -> ComparisonReference | None:
        try:
            return self.compared(prefix)
        except (ObjectMissing, AccessDenied):
            return None
        except ValidationError:  # of an earlier form: made again
            return None


def _told(earlier: Sequence[RunRecord], told: int) -> RunRecord:
    """Return the version that people know: the first one, unless they were told of another."""
    return next((record for record in earlier if record.run.attempt == told), earlier[0])


def _nothing(*, after: int, why: str) -> ChosenVersions:
    nothing = ComparisonReference(uri="", before=0, after=after, differing=0, why=why)
    return ChosenVersions(action=CompareAction.NOTHING, comparison=nothing, after=after)


def _version(record: RunRecord) -> PublishedVersion:
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
    )
