"""Push through a queue: small bodies are answered once it has them, and stored together.

What a queue hands over twice, or in other company, is told by its events' ids (`Source.id_column`): each counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError, SlackwaterError, UnknownName
from slackwater.receiver.push.receive import BatchResult, PreparedEvents, Receiver
from slackwater.sources.definition import Source

MAX_MESSAGE_BYTES = 200_000
"""A body whose message would be larger is stored at once: it is a batch already."""
_TOGETHER_BYTES = 32 * 2**20
"""Of expanded bodies and their tables that are stored as one: as much as a single body may expand to."""


class BufferedBatch(BaseModel):
    """A body that was checked and answered, with all that storing it takes: one message."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    source: str
    body: bytes
    """As it was sent; Base64 in JSON."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""
    received_at: AwareDatetime
    """By which the events were accepted, and are judged again."""
    accepted: Annotated[int, Field(gt=0)]
    """Events that the partner was told are accepted."""
    rejected: bytes
    """A bit for each event, from the lowest of the first byte on: 1 where it was rejected; Base64 in JSON."""
    correlation_id: str


class EventQueue(Protocol):
    """What the receiver asks of a queue."""

    def send(self, message: str) -> None:
        """Return once the message is durable. Raises `CloudError`; the queue may have the message nevertheless."""


def receive_buffered(
    body: bytes,
    *,
    source: Source,
    content_type: str | None,
    content_encoding: str | None,
    origin: str,
    correlation_id: str,
    receiver: Receiver,
    buffer: EventQueue,
) -> BatchResult:
    """Return when every event of the batch is durable: the accepted in the queue, the rejected in the side-line.

    Duplicates are not known yet, and are among the accepted. Raises as `Receiver.receive` does.
    """
    received = receiver.check(
        body, source=source, content_type=content_type, content_encoding=content_encoding, origin=origin
    )
    receiver.sideline(source, received)
    accepted = received.checked.table.num_rows
    if not accepted:
        return received.result(0)
    message = BufferedBatch(
        source=source.source,
        body=body,
        content_type=content_type,
        content_encoding=content_encoding,
        origin=origin,
        received_at=received.received_at,
        accepted=accepted,
        rejected=_as_bits(item.index for item in received.checked.rejected),
        correlation_id=correlation_id,
    ).model_dump_json()
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return received.result(receiver.store(source, [received.stamped(source)]))
    buffer.send(message)
    return received.result(accepted)


@dataclass(frozen=True, kw_only=True)
class MessageResult:
    """What became of one message."""

    message_id: str
    batch: BufferedBatch | None
    """None when the message could not be read."""
    failure: str = ""
    """Why it was not stored, if it was not."""


class _Message(NamedTuple):
    id: str
    batch: BufferedBatch

    def ended(self, failure: str = "") -> MessageResult:
        return MessageResult(message_id=self.id, batch=self.batch, failure=failure)


def store_messages(
    messages: Mapping[str, str], *, source: Callable[[str], Source], receiver: Receiver
) -> Iterator[MessageResult]:
    """Store the batches of messages, by their ids, and yield what became of each, in no particular order.

    Batches of one source are joined. A message that cannot be used fails by itself; where storing fails, all fail that
    were joined. What has failed may be stored in part: it can be handed over again, in any company.
    `source` raises `UnknownName`.
    """
    by_source: dict[str, list[_Message]] = defaultdict(list)
    for message_id, text in messages.items():
        try:
            batch = BufferedBatch.model_validate_json(text)
        except ValidationError as error:
            failure = f"no batch of events: {error.errors()[0]['msg']}"
            yield MessageResult(message_id=message_id, batch=None, failure=failure)
        else:
            by_source[batch.source].append(_Message(message_id, batch))
    for name, found in by_source.items():
        try:
            definition = source(name)
        except UnknownName as error:
            yield from (message.ended(str(error)) for message in found)
        else:
            yield from _store_of(definition, found, receiver)


def _store_of(source: Source, messages: Iterable[_Message], receiver: Receiver) -> Iterator[MessageResult]:
    together: list[tuple[_Message, PreparedEvents]] = []
    size = 0
    for message in messages:
        try:
            stamped, expanded = _check(message.batch, source, receiver)
        except DataError as error:
            yield message.ended(str(error))
            continue
        together.append((message, stamped))
        size += expanded + stamped.table.nbytes
        # Of a source that is buffered no longer events have no ids: each batch is told by its own objects only.
        if size >= _TOGETHER_BYTES or source.id_column is None:
            yield from _store(source, together, receiver)
            together, size = [], 0
    if together:
        yield from _store(source, together, receiver)


def _check(batch: BufferedBatch, source: Source, receiver: Receiver) -> tuple[PreparedEvents, int]:
    """Check a body once more; return the events that were accepted, and how many bytes the body expands to.

    Raises `DataError` when the definition has changed so that one of them does not fit. An event that was rejected
    stays so: the partner was told, and it is in the side-line.
    """
    received = receiver.check(
        batch.body,
        source=source,
        content_type=batch.content_type,
        content_encoding=batch.content_encoding,
        origin=batch.origin,
        received_at=batch.received_at,
    )
    before = _from_bits(batch.rejected)
    lost = [item for item in received.checked.rejected if item.index not in before]
    if lost:
        raise DataError(
            f"only {batch.accepted - len(lost)} of {batch.accepted} accepted events fit the definition of "
            f"{source.source!r} now: {lost[0].reason} (mend the definition, then `slackwater buffer redrive`)"
        )
    return received.stamped(source, without=before), len(received.batch.body)


def _as_bits(places: Iterable[int]) -> bytes:
    bits = sum(1 << place for place in places)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _from_bits(bits: bytes) -> frozenset[int]:
    return frozenset(8 * n + bit for n, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1)


def _store(
    source: Source, together: Sequence[tuple[_Message, PreparedEvents]], receiver: Receiver
) -> Iterator[MessageResult]:
    failure = ""
    try:
        receiver.store(source, [stamped for _, stamped in together])
    except SlackwaterError as error:
        failure = str(error)
    yield from (message.ended(failure) for message, _ in together)
