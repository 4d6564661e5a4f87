"""Text cut into blocks of whole records: a record never lies in two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from slackwater.errors import DataError
from slackwater.receiver.parsing.formats.compression import Stream
from slackwater.receiver.parsing.formats.text import BOM

MOST_RECORD = 16 * 2**20
"""Bytes that one record may have."""
BLOCK = 2 * 2**20
"""Bytes that are parsed at once: what fits a processor's cache is parsed fastest."""


class Cut(Protocol):
    """Where records and lines end."""

    @property
    def remedy(self) -> str:
        """What to do when a record does not end."""

    def whole(self, data: bytes) -> int:
        """Return how many bytes of `data`, which starts with a record, are records with their ends."""

    def line_ends(self, data: bytes) -> int:
        """Return how many lines end in `data`."""


class Block(NamedTuple):
    """Whole records."""

    data: bytes
    line: int
    """On which the first one starts, from 1."""


class Blocks:
    """A text, block by block."""

    def __init__(self, text: Stream, cut: Cut, *, name: str) -> None:
        self._text, self._cut, self._name = text, cut, name
        self._rest, self._line = b"", 1
        while len(self._rest) < len(BOM) and self._read(BLOCK):
            pass
        self._rest = self._rest.removeprefix(BOM)

    def __iter__(self) -> Iterator[Block]:
        """Take all that is left. Raises `DataError` for a record that is too long."""
        size = BLOCK
        while self._read(size):
            if whole := self._cut.whole(self._rest):
                yield self._take(whole)
            # A record that is not whole yet is looked at again when there is twice as much of it.
            size = max(BLOCK, len(self._rest))
        if self._rest:
            yield self._take(len(self._rest))

    def _read(self, size: int) -> bool:
        """Read on; say whether there was more."""
        if len(self._rest) > MOST_RECORD:
            raise DataError(
                f"{self._name}: the row that starts on line {self._line} has more than {MOST_RECORD:,} bytes: "
                f"{self._cut.remedy}"
            )
        before = len(self._rest)
        self._rest += self._text.read(size)
        while self._rest.endswith(b"\r") and (more := self._text.read(1)):
            self._rest += more  # What looks like an end may be half of one.
        return len(self._rest) > before

    def _take(self, size: int) -> Block:
        taken = Block(self._rest[:size], self._line)
        self._rest, self._line = self._rest[size:], self._line + self._cut.line_ends(taken.data)
        return taken
