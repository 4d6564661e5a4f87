from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DataError
from slackwater.receiver.formats import blocks
from slackwater.receiver.formats.json_file import parse_ndjson
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.definition import Source
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"
SOURCE = a_source()


def read(content: bytes, source: Source = SOURCE) -> list[CheckedEvents]:
    return list(
        check_rows(parse_ndjson(io.BytesIO(content), source, name="things.ndjson"), source, received_at=RECEIVED)
    )


def accepted(result: Sequence[CheckedEvents]) -> list[dict[str, object]]:
    return [row for block in result for row in block.table.to_pylist()]


def rejected(result: Sequence[CheckedEvents]) -> list[tuple[int, int | None, str, str | None]]:
    return [(item.index, item.line, str(item.rule), item.text) for block in result for item in block.rejected]


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n\t\n", b"\xef\xbb\xbf"])
def test_a_file_without_events_has_no_blocks(content):
    assert read(content) == []


@pytest.mark.parametrize("content", [lines({"id": "a", "at": AT})[:-1], b"\xef\xbb\xbf" + lines({"id": "a", "at": AT})])
def test_a_byte_order_mark_and_a_missing_last_newline_are_accepted(content):
    assert [row["id"] for row in accepted(read(content))] == ["a"]


def test_rejected_lines_have_their_line_number_and_original_content():
    content = b"\n".join(
        [
            json.dumps({"id": "a", "at": AT}).encode(),
            b"",
            b"  {broken",
            b'{"id": "\xff", "at": "2013-03-08T12:00:00Z"}',
            b"[1]\r",
            b'{"id": "b", "at": "2013-03-08T12:00:00Z", "count": 9223372036854775808}',
            b'{"id": "c", "at": "2013-03-08T12:00:00Z", "size": NaN}',
            b'{"at": "2013-03-08T12:00:00Z"}',
            json.dumps({"id": "d", "at": AT}).encode(),
        ]
    )
    result = read(content)
    assert [row["id"] for row in accepted(result)] == ["a", "d"]
    assert rejected(result) == [
        (1, 3, "not_json", "{broken"),
        (2, 4, "not_utf8", '{"id": "\\xff", "at": "2013-03-08T12:00:00Z"}'),
        (3, 5, "not_an_object", "[1]"),
        (4, 6, "wrong_type", '{"id": "b", "at": "2013-03-08T12:00:00Z", "count": 9223372036854775808}'),
        (5, 7, "wrong_type", '{"id": "c", "at": "2013-03-08T12:00:00Z", "size": NaN}'),
        (6, 8, "missing", '{"at": "2013-03-08T12:00:00Z"}'),
    ]


def test_a_line_may_be_longer_than_a_block(small_blocks, monkeypatch):
    long = {"id": "x" * 500, "at": AT}
    assert [row["id"] for row in accepted(read(lines({"id": "a", "at": AT}, long)))] == ["a", "x" * 500]
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 200)
    with pytest.raises(
        DataError, match=r"things\.ndjson: .* line 2 has more than 200 bytes: write each event on one line"
    ):
        read(lines({"id": "a", "at": AT}, long))


PIECES = st.sampled_from(
    [
        b"",
        b" ",
        b"no",
        b"5",
        b"null",
        b'{"id":1}',
        b'{"id":"a","at":"%b"}' % AT.encode(),
        b'{"id":"b","at":""}',
        b"{}\r",
    ]
)


@given(st.lists(PIECES, max_size=12), st.integers(3, 80))
def test_results_do_not_depend_on_block_limits(pieces, size):
    content = b"\n".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        whole = read(content)
        patch.setattr(blocks, "BLOCK_BYTES", size)
        cut = read(content)
    assert accepted(cut) == accepted(whole)
    assert rejected(cut) == rejected(whole)
    assert len(accepted(cut)) + len(rejected(cut)) == sum(bool(block_bytes.strip()) for block_bytes in pieces)
