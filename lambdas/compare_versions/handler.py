"""Say which two versions of a day are to be compared, what came of it, or why it failed."""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import client
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.late.versions import CompareSince, Versions

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    exchange_bucket: str = Field(alias="EXCHANGE_BUCKET")
    run_table: str = Field(alias="RUN_TABLE")


class Asked(BaseModel):
    """A comparison is wanted."""

    event: Literal["asked"]
    pipeline: str
    date: str
    since: CompareSince
    execution: str
    correlation_id: str


class Compared(BaseModel):
    """The comparing job has succeeded."""

    event: Literal["compared"]
    prefix: str
    correlation_id: str


class Failed(BaseModel):
    """Comparing has failed for good."""

    event: Literal["failed"]
    prefix: str
    job: str
    error: str
    cause: str
    correlation_id: str


_REQUEST: TypeAdapter[Asked | Compared | Failed] = TypeAdapter(
    Annotated[Asked | Compared | Failed, Field(discriminator="event")]
)


@cache
def _versions() -> Versions:
    environment = Environment.model_validate(dict(os.environ))
    return Versions(
        store=S3ObjectStore(client("s3")),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        exchange_bucket=environment.exchange_bucket,
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.late.versions.ChosenVersions`, a comparison's reference, or the reason of a failure."""
    request = _REQUEST.validate_python(event)
    logger.set_correlation_id(request.correlation_id)
    answer = _answer(request)
    logger.info(f"comparison: {request.event}", extra={"answer": answer})
    return answer


def _answer(request: Asked | Compared | Failed) -> dict[str, Any]:
    versions = _versions()
    match request:
        case Asked(pipeline=pipeline, date=date, since=since, execution=execution):
            chosen = versions.choose(pipeline=pipeline, date=date, since=since, execution=execution)
            return chosen.model_dump(mode="json")
        case Compared():
            return versions.compared(request.prefix).model_dump(mode="json")
        case Failed(prefix=prefix, job=job, error=error, cause=cause):
            return {"reason": versions.failed(prefix=prefix, job=job, error=error, cause=cause)}
