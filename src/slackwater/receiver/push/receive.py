"""Receive a pushed body: decode it, check its events and store them, before the partner gets a response.

Data flows through `push.batch`, which decodes the body, `parsing.event_checks`, which checks its events, and
`writing.raw_writer`, which writes them. For a source with `buffer: queue`, `push.queue` calls `check` twice: before the
body is sent to the queue, and before the queue's messages are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from slackwater.receiver.parsing.event_checks import RejectedEvent, check_events
from slackwater.receiver.push.batch import Batch, BatchTooLarge, Limits, PushedBody, decode
from slackwater.receiver.writing.partitioning import event_hours
from slackwater.receiver.writing.raw_writer import EventBatch, RawWriter
from slackwater.receiver.writing.rejects import RejectRecord
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import partner_schema


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
    """The stored time at which a batch was received first, for retries of the same batch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    received_at: AwareDatetime


@dataclass(frozen=True, kw_only=True)
class CheckedBatch:
    """A body that is decoded and checked; none of its events is stored yet."""

    events: EventBatch
    """The accepted events."""
    rejects: list[RejectRecord]
    """The rejected events."""
    body_bytes: int
    """Size of the body, expanded."""

    def result(self, accepted: int) -> BatchResult:
        """Return the result of the batch: `accepted` of the events in `events` are new, the others are duplicates."""
        return BatchResult(
            batch_id=self.events.batch_id,
            accepted=accepted,
            duplicates=self.events.table.num_rows - accepted,
            rejected=tuple(RejectedEventAnswer(index=record.index, reason=record.reason) for record in self.rejects),
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
        Raises `slackwater.receiver.push.batch.BatchRefused` when the body cannot be read, and `CloudError`.
        """
        checked = self.check(pushed, source)
        # The order is: receipt (in `check`), rejected events, accepted events, catalogue. After a crash between any two
        # of these writes, the partner's retry reads the same receipt, so it rejects the same events and writes objects
        # with the same names: it adds what is missing and duplicates nothing.
        self.raw_writer.write_rejects(
            source, checked.rejects, received_at=checked.events.received_at, batch_id=checked.events.batch_id
        )
        written = self.raw_writer.write_events(source, [checked.events])
        return checked.result(written)

    def check(
        self,
        pushed: PushedBody,
        source: Source,
        *,
        received_at: datetime | None = None,
        rejected: Collection[int] = (),
    ) -> CheckedBatch:
        """Decode a body and check its events; write nothing but a receipt.

        For a new body, leave out `received_at` and `rejected`: its time of receipt is the current time, or the time in
        the receipt of an earlier attempt. For a body that was checked before, `received_at` is its first time of
        receipt, and `rejected` are the indexes of the events that were rejected then; they stay rejected.
        Raises `slackwater.receiver.push.batch.BatchRefused` when the body cannot be read, and `CloudError`.
        """
        is_new = received_at is None
        received_at = received_at or self.now()
        limits = replace(self.limits, events=source.push.max_events) if source.push else self.limits
        batch = decode(
            pushed.content,
            content_type=pushed.content_type,
            content_encoding=pushed.content_encoding,
            limits=limits,
            schema=partner_schema(source),
        )
        # Retries must use the first time of receipt where it matters: it decides whether an event is too old, and the
        # day under which rejected events are stored. Other batches need no receipt, which saves a write.
        if is_new and source.timestamp.is_limited:
            received_at = self.first_received(source.source, batch.batch_id, received_at)
        checked = check_events(batch.events, source, received_at=received_at)
        if is_new and (hours := pc.count_distinct(event_hours(checked.table)).as_py()) > limits.hours:
            raise BatchTooLarge(f"the events are from {hours:,} hours, the limit is {limits.hours:,}: split the batch")
        if is_new and checked.rejected and not source.timestamp.is_limited:
            received_at = self.first_received(source.source, batch.batch_id, received_at)
        table, all_rejected = checked.table, frozenset(event.index for event in checked.rejected)
        # The definition may have changed since the first check. Remove events that it accepts only now: the response
        # reported them as rejected, and they are stored under `sideline/`.
        if not all_rejected.issuperset(rejected):
            accepted = (index for index in range(len(batch.events)) if index not in all_rejected)
            table = table.filter(pa.array([index not in rejected for index in accepted], pa.bool_()))
            all_rejected = all_rejected.union(rejected)
        return CheckedBatch(
            events=EventBatch(table=table, rejected=all_rejected, batch_id=batch.batch_id, received_at=received_at),
            rejects=reject_records(batch, checked.rejected, origin=pushed.origin),
            body_bytes=len(batch.body),
        )

    def first_received(self, source: str, batch_id: str, now: datetime) -> datetime:
        """Return the time of a batch's receipt; a batch without a receipt gets one with the time `now`.

        Raises `CloudError`.
        """
        uri, store = receipt_uri(self.raw_writer.raw_bucket, source, batch_id), self.raw_writer.store
        # Of two attempts at the same time only one writes the receipt; the other one reads it, so both use one time.
        if store.put_new(uri, Receipt(received_at=now).model_dump_json().encode()):
            return now
        return Receipt.model_validate_json(store.get(uri)).received_at.astimezone(UTC)


def reject_records(batch: Batch, rejected: Sequence[RejectedEvent], *, origin: str) -> list[RejectRecord]:
    """Return the records of a batch's rejected events, which are in order of index."""
    originals = batch.original_json([event.index for event in rejected])
    return [
        RejectRecord(
            index=event.index,
            line=batch.lines[event.index] if batch.lines else None,
            reason=event.reason,
            rule=event.rule,
            batch_id=batch.batch_id,
            origin=origin,
            text=original,
        )
        for event, original in zip(rejected, originals, strict=True)
    ]


def receipt_uri(bucket: str, source: str, batch_id: str) -> str:
    """Return the URI of a batch's receipt; `bucket` is the raw bucket."""
    return f"s3://{bucket}/receipts/source={source}/{batch_id}.json"
