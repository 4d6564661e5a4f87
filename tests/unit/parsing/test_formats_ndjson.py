from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import DataError
from slackwater.receiver.formats import blocks
from slackwater.receiver.formats.json_file import parse_ndjson
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import event_schema
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"
NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
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


def test_a_value_of_every_type_is_read():
    event = {"id": "ä", "count": 2**63 - 1, "size": 1.5, "good": True, "day": "2013-03-08", "at": AT}
    [block] = read(lines(event))
    assert block.table.schema == event_schema(SOURCE)
    own = {**event, "day": date(2013, 3, 8), "at": NOON}
    assert block.table.to_pylist() == [{**own, "_event_time": NOON, "_extra": None}]
    assert block.rejected == []


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


def test_a_file_without_any_json_line_has_only_rejections():
    result = read(b"id,at\n1,2013\n")
    assert accepted(result) == []
    assert rejected(result) == [(0, 1, "not_json", "id,at"), (1, 2, "not_json", "1,2013")]


def test_indexes_and_lines_continue_from_block_to_block(small_blocks):
    good = [{"id": str(number), "at": AT} for number in range(20)]
    content = b"".join(lines(event) + (b"\n \nno\n" if number % 5 == 0 else b"") for number, event in enumerate(good))
    result = read(content)
    assert len(result) > 5
    assert [row["id"] for row in accepted(result)] == [event["id"] for event in good]
    rows = content.split(b"\n")
    assert [item.line for block in result for item in block.rejected] == [
        number for number, row in enumerate(rows, start=1) if row == b"no"
    ]
    filled = [row for row in rows if row.strip()]
    assert [item.index for block in result for item in block.rejected] == [
        index for index, row in enumerate(filled) if row == b"no"
    ]
    sizes = [block.table.num_rows + len(block.rejected) for block in result]
    for block, end in zip(result, accumulate(sizes), strict=True):
        assert all(item.index < end for item in block.rejected)


def test_blank_lines_that_fill_blocks_count_as_lines(small_blocks):
    result = read(b"\n" * 200 + b"no")
    assert rejected(result) == [(0, 201, "not_json", "no")]


def test_a_line_may_be_longer_than_a_block(small_blocks, monkeypatch):
    long = {"id": "x" * 500, "at": AT}
    assert [row["id"] for row in accepted(read(lines({"id": "a", "at": AT}, long)))] == ["a", "x" * 500]
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 200)
    with pytest.raises(
        DataError, match=r"things\.ndjson: .* line 2 has more than 200 bytes: write each event on one line"
    ):
        read(lines({"id": "a", "at": AT}, long))


@pytest.mark.parametrize(
    ("unknown", "extra", "rules"),
    [("keep", ['{"x":{"y":[1,null]}}'], []), ("ignore", [None], []), ("reject", [], ["unknown_field"])],
)
def test_unknown_fields_are_kept_ignored_or_rejected(unknown, extra, rules):
    result = read(lines({"id": "a", "at": AT, "x": {"y": [1, None]}}), a_source(unknown_fields=unknown))
    assert [row["_extra"] for row in accepted(result)] == extra
    assert [rule for _, _, rule, _ in rejected(result)] == rules


def test_partner_names_and_the_source_timezone_are_used():
    source = a_source(
        fields={"id": {"type": "string", "from": "Order No."}, "at": {"type": "timestamp", "from": "Booked"}},
        timestamp={"field": "at", "timezone": "America/New_York"},
    )
    result = read(lines({"Order No.": "a", "Booked": "2013-03-08T07:00:00"}, {"Order No.": 5, "Booked": AT}), source)
    assert [(row["id"], row["at"]) for row in accepted(result)] == [("a", NOON), ("5", NOON)]


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


@settings(max_examples=60, deadline=None)
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
