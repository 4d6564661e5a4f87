"""Send rejected events of a pushed batch again, after the definition of their source was corrected.

The unit is the batch in which an event was received first, and an event is named by that batch and its index. For each
batch, in this order:

1. Finish the latest record (`slackwater.receiver.writing.redrives`), if its events are not all stored.
2. Read the events that no record has accepted by the present definition, and write the next record, unless there is
   one: of two processes, both follow the one that is written.
3. Store the accepted events as no longer rejected (negative numbers in the facts of their hours), then write their
   objects, whose names depend on the batch and the number of the record, then write that all of them are stored.

A process may end between any two writes, and the same call again does what is missing. Until the objects are written,
counts show their events as missing: no reader sees an event as rejected and as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.errors import DataError, ObjectMissing, UnknownName
from slackwater.metrics import Metric
from slackwater.receiver.parsing.count_keys import KEY_NUMBER, key_numbers
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.json_lines import parse_line
from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.receiver.push.receive import Receipt, Receiver, events_digest, receipt_uri
from slackwater.receiver.push.redriven import Redriven
from slackwater.receiver.writing.partitioning import (
    HourSplit,
    add_metadata,
    drop_duplicates,
    event_hours,
    split_by_hour,
)
from slackwater.receiver.writing.redrives import (
    FailedAgain,
    Redrive,
    RedriveObjects,
    SentAgain,
    objects_by_batch,
    read_sent_again,
    record_uri,
    stored_uri,
)
from slackwater.receiver.writing.rejected_hours import RejectedBins, count_bins, metadata_of, rejected_by_hour
from slackwater.receiver.writing.stored_rejects import StoredReject, read_rejects
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.sources.rejected_events import redrives_prefix, rejects_prefix
from slackwater.state.facts import RejectedEvents
from slackwater.storage import ObjectStore


class _Read(NamedTuple):
    """Events that were read again, and the record about them."""

    record: Redrive
    split: HourSplit


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """The rejected events of a pushed batch, by index."""

    source: str
    date: str
    id: str
    receipt: Receipt
    events: Mapping[int, StoredReject]


@dataclass(frozen=True, kw_only=True)
class Redriver:
    """Sends rejected events again. `receiver` stores them."""

    receiver: Receiver

    def redrive(self, source: Source, date: str, batch_id: str, *, rule: str | None, dry_run: bool) -> Redriven:
        """Send the rejected events of a batch again, by the present definition; return what became of them.

        `date` is the UTC day of its first receipt. With `rule`, only the events whose latest rejection is by this rule
        are sent. With `dry_run`, nothing is written. A call that is repeated, by any number of processes, stores each
        event once. Raises `UnknownName` without rejected events of this batch, `DataError` if they cannot be read as
        they were before, and `CloudError`.
        """
        batch = self._batch(source.source, date, batch_id)
        before = read_sent_again(self._store, self._objects(batch))
        while True:
            objects = self._objects(batch)
            sent = read_sent_again(self._store, objects)
            if objects.records and objects.records[-1] not in objects.stored and not dry_run:
                self._finish(batch, objects.records[-1])
                continue
            read = self._next(batch, source, sent, rule)
            if read is None:
                break
            uri = record_uri(self._bucket, batch.source, date, batch_id, len(objects.records))
            if dry_run or self._store.put_new(uri, read.record.model_dump_json(by_alias=True).encode()):
                if not dry_run:
                    self._write(batch, uri, read)
                sent.add(read.record, is_stored=not dry_run)
                break
        return Redriven.of(batch.events, before, sent, rule)

    @property
    def _store(self) -> ObjectStore:
        return self.receiver.raw_writer.store

    @property
    def _bucket(self) -> str:
        return self.receiver.raw_writer.raw_bucket

    def _batch(self, source: str, date: str, batch_id: str) -> _Batch:
        """Read the rejected events of a batch, and its receipt."""
        uri = f"{rejects_prefix(self._bucket, source, date)}{batch_id}.jsonl"
        try:
            events = {event.index: event for event in read_rejects(uri, self._store.get(uri))}
        except ObjectMissing as error:
            raise UnknownName(f"batch {batch_id} of {source!r} has no rejected events of {date}") from error
        if any(not event.origin.startswith("push:") for event in events.values()):
            raise DataError(f"{uri}: the rows of a file: slackwater pull {source} reads the file again")
        try:
            content = self._store.get(receipt_uri(self._bucket, source, batch_id))
        except ObjectMissing as error:
            message = f"batch {batch_id} of {source!r} has no receipt: its events cannot be read as they were received"
            raise DataError(f"{message}; the partner has to send them again") from error
        return _Batch(
            source=source, date=date, id=batch_id, receipt=Receipt.model_validate_json(content), events=events
        )

    def _objects(self, batch: _Batch) -> RedriveObjects:
        listed = self._store.list(redrives_prefix(self._bucket, batch.source, batch.date, batch.id))
        return objects_by_batch(listed).get(batch.id, RedriveObjects())

    def _next(self, batch: _Batch, source: Source, sent: SentAgain, rule: str | None) -> _Read | None:
        """Read the events that are still rejected; None if that says nothing new."""
        indexes = [
            index
            for index, event in batch.events.items()
            if index not in sent.accepted
            and rule in {None, sent.rule_of(event)}
            # What is stored of it is not what the partner has sent.
            and event.rule != RejectionRule.NOT_UTF8
        ]
        if not indexes:
            return None
        read = _read(batch, indexes, source, sent_at=self.receiver.now().astimezone(UTC))
        is_known = all(sent.newest.get(event.position) == event for event in read.record.failed)
        return None if is_known and not read.record.accepted else read

    def _finish(self, batch: _Batch, uri: str) -> None:
        """Store what a record accepts."""
        record = Redrive.model_validate_json(self._store.get(uri))
        read = _read(batch, record.indexes, record.definition, sent_at=record.sent_at.astimezone(UTC))
        if (read.record.events_digest, read.record.accepted) != (record.events_digest, record.accepted):
            raise DataError(
                f"{uri}: this release reads other events or hours from the rejected events than the release that has "
                "begun to send them again, so they could be stored twice: deploy that release again"
            )
        self._write(batch, uri, read)

    def _write(self, batch: _Batch, uri: str, read: _Read) -> None:
        """Store the accepted events of a record; write no object twice."""
        name = uri.rpartition("/")[2].removesuffix(".json")
        bins = _counted(batch, read.record.accepted)
        if read.record.accepted:
            if batch.receipt.definition.counts:
                self.receiver.put_rejected(batch.source, _no_longer_rejected(batch, bins, origin=name))
            self.receiver.raw_writer.write_events(
                read.record.definition,
                read.split,
                batch_ids=[name],
                on_new=lambda events: self.receiver.count(Metric.EVENTS_ACCEPTED, events, batch.source),
            )
        self._store.put_new(stored_uri(uri), b"", metadata=metadata_of(bins))


def _check(batch: _Batch, indexes: Sequence[int], definition: Source) -> CheckedEvents:
    """Check events of a batch. Their age is that at the first receipt, whenever they are sent again."""
    events = [parse_line(batch.events[index].text.encode()) for index in indexes]
    return check_events(events, definition, received_at=batch.receipt.received_at.astimezone(UTC))


def _read(batch: _Batch, indexes: Sequence[int], definition: Source, *, sent_at: datetime) -> _Read:
    """Check events of a batch by a definition, and split the accepted ones by hour."""
    checked = _check(batch, indexes, definition)
    failed = tuple(
        FailedAgain(indexes[row["index"]], row["rule"], row["reason"])
        for row in checked.rejections.select(["index", "rule", "reason"]).to_pylist()
    )
    rejected = {event.position for event in failed}
    accepted = tuple(index for index in indexes if index not in rejected)
    table, hours = checked.table, event_hours(checked.table)
    digest = events_digest(checked.rejections["index"].combine_chunks(), hours)
    if definition.id_column == GENERATED_ID:
        # The id that the event would have had in its batch.
        ids = pc.binary_join_element_wise(f"{batch.id}-", pa.array(accepted, pa.int64()).cast(pa.string()), "")
        table = table.append_column(GENERATED_ID, ids)
    split = split_by_hour(table, hours)
    split = drop_duplicates(split, definition.event_id) if definition.event_id else split
    # Of events with one id, the first received counts: one that the partner has corrected meanwhile stays.
    table = add_metadata(split.table, definition, received_at=sent_at, batch_id=batch.id)
    record = Redrive(sent_at=sent_at, definition=definition, events_digest=digest, accepted=accepted, failed=failed)
    return _Read(record, HourSplit(table, split.hours))


def _counted(batch: _Batch, accepted: Sequence[int]) -> RejectedBins:
    """Return the events by the time in them, as they were counted when they were rejected."""
    definition = batch.receipt.definition
    checked = _check(batch, accepted, definition)
    # A release that reads more than the one that has rejected them may accept some.
    others = pa.table(
        {EVENT_TIME: checked.table[EVENT_TIME], KEY_NUMBER: key_numbers(checked.table, definition.count_keys)}
    )
    return count_bins(pa.concat_tables([checked.rejections.select([EVENT_TIME, KEY_NUMBER]), others]))


def _no_longer_rejected(batch: _Batch, bins: RejectedBins, *, origin: str) -> dict[datetime, RejectedEvents]:
    """Return the accepted events by hour, as negative numbers of rejected ones."""
    receipt = batch.receipt
    hours = rejected_by_hour(bins, receipt.definition.count_keys, origin=origin, received_at=receipt.received_at)
    return {
        hour: RejectedEvents(
            origin,
            {key: tuple(-count for count in counts) for key, counts in events.bins.items()},
            -events.unplaced,
        )
        for hour, events in hours.items()
    }
