"""Freeze the inputs of a run and claim its day; the first state of every pipeline's machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.executions import StepFunctionsExecutions
from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.project import Project
from slackwater.runs.freeze import Freezer

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    exchange_bucket: str = Field(alias="EXCHANGE_BUCKET")
    file_table: str = Field(alias="FILE_TABLE")
    run_table: str = Field(alias="RUN_TABLE")
    project_uri: str = Field(alias="PROJECT_URI")


class Request(BaseModel):
    """What the state machine asks."""

    pipeline: str
    date: str
    execution: str
    correlation_id: str
    force: bool = False


@cache
def _freezer() -> Freezer:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    return Freezer(
        project=Project.model_validate_json(store.get(environment.project_uri)),
        store=store,
        files=DynamoFileCache(client("dynamodb"), environment.file_table),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions")),
        raw_bucket=environment.raw_bucket,
        exchange_bucket=environment.exchange_bucket,
        now=lambda: datetime.now(UTC),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.runs.freeze.Frozen` as JSON."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    frozen = _freezer().freeze(**request.model_dump())
    answer = frozen.model_dump(mode="json")
    logger.info("inputs frozen", extra=answer)
    return answer
