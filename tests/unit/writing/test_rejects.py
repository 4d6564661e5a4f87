"""Rejected events as JSON lines: equal to what the standard library reads and writes."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.rejections import REJECTIONS, RejectionRule
from slackwater.receiver.writing.rejects import to_jsonl

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([*REJECTIONS, ("line", pa.int64()), ("text", pa.string())])
TEXTS = st.text() | st.sampled_from(['a"b\\c', "\x00\n\u2028\U0001f600", "%d {} %s"])
EVENTS = st.builds(
    RejectedEvent,
    index=st.integers(0, 2**40),
    reason=TEXTS,
    rule=st.sampled_from(RejectionRule),
    line=st.none() | st.integers(1, 2**40),
    text=st.none() | TEXTS,
)


@given(events=st.lists(EVENTS, max_size=5), origin=TEXTS, rows=st.none() | st.integers(1, 2**40))
def test_each_line_is_the_event_as_json(events, origin, rows):
    events = [*events, *events[:1]]  # the second one shares a reason
    table = pa.Table.from_pylist([asdict(event) for event in events], SCHEMA)
    lines = to_jsonl(table, batch_id="b", origin=origin, rows=rows).split(b"\n")
    assert lines.pop() == b""
    documents = [
        {
            "index": event.index,
            "line": event.line,
            "reason": event.reason,
            "rule": str(event.rule),
            "batch_id": "b",
            "origin": origin,
            "text": event.text or "",
            "rows": rows,
        }
        for event in events
    ]
    expected = [{name: value for name, value in document.items() if value is not None} for document in documents]
    compact = [json.dumps(document, ensure_ascii=False, separators=(",", ":")) for document in expected]
    assert [json.loads(line) for line in lines] == expected
    assert [list(json.loads(line)) for line in lines] == [list(json.loads(line)) for line in compact]
