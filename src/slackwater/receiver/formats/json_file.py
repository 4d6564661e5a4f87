"""Parses JSON files: one array, whose elements are read one by one while the file is read, or one event per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.formats.blocks import (
    BLOCK_BYTES,
    BLOCK_EVENTS,
    MAX_RECORD_BYTES,
    Block,
    BlockReader,
    LineFormat,
    ParsedRows,
)
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.receiver.parsing.json_lines import decode_lines, numbered_lines, read_json_lines
from slackwater.receiver.parsing.json_stream import InvalidJson, JsonStream, JsonValue
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import partner_schema

# `read_json_lines` requires a limit, which pushed bodies need. This one exceeds the bytes of any block.
_NO_LIMIT = 4 * MAX_RECORD_BYTES


def parse_json_array(stream: ByteStream, *, name: str) -> Iterator[ParsedRows]:
    """Parse a JSON file, about `BLOCK_BYTES` characters and at most `BLOCK_EVENTS` elements at a time.

    `name` is the name of the file in errors. Raises `DataError` when the file is not a JSON array.
    """
    block: list[JsonValue] = []
    length = 0
    for element in read_elements(stream, name=name):
        block.append(element)
        length += len(element.text)
        if length >= BLOCK_BYTES or len(block) == BLOCK_EVENTS:
            yield _rows_of(block)
            block, length = [], 0
    if block:
        yield _rows_of(block)


def _rows_of(elements: Sequence[JsonValue]) -> ParsedRows:
    def locate(indexes: pa.ChunkedArray) -> tuple[pa.Array, None]:
        return pa.array((elements[index].text for index in indexes.to_pylist()), pa.string()), None

    return ParsedRows([element.value for element in elements], locate)


def read_elements(stream: ByteStream, *, name: str) -> Iterator[JsonValue]:
    """Yield the elements of a JSON array. Raises `DataError` when the file is none, or an element is too long."""
    document = JsonStream(iter(partial(stream.read, BLOCK_BYTES), b""), max_value=MAX_RECORD_BYTES)
    try:
        if document.peek() != "[":
            hint = "enclose the events in [ ], or set the format to ndjson"
            raise DataError(f"{name}: a JSON array is expected: {hint}")
        for _ in document.elements("]"):
            yield document.value()
        if document.peek():
            hint = "for one event per line, set the format to ndjson"
            raise document.invalid(f"there is text after the array; {hint}")
    except InvalidJson as error:
        raise DataError(f"{name}: not JSON: {error}") from error


def parse_ndjson(stream: ByteStream, source: Source, *, name: str) -> Iterator[ParsedRows]:
    """Parse an NDJSON file, block by block. `name` is the name of the file in errors.

    Blank lines count in line numbers, but not as events. Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    schema = partner_schema(source)
    for block in BlockReader(stream, LineFormat(), name=name):
        events, lines = read_json_lines(block.data, schema, max_events=_NO_LIMIT)
        if lines:
            yield ParsedRows(events, partial(_locate_lines, block, lines))


def count_ndjson_rows(stream: ByteStream, *, name: str) -> int:
    """Return the number of lines of an NDJSON file that are not blank, which are not parsed.

    Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    return sum(1 for block in BlockReader(stream, LineFormat(), name=name) for _ in numbered_lines(block.data))


def _locate_lines(block: Block, lines: Sequence[int], indexes: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    numbers = [lines[index] for index in indexes.to_pylist()]
    texts = pa.array(decode_lines(block.data, numbers), pa.string())
    return texts, pa.array([block.line + number - 1 for number in numbers], pa.int64())
