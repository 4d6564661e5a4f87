"""A receiver over fakes, and what is pushed to it."""

from __future__ import annotations

import io
import json
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.receiver.push.batch import Limits
from slackwater.receiver.push.receive import PreparedEvents, ReceivedBatch, Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    Fuse,
    MemoryPartitions,
    MemoryStore,
    a_source,
)

NDJSON = "application/x-ndjson"
SOURCE = a_source()


class Setup:
    """A receiver over fakes."""

    def __init__(self, source: Source = SOURCE, **limits: int) -> None:
        self.source = source
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.partitions = MemoryPartitions(self.fuse)
        self.clock = Clock()
        delivery = RawWriter(store=self.store, partitions=self.partitions, raw_bucket="raw")
        self.receiver = Receiver(delivery=delivery, now=self.clock, limits=Limits(**limits))

    def push(self, events: list[object] | bytes, content_type: str = NDJSON, encoding: str | None = None):
        body = events if isinstance(events, bytes) else "\n".join(map(json.dumps, events)).encode()
        return self.receiver.receive(
            body, source=self.source, content_type=content_type, content_encoding=encoding, origin="push:acme"
        )

    def rows(self) -> list[dict[str, object]]:
        tables = [
            pq.read_table(io.BytesIO(self.store.get(uri)), partitioning=None) for uri in self.store.uris("/raw/source=")
        ]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def sidelined(self) -> list[dict[str, object]]:
        return [
            json.loads(line)
            for uri in self.store.uris("/sideline/")
            for line in self.store.get(uri).decode().split("\n")
            if line
        ]

    def check(self, *events: object, received_at: datetime | None = None) -> ReceivedBatch:
        return self.receiver.check(
            "\n".join(map(json.dumps, events)).encode(),
            source=self.source,
            content_type=NDJSON,
            content_encoding=None,
            origin="push:acme",
            received_at=received_at,
        )

    def stamped(self, *events: object, received_at: datetime = RECEIVED) -> PreparedEvents:
        return self.check(*events, received_at=received_at).stamped(self.source)


def event(at: str = "2013-03-08T12:00:00Z", **more: object) -> dict[str, object]:
    return {"id": "a", "at": at, **more}
