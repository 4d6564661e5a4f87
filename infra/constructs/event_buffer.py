"""The queue of events that were answered and are to be stored together, and of those that could not be."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import accept, removal
from infra.constructs.library_function import LibraryFunction
from infra.settings import Settings

EVENTS, EVENT_DEAD_LETTERS = "events", "event-dead-letters"
"""Names of the queues, without the prefix."""
STORE_TIMEOUT = Duration.minutes(1)
"""Of the function that stores what waits."""
_VISIBILITY = Duration.minutes(7)
"""Between two attempts. Lambda asks for six times the function's time-out, and for the window beside it."""
_ATTEMPTS = 5
_KEPT = Duration.days(14)
"""The longest that SQS offers."""
_WINDOW = Duration.seconds(5)
"""How long messages are gathered: an event is in its partition some seconds after its answer."""
_TOGETHER = 1000
"""Messages that are stored at once; Lambda hands over fewer where they come to more than 6 MB."""
_SIDE_BY_SIDE = 10


class EventBuffer(Construct):
    """Bodies of pushed events, durable and not yet stored; after five attempts in vain one waits for a person.

    Dead letters have a queue of their own. Those of topics are mail to people, sent again by hand one by one; these are
    events that partners were told are accepted, and all of them can be moved back as they are.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings) -> None:
        super().__init__(scope, id_)
        self.dead_letters = self._queue("DeadLetters", settings, EVENT_DEAD_LETTERS)
        accept(self.dead_letters, {"AwsSolutions-SQS3": "This is the queue of dead letters itself."})
        kept = sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=_ATTEMPTS)
        self.queue = self._queue("Queue", settings, EVENTS, dead_letters=kept)

    def _queue(
        self, id_: str, settings: Settings, name: str, *, dead_letters: sqs.DeadLetterQueue | None = None
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            id_,
            queue_name=settings.named(name),
            visibility_timeout=_VISIBILITY if dead_letters else None,
            dead_letter_queue=dead_letters,
            retention_period=_KEPT,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=removal(settings),
        )

    def feed(self, function: LibraryFunction) -> None:
        """Let the function take what waits, in batches, and say by `batchItemFailures` what it could not store.

        Also while no source is buffered: what waits when the last one ceases to be was answered, and is still stored.
        """
        grants.use_queue(function.role, self.queue, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
        lambda_.EventSourceMapping(
            function,
            "Events",
            target=function.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=_TOGETHER,
            max_batching_window=_WINDOW,
            max_concurrency=_SIDE_BY_SIDE,
            report_batch_item_failures=True,
        )
