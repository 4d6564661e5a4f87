"""Where the records of a CSV file begin and end, exactly as readers of CSV understand quotes.

A quote opens a cell only at the cell's start; in it, a doubled quote is one. A line may end with LF, CR or CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slackwater.receiver.parsing.formats.blocks import BLOCK, Blocks
from slackwater.receiver.parsing.formats.compression import Stream
from slackwater.sources.file_format import Csv

_END = rb"(?:\r\n|\r|\n)"
_LINE_END, _LINE = re.compile(_END), re.compile(rb"[^\r\n]+")


class Dialect:
    """How a file parts its records: a `slackwater.receiver.parsing.formats.blocks.Cut`."""

    def __init__(self, form: Csv) -> None:
        self._quote = form.quote.encode() if form.quote else None
        if self._quote:
            q, d = re.escape(self._quote), re.escape(form.delimiter.encode())
            quoted = rb"%b(?:[^%b]++|%b%b)*+(?:%b|\Z)" % (q, q, q, q, q)
            record = rb"(?:[^%b\r\n]++|(?<=[^%b\r\n])%b|%b)*+" % (q, d, q, quoted)
            self._record = re.compile(rb"(?=[^\r\n])" + record)
            self._whole = re.compile(rb"(?:%b%b)*+" % (record, _END))

    @property
    def remedy(self) -> str:
        """What to do when a record does not end."""
        if self._quote is None:
            return "write each row on a line of its own, or name the `quote` of cells that hold line ends"
        return "is a quote left open? If cells are not quoted, write `quote: null`"

    def has_quotes(self, data: bytes) -> bool:
        """Whether a line's end may stand in a cell of `data`."""
        return self._quote is not None and self._quote in data

    def whole(self, data: bytes) -> int:
        """Return how many bytes of `data`, which starts with a record, are records with their ends."""
        if not self.has_quotes(data):
            return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        found = self._whole.match(data)
        return found.end() if found else 0

    def line_ends(self, data: bytes) -> int:
        """Return how many lines end in `data`."""
        ends = data.count(b"\n")
        return ends + data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else ends

    def records(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Return where each record of `data` starts and ends; empty lines are none."""
        pattern = self._record if self.has_quotes(data) else _LINE
        return (found.span() for found in pattern.finditer(data))


class Records(Blocks):
    """A CSV file's text: what stands before its rows is taken first."""

    def __init__(self, text: Stream, dialect: Dialect, *, name: str) -> None:
        super().__init__(text, dialect, name=name)
        self._dialect = dialect

    def skip_lines(self, count: int) -> None:
        """Pass over so many lines, whatever is in them."""
        for _ in range(count):
            while not (found := _LINE_END.search(self._rest)) and self._read(BLOCK):
                pass
            self._take(found.end() if found else len(self._rest))

    def first(self) -> bytes:
        """Take the first record; it is empty when there is none."""
        while True:
            start, end = next(self._dialect.records(self._rest), (len(self._rest),) * 2)
            if end < len(self._rest) or not self._read(BLOCK):
                return self._take(end).data[start:]
