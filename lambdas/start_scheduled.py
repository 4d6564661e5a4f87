"""Start the state machine of a scheduled task: what the schedules of EventBridge Scheduler invoke."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.project.scheduled_starts import ScheduledStart

logger = Logger()


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Start the execution of a `ScheduledStart`, unless an earlier delivery of it has. Return its name and whether.

    Raises `CloudError`. The scheduler delivers at least once, and Lambda repeats a failed invocation.
    """
    start = ScheduledStart.model_validate(event)
    logger.set_correlation_id(start.name)
    if not start.due:
        logger.info("no time of the task was skipped")
        return {"execution": start.name, "started": False}
    resources = function_resources(SHORT_CONFIG)
    # The settings have the beginning of every state machine's ARN.
    machine = resources.settings.state_machine_prefix + start.task.state_machine
    started = resources.state_machines.start_once(machine, name=start.name, payload=start.input)
    logger.info("started" if started else "started before", extra={"machine": machine, "input": start.input})
    return {"execution": start.name, "started": started}
