"""Tell people what a new version of a day has changed; the last state of a monitoring, for each day."""

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
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.aws.topic import SnsTopic
from slackwater.late.notify import Notifier
from slackwater.metrics import Metric

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    run_table: str = Field(alias="RUN_TABLE")
    change_topic: str = Field(alias="CHANGE_TOPIC")


class Request(BaseModel):
    """What the state machine asks."""

    pipeline: str
    date: str
    comparison: str
    """Address of the `Comparison`."""
    execution: str
    correlation_id: str


@cache
def _teller() -> Notifier:
    environment = Environment.model_validate(dict(os.environ))
    return Notifier(
        store=S3ObjectStore(client("s3")),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions")),
        topic=SnsTopic(environment.change_topic),
        now=lambda: datetime.now(UTC),
        unsure=lambda pipeline: put_metric(Metric.TELLINGS_UNSURE, 1, pipeline=pipeline),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with `slackwater.late.notify.NotificationResult` as JSON."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    told = _teller().tell(**request.model_dump(exclude={"correlation_id"}))
    if told.told:
        put_metric(Metric.CHANGES_TOLD, 1, pipeline=request.pipeline)
    answer = told.model_dump()
    logger.info("people told" if told.told else "nobody told", extra={"date": request.date, "answer": answer})
    return answer
