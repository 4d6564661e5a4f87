"""The records of a CSV file: its text in UTF-8, and where each record starts and ends.

Records end where Arrow's and Python's CSV readers end them: a quote opens a cell only at the start of the cell, a
doubled quote in a quoted cell is a character, and a line ends with LF, CR or CRLF.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.formats.blocks import BLOCK_BYTES, Block, BlockReader, LineFormat
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.sources.file_format import Csv

# CRLF comes first, so that it counts as one line end.
_LINE_END_EXPRESSION = rb"(?:\r\n|\r|\n)"
_LINE_END, _LINE = re.compile(_LINE_END_EXPRESSION), re.compile(rb"[^\r\n]+")

# A byte that is not valid in the file's encoding becomes the lone surrogate U+DC00 plus its value. Encoded as UTF-8 it
# is not valid, so the row is rejected as not UTF-8, and `Utf8Stream.decode` can show the original byte.
_FIRST_SURROGATE = 0xDC00
_SURROGATE = re.compile("[\udc00-\udcff]")


def _replace_with_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Decode invalid bytes to surrogates; the signature is that of an error handler of `codecs`."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    invalid = error.object[error.start : error.end]
    return "".join(chr(_FIRST_SURROGATE + byte) for byte in invalid), error.end


UTF_8 = frozenset({"utf-8", "utf-8-sig"})
"""Names of the encodings whose bytes need no conversion."""


def has_utf8_mark(stream: ByteStream) -> tuple[bool, bytes]:
    """Return whether a stream begins with the byte order mark of UTF-8, and the bytes that were read to see it."""
    start = b""
    while len(start) < len(codecs.BOM_UTF8) and (chunk := stream.read(len(codecs.BOM_UTF8) - len(start))):
        start += chunk
    return start == codecs.BOM_UTF8, start


class Utf8Stream:
    """Converts a stream from any encoding to UTF-8; bytes that are not valid in the encoding become invalid UTF-8.

    A stream with the byte order mark of UTF-8 is UTF-8, whatever its encoding should be.
    """

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream, self._start = stream, b""
        if encoding not in UTF_8:
            is_utf8, self._start = has_utf8_mark(stream)
            encoding = "utf-8" if is_utf8 else encoding
        self.encoding_error = f"not {encoding.upper()}"
        """The reason to reject a row with invalid bytes."""
        self._decoder: codecs.IncrementalDecoder | None = None
        if encoding not in UTF_8:
            codecs.register_error("slackwater.surrogates", _replace_with_surrogates)
            self._decoder = codecs.getincrementaldecoder(encoding)("slackwater.surrogates")

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes of UTF-8; b"" at the end."""
        if self._decoder is None:
            return self._read(size)
        while chunk := self._read(size):
            # A chunk may end inside its only character. An empty result would mean the end of the stream.
            if string := self._decoder.decode(chunk):
                return string.encode(errors="surrogatepass")
        return self._decoder.decode(b"", final=True).encode(errors="surrogatepass")

    def _read(self, size: int) -> bytes:
        if not self._start:
            return self._stream.read(size)
        start, self._start = self._start, b""
        return start

    def decode(self, data: bytes) -> str:
        """Decode bytes that `read` returned; invalid bytes are escaped with backslashes."""
        if self._decoder is None:
            return data.decode(errors="backslashreplace")
        string = data.decode(errors="surrogatepass")
        return _SURROGATE.sub(lambda match: f"\\x{ord(match[0]) - _FIRST_SURROGATE:02x}", string)


class CsvRecordFormat(LineFormat):
    """Finds records and lines in CSV data."""

    def __init__(self, csv_format: Csv) -> None:
        self._quote = csv_format.quote.encode() if csv_format.quote else None
        self.remedy = "write each row on one line, or set the `quote` of cells that contain line breaks"
        if self._quote:
            self.remedy = "is a quote not closed? If cells are not quoted, write `quote: null`"
            q, d = re.escape(self._quote), re.escape(csv_format.delimiter.encode())
            # Possessive quantifiers (*+, ++): without backtracking, the time is linear for any input.
            # A quoted cell: quote, then other characters or doubled quotes, then the closing quote or the end of data.
            quoted = rb"%b(?:[^%b]++|%b%b)*+(?:%b|\Z)" % (q, q, q, q, q)
            # A record: unquoted characters, quotes in the middle of an unquoted cell (after a character that is neither
            # a delimiter nor a line end), and quoted cells.
            record = rb"(?:[^%b\r\n]++|(?<=[^%b\r\n])%b|%b)*+" % (q, d, q, quoted)
            # The lookahead skips empty lines: they are not records.
            self._record = re.compile(rb"(?=[^\r\n])" + record)
            self._complete_records = re.compile(rb"(?:%b%b)*+" % (record, _LINE_END_EXPRESSION))

    def has_quotes(self, data: bytes) -> bool:
        """Whether `data` contains a quote, so that cells may contain line ends."""
        return self._quote is not None and self._quote in data

    def complete_length(self, data: bytes) -> int:
        """Return the length of the complete records at the start of `data`, with their line ends."""
        # Without quotes each line is a record, and searching from the end is much faster than the expression.
        if not self.has_quotes(data):
            return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        match = self._complete_records.match(data)
        return match.end() if match else 0

    def count_line_ends(self, data: bytes) -> int:
        """Return the number of line ends in `data`."""
        line_feeds = data.count(b"\n")
        return line_feeds + data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else line_feeds

    def count_records(self, data: bytes) -> int:
        """Return the number of records in `data`, which are complete. Empty lines are not records."""
        return sum(1 for _ in self.spans(data)) if self.has_quotes(data) else sum(map(bool, data.splitlines()))

    def locate(
        self, block: Block, decode: Callable[[bytes], str], records: pa.ChunkedArray
    ) -> tuple[pa.Array, pa.Array]:
        """Return the text and the line number of each of `records`, positions in order, of a block."""
        if not len(records):
            return pa.array([], pa.string()), pa.array([], pa.int64())
        if not self.has_quotes(block.data):
            # Split at once, because a call for each of many records takes longer.
            text = decode(block.data)
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            lines = pc.split_pattern(pa.array([text], pa.string()), "\n").values
            # The positions of lines that are not empty: these are the records.
            numbers = pc.indices_nonzero(pc.binary_length(lines)).take(records).combine_chunks()
            return lines.take(numbers), pc.add(numbers.cast(pa.int64()), block.line)
        texts, lines, line, offset = [], [], block.line, 0
        spans = enumerate(self.spans(block.data))
        for record in records.to_pylist():
            start, end = next(span for position, span in spans if position == record)
            # Counting starts at the previous record: from the start of the block, many records would take quadratic
            # time.
            line, offset = line + self.count_line_ends(block.data[offset:start]), start
            texts.append(decode(block.data[start:end]))
            lines.append(line)
        return pa.array(texts, pa.string()), pa.array(lines, pa.int64())

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each record in `data`, without its line end. Empty lines are not records."""
        expression = self._record if self.has_quotes(data) else _LINE
        return (match.span() for match in expression.finditer(data))


class CsvBlockReader(BlockReader):
    """Reads a CSV file block by block; the lines and the header before the rows are read separately."""

    def __init__(self, stream: ByteStream, record_format: CsvRecordFormat, *, name: str) -> None:
        """Start at the first byte of `stream`. `name` is the name of the file in errors."""
        super().__init__(stream, record_format, name=name)
        self._records = record_format

    def skip_lines(self, count: int) -> None:
        """Skip `count` lines. They need not be CSV, so quotes in them have no meaning."""
        for _ in range(count):
            while not (match := _LINE_END.search(self._rest)) and self._read(BLOCK_BYTES):
                pass
            self._take(match.end() if match else len(self._rest))

    def take_record(self) -> bytes:
        """Return the next record without its line end, and skip empty lines before it; b"" at the end of the file."""
        while True:
            start, end = next(self._records.spans(self._rest), (len(self._rest),) * 2)
            if end < len(self._rest) or not self._read(BLOCK_BYTES):
                return self._take(end).data[start:]
