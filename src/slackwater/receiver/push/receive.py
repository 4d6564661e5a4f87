"""Push: one body in, its events durable in their partitions or in the side-line, then the answer.

The order of writes makes every retry decide as the first attempt did: the receipt, if the time of receipt matters,
then the side-line, the events and the catalogue. None of them is written twice: an object of events has the name of
its batch and its partition, whatever the definition makes of the events by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.push.batch import Batch, BatchTooLarge, Limits, decode
from slackwater.receiver.writing.partitioning import add_metadata, drop_duplicates, split_by_hour
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.receiver.writing.receipts import first_received
from slackwater.receiver.writing.rejects import RejectRecord
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME, partner_schema
from slackwater.sources.partitions import Partition


class RejectedEventAnswer(BaseModel):
    """What a partner is told of an event that could not be used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    reason: str


class BatchResult(BaseModel):
    """What became of a batch: accepted, duplicates and rejected make up all its events."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_id: str
    accepted: Annotated[int, Field(ge=0)]
    duplicates: Annotated[int, Field(ge=0)]
    """Events that were there already, as the batch has been sent before, or that the batch holds twice by their id."""
    rejected: tuple[RejectedEventAnswer, ...]


@dataclass(frozen=True, kw_only=True)
class PreparedEvents:
    """What of one body is to be stored, and no more: many of them fit in memory."""

    table: pa.Table
    """By `raw_schema`."""
    batch_id: str
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class ReceivedBatch:
    """One body, decoded and checked; none of its events is stored yet."""

    batch: Batch
    checked: CheckedEvents
    received_at: datetime
    """When it was received for the first time, as far as that matters."""
    origin: str
    """`push:<partner>`."""

    def result(self, accepted: int) -> BatchResult:
        """Return what the partner is told when so many of the usable events were accepted, the others being known."""
        return BatchResult(
            batch_id=self.batch.batch_id,
            accepted=accepted,
            duplicates=self.checked.table.num_rows - accepted,
            rejected=tuple(RejectedEventAnswer(index=item.index, reason=item.reason) for item in self.checked.rejected),
        )

    def stamped(self, source: Source, *, without: Collection[int] = ()) -> PreparedEvents:
        """Return the usable events as they are stored, but for those at the places `without`."""
        table, rejected = self.checked.table, {item.index for item in self.checked.rejected}
        if not rejected.issuperset(without):
            usable = (place for place in range(len(self.batch.events)) if place not in rejected)
            table = table.filter(pa.array([place not in without for place in usable], pa.bool_()))
        batch_id, received_at = self.batch.batch_id, self.received_at
        table = add_metadata(
            table, source, received_at=received_at, batch_id=batch_id, rejected=rejected.union(without)
        )
        return PreparedEvents(table=table, batch_id=batch_id, received_at=received_at)


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Takes batches of events."""

    delivery: RawWriter
    now: Callable[[], datetime]
    limits: Limits = field(default_factory=Limits)

    def receive(
        self, body: bytes, *, source: Source, content_type: str | None, content_encoding: str | None, origin: str
    ) -> BatchResult:
        """Return when every event of the batch is durable, and not before.

        A batch sent again, also one that was cut off half-way, writes only what is not there. Raises
        `slackwater.receiver.push.batch.BatchRefused` for a body that cannot be read, and `CloudError`.
        """
        received = self.check(
            body, source=source, content_type=content_type, content_encoding=content_encoding, origin=origin
        )
        self.sideline(source, received)
        accepted = self.store(source, [received.stamped(source)])
        return received.result(accepted)

    def check(
        self,
        body: bytes,
        *,
        source: Source,
        content_type: str | None,
        content_encoding: str | None,
        origin: str,
        received_at: datetime | None = None,
    ) -> ReceivedBatch:
        """Decode and check a body. Raises `slackwater.receiver.push.batch.BatchRefused`, and `CloudError`.

        `received_at` is when it was received first, where that is known: then nothing is written. Without it the
        batch gets a receipt if anything depends on that time.
        """
        limits = replace(self.limits, events=source.push.max_events) if source.push else self.limits
        batch = decode(
            body,
            content_type=content_type,
            content_encoding=content_encoding,
            limits=limits,
            wanted=partner_schema(source),
        )
        is_new, is_limited = received_at is None, source.timestamp.is_limited
        at = received_at or self.now()
        if is_new and is_limited:
            at = self._first_received(source, batch, at)
        checked = check_events(batch.events, source, received_at=at)
        if is_new:
            _refuse_too_many_hours(checked, limits)
        if is_new and not is_limited and checked.rejected:
            at = self._first_received(source, batch, at)
        return ReceivedBatch(batch=batch, checked=checked, received_at=at, origin=origin)

    def store(self, source: Source, parts: Sequence[PreparedEvents]) -> int:
        """Write the events of some bodies of one source, joined, and register their partitions.

        Returns how many were written: none of a partition for which these bodies have an object already, and of those
        with one id in one partition only the first, that of the body that was received first.
        """
        earliest_first = sorted(parts, key=lambda part: (part.received_at, part.batch_id))
        found = split_by_hour(pa.concat_tables(part.table for part in earliest_first))
        if source.id_column:
            found = drop_duplicates(found, source.id_column)
        batch_ids = {part.batch_id for part in parts}
        names = [_object_name(batch_ids, partition) for partition in found.partitions]
        written = self.delivery.store_parts(source, found, names=names)
        self.delivery.register(source, found.partitions)
        return written

    def sideline(self, source: Source, received: ReceivedBatch) -> None:
        """Keep what was rejected of a body; none leaves no object."""
        self.delivery.sideline(
            source, _records(received), received_at=received.received_at, batch_id=received.batch.batch_id
        )

    def _first_received(self, source: Source, batch: Batch, now: datetime) -> datetime:
        return first_received(self.delivery.store, self.delivery.raw_bucket, source.source, batch.batch_id, now)


def _refuse_too_many_hours(checked: CheckedEvents, limits: Limits) -> None:
    hours = len(split_by_hour(checked.table.select([EVENT_TIME])).partitions)
    if hours > limits.hours:
        raise BatchTooLarge(
            f"its events are of {hours:,} hours: at most {limits.hours:,} in one batch, send it in parts"
        )


def _object_name(batch_ids: Iterable[str], partition: Partition) -> str:
    """Return the name of the object that holds these batches' events of a partition: 32 hex digits."""
    return hashlib.sha256("\n".join([*sorted(batch_ids), "/".join(partition)]).encode()).hexdigest()[:32]


def _records(received: ReceivedBatch) -> list[RejectRecord]:
    batch, rejected = received.batch, received.checked.rejected
    return [
        RejectRecord(
            index=item.index,
            line=batch.lines[item.index] if batch.lines else None,
            reason=item.reason,
            rule=item.rule,
            batch_id=batch.batch_id,
            origin=received.origin,
            text=text,
        )
        for item, text in zip(rejected, batch.texts([item.index for item in rejected]), strict=True)
    ]
