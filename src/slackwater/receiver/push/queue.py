"""Receive through a queue, for sources with `buffer: queue`: answer once the queue has the body, store it afterwards.

A queue may deliver a message twice, and joined with other messages. Each event has an id (`Source.id_column`), by which
it counts once.
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

# SQS takes messages of up to 256 KiB. A body whose message is larger is a batch already, and is stored at once.
MAX_MESSAGE_BYTES = 200_000
# Expanded bodies and their tables that are stored together: as much as one body may expand to.
JOINED_BYTES = 32 * 2**20


class BufferedBatch(BaseModel):
    """A message of the queue: a body that was checked and answered, with everything that storing it needs."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    source: str
    body: bytes
    """As it was sent; Base64 in JSON."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""
    received_at: AwareDatetime
    """The time by which the ages of the events were checked, and are checked again."""
    accepted: Annotated[int, Field(gt=0)]
    """Number of events that the answer said are accepted."""
    rejected: bytes
    """One bit for each event, 1 if it was rejected; the lowest bit of the first byte is event 0. Base64 in JSON."""
    correlation_id: str


class EventQueue(Protocol):
    """The queue, as far as the receiver needs it."""

    def send(self, message: str) -> None:
        """Return once the message is durable. Raises `CloudError`; the queue may have the message nevertheless."""


def receive_buffered(
    pushed: PushedBody, source: Source, *, receiver: Receiver, queue: EventQueue, correlation_id: str
) -> BatchResult:
    """Return once every event is durable: the accepted ones in the queue, the rejected ones under `sideline/`.

    Duplicates are not known yet and count as accepted. Raises what `Receiver.receive` raises.
    """
    checked = receiver.check(pushed, source)
    events = checked.events
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
    """The outcome of one message."""

    message_id: str
    batch: BufferedBatch | None
    """None when the message could not be read."""
    failure: str = ""
    """Why the batch was not stored; empty when it was."""


def store_messages(
    messages: Mapping[str, str], *, source: Callable[[str], Source], receiver: Receiver
) -> Iterator[MessageResult]:
    """Store the batches of messages, and yield the result of each, in any order.

    `messages` are bodies of messages by their ids; `source` returns a source by its name, or raises `UnknownName`.
    Batches of one source are joined. A message that cannot be used fails alone; when writing fails, all batches that
    were joined fail. A failed batch may be stored in part: it can be delivered again, joined with any others.
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
    """Store batches of one source, by their message ids; as many are joined as fit in memory."""
    joined: dict[str, EventBatch] = {}
    size = 0

    def write() -> Iterator[MessageResult]:
        failure = ""
        try:
            receiver.raw_writer.write_events(source, list(joined.values()))
        except SlackwaterError as error:
            failure = str(error)
        for message_id in joined:
            yield MessageResult(message_id=message_id, batch=batches[message_id], failure=failure)

    for message_id, batch in batches.items():
        pushed = PushedBody(
            content=batch.body,
            content_type=batch.content_type,
            content_encoding=batch.content_encoding,
            origin=batch.origin,
        )
        # An event that was rejected stays so: the partner knows, and it is stored under `sideline/`.
        rejected = frozenset(
            8 * position + bit for position, byte in enumerate(batch.rejected) for bit in range(8) if byte >> bit & 1
        )
        try:
            checked = receiver.check(pushed, source, received_at=batch.received_at, rejected=rejected)
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
        # Without ids (the source is not buffered any more) only the objects of its own batch show that an event is a
        # duplicate, so batches are not joined.
        if size >= JOINED_BYTES or source.id_column is None:
            yield from write()
            joined, size = {}, 0
    if joined:
        yield from write()
