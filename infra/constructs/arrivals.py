"""The queue of arrivals, the rule that sends events of written objects to it, and the function that reads it."""

from __future__ import annotations

from typing import cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.common import accept
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.permissions.roles import Grantee
from infra.settings import Settings

# The name of the queue, without the deployment's prefix.
_NAME = "arrivals"
CHECK_TIMEOUT = Duration.minutes(2)
"""Timeout of the function that starts the checks."""
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(17)
_MAX_ATTEMPTS = 5
# The longest retention that SQS offers, for someone to look at the message.
_DEAD_RETENTION = Duration.days(14)
# The daily check has covered an object that has waited longer.
_RETENTION = Duration.days(4)
# The most that a mapping allows. Lambda sends fewer messages where a batch would exceed its limit of 6 MB.
_BATCH_SIZE = 10_000
# The least that a mapping allows: a backlog of many batches must not start an execution for each at the same time.
_MAX_CONCURRENCY = 2


def dead_arrivals(name: str) -> str:
    """Return the name of the dead-letter queue of the queue of arrivals with that name."""
    return f"{name}-dead-letters"


class ArrivalSenders(Construct):
    """The queue of arrivals, for functions that send messages to it.

    It refers to the queue by its name: the stacks of most of these functions are deployed before the queue's stack.
    With the setting `collect_minutes` 0, the functions send nothing: days wait for the daily check.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings) -> None:
        super().__init__(scope, id_)
        arn = Stack.of(self).format_arn(service="sqs", resource=settings.named(_NAME))
        self._queue = sqs.Queue.from_queue_arn(self, "Queue", arn)
        self.environment = {"ARRIVAL_QUEUE_URL": self._queue.queue_url if settings.collect_minutes else ""}

    def allow(self, role: Grantee) -> None:
        """Let `role` send messages."""
        grants.use_queue(role, self._queue, "SendMessage")


class Arrivals(Construct):
    """Invokes a function with the messages of some minutes: written objects, and days to check.

    With the setting `collect_minutes` 0, the rule is disabled: objects wait for the daily check.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, raw: s3.IBucket) -> None:
        super().__init__(scope, id_)
        self._settings = settings
        self.name = settings.named(_NAME)
        self.dead_letters = self._queue("DeadLetters", dead_arrivals(self.name), retention=_DEAD_RETENTION)
        accept(self.dead_letters, {"AwsSolutions-SQS3": "This queue is itself a dead-letter queue."})
        redrive = sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=_MAX_ATTEMPTS)
        self.queue = self._queue("Queue", self.name, retention=_RETENTION, redrive=redrive)
        # A batch of more than ten messages needs a window. Without a rule, only earlier messages are left.
        self.window = Duration.seconds(60 * settings.collect_minutes or 1)
        self._send_events(raw)

    def _queue(
        self, id_: str, name: str, *, retention: Duration, redrive: sqs.DeadLetterQueue | None = None
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            id_,
            queue_name=name,
            visibility_timeout=_VISIBILITY_TIMEOUT if redrive else None,
            dead_letter_queue=redrive,
            retention_period=retention,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )

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
                events.CfnRule.TargetProperty(
                    id="Queue",
                    arn=self.queue.queue_arn,
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"id": "$.id", "key": "$.detail.object.key", "time": "$.time"},
                        input_template='{"id": <id>, "key": <key>, "time": <time>}',
                    ),
                    # Without it, EventBridge drops an event that the queue does not take within a day.
                    dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self.dead_letters.queue_arn),
                )
            ],
        )
        for queue in (self.queue, self.dead_letters):
            queue.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[iam.ServicePrincipal("events.amazonaws.com")],
                    actions=["sqs:SendMessage"],
                    resources=[queue.queue_arn],
                    conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
                )
            )

    def feed(self, function: LibraryFunction) -> None:
        """Invoke the function with batches of messages. It reports failed messages in `batchItemFailures`."""
        # It sends messages that have to wait to its own queue. By default, Lambda stops such a chain after 16 turns.
        cast("lambda_.CfnFunction", function.function.node.default_child).recursive_loop = "Allow"
        grants.use_queue(function.role, self.queue, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
        lambda_.EventSourceMapping(
            function,
            "Arrivals",
            target=function.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=_BATCH_SIZE,
            max_batching_window=self.window,
            max_concurrency=_MAX_CONCURRENCY,
            report_batch_item_failures=True,
        )
