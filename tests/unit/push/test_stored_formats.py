"""Receipts, queue messages and names of objects do not change: releases read what earlier ones have stored.

`stored_formats.json` was recorded before push had three types (`Body`, `CheckedBatch`, `BatchResult`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from slackwater.receiver.push.queue import receive, store_messages
from slackwater.receiver.push.receive import receipt_uri
from slackwater.sources.definition import Source
from tests.fakes_receiver import MemoryBuffer
from tests.pushing import Setup, pushed_body
from tests.reading import read_parquet

pytestmark = pytest.mark.unit

CASES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("stored_formats.json").read_text())


class Push:
    """One batch of `stored_formats.json`, sent to a receiver over fakes."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.source = Source.model_validate(case["source"])
        self.setup, self.queue = Setup(self.source), MemoryBuffer()
        body = base64.b64decode(case["body"])
        self.body = pushed_body(body, case["content_type"], case["content_encoding"])

    def send(self) -> str:
        """Send the batch and store its message; return the id of the batch."""
        result = receive(self.body, self.source, receiver=self.setup.receiver, queue=self.queue, correlation_id="c")
        self.deliver(*self.queue.messages)
        return result.batch_id

    def deliver(self, *messages: str) -> None:
        numbered = {str(number): message for number, message in enumerate(messages)}
        list(store_messages(numbered, source=lambda _: self.source, receiver=self.setup.receiver))

    def stored(self) -> dict[str, str]:
        """Return the stored receipt, rejected events and a digest of the rows of each object, by URI."""
        return {uri: self._content(uri, body) for uri, (body, _) in sorted(self.setup.store.objects.items())}

    def _content(self, uri: str, body: bytes) -> str:
        if not uri.endswith(".parquet"):
            return body.decode()
        return hashlib.sha256(repr(read_parquet(body).to_pylist()).encode()).hexdigest()


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_a_new_batch_is_stored_as_before(case):
    push = Push(case)
    assert push.send() == case["batch_id"]
    assert push.stored() == case["stored"]
    assert push.queue.messages == case["messages"]


def test_a_stored_receipt_is_read_as_before(case):
    push = Push(case)
    uri = receipt_uri("raw", push.source.source, case["batch_id"])
    push.setup.store.put(uri, case["stored"][uri].encode())
    push.setup.clock.pass_by(hours=400)
    push.send()
    assert push.stored() == case["stored"]


def test_a_queued_message_is_stored_as_before(case):
    push = Push(case)
    push.deliver(*case["messages"])
    objects = {uri: content for uri, content in case["stored"].items() if uri.endswith(".parquet")}
    assert push.stored() == (objects if case["messages"] else {})


def test_messages_of_one_source_are_joined_as_before():
    cases = [case for name, case in CASES.items() if name.startswith("joined")]
    push = Push(cases[0])
    push.deliver(*(message for case in reversed(cases) for message in case["messages"]))
    assert push.stored() == cases[0]["joined"]
