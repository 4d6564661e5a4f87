"""Files that are too large for a function: a job fetches them, with the same `FileFetcher`.

The function returns a `LargeFileJob`. With its fields the state machine starts the job, waits until it ends, and calls
the function again, which reads the job's result.
"""

from __future__ import annotations

from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from slackwater.errors import CloudError, FileTooLarge, ObjectMissing, PartnerError
from slackwater.receiver.pull.fetch import FetchResult, FetchState
from slackwater.receiver.pull.plan import WorkItem
from slackwater.storage import ObjectStore, stored_reason

# Attempts of a function that may be killed, by its limits or by a fault of AWS, before a job fetches the file.
_MAX_KILLED = 2


class LargeFileJob(BaseModel):
    """The arguments with which the state machine starts a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Literal[FetchState.LARGE] = FetchState.LARGE
    source: str
    work: str
    """URI of the work list."""
    index: int
    """Index of the file in the work list."""
    correlation_id: str
    job: str
    """Unique id, sent to EMR as the client token: a repeated request to start the job starts no second one."""
    answer: str
    """URI of the job's `FetchResult`."""


def expect_function_size(item: WorkItem, *, max_bytes: int) -> None:
    """Raise `FileTooLarge` when the listing shows that the file is larger than a function may fetch.

    So does a file whose function was killed several times: its memory or its time was not enough.
    """
    if item.killed_attempts >= _MAX_KILLED:
        raise FileTooLarge(f"{item.path}: its function was killed {item.killed_attempts} times")
    if item.listed and (item.listed.size or 0) > max_bytes:
        raise FileTooLarge(f"{item.path}: {item.listed.size:,} bytes, and a function fetches up to {max_bytes:,}")


def new_job(*, source: str, work: str, index: int, correlation_id: str) -> LargeFileJob:
    """Return a new job for one item of a work list."""
    job = uuid4().hex
    answer = f"{work.removesuffix('.json')}/{job}.json"
    return LargeFileJob(source=source, work=work, index=index, correlation_id=correlation_id, job=job, answer=answer)


def failure_reason_uri(answer: str) -> str:
    """Return the URI at which a failed job stores its reason, next to `answer`."""
    return f"{answer}.failure.txt"


def job_result(store: ObjectStore, answer: str, *, job_error: str = "") -> FetchResult:
    """Return the result that a job has stored at `answer`.

    Raises `PartnerError` with the reason of a failed job, and `CloudError` for a job that stored neither: it may never
    have started, and then `job_error` is the reason.
    """
    try:
        return FetchResult.model_validate_json(store.get(answer))
    except ObjectMissing:
        pass
    # Read from S3, because EMR keeps only 256 characters of it.
    try:
        reason = stored_reason(store, failure_reason_uri(answer))
    except ObjectMissing as error:
        reason = f"{job_error}; " if job_error else ""
        message = f"{reason}the job left neither a result nor a reason at {answer}: read the job's logs"
        raise CloudError(message) from error
    raise PartnerError(reason)
