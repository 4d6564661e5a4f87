"""What became of rejected events that were sent again: the records under `redriven/`.

A record is written once and never changes. It says by which definition events of a batch were read again, which of
them are accepted, and why the others are not. The object `.stored` beside it says that all accepted events are stored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import AwareDatetime

from slackwater.model import Record
from slackwater.receiver.writing.stored_rejects import StoredReject
from slackwater.sources.definition import Source
from slackwater.sources.rejected_events import STORED, redrives_prefix
from slackwater.storage import ObjectStore, StoredObject

_NAME = re.compile(r"/(?P<batch>[^/]+)-(?P<number>\d{4})(?P<ending>\.json|\.stored)$")


class FailedAgain(NamedTuple):
    """An event that was rejected again."""

    position: int
    """Its index in its first batch."""
    rule: str
    reason: str


class Redrive(Record):
    """How rejected events of one batch were read again. Every later attempt reads and stores them in the same way."""

    sent_at: AwareDatetime
    """`_received_at` of the accepted events."""
    definition: Source
    """By which the events were read."""
    events_digest: str
    """Of which events are rejected, and of the hours of the others: it decides which objects are written."""
    accepted: tuple[int, ...]
    """Their indexes in the first batch, in order."""
    failed: tuple[FailedAgain, ...]

    @property
    def indexes(self) -> list[int]:
        """The indexes of all events that were read, in order."""
        return sorted([*self.accepted, *(event.position for event in self.failed)])


class RedriveObjects(NamedTuple):
    """The objects of a batch below `redriven/`."""

    records: tuple[str, ...] = ()
    """URIs, in the order in which the records were written."""
    stored: frozenset[str] = frozenset()
    """Those of them whose accepted events are all stored."""


@dataclass
class SentAgain:
    """What became of the events of a batch that were sent again."""

    accepted: set[int] = field(default_factory=set)
    """Accepted in a record, stored or not."""
    stored: set[int] = field(default_factory=set)
    newest: dict[int, FailedAgain] = field(default_factory=dict)
    """The latest rejection of each event that was rejected again."""
    times: dict[int, int] = field(default_factory=dict)
    """How often each event was sent again."""

    def add(self, record: Redrive, *, is_stored: bool) -> None:
        """Add the next record of the batch."""
        self.accepted.update(record.accepted)
        if is_stored:
            self.stored.update(record.accepted)
        self.newest.update({event.position: event for event in record.failed})
        for index in record.indexes:
            self.times[index] = self.times.get(index, 0) + 1

    def rule_of(self, event: StoredReject) -> str:
        """Return the rule of the latest rejection of an event."""
        newest = self.newest.get(event.index)
        return newest.rule if newest else event.rule


def record_uri(bucket: str, source: str, date: str, batch_id: str, number: int) -> str:
    """Return the URI of a record of a batch; they are numbered from 0."""
    return f"{redrives_prefix(bucket, source, date, batch_id)}{number:04d}.json"


def stored_uri(record: str) -> str:
    """Return the URI of the object that exists once the accepted events of a record are stored."""
    return f"{record.removesuffix('.json')}{STORED}"


def objects_by_batch(objects: Iterable[StoredObject]) -> Mapping[str, RedriveObjects]:
    """Return the records in a listing, in order of URI, by batch."""
    records, stored = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for item in objects:
        if match := _NAME.search(item.uri):
            if match["ending"] == ".json":
                records[match["batch"]].append(item.uri)
            else:
                stored[match["batch"]].add(f"{item.uri.removesuffix(STORED)}.json")
    return {batch: RedriveObjects(tuple(uris), frozenset(stored[batch])) for batch, uris in records.items()}


def read_sent_again(store: ObjectStore, objects: RedriveObjects) -> SentAgain:
    """Return what the records of a batch say. Raises `CloudError`."""
    sent = SentAgain()
    for uri in objects.records:
        sent.add(Redrive.model_validate_json(store.get(uri)), is_stored=uri in objects.stored)
    return sent
