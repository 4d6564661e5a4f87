"""Lambda function behind the event queue: store the batches of sources with `buffer: queue`, joined by source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import SHORT_CONFIG, client
from slackwater.aws.function import FunctionEnvironment
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partitions import create_raw_writer
from slackwater.project.project import Project
from slackwater.receiver.push.queue import store_messages
from slackwater.receiver.push.receive import Receiver
from slackwater.sources.kms_keys import parse_source_keys

logger = Logger()


class StoreEventsEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    raw_database: str
    project_uri: str
    source_kms_keys: str = ""


@dataclass(frozen=True, kw_only=True)
class StoreEventsResources:
    """What the handler uses in all invocations of one process."""

    project: Project
    receiver: Receiver


@cache
def build_resources() -> StoreEventsResources:
    """Build the resources, once per process."""
    environment = StoreEventsEnvironment.read()
    keys = parse_source_keys(environment.source_kms_keys)
    store = S3ObjectStore(client("s3", config=SHORT_CONFIG), source_keys=keys)
    raw_writer = create_raw_writer(
        store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database, config=SHORT_CONFIG
    )
    return StoreEventsResources(
        project=Project.model_validate_json(store.get(environment.project_uri)),
        receiver=Receiver(raw_writer=raw_writer, now=lambda: datetime.now(UTC)),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Store the batches of the messages of one SQS event.

    Returns the messages that were not stored as `batchItemFailures`: SQS deletes all others and delivers only these
    again. Puts no metrics: `receive_events` has counted the events already, and a message may be delivered twice.
    """
    resources = build_resources()
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
