"""The queue of arrivals, which gets an event of each written object, and the function that reads it."""

from __future__ import annotations

from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.library_function import LibraryFunction
from infra.constructs.object_queue import ObjectQueue
from infra.constructs.queues import allow_service, feed
from infra.settings import Settings

ARRIVALS = "arrivals"
"""The name of the queue, without the deployment's prefix."""
CHECK_TIMEOUT = Duration.minutes(2)
"""Timeout of the function that starts the checks."""
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(17)
# The most that a mapping allows.
_BATCH_SIZE = 10_000
# The least that a mapping allows: a backlog of many batches must not start an execution for each at the same time.
_MAX_CONCURRENCY = 2


class Arrivals(ObjectQueue):
    """Invokes a function with the messages of some minutes: written objects, and days to check."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, raw: s3.IBucket) -> None:
        super().__init__(scope, id_, settings=settings, raw=raw, name=ARRIVALS, visibility_timeout=_VISIBILITY_TIMEOUT)
        # A batch of more than ten messages needs a window. Without a rule, only earlier messages are left.
        self.window = Duration.seconds(60 * settings.collect_minutes or 1)
        description = "Objects that were written to partitions"
        rule = self.send_events("Rule", ["raw/source="], name=self.name, description=description)
        for queue in (self.queue, self.dead_letters):
            allow_service(queue, "events", rule.attr_arn)

    def feed(self, function: LibraryFunction) -> None:
        """Invoke the function with batches of messages."""
        # It sends messages that have to wait to its own queue. By default, Lambda stops such a chain after 16 turns.
        cast("lambda_.CfnFunction", function.function.node.default_child).recursive_loop = "Allow"
        feed(
            function,
            "Arrivals",
            self.queue,
            batch_size=_BATCH_SIZE,
            window=self.window,
            concurrency=_MAX_CONCURRENCY,
        )
