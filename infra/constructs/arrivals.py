"""The queue of arrivals, the rule that sends events of written objects to it, and the function that reads it."""

from __future__ import annotations

from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.library_function import LibraryFunction
from infra.constructs.queues import LONGEST_RETENTION, allow_service, create_queue, feed
from infra.settings import Settings

ARRIVALS = "arrivals"
"""The name of the queue, without the deployment's prefix."""
CHECK_TIMEOUT = Duration.minutes(2)
"""Timeout of the function that starts the checks."""
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(17)
# The daily check has covered an object that has waited longer.
_RETENTION = Duration.days(4)
# The most that a mapping allows.
_BATCH_SIZE = 10_000
# The least that a mapping allows: a backlog of many batches must not start an execution for each at the same time.
_MAX_CONCURRENCY = 2


def dead_arrivals(name: str) -> str:
    """Return the name of the dead-letter queue of the queue of arrivals with that name."""
    return f"{name}-dead-letters"


class Arrivals(Construct):
    """Invokes a function with the messages of some minutes: written objects, and days to check.

    With the setting `collect_minutes` 0, the rule is disabled: objects wait for the daily check.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, raw: s3.IBucket) -> None:
        super().__init__(scope, id_)
        self._settings = settings
        self.name = settings.named(ARRIVALS)
        self.dead_letters = create_queue(
            self, "DeadLetters", queue_name=dead_arrivals(self.name), retention_period=LONGEST_RETENTION
        )
        self.queue = create_queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=_RETENTION,
            visibility_timeout=_VISIBILITY_TIMEOUT,
            dead_letters=self.dead_letters,
        )
        # A batch of more than ten messages needs a window. Without a rule, only earlier messages are left.
        self.window = Duration.seconds(60 * settings.collect_minutes or 1)
        self._send_events(raw)

    def _send_events(self, raw: s3.IBucket) -> None:
        """Send an event of each object below `raw/` to the queue: only its id and time, and the object's key."""
        rule = events.CfnRule(
            self,
            "Rule",
            name=self.name,
            description="Objects that were written to partitions",
            state="ENABLED" if self._settings.collect_minutes else "DISABLED",
            event_pattern={
                "source": ["aws.s3"],
                "detail-type": ["Object Created"],
                "detail": {"bucket": {"name": [raw.bucket_name]}, "object": {"key": [{"prefix": "raw/source="}]}},
            },
            targets=[
                {
                    "id": "Queue",
                    "arn": self.queue.queue_arn,
                    "inputTransformer": {
                        "inputPathsMap": {"id": "$.id", "key": "$.detail.object.key", "time": "$.time"},
                        "inputTemplate": '{"id": <id>, "key": <key>, "time": <time>}',
                    },
                    # Without it, EventBridge drops an event that the queue does not take within a day.
                    "deadLetterConfig": {"arn": self.dead_letters.queue_arn},
                }
            ],
        )
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
