"""Shared by the parsers of file formats: blocks of text files, parsed rows, and rejected rows as JSON.

A text file is split into blocks of whole records, so that each block can be parsed on its own.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from slackwater.errors import DataError
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.receiver.parsing.event_checks import NO_KNOWN_REJECTIONS
from slackwater.receiver.parsing.json_values import is_string_type, to_json_values
from slackwater.receiver.parsing.rejections import Rejection, list_names
from slackwater.sources.definition import Source

# Bytes of one record. A longer one is an error: it usually is a quote that is not closed, and would fill the memory.
MAX_RECORD_BYTES = 16 * 2**20
# Bytes of a block. One that fits into the processor's cache is parsed fastest.
BLOCK_BYTES = 2 * 2**20
# Events of a block, or lines of a text file, because memory grows with the events that are rejected, however short.
BLOCK_EVENTS = 2**15


class LineFormat:
    """Finds the ends of records in a text format: here, each line that ends with LF is a record."""

    remedy = "write each event on one line, or set the format to json if the file is one array"
    """What a user can do about a record without an end."""

    def complete_length(self, data: bytes) -> int:
        """Return the length of the complete records at the start of `data`, with their line ends."""
        return data.rfind(b"\n") + 1

    def count_line_ends(self, data: bytes) -> int:
        """Return the number of line ends in `data`."""
        return data.count(b"\n")


class Block(NamedTuple):
    """Complete records of a file."""

    data: bytes
    line: int
    """Line number of the first record, from 1."""


class BlockReader:
    """Reads a text file in UTF-8 block by block; a byte order mark is skipped."""

    def __init__(self, stream: ByteStream, record_format: LineFormat, *, name: str) -> None:
        """Start at the first byte of `stream`. `name` is the name of the file in errors."""
        self._stream, self._format, self._name = stream, record_format, name
        self._rest, self._line = b"", 1
        while len(self._rest) < len(codecs.BOM_UTF8) and self._read(BLOCK_BYTES):
            pass
        self._rest = self._rest.removeprefix(codecs.BOM_UTF8)

    def __iter__(self) -> Iterator[Block]:
        """Yield the remaining blocks. Raises `DataError` when a record exceeds `MAX_RECORD_BYTES`."""
        size = BLOCK_BYTES
        while self._read(size):
            while block := self._next_block():
                yield block
            # An incomplete record is searched again only after the data has doubled, so the total time stays linear.
            size = max(BLOCK_BYTES, len(self._rest))
        # The end of the file also ends the last record.
        while self._format.count_line_ends(self._rest) > BLOCK_EVENTS:
            yield self._next_block() or self._take(len(self._rest))
        if self._rest:
            yield self._take(len(self._rest))

    def _next_block(self) -> Block | None:
        """Remove and return all complete records, or fewer if they have too many lines; None if none is complete."""
        start = self._rest
        while (line_ends := self._format.count_line_ends(start)) > BLOCK_EVENTS:
            # A CR may be the first half of a CRLF here, too.
            start = start[: len(start) // 2].removesuffix(b"\r")
        if length := self._format.complete_length(start):
            # Only the few bytes after the block are counted again.
            return self._take(length, line_ends - self._format.count_line_ends(start[length:]))
        length = self._format.complete_length(self._rest)
        return self._take(length) if length else None

    def _read(self, size: int) -> bool:
        """Append about `size` bytes to `_rest`. Returns False at the end of the file."""
        if len(self._rest) > MAX_RECORD_BYTES:
            raise DataError(
                f"{self._name}: the row that starts on line {self._line} has more than {MAX_RECORD_BYTES:,} bytes: "
                f"{self._format.remedy}"
            )
        before = len(self._rest)
        self._rest += self._stream.read(size)
        # A CR may be the first half of a CRLF, which must not be split between two blocks.
        while self._rest.endswith(b"\r") and (more := self._stream.read(1)):
            self._rest += more
        return len(self._rest) > before

    def _take(self, length: int, line_ends: int | None = None) -> Block:
        """Remove the first `length` bytes of `_rest`, which have `line_ends` if it is known; return them as a block."""
        block = Block(self._rest[:length], self._line)
        self._line += self._format.count_line_ends(block.data) if line_ends is None else line_ends
        self._rest = self._rest[length:]
        return block


# Columns of a file, as in Excel: each needs memory in every block, whatever its values.
MAX_COLUMNS = 2**14


class ParsedRows(NamedTuple):
    """Some rows of a file that are parsed, and not checked yet. The position of a row counts all of them, from 0."""

    events: Sequence[object] | pa.Table
    """The rows that are not in `left_out`, as in `check_events`."""
    locate: Callable[[pa.ChunkedArray], tuple[pa.Array, pa.Array | None]]
    """Returns the text and the line of each row at some positions, which are in order; None without lines."""
    rejections: Mapping[int, Rejection] = NO_KNOWN_REJECTIONS
    """As in `check_events`, by index in `events`."""
    is_clean: bool = False
    """As in `check_events`."""
    left_out: Mapping[int, Rejection] = NO_KNOWN_REJECTIONS
    """Rows that have no place in a table, by position. As rows of nulls, they would need memory for each column."""
    columns: Sequence[str] | None = None
    """The columns of the file; None for JSON, of which each event has its own."""

    @property
    def row_count(self) -> int:
        """The number of rows, including those that are left out."""
        return len(self.events) + len(self.left_out)


def check_columns(columns: Sequence[str], source: Source | None, *, name: str, part: str) -> None:
    """Raise `DataError` when there are too many columns, two have the same name, or a required one is missing.

    Without a source, no column is required. `name` is the name of the file in errors, and `part` its part that names
    the columns, such as "header".
    """
    if len(columns) > MAX_COLUMNS:
        raise DataError(f"{name}: its {part} has {len(columns):,} columns: send at most {MAX_COLUMNS:,}")
    duplicates = sorted(column for column, count in Counter(columns).items() if count > 1)
    if duplicates:
        raise DataError(f"{name}: two columns have the same name: {list_names(duplicates)}: rename one of them")
    required = {source.partner_name(field) for field in source.required_fields} if source else set()
    missing = sorted(required - set(columns))
    if missing:
        raise DataError(f"{name}: its {part} lacks {', '.join(missing)} (it has: {list_names(columns)})")


def rows_as_json(table: pa.Table, indices: Sequence[int]) -> list[str]:
    """Return the rows at `indices`, each as a JSON object. Bytes that are not UTF-8 are escaped with backslashes."""
    rows = table.take(pa.array(indices, pa.int64()))
    columns: list[list[object]] = []
    for chunked in rows.columns:
        array = chunked.combine_chunks()
        values, rejections = to_json_values(array)
        for index in rejections:
            values[index] = _show(array.slice(index, 1))
        columns.append(values)
    return [row_as_json(dict(zip(rows.column_names, row, strict=True))) for row in zip(*columns, strict=True)]


def row_as_json(row: Mapping[str, object]) -> str:
    """Return a row as a JSON object; values without a JSON type become strings."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str)


def _show(array: pa.Array) -> object:
    """Return the only value of an array as a string, for a value that has no Python type."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_string_type(array.type):
        return array.cast(pa.large_binary())[0].as_py().decode(errors="backslashreplace")
    return array.to_string(skip_new_lines=True)
