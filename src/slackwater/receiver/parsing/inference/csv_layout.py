"""Find the layout of a CSV file: encoding, delimiter, header, and the lines before it.

DuckDB's sniffer and Python's `csv.Sniffer` are not used. DuckDB's prefers a delimiter that occurs inside of text, skips
the header without a message, or returns another delimiter when one row is too short; and neither splits records as the
receiver does.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from slackwater.errors import DataError
from slackwater.receiver.parsing.formats.csv_file import parse_record
from slackwater.receiver.parsing.formats.csv_records import CsvRecordFormat, Utf8Stream
from slackwater.receiver.parsing.inference.names import unique_names
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import quote_value
from slackwater.sources.file_format import Csv

# The last is also a decimal separator and frequent in text, so it comes last if two delimiters fit.
_DELIMITERS = ("\t", ";", "|", ",")
# Records in which delimiters are counted.
_COUNTED_RECORDS = 1_000
# Share of the records that the delimiter has to divide into the same number of cells.
_LEAST_SHARE = 0.5
# Encodings that are tried on a file that is not UTF-8; any bytes are valid in the last one.
_OTHER_ENCODINGS = ("cp1252", "latin-1")
_NON_ASCII_WORD = re.compile(r"\w*[^\x00-\x7f]+\w*")


class CsvLayout(NamedTuple):
    """How a CSV file is read, and its rows."""

    csv_format: Csv
    columns: Sequence[str]
    """The partner's names: of the header, or of `csv_format.columns`."""
    rows: bytes
    """The complete records after the header, in UTF-8."""
    notes: Sequence[str]
    """What a user should know about it, one sentence each."""
    header: Sequence[str] = ()
    """The cells of the record that is read as the header."""


def find_layout(data: bytes, name: str, *, is_complete: bool, has_header: bool) -> CsvLayout:
    """Find the layout of the file that starts with `data`, which is decompressed.

    `name` is the name of the file in errors; `is_complete` is whether `data` is the whole file. Raises `DataError` when
    there is no record.
    """
    encoding, notes = _find_encoding(data, is_complete=is_complete)
    utf8 = Utf8Stream(io.BytesIO(data), encoding).read(-1).removeprefix(codecs.BOM_UTF8)
    delimiter, width = _find_delimiter(utf8)
    divided = Csv(delimiter=delimiter)
    record_format = CsvRecordFormat(divided)
    if not is_complete:
        utf8 = utf8[: record_format.complete_length(utf8)]
    start, end = next((span for span in record_format.spans(utf8) if len(_cells(utf8, span, divided)) == width), (0, 0))
    if not end:
        raise DataError(f"{name}: no row that can be read as CSV: send a sample with at least one row")
    first, before = _cells(utf8, (start, end), divided), record_format.count_line_ends(utf8[:start])
    if utf8[:start].strip():
        notes.append(f"The first {before} lines are skipped: the header is line {before + 1}")
    else:
        before = 0
    options = {"delimiter": delimiter, "encoding": encoding}
    if not has_header:
        columns = [f"column_{number}" for number in range(1, width + 1)]
        notes.append(
            f"There is no header: the first row is like the others ({quote_value(first[0])} ...). Name the `columns` "
            f"here and in `fields`; if the first row is the header, remove `columns`"
        )
        return CsvLayout(Csv(**options, skip_lines=before, columns=tuple(columns)), columns, utf8[start:], notes)
    if len(set(first)) == len(first) and all(column.strip(WHITESPACE) for column in first):
        return CsvLayout(Csv(**options, skip_lines=before), first, utf8[end:], notes, first)
    columns = unique_names(first)
    renamed = [column for column, count in Counter(first).items() if count > 1 or not column.strip(WHITESPACE)]
    notes.append(
        f"The header has the name {quote_value(renamed[0])} twice, or a column without a name, which the receiver "
        f"refuses: it is skipped, and `columns` names the columns by position"
    )
    # The header may contain line ends in quotes.
    lines = record_format.count_line_ends(utf8[:end]) + 1
    return CsvLayout(Csv(**options, skip_lines=lines, columns=tuple(columns)), columns, utf8[end:], notes, first)


def read_records(layout: CsvLayout) -> Iterator[list[str]]:
    """Yield the cells of each row, also of those with more or fewer cells than the header."""
    spans = CsvRecordFormat(layout.csv_format).spans(layout.rows)
    return (_cells(layout.rows, span, layout.csv_format) for span in spans)


def _cells(utf8: bytes, span: tuple[int, int], csv_format: Csv) -> list[str]:
    # Rows that are not UTF-8 are rejected by the receiver's reader. Here they only must not stop the inference.
    return parse_record(utf8[span[0] : span[1]].decode(errors="replace"), csv_format)


def _find_delimiter(utf8: bytes) -> tuple[str, int]:
    """Return the delimiter that divides most records into the same number of cells, and this number.

    A delimiter that divides the first record too is preferred to one that does not: that record is usually the header.
    """
    best: tuple[bool, float] = (False, _LEAST_SHARE)
    result = (",", 1)
    for delimiter in _DELIMITERS:
        csv_format = Csv(delimiter=delimiter)
        spans = islice(CsvRecordFormat(csv_format).spans(utf8), _COUNTED_RECORDS)
        widths = [len(_cells(utf8, span, csv_format)) for span in spans]
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        share = count / max(len(widths), 1)
        if width > 1 and share > _LEAST_SHARE and (widths[0] == width, share) > best:
            best, result = (widths[0] == width, share), (delimiter, width)
    return result


def _find_encoding(data: bytes, *, is_complete: bool) -> tuple[str, list[str]]:
    """Return the encoding and what a user should know about it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", []
    decoder = codecs.getincrementaldecoder("utf-8")
    try:
        decoder().decode(data, final=is_complete)
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        characters = Counter(character == "\ufffd" for character in text if not character.isascii())
        if characters[False] > characters[True]:
            # Most characters are UTF-8: the others are broken, and the receiver rejects their rows.
            return "utf-8", []
        for encoding in _OTHER_ENCODINGS:
            try:
                word = _NON_ASCII_WORD.search(data.decode(encoding))
            except UnicodeDecodeError:
                continue
            shown = quote_value(word[0] if word else "")
            return encoding, [f"Not UTF-8. In {encoding} it contains {shown}: if that is wrong, set another `encoding`"]
    return "utf-8", []
