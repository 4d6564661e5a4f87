"""Push, second half for sources with `buffer: queue`: messages of the queue are stored, those of a source together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.delivery import raw_delivery
from slackwater.aws.objects import S3ObjectStore
from slackwater.project import Project
from slackwater.receiver.push.queue import MessageResult, store_messages
from slackwater.receiver.push.receive import Receiver

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    raw_database: str = Field(alias="RAW_DATABASE")
    project_uri: str = Field(alias="PROJECT_URI")


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What one process needs, made once."""

    project: Project
    receiver: Receiver


@cache
def _wiring() -> Wiring:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    delivery = raw_delivery(store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database)
    return Wiring(
        project=Project.model_validate_json(store.get(environment.project_uri)),
        receiver=Receiver(delivery=delivery, now=lambda: datetime.now(UTC)),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with the messages that were not stored: SQS hands over these, and no others, once more.

    Their events were counted when they were answered.
    """
    wiring = _wiring()
    messages = {record["messageId"]: record["body"] for record in event["Records"]}
    failed = []
    for outcome in store_messages(messages, source=wiring.project.source, receiver=wiring.receiver):
        _log(outcome)
        if outcome.failure:
            failed.append({"itemIdentifier": outcome.message_id})
    return {"batchItemFailures": failed}


def _log(outcome: MessageResult) -> None:
    """Write a line by the correlation id of the request that brought the batch."""
    batch = outcome.batch
    logger.set_correlation_id(batch.correlation_id if batch else outcome.message_id)
    about: dict[str, Any] = {"message_id": outcome.message_id}
    if batch:
        about |= {"source": batch.source, "events": batch.accepted}
    if outcome.failure:
        logger.error("batch not stored", extra={**about, "reason": outcome.failure})
    else:
        logger.info("batch stored", extra=about)
