"""Files that are too large for a function: a job fetches them, with the same `FileFetcher`.

The function returns a `LargeFileJob`. With its fields the state machine starts the job, waits until it ends, and calls
the function again, which reads the job's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from slackwater.errors import CloudError, FileTooLarge, ObjectMissing, PartnerError
from slackwater.receiver.pull.fetch_result import FetchResult, FetchState
from slackwater.receiver.pull.plan import WorkItem, read_item
from slackwater.sources.definition import Source
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
    reason: str = Field(default="", exclude=True)
    """Why the file is too large for a function, for its log."""


@dataclass(frozen=True, kw_only=True)
class FunctionFetcher:
    """Fetches files of work lists in a function, and leaves those to jobs that are too large for it."""

    source: Callable[[str], Source]
    """Returns the definition of a source. Raises `UnknownName`."""
    store: ObjectStore
    fetch_file: Callable[..., FetchResult]
    """`slackwater.aws.resources.Resources.fetch_file`, with the lease of the function."""
    jobs_have_network: bool
    """Whether jobs reach partners outside of S3."""

    def fetch(
        self, *, source: str, work: str, index: int, correlation_id: str, answer: str | None = None, job_error: str = ""
    ) -> FetchResult | LargeFileJob:
        """Fetch the file at `index` of the work list `work`, or return the job that has to.

        With `answer`, return the result that such a job has stored there; `job_error` is the error with which it ended.
        Raises `PartnerError`, `DataError` or `CloudError` when the file cannot be fetched.
        """
        definition = self.source(source)
        if answer:
            return job_result(self.store, answer, job_error=job_error)
        pull, item = definition.require_pull(), read_item(self.store, work, index)
        max_bytes = min(pull.function_mb, pull.max_file_mb or pull.function_mb) * 10**6
        uses_jobs = pull.uses_jobs(have_network=self.jobs_have_network)
        try:
            # Without jobs, a file of any size is attempted, so that the file cache gets the reason of the failure.
            if uses_jobs:
                expect_function_size(item, max_bytes=max_bytes)
            return self.fetch_file(definition, item, max_file_bytes=max_bytes, correlation_id=correlation_id)
        except FileTooLarge as error:
            if not uses_jobs:
                raise
            # Not a failure: some listings show no size, and then only the download shows it.
            job = uuid4().hex
            return LargeFileJob(
                source=source,
                work=work,
                index=index,
                correlation_id=correlation_id,
                job=job,
                answer=f"{work.removesuffix('.json')}/{job}.json",
                reason=str(error),
            )


def expect_function_size(item: WorkItem, *, max_bytes: int) -> None:
    """Raise `FileTooLarge` when the listing shows that the file is larger than a function may fetch.

    So does a file whose function was killed several times: its memory or its time was not enough.
    """
    if item.killed_attempts >= _MAX_KILLED:
        raise FileTooLarge(f"{item.path}: its function was killed {item.killed_attempts} times")
    if item.listed and (item.listed.size or 0) > max_bytes:
        raise FileTooLarge(f"{item.path}: {item.listed.size:,} bytes, and a function fetches up to {max_bytes:,}")


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
