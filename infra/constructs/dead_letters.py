"""The dead-letter queue of the SNS topics."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.common import accept
from infra.settings import Settings

DEAD_LETTERS = "dead-letters"
"""The queue's name, without the deployment's prefix."""


class DeadLetters(Construct):
    """Keeps messages for 14 days that SNS could not deliver to a subscriber of the topics."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, topics: Sequence[sns.ITopic]) -> None:
        super().__init__(scope, id_)
        self.name = settings.named(DEAD_LETTERS)
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=Duration.days(14),  # the longest that SQS offers
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=RemovalPolicy.DESTROY,  # it has a fixed name, and comparisons stay in the exchange bucket
        )
        self.queue.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("sns.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.queue.queue_arn],
                conditions={"ArnEquals": {"aws:SourceArn": [topic.topic_arn for topic in topics]}},
            )
        )
        accept(self.queue, {"AwsSolutions-SQS3": "This queue is itself a dead-letter queue."})

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
