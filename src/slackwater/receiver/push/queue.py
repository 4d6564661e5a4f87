"""Receive through a queue, for sources with `buffer: queue`: respond once the queue has the body, store it afterwards.

The queue may deliver a message twice, each time joined with other messages, so the names of the objects do not show
which events are stored already. Readers recognize duplicates by the id that each event has (`Source.id_column`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError, SlackwaterError, UnknownName
from slackwater.receiver.push.batch import PushedBody
from slackwater.receiver.push.receive import BatchResult, Receiver
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

    source: str
    body: bytes
    """As it was sent; Base64 in JSON."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""
    received_at: AwareDatetime
    """The first time of receipt: the ages of the events are checked against it, now and when they are stored."""
    accepted: Annotated[int, Field(gt=0)]
    """Number of accepted events in the response to the partner."""
    rejected: bytes
    """One bit for each event, 1 if it was rejected; the lowest bit of the first byte is event 0. Base64 in JSON.

    10,000 events take 1.7 kB; a list of their indexes would take up to 49 kB of the message.
    """
    correlation_id: str
    """That of the request, for the logs."""

    @property
    def rejected_indexes(self) -> frozenset[int]:
        """Indexes of the events whose bit is set in `rejected`."""
        bits = int.from_bytes(self.rejected, "little")
        return frozenset(index for index in range(bits.bit_length()) if bits >> index & 1)


class EventQueue(Protocol):
    """The operations of the queue that the receiver uses."""

    def send(self, message: str) -> None:
        """Return once the message is durable. Raises `CloudError`; the queue may have stored the message even then."""


def receive_buffered(
    pushed: PushedBody, source: Source, *, receiver: Receiver, queue: EventQueue, correlation_id: str
) -> BatchResult:
    """Send the accepted events of the body to the queue, and store the rejected ones under `sideline/`.

    Returns only when all events are durable. Duplicates are not known yet and count as accepted.
    Raises `slackwater.receiver.push.batch.BatchRefused` when the body cannot be read, and `CloudError`.
    """
    checked = receiver.check(pushed, source)
    events = checked.events
    # The rejected events are written before the message is sent: `store_batches` relies on them and does not write them
    # again. If `send` fails, the partner sends the body again, and this object is found instead of written twice.
    receiver.raw_writer.write_rejects(source, checked.rejects, received_at=events.received_at, batch_id=events.batch_id)
    accepted = events.table.num_rows
    if not accepted:
        return checked.result(0)
    rejected = sum(1 << record.index for record in checked.rejects)
    message = BufferedBatch(
        source=source.source,
        body=pushed.content,
        content_type=pushed.content_type,
        content_encoding=pushed.content_encoding,
        origin=pushed.origin,
        received_at=events.received_at,
        accepted=accepted,
        rejected=rejected.to_bytes((rejected.bit_length() + 7) // 8, "little"),
        correlation_id=correlation_id,
    ).model_dump_json()
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return checked.result(receiver.raw_writer.write_events(source, [events]))
    queue.send(message)
    return checked.result(accepted)


@dataclass(frozen=True, kw_only=True)
class MessageResult:
    """The result of storing one message."""

    message_id: str
    batch: BufferedBatch | None
    """None when the message is not a `BufferedBatch`."""
    failure: str = ""
    """Why the batch was not stored; empty when it was stored."""


def store_messages(
    messages: Mapping[str, str], *, source: Callable[[str], Source], receiver: Receiver
) -> Iterator[MessageResult]:
    """Store the batches of messages, and yield the result of each message, in any order.

    `messages` are the bodies of messages by message id; `source` returns a source by its name, or raises `UnknownName`.
    Batches of one source are written together. A message that is not valid fails alone; when writing fails, all batches
    that are written together fail. A failed batch may be stored in part; storing it again, together with any other
    batches, is safe.
    """
    by_source: dict[str, dict[str, BufferedBatch]] = defaultdict(dict)
    for message_id, message in messages.items():
        try:
            batch = BufferedBatch.model_validate_json(message)
        except ValidationError as error:
            failure = f"the message is not a batch of events: {error.errors()[0]['msg']}"
            yield MessageResult(message_id=message_id, batch=None, failure=failure)
        else:
            by_source[batch.source][message_id] = batch
    for name, batches in by_source.items():
        try:
            definition = source(name)
        except UnknownName as error:
            for message_id, batch in batches.items():
                yield MessageResult(message_id=message_id, batch=batch, failure=str(error))
        else:
            yield from store_batches(batches, definition, receiver)


def store_batches(batches: Mapping[str, BufferedBatch], source: Source, receiver: Receiver) -> Iterator[MessageResult]:
    """Store batches of one source, by message id, and yield their results; writes up to `JOINED_BYTES` together."""

    def write(joined: Mapping[str, EventBatch]) -> Iterator[MessageResult]:
        failure = ""
        try:
            receiver.raw_writer.write_events(source, list(joined.values()))
        except SlackwaterError as error:
            failure = str(error)
        for message_id in joined:
            yield MessageResult(message_id=message_id, batch=batches[message_id], failure=failure)

    joined: dict[str, EventBatch] = {}
    size = 0
    for message_id, batch in batches.items():
        pushed = PushedBody(
            content=batch.body,
            content_type=batch.content_type,
            content_encoding=batch.content_encoding,
            origin=batch.origin,
        )
        rejected = batch.rejected_indexes
        try:
            checked = receiver.check(pushed, source, received_at=batch.received_at, rejected=rejected)
            # The response reported these events as accepted, so they must not be rejected now: the message fails, ends
            # in the dead-letter queue, and waits there for a definition that accepts them.
            lost = [record for record in checked.rejects if record.index not in rejected]
            if lost:
                raise DataError(
                    f"only {batch.accepted - len(lost)} of {batch.accepted} accepted events fit the current definition "
                    f"of {source.source!r}: {lost[0].reason} (correct the definition, then `slackwater buffer redrive`)"
                )
        except DataError as error:
            yield MessageResult(message_id=message_id, batch=batch, failure=str(error))
            continue
        joined[message_id] = checked.events
        size += checked.body_bytes + checked.events.table.nbytes
        # A source that is no longer buffered may have no ids. Then only an object of the same single batch shows that
        # its events are stored already, so each batch is written alone.
        if size >= JOINED_BYTES or source.id_column is None:
            yield from write(joined)
            joined, size = {}, 0
    if joined:
        yield from write(joined)
