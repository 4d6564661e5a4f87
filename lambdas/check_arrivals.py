"""Lambda function behind the queue of arrivals: start a monitoring of the finished days its messages are about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.executions.state_machines import StateMachines, StepFunctionsExecutions
from slackwater.aws.function import FunctionEnvironment
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.queue import ArrivalQueue
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.metrics import Metric
from slackwater.project.project import Project

logger = Logger()


class CheckArrivalsEnvironment(FunctionEnvironment):
    """Settings of this function."""

    run_table: str
    project_uri: str
    monitor_machine: str
    """ARN of the monitoring state machine."""
    queue_url: str
    """Of the queue that invokes this function."""


@dataclass(frozen=True)
class MonitorMachine:
    """The monitoring state machine, given by its ARN."""

    state_machines: StateMachines
    arn: str

    def __call__(self, *, name: str, pipeline: str, days: tuple[str, ...]) -> None:
        """Start an execution with that name, unless one was started with it before."""
        payload = {"pipeline": pipeline, "days": days, "correlation_id": name}
        self.state_machines.start_once(self.arn, name=name, payload=payload)


@cache
def build_checks() -> ArrivalChecks:
    """Build what starts the checks, once per process."""
    environment = CheckArrivalsEnvironment.read()
    store, states = S3ObjectStore(client("s3", config=SHORT_CONFIG)), client("stepfunctions", config=SHORT_CONFIG)
    return ArrivalChecks(
        project=Project.model_validate_json(store.get(environment.project_uri)),
        table=DynamoRunTable(client("dynamodb", config=SHORT_CONFIG), environment.run_table),
        executions=StepFunctionsExecutions(states),
        start=MonitorMachine(StateMachines(states), environment.monitor_machine),
        send_later=ArrivalQueue(client("sqs", config=SHORT_CONFIG), environment.queue_url),
        now=lambda: datetime.now(UTC),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Start the checks for the messages of one SQS event.

    Returns the messages that have to be delivered again as `batchItemFailures`; SQS deletes all others.
    """
    messages = {record["messageId"]: record["body"] for record in event["Records"]}
    result = build_checks().start_checks(messages)
    for check in result.started:
        logger.set_correlation_id(check.name)
        logger.info("check started", extra={"pipeline": check.pipeline, "days": check.days})
    logger.set_correlation_id(None)
    for pipeline, count in result.older.items():
        put_metric(Metric.LATE_OBJECTS_OLDER, count, pipeline=pipeline)
    if result.foreign:
        logger.warning("objects that belong to no partition", extra={"keys": result.foreign[:10]})
    for message, reason in result.failed.items():
        logger.error("message not handled", extra={"message_id": message, "reason": reason})
    numbers = {"messages": len(messages), "postponed": result.postponed, "older": result.older}
    logger.info("arrivals handled", extra=numbers)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in result.failed]}
