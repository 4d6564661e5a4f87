"""The dead-letter queue of the SNS topics."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.queues import LONGEST_RETENTION, allow_service, create_queue
from infra.settings import Settings

DEAD_LETTERS = "dead-letters"
"""The queue's name, without the deployment's prefix."""


class DeadLetters(Construct):
    """Keeps messages for 14 days that SNS could not deliver to a subscriber of the topics."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, topics: Sequence[sns.ITopic]) -> None:
        super().__init__(scope, id_)
        self.name = settings.named(DEAD_LETTERS)
        self.queue = create_queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=LONGEST_RETENTION,
            removal_policy=RemovalPolicy.DESTROY,  # it has a fixed name, and comparisons stay in the exchange bucket
        )
        allow_service(self.queue, "sns", [topic.topic_arn for topic in topics])

    def subscribe(self, name: str, topic: sns.ITopic, addresses: Sequence[str]) -> None:
        """Subscribe e-mail addresses to a topic. Messages that cannot be delivered go to this queue."""
        for address in addresses:
            sns.CfnSubscription(
                self,
                f"{name} to {address}",
                topic_arn=topic.topic_arn,
                protocol="email",
                endpoint=address,
                redrive_policy={"deadLetterTargetArn": self.queue.queue_arn},
            )
