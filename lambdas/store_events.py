"""Lambda function behind the event queue: store the batches of sources with `buffer: queue`, joined by source."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.function_resources import function_resources
from slackwater.receiver.push.queue import store_messages

logger = Logger()


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Store the batches of the messages of one SQS event.

    Returns the messages that were not stored as `batchItemFailures`: SQS deletes all others and delivers only these
    again. Puts no metrics: `receive_events` has counted the events already, and a message may be delivered twice.
    """
    resources = function_resources(SHORT_CONFIG)
    messages = {record["messageId"]: record["body"] for record in event["Records"]}
    failed = []
    results = store_messages(messages, source=resources.project.source, receiver=resources.receiver)
    for message_id, batch, failure in results:
        fields: dict[str, Any] = {"message_id": message_id}
        if batch:
            fields |= {"source": batch.receipt.definition.source, "events": batch.accepted}
        # Log each batch under the correlation id of the request that sent it, or of its message if it is unreadable.
        logger.set_correlation_id(batch.correlation_id if batch else message_id)
        if failure is not None:
            logger.error("batch not stored", extra={**fields, "reason": failure})
            failed.append({"itemIdentifier": message_id})
        else:
            logger.info("batch stored", extra=fields)
    return {"batchItemFailures": failed}
