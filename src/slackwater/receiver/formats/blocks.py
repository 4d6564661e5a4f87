"""Splits text files into blocks of whole records, so that each block can be parsed on its own."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from slackwater.errors import DataError
from slackwater.receiver.parsing.compression import ByteStream

# Bytes of one record. A longer one is an error: it usually is a quote that is not closed, and would fill the memory.
MAX_RECORD_BYTES = 16 * 2**20
# Bytes of a block. One that fits into the processor's cache is parsed fastest.
BLOCK_BYTES = 2 * 2**20
# Events of a block, or lines of a text file, because memory grows with the events that are rejected, however short.
BLOCK_EVENTS = 2**15


class RecordFormat(Protocol):
    """Finds the ends of records and lines in a text format."""

    @property
    def remedy(self) -> str:
        """What a user can do about a record without an end."""

    def complete_length(self, data: bytes) -> int:
        """Return the length of the complete records at the start of `data`, with their line ends."""

    def count_line_ends(self, data: bytes) -> int:
        """Return the number of line ends in `data`."""


class Block(NamedTuple):
    """Complete records of a file."""

    data: bytes
    line: int
    """Line number of the first record, from 1."""


class BlockReader:
    """Reads a text file in UTF-8 block by block; a byte order mark is skipped."""

    def __init__(self, stream: ByteStream, record_format: RecordFormat, *, name: str) -> None:
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
