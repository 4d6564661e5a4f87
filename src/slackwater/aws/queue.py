"""The SQS queue of accepted events that are still to be stored, and its dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import CloudError

# Number of messages that one ReceiveMessage, SendMessageBatch or DeleteMessageBatch call accepts.
_BATCH = 10
# Long polling: a call that does not wait asks only some of SQS's servers, and may miss messages.
_WAIT_SECONDS = 2


class SqsEventQueue:
    """`slackwater.receiver.push.queue.EventQueue` over SQS."""

    def __init__(self, sqs: Any, url: str) -> None:
        self._sqs = sqs
        self._url = url

    def send(self, message: str, *, delay: int) -> None:
        """Return once SQS has confirmed the message, which it delivers after `delay` seconds, at most 900.

        Raises `CloudError`; SQS may have stored the message even then.
        """
        with translated("send events to the queue"):
            self._sqs.send_message(QueueUrl=self._url, MessageBody=message, DelaySeconds=delay)


@dataclass(frozen=True)
class MessageQueue:
    """The queue of arrivals with this URL, whose messages lead to checks of days; or the queue of states.

    Without a URL, nothing is sent: the deployment has only the daily check.
    """

    sqs: Any
    url: str
    name: str = "queue of arrivals"

    def __call__(self, messages: Sequence[tuple[str, int]]) -> None:
        """Send messages: the body of each, and after how many seconds it is received, at most 900.

        Raises `CloudError`; some may have been sent even then.
        """
        if not self.url:
            return
        with translated(f"send messages to the {self.name}"):
            for first in range(0, len(messages), _BATCH):
                # Far below SQS's limit of 1 MiB for all of them: the longest part of a body is the key of an object.
                entries = [
                    {"Id": str(index), "MessageBody": body, "DelaySeconds": seconds}
                    for index, (body, seconds) in enumerate(messages[first : first + _BATCH])
                ]
                response = self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)
                for failed in response.get("Failed", []):
                    raise CloudError(f"could not send a message to the {self.name}: {failed['Code']}")


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Approximate numbers of messages; each message is one batch of events."""

    waiting: int
    in_flight: int
    """Being stored: SQS deletes them afterwards, or delivers them again after a failure."""
    dead: int
    """In the dead-letter queue: all attempts to store them have failed."""


class EventQueues:
    """Both queues, for operators."""

    def __init__(self, sqs: Any, *, events: str, dead_letters: str) -> None:
        """`events` and `dead_letters` are the queues' URLs."""
        self._sqs = sqs
        self._events = events
        self._dead_letters = dead_letters

    def depth(self) -> Depth:
        """Return the numbers of messages. Raises `CloudError`."""
        waiting, in_flight = self._count(self._events)
        dead, _ = self._count(self._dead_letters)
        return Depth(waiting=waiting, in_flight=in_flight, dead=dead)

    def redrive(self) -> Iterator[int]:
        """Move the dead letters back to the queue, and yield after each batch the number moved so far.

        Each message is sent before it is deleted, so that none is lost. If the process ends in between, the message is
        in both queues, and the next call moves it again: its events have ids and count once. Raises `CloudError`.
        """
        moved = 0
        while True:
            with translated("read dead letters"):
                response = self._sqs.receive_message(
                    QueueUrl=self._dead_letters, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=_WAIT_SECONDS
                )
            messages = response.get("Messages", [])
            if not messages:
                return
            with translated("send dead letters back"):
                for message in messages:
                    self._sqs.send_message(QueueUrl=self._events, MessageBody=message["Body"])
            entries = [
                {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]} for index, message in enumerate(messages)
            ]
            with translated("delete dead letters"):
                response = self._sqs.delete_message_batch(QueueUrl=self._dead_letters, Entries=entries)
            for failed in response.get("Failed", []):
                raise CloudError(f"could not delete a dead letter that was sent back: {failed['Code']}")
            moved += len(messages)
            yield moved

    def _count(self, url: str) -> tuple[int, int]:
        """Return how many messages of a queue wait, and how many are in flight."""
        kinds = ("", "Delayed", "NotVisible")
        with translated(f"count the messages of {url}"):
            names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
            attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        visible, delayed, in_flight = (int(attributes[name]) for name in names)
        return visible + delayed, in_flight
