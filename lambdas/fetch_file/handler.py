"""Pull, one file: the item of the work list that the state machine names."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.emf import put_metric
from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partitions import PartitionRegistry
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.fetch import Fetched, Fetcher
from slackwater.receiver.file_cache import FileState
from slackwater.receiver.http_partner import HttpPartner
from slackwater.receiver.partner import MAX_FILE_BYTES
from slackwater.receiver.pull import pull_of, read_item

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    raw_database: str = Field(alias="RAW_DATABASE")
    file_table: str = Field(alias="FILE_TABLE")
    project_uri: str = Field(alias="PROJECT_URI")


class Request(BaseModel):
    """What the state machine asks."""

    source: str
    work: str
    """Address of the work list."""
    index: Annotated[int, Field(ge=0)]
    """Place of the file in it."""
    correlation_id: str


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What one process needs, made once."""

    cache: DynamoFileCache
    delivery: Delivery
    project: Project


@cache
def _wiring() -> Wiring:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    registry = PartitionRegistry(client("glue"), database=environment.raw_database, raw_bucket=environment.raw_bucket)
    return Wiring(
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        delivery=Delivery(store=store, partitions=registry, raw_bucket=environment.raw_bucket),
        project=Project.model_validate_json(store.get(environment.project_uri)),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.receiver.fetch.Fetched` as JSON; a file that cannot be taken is an error."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    wiring = _wiring()
    source = wiring.project.source(request.source)
    item = read_item(wiring.delivery.store, request.work, request.index)
    with closing(HttpPartner(pull_of(source).url, max_file_bytes=MAX_FILE_BYTES)) as partner:
        fetcher = Fetcher(
            source=source,
            partner=partner,
            cache=wiring.cache,
            delivery=wiring.delivery,
            now=lambda: datetime.now(UTC),
            owner=f"{request.correlation_id}/{uuid4()}",
        )
        fetched = fetcher.fetch(item)
    _count(source.source, fetched)
    answer = fetched.model_dump(mode="json")
    logger.info("file fetched", extra={"source": source.source, **answer})
    return answer


def _count(source: str, fetched: Fetched) -> None:
    """Count a file that was taken, and its events; asked for again, it is unchanged and counts no more."""
    counted = {
        Metric.FILES_TAKEN: int(fetched.state == FileState.TAKEN),
        Metric.EVENTS_ACCEPTED: fetched.rows,
        Metric.EVENTS_REJECTED: fetched.rejected,
    }
    for metric, count in counted.items():
        if count:
            put_metric(metric, count, source=source)
