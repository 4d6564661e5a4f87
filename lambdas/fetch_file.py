"""Pull: fetch one file of the work list. The state machine passes the index of the file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import SHORT_CONFIG, SINGLE_CONFIG, client
from slackwater.aws.connect import connector_of
from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.emf import put_counts
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partitions import create_raw_writer
from slackwater.aws.queue import ArrivalQueue
from slackwater.errors import FileTooLarge, SlackwaterError
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.receiver.commits import file_committed
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.fetch import FetchResult, FetchState, FileFetcher
from slackwater.receiver.pull.large_files import expect_function_size, job_result, new_job
from slackwater.receiver.pull.plan import read_item
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from slackwater.sources.kms_keys import parse_source_keys

logger = Logger()


class FetchFileEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    raw_database: str
    file_table: str
    project_uri: str
    outbound_allow: str
    arrival_queue_url: str
    """Empty if only the daily check finds late data."""
    source_kms_keys: str = ""


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


@dataclass(frozen=True, kw_only=True)
class FetchFileResources:
    """Clients and settings that all invocations of a process share."""

    cache: DynamoFileCache
    raw_writer: RawWriter
    project: Project
    outbound_allow: str
    arrivals: ArrivalQueue
    event_counts: DynamoEventCounts


@cache
def build_resources() -> FetchFileResources:
    """Build the resources, once per process."""
    environment = FetchFileEnvironment.read()
    keys = parse_source_keys(environment.source_kms_keys)
    store = S3ObjectStore(client("s3"), source_keys=keys)
    return FetchFileResources(
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        raw_writer=create_raw_writer(store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database),
        project=Project.model_validate_json(store.get(environment.project_uri)),
        outbound_allow=environment.outbound_allow,
        arrivals=ArrivalQueue(client("sqs", config=SHORT_CONFIG), environment.arrival_queue_url),
        event_counts=DynamoEventCounts(client("dynamodb", config=SINGLE_CONFIG), environment.file_table),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `FetchResult` as JSON, or a `LargeFileJob` for a file that is too large for a function but not for jobs.

    With `answer`, return the result that such a job stored. Raises `PartnerError`, `DataError` or `CloudError` when the
    file cannot be fetched.
    """
    request = FetchFileRequest.model_validate(event)
    resources = build_resources()
    source = resources.project.source(request.source)
    try:
        if request.answer:
            fetched = job_result(resources.raw_writer.store, request.answer, job_error=request.job_error)
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
    record_counts(resources.event_counts, source.source, fetched)
    request_checks(resources.arrivals, source.source, fetched)
    result = fetched.summary()
    logger.info("file fetched", extra={"source": source.source, **result})
    return result


def fetch(resources: FetchFileResources, source: Source, request: FetchFileRequest) -> FetchResult:
    """Fetch the file in this process. Raises `FileTooLarge` when it is too large for a function or for the source."""
    item = read_item(resources.raw_writer.store, request.work, request.index)
    pull = source.require_pull()
    max_bytes = min(pull.function_mb, pull.max_file_mb or pull.function_mb) * 10**6
    # Without jobs, a file of any size is attempted here, so that the file cache gets the reason of the failure.
    if pull.needs_jobs:
        expect_function_size(item, max_bytes=max_bytes)
    with connector_of(source, allow=resources.outbound_allow, max_file_bytes=max_bytes) as partner:
        fetcher = FileFetcher(
            source=source,
            partner=partner,
            cache=resources.cache,
            raw_writer=resources.raw_writer,
            now=lambda: datetime.now(UTC),
            # The UUID makes each attempt an owner of its own: a retry may overlap with the attempt that it repeats.
            owner=f"{request.correlation_id}/{uuid4()}",
        )
        return fetcher.fetch(item)


def request_checks(arrivals: ArrivalQueue, source: str, fetched: FetchResult) -> None:
    """Have the days checked whose rows have changed. An error is only logged: the daily check looks at them too."""
    messages = file_committed(source, fetched.partitions, time=datetime.now(UTC))
    try:
        arrivals([(message.model_dump_json(), 0) for message in messages])
    except SlackwaterError as error:
        logger.warning("the days of the file wait for the daily check", extra={"reason": str(error)})


def count_file(source: str, fetched: FetchResult) -> None:
    """Write the metrics of a fetched file and of its events; an unchanged or busy file has none."""
    counts = {
        Metric.FILES_STORED: int(fetched.state is FetchState.STORED),
        Metric.EVENTS_ACCEPTED: fetched.rows,
        Metric.EVENTS_REJECTED: fetched.rejected,
    }
    put_counts(counts, source=source)


def record_counts(counts: DynamoEventCounts, source: str, fetched: FetchResult) -> None:
    """Add a file's events to the counts of its source. An error is only logged: the file itself is stored."""
    try:
        counts.add(source, EventCount(fetched.rows + fetched.rejected, fetched.rejected), at=datetime.now(UTC))
    except SlackwaterError as error:
        logger.warning("the events of the file were not counted", extra={"reason": str(error)})
