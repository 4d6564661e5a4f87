"""Pull, one file: the item of the work list that the state machine names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.delivery import raw_delivery
from slackwater.aws.emf import put_metric
from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partners import partner_of
from slackwater.errors import CloudError, FileTooLarge, ObjectMissing, PartnerError
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.receiver.pull.fetch import FetchResult, FileFetcher
from slackwater.receiver.pull.file_cache import FileState
from slackwater.receiver.pull.plan import pull_of, read_item
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.record import failure_uri
from slackwater.sources.definition import Source

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    raw_database: str = Field(alias="RAW_DATABASE")
    file_table: str = Field(alias="FILE_TABLE")
    project_uri: str = Field(alias="PROJECT_URI")
    outbound_allow: str = Field(alias="OUTBOUND_ALLOW")


class Request(BaseModel):
    """What the state machine asks."""

    source: str
    work: str
    """Address of the work list."""
    index: Annotated[int, Field(ge=0)]
    """Place of the file in it."""
    correlation_id: str
    answer: str | None = None
    """Where a job has left what it did, if one was started."""


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What one process needs, made once."""

    cache: DynamoFileCache
    delivery: RawWriter
    project: Project
    outbound_allow: str


@cache
def _wiring() -> Wiring:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    return Wiring(
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        delivery=raw_delivery(store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database),
        project=Project.model_validate_json(store.get(environment.project_uri)),
        outbound_allow=environment.outbound_allow,
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.receiver.pull.fetch.FetchResult` as JSON; a file that cannot be taken is an error."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    wiring = _wiring()
    source = wiring.project.source(request.source)
    try:
        fetched = _answer_of_job(wiring, request) if request.answer else _fetch(wiring, source, request)
    except FileTooLarge:
        large = _large(request)
        logger.info("file left to a job", extra=large)
        return large
    _count(source.source, fetched)
    answer = fetched.model_dump(mode="json")
    logger.info("file fetched", extra={"source": source.source, **answer})
    return answer


def _fetch(wiring: Wiring, source: Source, request: Request) -> FetchResult:
    item, most = read_item(wiring.delivery.store, request.work, request.index), pull_of(source).function_mb * 10**6
    if item.listed and (item.listed.size or 0) > most:
        raise FileTooLarge(f"{item.path}: {item.listed.size:,} bytes")
    with partner_of(source, allow=wiring.outbound_allow, max_file_bytes=most) as partner:
        fetcher = FileFetcher(
            source=source,
            partner=partner,
            cache=wiring.cache,
            delivery=wiring.delivery,
            now=lambda: datetime.now(UTC),
            owner=f"{request.correlation_id}/{uuid4()}",
        )
        return fetcher.fetch(item)


def _large(request: Request) -> dict[str, Any]:
    """Return what the state machine needs to start a job for the file."""
    job = uuid4().hex
    told = request.model_dump(mode="json", exclude={"answer"})
    return {**told, "state": "large", "job": job, "answer": f"{request.work.removesuffix('.json')}/{job}.json"}


def _answer_of_job(wiring: Wiring, request: Request) -> FetchResult:
    """Read what the job has left. Raises `PartnerError` with the reason of its failure, or `CloudError` without."""
    store, answer = wiring.delivery.store, request.answer or ""
    try:
        return FetchResult.model_validate_json(store.get(answer))
    except ObjectMissing:
        pass
    try:
        reason = store.get(failure_uri(f"{answer}.")).decode()
    except ObjectMissing as error:
        raise CloudError(f"the job for item {request.index} of {request.work} left no answer: see its logs") from error
    raise PartnerError(reason)


def _count(source: str, fetched: FetchResult) -> None:
    """Count a file that was taken, and its events; asked for again, it is unchanged and counts no more."""
    counted = {
        Metric.FILES_TAKEN: int(fetched.state == FileState.TAKEN),
        Metric.EVENTS_ACCEPTED: fetched.rows,
        Metric.EVENTS_REJECTED: fetched.rejected,
    }
    for metric, count in counted.items():
        if count:
            put_metric(metric, count, source=source)
