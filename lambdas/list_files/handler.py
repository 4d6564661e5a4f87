"""Pull, first state: list the partner's files and write the work list."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partners import partner_of
from slackwater.project import Project
from slackwater.receiver.partners.partner import MAX_FILE_BYTES
from slackwater.receiver.pull.plan import plan_pull, work_list_uri, write_plan

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    exchange_bucket: str = Field(alias="EXCHANGE_BUCKET")
    file_table: str = Field(alias="FILE_TABLE")
    project_uri: str = Field(alias="PROJECT_URI")
    outbound_allow: str = Field(alias="OUTBOUND_ALLOW")


class Request(BaseModel):
    """What the state machine asks."""

    source: str
    as_of: date | None = None
    correlation_id: str


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What one process needs, made once."""

    environment: Environment
    store: S3ObjectStore
    cache: DynamoFileCache
    project: Project


@cache
def _wiring() -> Wiring:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    return Wiring(
        environment=environment,
        store=store,
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        project=Project.model_validate_json(store.get(environment.project_uri)),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.receiver.pull.plan.PlanSummary` as JSON."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    wiring = _wiring()
    source = wiring.project.source(request.source)
    with partner_of(source, allow=wiring.environment.outbound_allow, max_file_bytes=MAX_FILE_BYTES) as partner:
        plan = plan_pull(source, as_of=request.as_of, partner=partner, cache=wiring.cache, now=datetime.now(UTC))
    address = work_list_uri(wiring.environment.exchange_bucket, source.source, request.correlation_id)
    answer = write_plan(plan, store=wiring.store, address=address).model_dump(mode="json")
    logger.info("files listed", extra={"source": source.source, **answer})
    return answer
