"""Receive a pushed body: decode it, check its events and store them, before the partner gets a response.

A `Body` becomes a `CheckedBatch` (`parsing.event_checks` checks its events), and a `BatchResult` once it is stored
(`writing.raw_writer` writes it). `push.queue.receive` calls `check`, then `store` or the parts of it that a source with
`buffer: queue` needs; `check_again` is called before the queue's messages are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AwareDatetime

from slackwater.errors import DataError, ObjectMissing
from slackwater.metrics import Metric, PutsMetric
from slackwater.model import Model
from slackwater.receiver.parsing.event_checks import check_events
from slackwater.receiver.parsing.json_values import extra_names
from slackwater.receiver.push.body import BatchTooLarge, Body, Limits
from slackwater.receiver.writing.partitioning import (
    HourSplit,
    add_metadata,
    assign_event_ids,
    drop_duplicates,
    event_hours,
    merge,
    split_by_hour,
)
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.receiver.writing.rejected_hours import count_bins, rejected_by_hour
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EXTRA, partner_schema
from slackwater.sources.old_events import OldEvents, find_old_events
from slackwater.state.facts import RejectedEvents

# Events with unknown fields whose names are in a result, and names in it.
_NAMED_EVENTS, _NAMED_FIELDS = 100, 10


class BatchResult(NamedTuple):
    """The outcome of a batch: each of its events is accepted, a duplicate or rejected."""

    batch_id: str
    accepted: int
    duplicates: int
    """Events that are stored already because the batch was sent before, or that repeat an id of their own batch."""
    rejected: Sequence[tuple[int, str]]
    """The index in the batch, from 0, and the reason of each rejected event."""
    unknown_fields: Sequence[str] = ()
    """The first fields of accepted events that the definition does not list, and whose values are kept."""
    old_events: OldEvents | None = None


class Receipt(Model):
    """How a batch was read when it was received first. Every later attempt must read it in the same way."""

    received_at: AwareDatetime
    """Decides whether an event is too old, and the day under which rejected events are stored."""
    definition: Source
    """The source's definition at that time."""
    events_digest: str
    """Of which events are rejected, and of the hours of the others: it decides which objects are written."""
    rows: tuple[int, ...] | None = None
    """Number of events to write in each hour, oldest first: names of objects have it. None for a batch that was
    received before names of objects had rows: its objects have names without them."""


@dataclass(frozen=True, kw_only=True)
class CheckedBatch:
    """A batch whose events are checked; none of them is stored yet.

    It does not refer to the body, so that many batches fit in memory.
    """

    batch_id: str
    receipt: Receipt
    """By which the events were checked and must be written."""
    origin: str
    """`push:<partner>`"""
    split: HourSplit
    """The events to write, with ids, time of receipt and batch id: of the events with one id in one hour, the first."""
    accepted: int
    """The number of accepted events, with those that repeat an id."""
    rejects: pa.Table
    """The rejected events, as in `CheckedEvents`."""

    @property
    def is_queued(self) -> bool:
        """Whether its source had `buffer: queue` when the batch was received first."""
        push = self.receipt.definition.push
        return push is not None and push.buffer == "queue"

    def result(self, written: int) -> BatchResult:
        """Return the result of the batch: `written` of the accepted events are new, the others are duplicates."""
        rejected = zip(self.rejects["index"].to_pylist(), self.rejects["reason"].to_pylist(), strict=True)
        unknown = extra_names(self.split.table[EXTRA], rows=_NAMED_EVENTS)[:_NAMED_FIELDS]
        dates = ((partition.date, rows) for partition, rows in self.split.row_counts())
        old = find_old_events(dates, received_at=self.receipt.received_at)
        return BatchResult(self.batch_id, written, self.accepted - written, tuple(rejected), tuple(unknown), old)


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Receives pushed bodies."""

    raw_writer: RawWriter
    now: Callable[[], datetime]
    """Returns the current time, with a timezone."""
    put_rejected: Callable[[str, Mapping[datetime, RejectedEvents]], None]
    """Stores the rejected events of a source by hour, as `StateTable.put_rejected` does."""
    limits: Limits = field(default_factory=Limits)
    put_metric: PutsMetric | None = None
    """Called for each event that is stored, queued or rejected, once, however often its batch is sent."""

    def check(self, body: Body, source: Source) -> CheckedBatch:
        """Decode a body and check its events; write nothing but a receipt.

        A body that has a receipt is checked as the receipt says: `source` and the current time do not matter then.
        Raises `slackwater.receiver.push.body.BatchRefused` when the body cannot be read, `DataError` when this release
        cannot read it as the receipt says, and `CloudError`.
        """
        uri, store = receipt_uri(self.raw_writer.raw_bucket, source.source, body.batch_id), self.raw_writer.store
        try:
            content = store.get(uri)
        except ObjectMissing:
            checked = self._check(body, source, received_at=self.now())
            # Of two attempts at the same time only one writes the receipt, and both follow it.
            if store.put_new(uri, checked.receipt.model_dump_json(by_alias=True).encode()):
                return checked
            content = store.get(uri)
        return self.check_again(body, Receipt.model_validate_json(content))

    def check_again(self, body: Body, receipt: Receipt) -> CheckedBatch:
        """Check a body as its receipt says; write nothing.

        Raises `DataError` when this release cannot read the body as the receipt says.
        """
        received_at, has_named_rows = receipt.received_at.astimezone(UTC), receipt.rows is not None
        checked = self._check(body, receipt.definition, received_at=received_at, has_named_rows=has_named_rows)
        if checked.receipt != receipt:
            raise DataError(
                f"batch {body.batch_id} of {receipt.definition.source!r}: this release reads other events or hours "
                "from it than the release that received it, so they could be stored twice: deploy that release again"
            )
        return checked

    def _check(self, body: Body, source: Source, *, received_at: datetime, has_named_rows: bool = True) -> CheckedBatch:
        max_events = source.push.max_events if source.push else None
        # The raw events are not kept in a variable, so that their memory is free once they are checked.
        checked = check_events(body.events(partner_schema(source), max_events), source, received_at=received_at)
        indexes, hours = checked.rejections["index"].combine_chunks(), event_hours(checked.table)
        if (count := pc.count_distinct(hours).as_py()) > body.limits.hours:
            limit = f"the limit is {body.limits.hours:,}"
            raise BatchTooLarge(f"the events are from {count:,} hours, {limit}: split the batch")
        # The order of the events decides the digest and the generated ids, so both come before the sort by hour.
        digest = events_digest(indexes, hours)
        table = assign_event_ids(checked.table, source, batch_id=body.batch_id, rejected=indexes)
        split = split_by_hour(table, hours)
        split = drop_duplicates(split, source.event_id) if source.event_id else split
        table = add_metadata(split.table, source, received_at=received_at, batch_id=body.batch_id)
        rows = tuple(rows for _, rows in split.row_counts()) if has_named_rows else None
        return CheckedBatch(
            batch_id=body.batch_id,
            receipt=Receipt(received_at=received_at, definition=source, events_digest=digest, rows=rows),
            origin=body.origin,
            split=HourSplit(table, split.hours),
            accepted=checked.table.num_rows,
            rejects=checked.located(*body.originals(indexes.to_pylist())).rejections,
        )

    def store(self, checked: CheckedBatch) -> BatchResult:
        """Write the rejected and the accepted events of a batch, and return its result. Raises `CloudError`."""
        # The order is: receipt (in `check`), rejected events, accepted events. After a crash between any two
        # of these writes, the partner's retry reads the same receipt, so it rejects the same events and writes objects
        # with the same names: it adds what is missing and duplicates nothing.
        self.write_rejects(checked)
        return self.store_accepted(checked)

    def store_accepted(self, checked: CheckedBatch) -> BatchResult:
        """Write the accepted events of a batch, whose rejected ones are written; return its result.

        Raises `CloudError`.
        """
        written = self.write_events([checked])
        if checked.is_queued:
            self.count_batch(checked)
        return checked.result(written)

    def write_rejects(self, checked: CheckedBatch) -> None:
        """Write the rejected events of a batch, and their number by hour if the source has `counts`.

        Raises `CloudError`.
        """
        source, received_at, rejects = checked.receipt.definition, checked.receipt.received_at, checked.rejects
        if source.counts and rejects.num_rows:
            # First: the object that is written next shows a repeated call that all of this was done.
            hours = rejected_by_hour(
                count_bins(rejects), source.count_keys, origin=checked.batch_id, received_at=received_at
            )
            self.put_rejected(source.source, hours)
        rejected = self.raw_writer.write_rejects(
            source, rejects, received_at=received_at, batch_id=checked.batch_id, origin=checked.origin
        )
        self.count(Metric.EVENTS_REJECTED, rejected, source.source)

    def count_batch(self, checked: CheckedBatch) -> None:
        """Count the accepted events of a batch of the queue, which are durable, unless an earlier attempt has.

        Its objects do not show which events are new, so an object that is created once does. Raises `CloudError`: then
        the batch counts when it is sent again.
        """
        source = checked.receipt.definition.source
        uri = f"{receipt_uri(self.raw_writer.raw_bucket, source, checked.batch_id)}.counted"
        if self.put_metric and self.raw_writer.store.put_new(uri, b""):
            self.count(Metric.EVENTS_ACCEPTED, checked.split.table.num_rows, source)

    def count(self, metric: Metric, events: int, source: str) -> None:
        """Put a metric of a source, unless there are no events."""
        if self.put_metric and events:
            self.put_metric(metric, events, source=source)

    def write_events(self, batches: Sequence[CheckedBatch]) -> int:
        """Write the accepted events of batches that were checked by one definition, one object per partition.

        Of the events with one id in one partition, only the first received is written.
        Returns the number of events in the objects that are new. Raises `CloudError`; then some objects may be written,
        and the same call again writes the others.
        """
        definition = batches[0].receipt.definition

        def count(events: int) -> None:
            if not batches[0].is_queued:
                self.count(Metric.EVENTS_ACCEPTED, events, definition.source)

        in_order = sorted(batches, key=lambda batch: (batch.receipt.received_at, batch.batch_id))
        splits = [batch.split for batch in in_order]
        # One batch has each id once in an hour.
        split = splits[0] if len(splits) == 1 else merge(splits)
        if definition.id_column and len(splits) > 1:
            split = drop_duplicates(split, definition.id_column)
        return self.raw_writer.write_events(
            definition,
            split,
            batch_ids=[batch.batch_id for batch in batches],
            has_named_rows=all(batch.receipt.rows is not None for batch in batches),
            on_new=count,
        )


def events_digest(rejected: pa.Array, hours: pa.Array) -> str:
    """Return a digest of the indexes of the rejected events and of the hours of the accepted ones, in their order."""
    digest = hashlib.sha256(",".join(map(str, rejected.to_pylist())).encode())
    if hours:
        # The second buffer of an array has its values: eight bytes for each hour.
        digest.update(memoryview(hours.buffers()[1])[8 * hours.offset : 8 * (hours.offset + len(hours))])
    return digest.hexdigest()


def receipt_uri(bucket: str, source: str, batch_id: str) -> str:
    """Return the URI of a batch's receipt; `bucket` is the raw bucket."""
    return f"s3://{bucket}/receipts/source={source}/{batch_id}.json"
