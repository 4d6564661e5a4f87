"""Receive a pushed body: decode it, check its events and store them, before the partner gets a response.

Data flows through `push.batch`, which decodes the body, `parsing.event_checks`, which checks its events, and
`writing.raw_writer`, which writes them. For a source with `buffer: queue`, `push.queue` calls `check` before the body
is sent to the queue, and `check_again` before the queue's messages are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from slackwater.errors import DataError, ObjectMissing
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.push.batch import Batch, BatchTooLarge, ExpandedBody, Limits, PushedBody, decode, identify
from slackwater.receiver.writing.partitioning import drop_duplicates, event_hours, split_by_hour
from slackwater.receiver.writing.raw_writer import EventBatch, RawWriter
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME, partner_schema


class RejectedEventAnswer(BaseModel):
    """A rejected event in the response to the partner."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    """Position in the batch, from 0."""
    reason: str


class BatchResult(BaseModel):
    """The outcome of a batch: each of its events is accepted, a duplicate or rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_id: str
    accepted: Annotated[int, Field(ge=0)]
    duplicates: Annotated[int, Field(ge=0)]
    """Events that are stored already because the batch was sent before, or that repeat an id of their own batch."""
    rejected: tuple[RejectedEventAnswer, ...]


class Receipt(BaseModel):
    """How a batch was read when it was received first. Every later attempt must read it in the same way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    received_at: AwareDatetime
    """Decides whether an event is too old, and the day under which rejected events are stored."""
    definition: Source
    """The source's definition at that time."""
    events_digest: str
    """See `CheckedBatch.events_digest`."""
    rows: tuple[int, ...] | None = None
    """See `CheckedBatch.rows`. None for a batch that was received before names of objects had rows: its objects have
    names without them."""


@dataclass(frozen=True, kw_only=True)
class CheckedBatch:
    """A body that is decoded and checked; none of its events is stored yet."""

    definition: Source
    """By which the events were checked and must be written."""
    events: EventBatch
    """The accepted events."""
    rejects: pa.Table
    """The rejected events, as in `CheckedEvents`."""
    origin: str
    """`push:<partner>`"""
    body_bytes: int
    """Size of the body, expanded."""

    @property
    def events_digest(self) -> str:
        """Digest of which events are rejected and of the hours of the others: it decides which objects are written."""
        digest = hashlib.sha256(",".join(map(str, self.rejects["index"].to_pylist())).encode())
        if hours := event_hours(self.events.table):
            # The second buffer of an array has its values: eight bytes for each hour.
            digest.update(memoryview(hours.buffers()[1])[8 * hours.offset : 8 * (hours.offset + len(hours))])
        return digest.hexdigest()

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of events to write in each hour, oldest first: names of objects have it."""
        event_id = self.definition.event_id
        # Generated ids do not repeat, and are not in the table yet.
        split = split_by_hour(self.events.table.select([EVENT_TIME, *([event_id] if event_id else [])]))
        if event_id:
            split = drop_duplicates(split, event_id)
        return tuple(end - start for start, end in pairwise(split.bounds))

    @property
    def receipt(self) -> Receipt:
        """The receipt of the batch."""
        return Receipt(
            received_at=self.events.received_at,
            definition=self.definition,
            events_digest=self.events_digest,
            rows=self.rows if self.events.has_named_rows else None,
        )

    def result(self, accepted: int) -> BatchResult:
        """Return the result of the batch: `accepted` of the events in `events` are new, the others are duplicates."""
        return BatchResult(
            batch_id=self.events.batch_id,
            accepted=accepted,
            duplicates=self.events.table.num_rows - accepted,
            rejected=tuple(
                map(RejectedEventAnswer.model_validate, self.rejects.select(["index", "reason"]).to_pylist())
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Receives pushed bodies."""

    raw_writer: RawWriter
    now: Callable[[], datetime]
    """Returns the current time, with a time zone."""
    limits: Limits = field(default_factory=Limits)

    def receive(self, pushed: PushedBody, source: Source) -> BatchResult:
        """Store every event of the body: in its partition, or under `sideline/` if it is rejected.

        Returns only when all events are durable. When the same body was sent before, even if that attempt failed
        half-way, only the missing objects are written.
        Raises as `check` does.
        """
        return self.store(self.check(pushed, source))

    def store(self, checked: CheckedBatch) -> BatchResult:
        """Write the rejected and the accepted events of a batch, and return its result. Raises `CloudError`."""
        # The order is: receipt (in `check`), rejected events, accepted events, catalogue. After a crash between any two
        # of these writes, the partner's retry reads the same receipt, so it rejects the same events and writes objects
        # with the same names: it adds what is missing and duplicates nothing.
        self.write_rejects(checked)
        return checked.result(self.raw_writer.write_events(checked.definition, [checked.events]))

    def write_rejects(self, checked: CheckedBatch) -> None:
        """Write the rejected events of a batch. Raises `CloudError`."""
        self.raw_writer.write_rejects(
            checked.definition,
            checked.rejects,
            received_at=checked.events.received_at,
            batch_id=checked.events.batch_id,
            origin=checked.origin,
        )

    def check(self, pushed: PushedBody, source: Source) -> CheckedBatch:
        """Decode a body and check its events; write nothing but a receipt.

        A body that has a receipt is checked as the receipt says: `source` and the current time do not matter then.
        Raises `slackwater.receiver.push.batch.BatchRefused` when the body cannot be read, `DataError` when this release
        cannot read it as the receipt says, and `CloudError`.
        """
        body = identify(pushed, self.limits)
        uri, store = receipt_uri(self.raw_writer.raw_bucket, source.source, body.batch_id), self.raw_writer.store
        try:
            content = store.get(uri)
        except ObjectMissing:
            checked = self._check(body, source, received_at=self.now(), origin=pushed.origin)
            # Of two attempts at the same time only one writes the receipt, and both follow it.
            if store.put_new(uri, checked.receipt.model_dump_json(by_alias=True).encode()):
                return checked
            content = store.get(uri)
        return self._check_again(body, Receipt.model_validate_json(content), origin=pushed.origin)

    def check_again(self, pushed: PushedBody, receipt: Receipt) -> CheckedBatch:
        """Check a body as its receipt says; write nothing.

        Raises `DataError` when this release cannot read the body as the receipt says.
        """
        return self._check_again(identify(pushed, self.limits), receipt, origin=pushed.origin)

    def _check_again(self, body: ExpandedBody, receipt: Receipt, *, origin: str) -> CheckedBatch:
        checked = self._check(
            body,
            receipt.definition,
            received_at=receipt.received_at.astimezone(UTC),
            origin=origin,
            has_named_rows=receipt.rows is not None,
        )
        if checked.receipt != receipt:
            raise DataError(
                f"batch {body.batch_id} of {receipt.definition.source!r}: this release reads other events or hours "
                "from it than the release that received it, so they could be stored twice: deploy that release again"
            )
        return checked

    def _check(
        self, body: ExpandedBody, source: Source, *, received_at: datetime, origin: str, has_named_rows: bool = True
    ) -> CheckedBatch:
        limits = replace(self.limits, events=source.push.max_events) if source.push else self.limits
        batch = decode(body, limits=limits, schema=partner_schema(source))
        checked = check_events(batch.events, source, received_at=received_at)
        if (hours := pc.count_distinct(event_hours(checked.table)).as_py()) > limits.hours:
            raise BatchTooLarge(f"the events are from {hours:,} hours, the limit is {limits.hours:,}: split the batch")
        return CheckedBatch(
            definition=source,
            events=EventBatch(
                table=checked.table,
                rejected=checked.rejections["index"].combine_chunks(),
                batch_id=batch.batch_id,
                received_at=received_at,
                has_named_rows=has_named_rows,
            ),
            rejects=with_originals(batch, checked).rejections,
            origin=origin,
            body_bytes=len(batch.body),
        )


def with_originals(batch: Batch, checked: CheckedEvents) -> CheckedEvents:
    """Return the events of a batch with the line and the text of each rejected one."""
    indices = checked.rejections["index"].to_pylist()
    lines = pa.array([batch.lines[index] for index in indices], pa.int64()) if batch.lines else None
    return checked.located(pa.array(batch.original_json(indices), pa.string()), lines=lines)


def receipt_uri(bucket: str, source: str, batch_id: str) -> str:
    """Return the URI of a batch's receipt; `bucket` is the raw bucket."""
    return f"s3://{bucket}/receipts/source={source}/{batch_id}.json"
