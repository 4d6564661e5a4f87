"""Which execution compares a pair of versions, and the comparisons that no monitoring tries again.

All of it is stored under the prefix of the pair (`slackwater.late.changes.pairs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from pydantic import AwareDatetime

from slackwater.late.changes.pairs import comparison_uri, comparisons_prefix, job_started_uri, stored_pairs
from slackwater.model import Record
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.record import DayRecord
from slackwater.storage import ObjectStore, StoredObject

MAX_FAILED_JOBS = 5
"""Jobs of one pair of versions that have stored an error before no monitoring starts another one."""
MAX_STARTED_JOBS = 20
"""Jobs of monitorings that have begun to compare one pair of versions before no monitoring starts another one, whatever
became of them: one that is killed for its memory stores no error."""


class JobClaim(Record):
    """The execution whose job compares a pair: the content of the object at `claim_uri`."""

    execution: str
    """ARN."""
    correlation_id: str
    at: AwareDatetime
    by_monitoring: bool = False
    """Whether a monitoring compares; False for a person, and for claims of older versions."""
    started_before: int = 0
    """Jobs of monitorings with earlier claims that have begun to compare the pair."""

    def job(self, prefix: str) -> str:
        """Return 32 hex digits that identify the job which compares the pair under `prefix` for this execution."""
        return hashlib.sha256(f"{self.execution}\n{prefix}".encode()).hexdigest()[:32]


class AbandonedComparison(Record):
    """A comparison that no monitoring tries again: the content of the object at `abandoned_uri`."""

    pipeline: str
    date: str
    before: int
    """Attempt of the earlier version."""
    after: int
    """Attempt of the later version, which people are not notified of."""
    reason: str
    """With the remedy and the last error, in one line."""


def claim_uri(prefix: str, number: int) -> str:
    """Return the URI of the `JobClaim` with that number, from 0: each follows one whose execution has ended."""
    return f"{prefix}jobs/claim-{number:04d}.json"


def abandoned_uri(prefix: str) -> str:
    """Return the URI of the `AbandonedComparison` of the pair that is compared under `prefix`."""
    return f"{prefix}jobs/given-up.json"


def job_failures(store: ObjectStore, prefix: str) -> list[StoredObject]:
    """Return the errors that the jobs of a pair have stored, the latest one last."""
    errors = [item for item in store.list(f"{prefix}jobs/") if item.uri.endswith(failure_uri("/"))]
    return sorted(errors, key=lambda item: item.modified)


def claim_job(
    store: ObjectStore, prefix: str, own: JobClaim, *, is_running: Callable[[JobClaim], bool]
) -> JobClaim | None:
    """Return the claim on the pair that counts: of an execution that is comparing it, or else `own`, now stored.

    None if `own` is a monitoring's, no execution is comparing the pair, and `MAX_FAILED_JOBS` jobs have stored an error
    or `MAX_STARTED_JOBS` jobs of monitorings have started. A job that was stopped or lost stores no error, and one that
    got no capacity does not start.

    All requests for the same job must be equal, also in their correlation id: EMR Serverless then returns the job that
    the first of them has started, and refuses other requests. The claim of an execution that has ended is replaced,
    because EMR Serverless would return its failed job again.
    """
    known, failed = sum(1 for _ in store.list(f"{prefix}jobs/claim-")), len(job_failures(store, prefix))
    # Each claim was stored when the execution of the one before had ended, so only the last one counts.
    for number in count(max(known - 1, 0)):
        uri = claim_uri(prefix, number)
        if number >= known:
            if own.by_monitoring and (failed >= MAX_FAILED_JOBS or own.started_before >= MAX_STARTED_JOBS):
                return None
            if store.put_new(uri, own.model_dump_json().encode()):
                return own
        claim = JobClaim.model_validate_json(store.get(uri))
        if claim.execution == own.execution or is_running(claim):
            return claim
        has_started = claim.by_monitoring and any(store.list(job_started_uri(prefix, claim.job(prefix))))
        own = own.model_copy(update={"started_before": claim.started_before + has_started})
    raise AssertionError("count() never ends")


def abandoned_comparisons(
    days: Iterable[DayRecord], *, store: ObjectStore, exchange_bucket: str
) -> Iterator[AbandonedComparison]:
    """Yield the comparisons of these days' published versions that no monitoring tries again."""
    for day in days:
        if day.published is None:
            continue
        for pair in stored_pairs(store, comparisons_prefix(exchange_bucket, day.pipeline, day.date)):
            uri = abandoned_uri(pair.prefix)
            is_abandoned = uri in pair.uris and comparison_uri(pair.prefix) not in pair.uris
            if is_abandoned and pair.after == day.published.run.attempt:
                yield AbandonedComparison.model_validate_json(store.get(uri))
