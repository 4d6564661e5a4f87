"""Blocks of text files: complete records, and a limited number of them, because each may be rejected."""

from __future__ import annotations

import io

import pytest

from slackwater.errors import DataError
from slackwater.receiver.formats import blocks, json_file
from slackwater.receiver.formats.blocks import check_columns
from slackwater.receiver.formats.csv_file import parse_csv
from slackwater.receiver.formats.json_file import parse_json_array, parse_ndjson
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.file_format import Csv
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

SOURCE = a_source()
PARSERS = {
    "csv": lambda stream: parse_csv(stream, Csv(), SOURCE, name="f"),
    "json": lambda stream: parse_json_array(stream, name="f"),
    "ndjson": lambda stream: parse_ndjson(stream, SOURCE, name="f"),
}


def read(file_format: str, content: bytes) -> list[CheckedEvents]:
    return list(check_rows(PARSERS[file_format](io.BytesIO(content)), SOURCE, received_at=RECEIVED))


SHORT_EVENTS = {
    "csv": b"id,at\n" + b"a,\n" * 70_000,
    "json": b"[" + b"{}," * 69_999 + b"{}]",
    "ndjson": b"{}\n" * 70_000,
}


@pytest.mark.parametrize("file_format", PARSERS)
def test_many_short_events_are_checked_in_several_blocks(file_format):
    sizes = [len(block.rejected) for block in read(file_format, SHORT_EVENTS[file_format])]
    assert sum(sizes) == 70_000
    assert max(sizes) <= blocks.BLOCK_EVENTS


CSV_FILES = {
    "line feeds": b"id,at\n" + b"a,\nb,c\n" * 9,
    "carriage returns": b"id,at\r" + b"a,\rb,c\r\r" * 9,
    "both": b"id,at\r\n" + b"a,\r\n\r\nb,c\r\n" * 9,
    "mixed": b"id,at\r\n" + b"a,\r\r\nb,c\n\rd,\r\n" * 9,
    "quoted": b'id,at\n"a\r\nb\r\nc\r\nd\r\ne",\n' + b'b,"""\n"\r\n' * 9 + b'"a\nb\nc\nd\ne\nf\ng\nh",1\nx,2',
}


@pytest.mark.parametrize("content", CSV_FILES.values(), ids=CSV_FILES)
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_smaller_blocks_have_the_same_rows_and_line_numbers(monkeypatch, content, limit):
    expected = [event for block in read("csv", content) for event in block.rejected]
    monkeypatch.setattr(blocks, "BLOCK_EVENTS", limit)
    result = read("csv", content)
    assert [event for block in result for event in block.rejected] == expected
    assert len(result) > 1


def test_a_block_of_json_has_a_limited_number_of_events(monkeypatch):
    monkeypatch.setattr(json_file, "BLOCK_EVENTS", 2)
    result = read("json", b"[{},{},{},{},{}]")
    assert [len(block.rejected) for block in result] == [2, 2, 1]
    assert [event.index for block in result for event in block.rejected] == [0, 1, 2, 3, 4]


def test_many_columns_are_compared_in_a_short_time_and_listed_in_a_short_message():
    columns = [f"column-{number}" for number in range(16_384)]
    with pytest.raises(DataError, match=r"its header lacks at, id \(it has: column-0, .*, column-9, \.\.\.\)$"):
        check_columns(columns, SOURCE, name="f", part="header")


def test_a_file_with_too_many_columns_is_an_error():
    header = ",".join(["id", "at", *(f"column-{number}" for number in range(20_000))]).encode()
    with pytest.raises(DataError, match=r"^f: its header has 20,002 columns: send at most 16,384$"):
        read("csv", header)


def test_an_element_of_json_that_is_too_long_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(json_file, "MAX_RECORD_BYTES", 10_000)
    stream = io.BytesIO(b"[[" + b"[]," * 10_000)
    with pytest.raises(DataError, match="or a value of more than 10,000 characters"):
        list(PARSERS["json"](stream))
    assert stream.tell() <= 12_000
