"""The queue of accepted events that wait to be stored in batches, and its dead-letter queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.common import accept, removal
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.settings import Settings

# Timeout of the function that stores the events.
STORE_TIMEOUT = Duration.minutes(1)
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(7)
_MAX_ATTEMPTS = 5
# The longest retention that SQS offers.
_RETENTION = Duration.days(14)
# Larger batches make fewer and larger objects; an event is in its partition some seconds after the API has answered.
_BATCHING_WINDOW = Duration.seconds(5)
# Lambda sends fewer messages where a batch would exceed its limit of 6 MB.
_BATCH_SIZE = 1000
# A new account may run 10 functions at the same time, and the API's function needs some to answer. A mapping allows at
# least 2. They suffice for the default throttle of the API.
_REQUESTS_FOR_ONE = 50
_MIN_CONCURRENCY, _MAX_CONCURRENCY = 2, 10


class EventBuffer(Construct):
    """A queue of accepted request bodies that are not stored yet, with a dead-letter queue after five failed attempts.

    The dead-letter queue is separate from the one of the topics. Notifications are sent again by hand, one by one;
    events can all be moved back unchanged with `slackwater buffer redrive`. CloudFormation generates the names of both
    queues: events may still wait in them when their stack is deleted, and then they are retained.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, key: kms.IKey | None) -> None:
        """Encrypt the queues with `key`, or without one with a key of SQS."""
        super().__init__(scope, id_)
        self._key = key
        wanted = settings.api_requests_per_second // _REQUESTS_FOR_ONE
        self._concurrency = min(max(wanted, _MIN_CONCURRENCY), _MAX_CONCURRENCY)
        self.dead_letters = self._queue("DeadLetters", settings)
        accept(self.dead_letters, {"AwsSolutions-SQS3": "This queue is itself a dead-letter queue."})
        redrive = sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=_MAX_ATTEMPTS)
        self.queue = self._queue("Queue", settings, dead_letters=redrive)

    def _queue(self, id_: str, settings: Settings, *, dead_letters: sqs.DeadLetterQueue | None = None) -> sqs.Queue:
        return sqs.Queue(
            self,
            id_,
            visibility_timeout=_VISIBILITY_TIMEOUT if dead_letters else None,
            dead_letter_queue=dead_letters,
            retention_period=_RETENTION,
            encryption=sqs.QueueEncryption.KMS if self._key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self._key,
            enforce_ssl=True,
            removal_policy=removal(settings),
        )

    def feed(self, function: LibraryFunction) -> None:
        """Invoke the function with batches of messages. It reports failed messages in `batchItemFailures`.

        The mapping exists even when no source uses the buffer: events that are still queued when the last such source
        is changed must be stored.
        """
        grants.use_queue(function.role, self.queue, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
        lambda_.EventSourceMapping(
            function,
            "Events",
            target=function.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=_BATCH_SIZE,
            max_batching_window=_BATCHING_WINDOW,
            max_concurrency=self._concurrency,
            report_batch_item_failures=True,
        )
