"""The queue of accepted events that wait to be stored in batches, and its dead-letter queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.constructs.common import removal
from infra.constructs.library_function import LibraryFunction
from infra.constructs.queues import LONGEST_RETENTION, create_queue, feed
from infra.settings import Settings

# Timeout of the function that stores the events.
STORE_TIMEOUT = Duration.minutes(1)
# The time between two attempts. AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(7)
# Larger batches make fewer and larger objects; an event is in its partition some seconds after the API has answered.
_BATCHING_WINDOW = Duration.seconds(5)
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
