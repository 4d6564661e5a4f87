"""Pull: fetch one file of the work list. The state machine passes the index of the file."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.connect import connector_of
from slackwater.aws.emf import put_counts
from slackwater.aws.function import best_effort, with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.errors import FileTooLarge
from slackwater.metrics import Metric
from slackwater.receiver.commits import file_committed
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.fetch import FetchResult, FetchState, FileFetcher
from slackwater.receiver.pull.large_files import expect_function_size, job_result, new_job
from slackwater.receiver.pull.plan import read_item
from slackwater.sources.definition import Source

logger = Logger()


class FetchFileRequest(BaseModel):
    """Input from the state machine."""

    source: str
    work: str
    """URI of the work list."""
    index: Annotated[int, Field(ge=0)]
    """Index of the file in the work list."""
    correlation_id: str
    answer: str | None = None
    """URI of the result of the job, if the file was fetched by a job."""
    job_error: str = ""
    """The error with which Step Functions ended the job, if it did not succeed."""


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `FetchResult` as JSON, or a `LargeFileJob` for a file that is too large for a function but not for jobs.

    With `answer`, return the result that such a job stored. Raises `PartnerError`, `DataError` or `CloudError` when the
    file cannot be fetched.
    """
    request = FetchFileRequest.model_validate(event)
    resources = function_resources()
    source = resources.project.source(request.source)
    try:
        if request.answer:
            fetched = job_result(resources.store, request.answer, job_error=request.job_error)
        else:
            fetched = fetch(resources, source, request)
    except FileTooLarge as error:
        if not source.require_pull().needs_jobs:
            raise
        # Not a failure: some listings show no size, and then only the download shows that the file is too large.
        job = new_job(
            source=request.source, work=request.work, index=request.index, correlation_id=request.correlation_id
        ).model_dump(mode="json")
        logger.info("file is too large for a function, a job fetches it", extra={**job, "reason": str(error)})
        return job
    count_file(source.source, fetched)
    committed = file_committed(source.source, fetched.partitions, time=utc_now())
    function_resources(SHORT_CONFIG).request_checks(committed)
    result = fetched.summary()
    logger.info("file fetched", extra={"source": source.source, **result})
    return result


def fetch(resources: FunctionResources, source: Source, request: FetchFileRequest) -> FetchResult:
    """Fetch the file in this process. Raises `FileTooLarge` when it is too large for a function or for the source."""
    item = read_item(resources.store, request.work, request.index)
    pull = source.require_pull()
    max_bytes = min(pull.function_mb, pull.max_file_mb or pull.function_mb) * 10**6
    # Without jobs, a file of any size is attempted here, so that the file cache gets the reason of the failure.
    if pull.needs_jobs:
        expect_function_size(item, max_bytes=max_bytes)
    with connector_of(source, allow=resources.settings.outbound_allow, max_file_bytes=max_bytes) as partner:
        fetcher = FileFetcher(
            source=source,
            partner=partner,
            cache=resources.file_cache,
            raw_writer=resources.raw_writer,
            now=utc_now,
            # The UUID makes each attempt an owner of its own: a retry may overlap with the attempt that it repeats.
            owner=f"{request.correlation_id}/{uuid4()}",
        )
        return fetcher.fetch(item)


def count_file(source: str, fetched: FetchResult) -> None:
    """Put the metrics of a fetched file, and add its events to the counts of its source.

    An unchanged or busy file has none. An error is only logged: the file itself is stored.
    """
    counts = {
        Metric.FILES_STORED: int(fetched.state is FetchState.STORED),
        Metric.EVENTS_ACCEPTED: fetched.rows,
        Metric.EVENTS_REJECTED: fetched.rejected,
    }
    put_counts(counts, source=source)
    count = EventCount(fetched.rows + fetched.rejected, fetched.rejected)
    with best_effort("the events of the file were not counted"):
        function_resources().once.event_counts.add(source, count, at=utc_now())
