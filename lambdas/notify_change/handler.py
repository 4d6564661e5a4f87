"""Notify people of what a new version of a day has changed: the last task of the monitoring for each late day."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import SHORT_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.machines import StepFunctionsExecutions
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.topic import SnsTopic
from slackwater.late.changes.notify import Notifier
from slackwater.metrics import Metric

logger = Logger()


class NotifyChangeEnvironment(FunctionEnvironment):
    """Settings of this function."""

    run_table: str
    change_topic: str


class NotifyChangeRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    date: str
    comparison: str
    """URI of the `Comparison`."""
    execution: str
    correlation_id: str


@cache
def build_notifier() -> Notifier:
    """Build the notifier, once per process."""
    environment = NotifyChangeEnvironment.read()
    return Notifier(
        store=S3ObjectStore(client("s3", config=SHORT_CONFIG)),
        table=DynamoRunTable(client("dynamodb", config=SHORT_CONFIG), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions", config=SHORT_CONFIG)),
        topic=SnsTopic(environment.change_topic),
        now=lambda: datetime.now(UTC),
        on_outcome_unknown=lambda pipeline: put_metric(Metric.NOTIFICATION_OUTCOME_UNKNOWN, 1, pipeline=pipeline),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return `slackwater.late.changes.notify.NotificationResult` as JSON."""
    request = NotifyChangeRequest.model_validate(event)
    result = build_notifier().notify(**request.model_dump(exclude={"correlation_id"}))
    if result.notified:
        put_metric(Metric.NOTIFICATIONS_SENT, 1, pipeline=request.pipeline)
    answer = result.model_dump()
    logger.info(
        "people notified" if result.notified else "nobody notified", extra={"date": request.date, "answer": answer}
    )
    return answer
