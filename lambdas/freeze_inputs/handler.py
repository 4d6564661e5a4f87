"""Freeze the inputs of a run and claim its day; the first state of every pipeline's machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.emf import put_metric
from slackwater.aws.executions import StepFunctionsExecutions
from slackwater.aws.inputs import input_listing
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.metrics import Metric
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
    allow_fewer: bool = False


def _now() -> datetime:
    return datetime.now(UTC)


@cache
def _freezer() -> Freezer:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    project = Project.model_validate_json(store.get(environment.project_uri))
    return Freezer(
        project=project,
        store=store,
        inputs=input_listing(
            project, store=store, raw_bucket=environment.raw_bucket, file_table=environment.file_table, now=_now
        ),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions")),
        exchange_bucket=environment.exchange_bucket,
        now=_now,
        lost=lambda pipeline: put_metric(Metric.RUNS_FAILED, 1, pipeline=pipeline),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.runs.freeze.Frozen` as JSON."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    frozen = _freezer().freeze(**request.model_dump())
    answer = frozen.model_dump(mode="json")
    logger.info("inputs frozen", extra=answer)
    return answer
