"""Queues of work for a function, such as accepted events that wait to be stored, and dead-letter queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.common import accept, removal
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.settings import Settings
from infra.teams import CREATE_QUEUE, Team
from slackwater.sources.definition import SHORTEST_BUFFER

LONGEST_RETENTION = Duration.days(14)
"""The longest that SQS offers: somebody has to look at a dead letter."""
DEAD_LETTERS = "dead-letters"
"""The name of the queue of messages that topics could not deliver, without the deployment's prefix."""
_MAX_ATTEMPTS = 5
# Timeout of the function that stores the events.
STORE_TIMEOUT = Duration.minutes(1)
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(7)
# Larger batches make fewer and larger objects; an event is in its partition some seconds after the API has answered.
# Those of a source with more `buffer_seconds` arrive together after these. 2,000 small ones are about the 6 MB that an
# invocation may have, and take about 16 s.
_BATCHING_WINDOW = Duration.seconds(SHORTEST_BUFFER)
_BATCH_SIZE = 2_000
# A new account may run 10 functions at the same time, and the API's function needs some to answer. A mapping allows at
# least 2. They suffice for the default throttle of the API.
_REQUESTS_FOR_ONE = 50
_MIN_CONCURRENCY, _MAX_CONCURRENCY = 2, 10


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
    function: LibraryFunction,
    id_: str,
    queue: sqs.Queue,
    *,
    batch_size: int,
    window: Duration,
    concurrency: int,
    enabled: bool | None = None,
) -> None:
    """Invoke the function with batches of messages. It reports failed messages in `batchItemFailures`.

    Lambda sends fewer messages where a batch would exceed its limit of 6 MB. Without `enabled`, CloudFormation decides.
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
        enabled=enabled,
    )


class EventBuffer(Construct):
    """A queue of accepted request bodies that are not stored yet, with a dead-letter queue after five failed attempts.

    The dead-letter queue is separate from the one of the topics. Notifications are sent again by hand, one by one;
    events can all be moved back unchanged with `slackwater buffer redrive`. CloudFormation generates the names of both
    queues: events may still wait in them when their stack is deleted, and then they are retained.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, key: kms.IKey | None) -> None:
        """Encrypt the queues with `key`, or without one with a key of SQS."""
        super().__init__(scope, id_)
        wanted = settings.api_requests_per_second // _REQUESTS_FOR_ONE
        self._concurrency = min(max(wanted, _MIN_CONCURRENCY), _MAX_CONCURRENCY)
        kept, retention = removal(settings), LONGEST_RETENTION
        self.dead_letters = create_queue(self, "DeadLetters", key=key, retention_period=retention, removal_policy=kept)
        self.queue = create_queue(
            self,
            "Queue",
            key=key,
            retention_period=retention,
            removal_policy=kept,
            visibility_timeout=_VISIBILITY_TIMEOUT,
            dead_letters=self.dead_letters,
        )

    def feed(self, function: LibraryFunction) -> None:
        """Invoke the function with batches of messages.

        The mapping exists even when no source uses the buffer: events that are still queued when the last such source
        is changed must be stored.
        """
        feed(
            function,
            "Events",
            self.queue,
            batch_size=_BATCH_SIZE,
            window=_BATCHING_WINDOW,
            concurrency=self._concurrency,
        )


class DeadLetters(Construct):
    """Keeps messages for 14 days that SNS could not deliver to a subscriber of the topics."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, topics: Sequence[sns.ITopic]) -> None:
        super().__init__(scope, id_)
        self.name, self._named = settings.named(DEAD_LETTERS), settings.named
        self.queue = create_queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=LONGEST_RETENTION,
            removal_policy=RemovalPolicy.DESTROY,  # it has a fixed name, and comparisons stay in the exchange bucket
        )
        allow_service(self.queue, "sns", [topic.topic_arn for topic in topics])

    def subscribe(
        self, name: str, topic: sns.ITopic, addresses: Sequence[str], *, protocol: str = "email", **options: Any
    ) -> None:
        """Subscribe addresses to a topic. Messages that cannot be delivered go to this queue."""
        for address in addresses:
            sns.CfnSubscription(
                self,
                f"{name} to {'a queue' if protocol == 'sqs' else address}",
                topic_arn=topic.topic_arn,
                protocol=protocol,
                endpoint=address,
                redrive_policy={"deadLetterTargetArn": self.queue.queue_arn},
                **options,
            )

    def subscribe_teams(self, topic: sns.ITopic, teams: Mapping[str, Team]) -> None:
        """Subscribe each team to the messages about its own tables."""
        for name, team in teams.items():
            options: dict[str, Any] = {"filter_policy": team.filter_policy(name)}
            self.subscribe(f"Changes of {name}", topic, team.emails, **options)
            if team.queue:
                queue = self._team_queue(name, topic) if team.queue == CREATE_QUEUE else team.queue
                self.subscribe(f"Changes of {name}", topic, [queue], protocol="sqs", **options)

    def _team_queue(self, name: str, topic: sns.ITopic) -> str:
        """Create the queue of a team; return its ARN."""
        queue = create_queue(
            self,
            f"Team {name}",
            queue_name=self._named(f"changes-{name}"),
            retention_period=LONGEST_RETENTION,
            removal_policy=RemovalPolicy.DESTROY,  # as of the dead letters, which it shares
            dead_letters=self.queue,
        )
        allow_service(queue, "sns", topic.topic_arn)
        return queue.queue_arn
