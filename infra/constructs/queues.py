"""Queues of work for a function, and dead-letter queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.common import accept
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants

LONGEST_RETENTION = Duration.days(14)
"""The longest that SQS offers: somebody has to look at a dead letter."""
_MAX_ATTEMPTS = 5


def create_queue(
    scope: Construct, id_: str, *, dead_letters: sqs.Queue | None = None, key: kms.IKey | None = None, **options: Any
) -> sqs.Queue:
    """Create a queue that is encrypted with `key`, or without one with a key of SQS.

    Messages go to `dead_letters` after five failed attempts. Without that queue, this is a dead-letter queue.
    """
    queue = sqs.Queue(
        scope,
        id_,
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=_MAX_ATTEMPTS)
        if dead_letters
        else None,
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        enforce_ssl=True,
        **options,
    )
    if not dead_letters:
        accept(queue, {"AwsSolutions-SQS3": "This queue is itself a dead-letter queue."})
    return queue


def allow_service(queue: sqs.Queue, service: str, sources: str | Sequence[str]) -> None:
    """Let these rules or topics of `events` or `sns` send messages to the queue."""
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal(f"{service}.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": sources}},
        )
    )


def feed(
    function: LibraryFunction, id_: str, queue: sqs.Queue, *, batch_size: int, window: Duration, concurrency: int
) -> None:
    """Invoke the function with batches of messages. It reports failed messages in `batchItemFailures`.

    Lambda sends fewer messages where a batch would exceed its limit of 6 MB.
    """
    grants.use_queue(function.role, queue, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
    lambda_.EventSourceMapping(
        function,
        id_,
        target=function.function,
        event_source_arn=queue.queue_arn,
        batch_size=batch_size,
        max_batching_window=window,
        max_concurrency=concurrency,
        report_batch_item_failures=True,
    )
