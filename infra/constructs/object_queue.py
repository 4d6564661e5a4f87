"""A queue that gets an event of each object written to the raw bucket, with its dead-letter queue."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.queues import LONGEST_RETENTION, create_queue
from infra.settings import Settings

# The daily check has covered an object that has waited longer.
_RETENTION = Duration.days(4)


class ObjectQueue(Construct):
    """A queue with a fixed name, and the rules that send events of written objects to it.

    With the setting `collect_minutes` 0, the rules are disabled: objects wait for the daily check.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        raw: s3.IBucket,
        name: str,
        visibility_timeout: Duration,
    ) -> None:
        """`name` is without the deployment's prefix."""
        super().__init__(scope, id_)
        self.settings, self._raw = settings, raw
        self.name = settings.named(name)
        self.dead_letter_name = f"{self.name}-dead-letters"
        self.dead_letters = create_queue(
            self, "DeadLetters", queue_name=self.dead_letter_name, retention_period=LONGEST_RETENTION
        )
        self.queue = create_queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=_RETENTION,
            visibility_timeout=visibility_timeout,
            dead_letters=self.dead_letters,
        )

    def send_events(self, id_: str, prefixes: Sequence[str], *, name: str, description: str) -> events.CfnRule:
        """Send an event of each object below these prefixes to the queue: only its id and time, and the object's key.

        The queues have to allow it.
        """
        return events.CfnRule(
            self,
            id_,
            name=name,
            description=description,
            state="ENABLED" if self.settings.collect_minutes else "DISABLED",
            event_pattern={
                "source": ["aws.s3"],
                "detail-type": ["Object Created"],
                "detail": {
                    "bucket": {"name": [self._raw.bucket_name]},
                    "object": {"key": [{"prefix": prefix} for prefix in prefixes]},
                },
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
