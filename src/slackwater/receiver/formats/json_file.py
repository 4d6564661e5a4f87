"""Reads and checks a JSON file: one array, whose elements are parsed one by one while the file is read.

ijson is not used: it replaces lone surrogates, refuses NaN and some numbers that Python reads, returns either integers
of any size or floats, and does not return the text of an element, which a rejected event needs.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.formats.blocks import BLOCK_BYTES, BLOCK_EVENTS, MAX_RECORD_BYTES, BlockReader
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.json_lines import WHITESPACE, decode_lines, read_json_lines
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import partner_schema

_NOT_WHITESPACE = re.compile(r"[^ \t\r\n]")
_DECODER = json.JSONDecoder()
# `read_json_lines` requires a limit, which pushed bodies need. This one exceeds the bytes of any block.
_NO_LIMIT = 4 * MAX_RECORD_BYTES


class _Element(NamedTuple):
    value: object
    """The parsed value."""
    text: str
    """The JSON in the file, unchanged."""


def read_json(
    stream: ByteStream, source: Source, *, name: str, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Read and check a JSON file, a block of elements at a time. `name` is the name of the file in errors.

    Raises `DataError` when the file is not a JSON array.
    """
    first_index = 0
    for elements in _blocks(ArrayReader(stream, name).elements()):
        checked = check_events(
            [element.value for element in elements],
            source,
            received_at=received_at,
            first_received_at=first_received_at,
        )
        texts = (elements[index].text for index in checked.rejections["index"].to_pylist())
        yield checked.located(pa.array(texts, pa.string()), first_index=first_index)
        first_index += len(elements)


def count_json_rows(stream: ByteStream, *, name: str) -> int:
    """Return the number of elements of a JSON file. Raises `DataError` when it is not a JSON array."""
    return sum(1 for _ in ArrayReader(stream, name).elements())


def _blocks(elements: Iterator[_Element]) -> Iterator[list[_Element]]:
    """Group elements to blocks of about `BLOCK_BYTES` characters, and of at most `BLOCK_EVENTS` elements."""
    block: list[_Element] = []
    length = 0
    for element in elements:
        block.append(element)
        length += len(element.text)
        if length >= BLOCK_BYTES or len(block) == BLOCK_EVENTS:
            yield block
            block, length = [], 0
    if block:
        yield block


class ArrayReader:
    """Reads a JSON array with at most one element and one block in memory."""

    def __init__(self, stream: ByteStream, name: str) -> None:
        self._stream, self._name = stream, name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        # The text in memory, the position in it, and the number of characters before it.
        self._text, self._position, self._discarded = "", 0, 0

    def elements(self) -> Iterator[_Element]:
        """Yield the elements. Raises `DataError` when the file is not a JSON array."""
        if self._take() != "[":
            raise self._error("a JSON array is expected: enclose the events in [ ], or set the format to ndjson")
        character = self._peek()
        if character == "]":
            self._take()
        while character != "]":
            yield self._element()
            character = self._take()
            if character not in {",", "]"}:
                raise self._error("not JSON: a comma or the end of the array is expected")
        if self._peek():
            raise self._error(
                "not JSON: there is text after the array; for one event per line, set the format to ndjson"
            )

    def _element(self) -> _Element:
        """Take the next element. Raises `DataError` when it is not JSON or too long."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                # The element may be incomplete: try again with more of the file.
                offset = error.pos - self._position
                is_too_long = len(self._text) - self._position > MAX_RECORD_BYTES
                if is_too_long or not self._read():
                    cause = f", or an event of more than {MAX_RECORD_BYTES:,} characters" if is_too_long else ""
                    raise self._error(f"not JSON: {error.msg}{cause}", offset=offset) from error
            except (ValueError, RecursionError) as error:
                raise self._error(f"JSON that cannot be read: {error}") from error
            else:
                length = end - self._position
                # A number near the end of the text may continue in the rest of the file: with a digit, or with an
                # exponent such as "e+5", whose "e+" may already be in the text.
                if len(self._text) > end + 2 or not self._read():
                    text = self._text[self._position : self._position + length]
                    self._position += length
                    return _Element(value, text)

    def _peek(self) -> str:
        """Skip whitespace and return the next character; empty at the end of the file."""
        while not (match := _NOT_WHITESPACE.search(self._text, self._position)):
            self._position = len(self._text)
            if not self._read():
                return ""
        self._position = match.start()
        return match[0]

    def _take(self) -> str:
        """Take the next character that is not whitespace."""
        character = self._peek()
        self._position += len(character)
        return character

    def _read(self) -> bool:
        """Discard the text before the position and read more. Returns False at the end of the file."""
        rest = self._text[self._position :]
        # Reads as much as is in memory: otherwise a long element would take quadratic time. But little more than the
        # longest element, because incomplete JSON takes many times its length.
        chunk = self._stream.read(max(BLOCK_BYTES, min(len(rest), MAX_RECORD_BYTES - len(rest))))
        try:
            more = self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise self._error(f"not UTF-8: {error.reason}", offset=len(rest)) from error
        self._discarded += self._position
        self._text, self._position = rest + more, 0
        return bool(chunk)

    def _error(self, problem: str, *, offset: int = 0) -> DataError:
        """Return the error for the character `offset` after the position."""
        character = self._discarded + self._position + offset
        return DataError(f"{self._name}: {problem} (about character {character:,})")


class _LineFormat:
    """Each line is a record. Implements `blocks.RecordFormat`."""

    remedy = "write each event on one line, or set the format to json if the file is one array"

    def complete_length(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def count_line_ends(self, data: bytes) -> int:
        return data.count(b"\n")


def read_ndjson(
    stream: ByteStream, source: Source, *, name: str, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Read and check an NDJSON file, block by block. `name` is the name of the file in errors.

    Blank lines count in line numbers, but not as events. Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    schema, first_index = partner_schema(source), 0
    for block in BlockReader(stream, _LineFormat(), name=name):
        events, lines = read_json_lines(block.data, schema, max_events=_NO_LIMIT)
        if not lines:
            continue
        checked = check_events(events, source, received_at=received_at, first_received_at=first_received_at)
        numbers = [lines[index] for index in checked.rejections["index"].to_pylist()]
        texts = pa.array(decode_lines(block.data, numbers), pa.string())
        positions = pa.array([block.line + number - 1 for number in numbers], pa.int64())
        yield checked.located(texts, first_index=first_index, lines=positions)
        first_index += len(lines)


def count_ndjson_rows(stream: ByteStream, *, name: str) -> int:
    """Return the number of lines of an NDJSON file that are not blank.

    Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    blocks = BlockReader(stream, _LineFormat(), name=name)
    return sum(bool(line.strip(WHITESPACE)) for block in blocks for line in block.data.split(b"\n"))
