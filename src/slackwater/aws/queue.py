"""The queue of events that were answered and are to be stored, and the queue of those that could not be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import CloudError

_AT_ONCE = 10
"""Messages that one call takes."""
_WAIT_SECONDS = 2
"""For a first message: a call that does not wait asks some of SQS's servers only, and may find nothing."""


class SqsEventBuffer:
    """`slackwater.receiver.push.queue.EventQueue` over SQS."""

    def __init__(self, sqs: Any, url: str) -> None:
        self._sqs = sqs
        self._url = url

    def send(self, message: str) -> None:
        """Return once SQS has confirmed the message. When it raises, SQS may have it nevertheless."""
        with translated("hand events to the queue"):
            self._sqs.send_message(QueueUrl=self._url, MessageBody=message)


@dataclass(frozen=True, kw_only=True)
class Depth:
    """How many messages there are, each one batch of events; SQS counts them approximately."""

    waiting: int
    in_flight: int
    """Handed to the function that stores them: they are deleted when it has, and wait again when it has not."""
    dead: int
    """Not stored in as many attempts as there are."""


class EventQueues:
    """Both queues, as operators look at them."""

    def __init__(self, sqs: Any, *, events: str, dead_letters: str) -> None:
        """`events` and `dead_letters` are the queues' URLs."""
        self._sqs = sqs
        self._events = events
        self._dead_letters = dead_letters

    def depth(self) -> Depth:
        """Count the messages."""
        waiting, in_flight = self._counted(self._events)
        dead, _ = self._counted(self._dead_letters)
        return Depth(waiting=waiting, in_flight=in_flight, dead=dead)

    def redrive(self) -> Iterator[int]:
        """Move the dead letters back to be stored, and yield after each few how many were moved so far.

        One is deleted only once it has been sent: when this ends in between, the message is in both queues, and moved
        again. Its events have ids, and count once.
        """
        moved = 0
        while messages := self._received():
            with translated("send dead letters back"):
                for message in messages:
                    self._sqs.send_message(QueueUrl=self._events, MessageBody=message["Body"])
            self._delete(messages)
            moved += len(messages)
            yield moved

    def _counted(self, url: str) -> tuple[int, int]:
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        with translated(f"count the messages of {url}"):
            found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))["Attributes"]
        waiting, in_flight = (int(found[name]) for name in names)
        return waiting, in_flight

    def _received(self) -> list[dict[str, Any]]:
        with translated("read dead letters"):
            answer = self._sqs.receive_message(
                QueueUrl=self._dead_letters, MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=_WAIT_SECONDS
            )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    def _delete(self, messages: list[dict[str, Any]]) -> None:
        entries = [
            {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]} for place, message in enumerate(messages)
        ]
        with translated("delete dead letters"):
            answer = self._sqs.delete_message_batch(QueueUrl=self._dead_letters, Entries=entries)
        for failed in answer.get("Failed", []):
            raise CloudError(f"could not delete a dead letter that was sent back: {failed['Code']}")
