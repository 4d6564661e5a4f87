"""Reading files of events, and cutting them into batches."""

from __future__ import annotations

import gzip
import io
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.events import cut_batches, encode_body, read_events
from slackwater.errors import DataError, InputError

pytestmark = pytest.mark.unit

EVENTS = [{"a": 1}, {"a": "ü"}, {"a": None}]
NDJSON = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in EVENTS).encode()


@given(
    events=st.lists(st.binary(min_size=1, max_size=40)),
    max_events=st.integers(1, 7),
    max_bytes=st.integers(41, 120),
)
def test_batches_hold_every_event_once_in_order_and_are_as_large_as_they_may_be(events, max_events, max_bytes):
    cut = list(cut_batches(events, max_events=max_events, max_bytes=max_bytes))
    assert [event for batch in cut for event in batch] == events
    sizes = [sum(len(event) + 1 for event in batch) for batch in cut]
    assert all(0 < len(batch) <= max_events for batch in cut)
    assert all(size <= max_bytes for size in sizes)
    for batch, size, following in zip(cut, sizes, cut[1:], strict=False):
        assert len(batch) == max_events or size + len(following[0]) + 1 > max_bytes


@given(
    events=st.lists(st.binary(min_size=1, max_size=40), min_size=1), more=st.lists(st.binary(min_size=1, max_size=40))
)
def test_a_longer_file_has_the_same_batches_up_to_the_last_one(events, more):
    before = list(cut_batches(events, max_events=3, max_bytes=90))
    assert list(cut_batches([*events, *more], max_events=3, max_bytes=90))[: len(before) - 1] == before[:-1]


def test_an_event_too_large_for_any_batch_is_named():
    with pytest.raises(DataError, match="event 1 has 101 bytes; at most 100"):
        list(cut_batches([b"x", b"y" * 100], max_bytes=100))


def test_a_body_has_the_same_bytes_every_time():
    assert encode_body([b"{}", b"[]"]) == encode_body([b"{}", b"[]"])
    assert gzip.decompress(encode_body([b"{}", b"[]"])) == b"{}\n[]\n"


@pytest.mark.parametrize(
    "content",
    [
        NDJSON,
        NDJSON.replace(b"\n", b"\r\n"),
        b"\n\n" + NDJSON.replace(b"\n", b"\n \n").rstrip(),
        b"\xef\xbb\xbf" + NDJSON,
        json.dumps(EVENTS).encode(),
        b" \n" + json.dumps(EVENTS, indent=2).encode(),
        gzip.compress(NDJSON, mtime=0),
        gzip.compress(json.dumps(EVENTS).encode(), mtime=0),
    ],
)
def test_every_format_of_a_file_gives_the_same_events(tmp_path, content):
    path = tmp_path / "events"
    path.write_bytes(content)
    assert [json.loads(event) for event in read_events(str(path))] == EVENTS


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(NDJSON)))
    assert len(read_events("-")) == 3


@pytest.mark.parametrize(
    ("content", "events"),
    [
        (b'{ "a":  1.50 }\n', [b'{ "a":  1.50 }']),
        # The API rejects these alone.
        (b'\n{"a": \n{"a": 1}\n\n\xff\n', [b'{"a":', b'{"a": 1}', b"\xff"]),
        *((empty, []) for empty in (b"", b"\n", b"[]", gzip.compress(b"", mtime=0))),
    ],
)
def test_lines_are_returned_byte_for_byte_and_none_of_a_file_without_events(tmp_path, content, events):
    path = tmp_path / "events"
    path.write_bytes(content)
    assert read_events(str(path)) == events


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'\n{"a": \n\xff\n', r"no line is JSON; line 2: .* \(nothing was sent\)"),
        (b"shop,amount\nA,1\n", "no line is JSON; line 1: "),
        (b'[{"a": 1}', "not readable as a JSON array"),
        (b"\x1f\x8b broken", "not readable as gzip"),
        (gzip.compress(NDJSON, mtime=0)[:-9], "not readable as gzip"),
    ],
)
def test_unreadable_content_is_named_before_anything_is_sent(tmp_path, content, expected):
    path = tmp_path / "events"
    path.write_bytes(content)
    with pytest.raises(DataError, match=expected):
        read_events(str(path))


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nothing: No such file"):
        read_events(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="directory"):
        read_events(str(tmp_path))
