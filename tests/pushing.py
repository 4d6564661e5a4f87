"""A receiver over fakes, and the events that tests push to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from slackwater.receiver.push.body import Body, Limits
from slackwater.receiver.push.receive import CheckedBatch, Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    Fuse,
    MemoryStore,
    a_source,
)
from tests.reading import read_parquet

NDJSON = "application/x-ndjson"


class FunctionContext:
    """The context of a Lambda function that has all of its time left."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 25_000


SOURCE = a_source()
LIMITS = Limits()


class Answer(NamedTuple):
    """The response of `EventsApi.post`."""

    status: int
    body: dict[str, Any]


class Setup:
    """A receiver over fakes."""

    def __init__(self, source: Source = SOURCE, **limits: int) -> None:
        self.source = source
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.clock = Clock()
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        self.receiver = Receiver(raw_writer=raw_writer, now=self.clock, limits=Limits(**limits))

    def push(self, events: list[object] | bytes, content_type: str = NDJSON, encoding: str | None = None):
        body = events if isinstance(events, bytes) else "\n".join(map(json.dumps, events)).encode()
        return self.receiver.receive(pushed_body(body, content_type, encoding, self.receiver.limits), self.source)

    def rows(self) -> list[dict[str, object]]:
        tables = [read_parquet(self.store.get(uri)) for uri in self.store.uris("/raw/source=")]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def reject_records(self) -> list[dict[str, object]]:
        return [
            json.loads(line)
            for uri in self.store.uris("/sideline/")
            for line in self.store.get(uri).decode().split("\n")
            if line
        ]

    def check(self, *events: object) -> CheckedBatch:
        body = pushed_body("\n".join(map(json.dumps, events)).encode(), limits=self.receiver.limits)
        return self.receiver.check(body, self.source)

    def checked_events(self, *events: object, received_at: datetime = RECEIVED) -> CheckedBatch:
        self.clock.time = received_at
        return self.check(*events)

    def write_events(self, batches: Sequence[CheckedBatch]) -> int:
        return self.receiver.write_events(batches)


def pushed_body(
    body: bytes, content_type: str | None = NDJSON, encoding: str | None = None, limits: Limits = LIMITS
) -> Body:
    return Body(content=body, content_type=content_type, content_encoding=encoding, origin="push:acme", limits=limits)


def event(at: str = "2013-03-08T12:00:00Z", **more: object) -> dict[str, object]:
    return {"id": "a", "at": at, **more}
