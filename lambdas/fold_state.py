"""Lambda function behind the queue of states: compute the states of the hours that its messages are about."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.function_resources import function_resources
from slackwater.runs.periods.state_messages import fold_messages

logger = Logger()


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Compute the states for the messages of one SQS event.

    Returns the messages that have to be delivered again as `batchItemFailures`; SQS deletes all others.
    """
    messages = {record["messageId"]: record["body"] for record in event["Records"]}
    result = fold_messages(messages, function_resources(SHORT_CONFIG).period_folder)
    for message, reason in result.failed.items():
        logger.error("message not handled", extra={"message_id": message, "reason": reason})
    numbers = {"messages": len(messages), "objects": result.objects, "changed": result.changed}
    logger.info("states computed", extra=numbers)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in result.failed]}
