"""Lambda function behind the queue of arrivals: start a monitoring of the finished days its messages are about."""

from __future__ import annotations

from functools import partial
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.executions.airflow import CheckRuns
from slackwater.aws.function import warn
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.late.check.arrival_checks import ArrivalChecks, StartsMonitoring

logger = Logger()


def arrival_checks(resources: FunctionResources) -> ArrivalChecks:
    """Return what starts checks of days with new objects."""
    return ArrivalChecks(
        project=resources.project,
        table=resources.run_table,
        executions=resources.state_machines,
        start=starts_monitoring(resources),
        send_later=resources.arrivals,
        update_table=resources.update_raw_table,
        wake_source=resources.wake_requests.wake_source,
        now=utc_now,
    )


def starts_monitoring(resources: FunctionResources) -> StartsMonitoring:
    """Return what starts a check: the state machine, or Airflow if the deployment has it as its scheduler."""
    start = partial(resources.state_machines.start_once, resources.settings.monitor_machine)
    if "airflow_environment" not in vars(resources.settings):
        return start
    return CheckRuns(
        airflow=resources.airflow,
        start=start,
        on_fallback=lambda name, reason: warn("the check is no DAG run", check=name, reason=reason),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Start the checks for the messages of one SQS event.

    Returns the messages that have to be delivered again as `batchItemFailures`; SQS deletes all others.
    """
    messages = {record["messageId"]: record["body"] for record in event["Records"]}
    result = arrival_checks(function_resources(SHORT_CONFIG)).start_checks(messages)
    for check in result.started:
        logger.set_correlation_id(check.name)
        logger.info("check started", extra={"pipeline": check.pipeline, "days": check.days})
    logger.set_correlation_id(None)
    if result.foreign:
        logger.warning("objects that belong to no partition", extra={"keys": result.foreign[:10]})
    for message, reason in result.failed.items():
        logger.error("message not handled", extra={"message_id": message, "reason": reason})
    numbers = {"messages": len(messages), "postponed": result.postponed, "older": result.older}
    logger.info("arrivals handled", extra=numbers)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in result.failed]}
