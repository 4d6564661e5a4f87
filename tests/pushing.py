"""A receiver over fakes, and the events that tests push to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from lambdas import receive_events
from slackwater.errors import UnknownName
from slackwater.receiver.push.body import Body, Limits
from slackwater.receiver.push.receive import CheckedBatch, Receiver
from slackwater.receiver.push.request import EventsApi
from slackwater.receiver.push.tokens import Tokens
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    Fuse,
    MemoryBuffer,
    MemoryStore,
    MemoryTokens,
    a_source,
)
from tests.fakes_state import MemoryState, MemoryVerdicts
from tests.reading import read_parquet

NDJSON = "application/x-ndjson"


class FunctionContext:
    """The context of a Lambda function that has all of its time left."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 25_000


SOURCE = a_source()
LIMITS = Limits()


ALL_SOURCES = MemoryTokens({"good": ["*"]})


class Answer(NamedTuple):
    """The response of `EventsApi.post`."""

    status: int
    body: dict[str, Any]


class Setup:
    """The API over fakes, with its receiver, its queue and the sources by name."""

    def __init__(self, *sources: Source, tokens: Tokens = ALL_SOURCES, **limits: int) -> None:
        self.sources = {source.source: source for source in sources or (SOURCE,)}
        self.source = next(iter(self.sources.values()))
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.queue = MemoryBuffer(self.fuse)
        self.clock = Clock()
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        self.state, self.verdicts = MemoryState(self.fuse), MemoryVerdicts()
        self.receiver = Receiver(
            raw_writer=raw_writer, now=self.clock, put_rejected=self.state.put_rejected, limits=Limits(**limits)
        )
        self.api = EventsApi(
            tokens=tokens,
            source=self.find_source,
            receiver=self.receiver,
            queue=self.queue,
            put_report=self.state.put_report,
            put_verdict=lambda verdict: self.verdicts.put_verdicts([verdict]),
            now=self.clock,
        )

    def find_source(self, name: str) -> Source:
        if name not in self.sources:
            raise UnknownName(f"no source {name!r}")
        return self.sources[name]

    def post(self, *events: object, source: str = "things", body: bytes | None = None, **headers: str) -> Answer:
        """Send events to the API, or a body; a header with an empty value is left out."""
        all_headers = {"authorization": "Bearer good", "content-type": NDJSON}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = "\n".join(map(json.dumps, events)).encode() if body is None else body
        sent = {name: value for name, value in all_headers.items() if value}
        return Answer(*self.api.post(source, sent, body, "mine"))

    def push(self, events: list[object] | bytes, content_type: str = NDJSON, encoding: str | None = None):
        body = events if isinstance(events, bytes) else "\n".join(map(json.dumps, events)).encode()
        checked = self.receiver.check(pushed_body(body, content_type, encoding, self.receiver.limits), self.source)
        return self.receiver.store(checked)

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


def call_function(body: bytes, *, path: str = "events", **headers: str | list[str]) -> dict[str, Any]:
    """Call the function as API Gateway does: with `binaryMediaTypes: */*`, each body is in Base64."""
    sent = {"Content-Type": NDJSON, "Authorization": "Bearer good"}
    sent = {name: [value] if isinstance(value, str) else value for name, value in {**sent, **headers}.items()}
    request = {
        "resource": f"/v1/sources/{{source}}/{path}",
        "path": f"/v1/sources/things/{path}",
        "httpMethod": "POST",
        "headers": {name: values[-1] for name, values in sent.items()},
        "multiValueHeaders": sent,
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": {"source": "things"},
        "stageVariables": None,
        "requestContext": {"requestId": "request-1", "stage": "push", "identity": {"sourceIp": "192.0.2.1"}},
        "body": base64.b64encode(body).decode() if body else None,
        "isBase64Encoded": bool(body),
    }
    return receive_events.handler(request, FunctionContext())


def event(at: str = "2013-03-08T12:00:00Z", **more: object) -> dict[str, object]:
    return {"id": "a", "at": at, **more}
