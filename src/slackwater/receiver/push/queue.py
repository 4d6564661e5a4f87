"""Receive through a queue, for sources with `buffer: queue`: respond once the queue has the body, store it afterwards.

The queue may deliver a message twice, each time joined with other messages, so the names of the objects do not show
which events are stored already. Readers recognize duplicates by the id that each event has (`Source.id_column`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError, SlackwaterError, UnknownName
from slackwater.receiver.push.batch import PushedBody
from slackwater.receiver.push.receive import BatchResult, Receipt, Receiver
from slackwater.receiver.writing.raw_writer import EventBatch
from slackwater.sources.definition import Source

# SQS accepts messages of at least 256 KiB; this leaves a margin. A body whose message would be larger is stored
# immediately: it is large enough for objects of its own.
MAX_MESSAGE_BYTES = 200_000
# Most memory for batches that are written together, expanded bodies and tables: as much as one body may expand to.
JOINED_BYTES = 32 * 2**20


class BufferedBatch(BaseModel):
    """A message of the queue: a body whose events are checked, with everything that is needed to store them."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    receipt: Receipt
    """The events are checked by it, now and when they are stored."""
    body: bytes
    """As it was sent; Base64 in JSON."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""
    accepted: Annotated[int, Field(gt=0)]
    """Number of accepted events in the response to the partner."""
    correlation_id: str
    """That of the request, for the logs."""


class EventQueue(Protocol):
    """The operations of the queue that the receiver uses."""

    def send(self, message: str) -> None:
        """Return once the message is durable. Raises `CloudError`; the queue may have stored the message even then."""


def receive_buffered(
    pushed: PushedBody, source: Source, *, receiver: Receiver, queue: EventQueue, correlation_id: str
) -> BatchResult:
    """Send the accepted events of the body to the queue, and store the rejected ones under `sideline/`.

    Returns only when all events are durable. Duplicates are not known yet and count as accepted.
    Raises as `Receiver.check` does.
    """
    checked = receiver.check(pushed, source)
    # If the source had no buffer when this body was received first, its events are in objects of their own, without
    # generated ids.
    if checked.definition.push and checked.definition.push.buffer == "none":
        return receiver.store(checked)
    # The rejected events are written before the message is sent: `store_batches` relies on them and does not write them
    # again. If `send` fails, the partner sends the body again, and this object is found instead of written twice.
    receiver.write_rejects(checked)
    accepted = checked.events.table.num_rows
    if not accepted:
        return checked.result(0)
    message = BufferedBatch(
        receipt=checked.receipt,
        body=pushed.content,
        content_type=pushed.content_type,
        content_encoding=pushed.content_encoding,
        origin=pushed.origin,
        accepted=accepted,
        correlation_id=correlation_id,
    ).model_dump_json(by_alias=True)
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return checked.result(receiver.raw_writer.write_events(checked.definition, [checked.events]))
    queue.send(message)
    return checked.result(accepted)


@dataclass(frozen=True, kw_only=True)
class MessageResult:
    """The result of storing one message."""

    message_id: str
    batch: BufferedBatch | None
    """None when the message is not a `BufferedBatch`."""
    failure: str | None = None
    """Why the batch was not stored; None when it was stored."""


def store_messages(
    messages: Mapping[str, str], *, source: Callable[[str], Source], receiver: Receiver
) -> Iterator[MessageResult]:
    """Store the batches of messages, and yield the result of each message, in any order.

    `messages` are the bodies of messages by message id; `source` returns a source by its name, or raises `UnknownName`.
    Batches that were received by one definition are written together. A message that is not valid fails alone; when
    writing fails, all batches that are written together fail. A failed batch may be stored in part; storing it again,
    together with any other batches, is safe.
    """
    by_definition: dict[str, dict[str, BufferedBatch]] = defaultdict(dict)
    for message_id, message in messages.items():
        try:
            batch = BufferedBatch.model_validate_json(message)
        except ValidationError as error:
            failure = f"the message is not a batch of events: {error.errors()[0]['msg']}"
            yield MessageResult(message_id=message_id, batch=None, failure=failure)
            continue
        try:
            source(batch.receipt.definition.source)
        except UnknownName as error:
            yield MessageResult(message_id=message_id, batch=batch, failure=str(error))
        else:
            by_definition[batch.receipt.definition.model_dump_json()][message_id] = batch
    for batches in by_definition.values():
        yield from store_batches(batches, receiver)


def store_batches(batches: Mapping[str, BufferedBatch], receiver: Receiver) -> Iterator[MessageResult]:
    """Store batches of one definition, by message id; yield their results. Writes up to `JOINED_BYTES` together."""

    def write(joined: Mapping[str, EventBatch]) -> Iterator[MessageResult]:
        failure = None
        try:
            receiver.raw_writer.write_events(definition, list(joined.values()))
        except SlackwaterError as error:
            failure = str(error)
        for message_id in joined:
            yield MessageResult(message_id=message_id, batch=batches[message_id], failure=failure)

    definition = next(iter(batches.values())).receipt.definition
    joined: dict[str, EventBatch] = {}
    size = 0
    for message_id, batch in batches.items():
        pushed = PushedBody(
            content=batch.body,
            content_type=batch.content_type,
            content_encoding=batch.content_encoding,
            origin=batch.origin,
        )
        try:
            checked = receiver.check_again(pushed, batch.receipt)
        except DataError as error:
            yield MessageResult(message_id=message_id, batch=batch, failure=str(error))
            continue
        joined[message_id] = checked.events
        size += checked.body_bytes + checked.events.table.nbytes
        if size >= JOINED_BYTES:
            yield from write(joined)
            joined, size = {}, 0
    if joined:
        yield from write(joined)
