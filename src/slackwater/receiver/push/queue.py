"""Receive a pushed body: store it now, or after a queue has it, for sources with `buffer: queue`.

The queue may deliver a message twice, each time joined with other messages, so the names of the objects do not show
which events are stored already. Readers recognize duplicates by the id that each event has (`Source.id_column`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Protocol

from pydantic import ConfigDict, Field, ValidationError

from slackwater.errors import DataError, SlackwaterError, UnknownName
from slackwater.model import Model
from slackwater.receiver.push.body import Body
from slackwater.receiver.push.receive import BatchResult, CheckedBatch, Receipt, Receiver
from slackwater.sources.definition import SHORTEST_BUFFER, Source

# SQS accepts messages of at least 256 KiB; this leaves a margin. A body whose message would be larger is stored
# immediately: it is large enough for objects of its own.
MAX_MESSAGE_BYTES = 200_000
# Most memory for batches that are written together, expanded bodies and tables: as much as one body may expand to.
JOINED_BYTES = 32 * 2**20


class BufferedBatch(Model):
    """A message of the queue: a body whose events are checked, with everything that is needed to store them."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

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

    def send(self, message: str, *, delay: int) -> None:
        """Return once the message is durable; it is delivered after `delay` seconds.

        Raises `CloudError`; the queue may have stored the message even then.
        """


def receive(body: Body, source: Source, *, receiver: Receiver, queue: EventQueue, correlation_id: str) -> BatchResult:
    """Check the events of a body, and store them, or send the accepted ones to the queue if the source has a buffer.

    Returns only when all events are durable. When the same body was sent before, even if that attempt failed half-way,
    only the missing objects are written; duplicates in the queue are not known yet, and count as accepted. Raises
    `BatchRefused` when the body cannot be read, `DataError` when this release cannot read it as its receipt says, and
    `CloudError`.
    """
    checked = receiver.check(body, source)
    # If the source had no buffer when this body was received first, its events are in objects of their own, without
    # generated ids.
    if not (checked.is_queued and source.push and source.push.buffer == "queue"):
        return receiver.store(checked)
    # The rejected events are written before the message is sent: `store_batches` relies on them and does not write them
    # again. If `send` fails, the partner sends the body again, and this object is found instead of written twice.
    receiver.write_rejects(checked)
    if not checked.accepted:
        return checked.result(0)
    message = BufferedBatch(
        receipt=checked.receipt,
        body=body.content,
        content_type=body.content_type,
        content_encoding=body.content_encoding,
        origin=body.origin,
        accepted=checked.accepted,
        correlation_id=correlation_id,
    ).model_dump_json(by_alias=True)
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return receiver.store_accepted(checked)
    queue.send(message, delay=delay_until_stored(source.push.buffer_seconds, receiver.now()))
    receiver.count_batch(checked)
    return checked.result(checked.accepted)


def delay_until_stored(buffer_seconds: int, now: datetime) -> int:
    """Return after how many seconds a message is delivered, so that those of `buffer_seconds` arrive within a second.

    All sources share one queue, whose function gets the messages of five seconds at once. So no message is delayed with
    the shortest buffer, and with a longer one all are until the same multiple of it.

    >>> [delay_until_stored(30, datetime(2026, 1, 1, 0, 0, second)) for second in (0, 10, 29, 30)]
    [30, 20, 1, 30]
    """
    return buffer_seconds - int(now.timestamp()) % buffer_seconds if buffer_seconds > SHORTEST_BUFFER else 0


def store_messages(
    messages: Mapping[str, str], *, source: Callable[[str], Source], receiver: Receiver
) -> Iterator[tuple[str, BufferedBatch | None, str | None]]:
    """Store the batches of messages; yield each message's id, its batch and why it was not stored, in any order.

    The batch is None when the message is not valid, and the reason is None when the batch was stored. `messages` are
    the bodies of messages by message id; `source` returns a source by its name, or raises `UnknownName`.
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
            yield message_id, None, failure
            continue
        try:
            source(batch.receipt.definition.source)
        except UnknownName as error:
            yield message_id, batch, str(error)
        else:
            by_definition[batch.receipt.definition.model_dump_json()][message_id] = batch
    for batches in by_definition.values():
        yield from store_batches(batches, receiver)


def store_batches(
    batches: Mapping[str, BufferedBatch], receiver: Receiver
) -> Iterator[tuple[str, BufferedBatch | None, str | None]]:
    """Store batches of one definition, by message id, up to `JOINED_BYTES` together.

    Yields the message id, the batch, and why it was not stored or None.
    """
    joined: dict[str, CheckedBatch] = {}
    size = 0
    for left, (message_id, batch) in zip(reversed(range(len(batches))), batches.items(), strict=True):
        body = Body(
            content=batch.body,
            content_type=batch.content_type,
            content_encoding=batch.content_encoding,
            origin=batch.origin,
            limits=receiver.limits,
        )
        try:
            joined[message_id] = checked = receiver.check_again(body, batch.receipt)
            size += len(body.expanded) + checked.split.table.nbytes + checked.rejects.nbytes
        except DataError as error:
            yield message_id, batch, str(error)
        if joined and (size >= JOINED_BYTES or not left):
            failure = None
            try:
                receiver.write_events(list(joined.values()))
            except SlackwaterError as error:
                failure = str(error)
            yield from ((written, batches[written], failure) for written in joined)
            joined, size = {}, 0
