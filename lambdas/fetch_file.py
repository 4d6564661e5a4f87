"""Pull: fetch one file of the work list. The state machine passes the index of the file."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import SHORT_CONFIG, SINGLE_CONFIG
from slackwater.aws.emf import put_counts
from slackwater.aws.function import best_effort, with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.metrics import Metric
from slackwater.receiver.commits import file_committed
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.receiver.pull.large_files import FunctionFetcher, LargeFileJob
from slackwater.state.messages import partitions_changed

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


def fetcher(resources: FunctionResources) -> FunctionFetcher:
    """Return what fetches files of partners."""
    return FunctionFetcher(
        source=resources.project.source,
        store=resources.store,
        fetch_file=partial(resources.fetch_file, lease=LEASE),
        jobs_have_network=bool(resources.settings.job_network),
    )


def report_fetched(source: str, fetched: FetchResult) -> None:
    """Put the metrics of a fetched file, count its events, and have the days checked whose rows it has changed.

    An error is only logged: the file itself is stored.
    """
    stored = fetched.counts
    counts = {
        Metric.FILES_STORED: stored.files,
        Metric.EVENTS_ACCEPTED: stored.rows,
        Metric.EVENTS_REJECTED: stored.rejected,
    }
    put_counts(counts, source=source)
    with best_effort("the events of the file were not counted"):
        count = EventCount(stored.rows + stored.rejected, stored.rejected)
        function_resources(SINGLE_CONFIG).event_counts.add(source, count, at=utc_now())
    with best_effort("days wait for the daily check"):
        messages = file_committed(source, fetched.partitions, time=utc_now())
        function_resources(SHORT_CONFIG).arrivals([(message.model_dump_json(), 0) for message in messages])
    resources = function_resources(SHORT_CONFIG)
    if fetched.partitions and resources.project.source(source).counts:
        with best_effort("the states of hours wait for the daily check"):
            resources.send_state(partitions_changed(source, fetched.partitions))


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `FetchResult` as JSON, or a `LargeFileJob` for a file that is too large for a function but not for jobs.

    With `answer`, return the result that such a job stored. Raises `PartnerError`, `DataError` or `CloudError` when the
    file cannot be fetched.
    """
    request = FetchFileRequest.model_validate(event)
    fetched = fetcher(function_resources()).fetch(**request.model_dump())
    # There may be thousands of partitions, so the state machine gets none.
    answer = fetched.model_dump(mode="json", exclude={"partitions", "counts"})
    if isinstance(fetched, LargeFileJob):
        logger.info("file is too large for a function, a job fetches it", extra={**answer, "reason": fetched.reason})
    else:
        report_fetched(request.source, fetched)
        logger.info("file fetched", extra={"source": request.source, **answer})
    return answer
