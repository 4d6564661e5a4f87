"""Rejected events as JSON lines: equal to what the standard library reads and writes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.count_keys import KEY_NUMBER
from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.rejections import REJECTIONS, RejectionRule
from slackwater.receiver.writing.rejected_hours import count_bins, metadata_of
from slackwater.receiver.writing.rejects import to_jsonl
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.sources.rejected_events import hours_metadata, read_hours

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


@given(times=st.lists(st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)), max_size=20))
def test_the_metadata_of_rejected_events_has_their_hours(times):
    expected = Counter(time.replace(minute=0, second=0, microsecond=0, tzinfo=UTC) for time in times if time)
    column = pa.chunked_array([pa.array(times, pa.timestamp("us", tz="UTC"))])
    assert read_hours(metadata_of(count_bins(pa.table({EVENT_TIME: column, KEY_NUMBER: [0] * len(times)})))) == expected


def test_the_metadata_of_rejected_events_fits_into_an_object_of_s3():
    hours = {f"2013-{month:02}-01T{hour:02}": 10**9 for month in range(1, 13) for hour in range(24)}
    metadata = hours_metadata(hours)
    assert sum(len(name) + len(value) for name, value in metadata.items()) <= 2048
    assert min(read_hours(metadata)) == datetime(2013, 9, 1, 21, tzinfo=UTC)
