"""Parses a CSV file: the header names the columns, and cells are strings until a field converts them."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Container, Iterator, Sequence
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from slackwater.errors import DataError
from slackwater.formatting import counted
from slackwater.receiver.formats.blocks import ParsedRows, check_columns
from slackwater.receiver.formats.csv_records import CsvBlockReader, CsvRecordFormat, Utf8Stream
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.receiver.parsing.patterns import MAX_INTEGER_STRING, WHITESPACE
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import Csv

# The characters to which `surrogateescape` decodes bytes that are not UTF-8.
_INVALID_UTF8 = re.compile("[\udc80-\udcff]")
# Numbers of these characters only: Arrow reads them like `read_value`, or refuses them. Excludes for example spaces,
# `0x1F` and `nan`, which Arrow reads differently.
_PLAIN_CHARACTERS = {FieldType.INT64: b"0123456789-", FieldType.DOUBLE: b"0123456789-.eE"}
# One exception: `read_value` refuses very long integers, and Arrow reads those that start with this many zeros.
_LEADING_ZEROS = b"0" * (MAX_INTEGER_STRING - 20)


def parse_csv(stream: ByteStream, csv_format: Csv, source: Source, *, name: str) -> Iterator[ParsedRows]:
    """Parse a CSV file, block by block. `name` is the name of the file in errors.

    Raises `DataError` when no row can be read: the file has no header, two columns have the same name, a required
    column is missing, or a row has no end.
    """
    utf8_stream, record_format = Utf8Stream(stream, csv_format.encoding), CsvRecordFormat(csv_format)
    blocks = CsvBlockReader(utf8_stream, record_format, name=name)
    blocks.skip_lines(csv_format.skip_lines)
    columns = csv_format.columns or parse_header(
        blocks.take_record(), csv_format, source, name, encoding_error=utf8_stream.encoding_error
    )
    check_columns(columns, source, name=name, part="definition" if csv_format.columns else "header")
    parser = _BlockParser(csv_format, source, columns, utf8_stream=utf8_stream, record_format=record_format)
    for block in blocks:
        table, not_utf8, wrong_width = parser.parse(block.data)
        locate = partial(record_format.locate, block, utf8_stream.decode)
        # Arrow writes null into columns of strings, too.
        yield ParsedRows(
            table, locate, not_utf8, is_clean=parser.arrow_reads_nulls, left_out=wrong_width, columns=columns
        )


def count_csv_rows(stream: ByteStream, csv_format: Csv, *, name: str) -> int:
    """Return the number of rows of a CSV file, which are not parsed. Raises `DataError` when a row has no end."""
    record_format = CsvRecordFormat(csv_format)
    blocks = CsvBlockReader(Utf8Stream(stream, csv_format.encoding), record_format, name=name)
    blocks.skip_lines(csv_format.skip_lines)
    if not csv_format.columns:
        blocks.take_record()
    return sum(record_format.count_records(block.data) for block in blocks)


def parse_header(record: bytes, csv_format: Csv, source: Source, name: str, *, encoding_error: str) -> list[str]:
    """Return the names of the columns in the header, a record in UTF-8.

    Raises `DataError` when it is empty, or not UTF-8 because the file is not in its encoding (`encoding_error`).
    """
    if not record:
        raise DataError(f"{name}: empty: a header with the names of its columns is expected")
    try:
        columns = parse_record(record.decode(), csv_format)
    except UnicodeDecodeError as error:
        remedy = "is it text, and is the `encoding` of the format right?"
        raise DataError(f"{name}: its header is not readable: {encoding_error}: {remedy}") from error
    return [column.strip(WHITESPACE) for column in columns] if source.trim else columns


def parse_record(record: str, csv_format: Csv) -> list[str]:
    """Return the cells of one record."""
    # By default Python refuses cells of more than 131,072 characters; `MAX_RECORD_BYTES` already limits a record.
    csv.field_size_limit(sys.maxsize)
    quoting = {"quotechar": csv_format.quote} if csv_format.quote else {"quoting": csv.QUOTE_NONE}
    return next(csv.reader(io.StringIO(record, newline=""), delimiter=csv_format.delimiter, **quoting))


class _BlockParser:
    """Parses the blocks of one file to tables of strings and plain numbers."""

    def __init__(
        self,
        csv_format: Csv,
        source: Source,
        columns: Sequence[str],
        *,
        utf8_stream: Utf8Stream,
        record_format: CsvRecordFormat,
    ) -> None:
        self._csv_format, self._source, self._columns = csv_format, source, columns
        self._utf8_stream, self._record_format = utf8_stream, record_format
        self._fields = source.partner_fields

    def parse(self, data: bytes) -> tuple[pa.Table, dict[int, Rejection], dict[int, Rejection]]:
        """Parse a block of complete records to a table of strings and plain numbers.

        Also returns why rows of the table are not UTF-8, by their index in it, and why records are not in the table,
        because of their number of cells, by their position among the records.
        """
        # Arrow gets replacement characters for invalid bytes. They are neither delimiters nor line ends, so records and
        # cells stay the same.
        utf8 = data if _is_utf8(data) else data.decode(errors="replace").encode()
        table, wrong_width = self._parse_utf8(utf8)
        columns = [self._cast_numbers(table[name].chunk(0), name) for name in self._columns]
        not_utf8 = {} if utf8 is data else self._find_invalid_utf8(data, wrong_width)
        return pa.table(columns, names=self._columns), not_utf8, wrong_width

    def _parse_utf8(self, data: bytes) -> tuple[pa.Table, dict[int, Rejection]]:
        """Parse records in UTF-8 to strings; those with another number of cells are rejected, and not in the table."""
        wrong_width: dict[int, Rejection] = {}

        def skip_row(row: arrow_csv.InvalidRow) -> str:
            part = "definition" if self._csv_format.columns else "header"
            reason = f"the row has {counted(row.actual_columns, 'column')}, but the {part} has {row.expected_columns}"
            wrong_width[row.number - 1] = Rejection(RejectionRule.WRONG_WIDTH, reason)
            return "skip"

        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            # One block for Arrow, so that its row numbers count from the start of `data`.
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._columns),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._csv_format.delimiter,
                quote_char=self._csv_format.quote or False,
                newlines_in_values=self._record_format.has_quotes(data),
                invalid_row_handler=skip_row,
            ),
            # Arrow would check UTF-8 once more: the caller has done so.
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._columns, pa.string()),
                null_values=self._source.null_values,
                strings_can_be_null=self.arrow_reads_nulls,
                check_utf8=False,
            ),
        )
        return table, wrong_width

    def _find_invalid_utf8(self, data: bytes, wrong_width: Container[int]) -> dict[int, Rejection]:
        """Return the rejections of the rows of the table that are not UTF-8, by their index in it."""
        rejections: dict[int, Rejection] = {}
        spans = (span for record, span in enumerate(self._record_format.spans(data)) if record not in wrong_width)
        for row, (start, end) in enumerate(spans):
            record = data[start:end].decode(errors="surrogateescape")
            if _INVALID_UTF8.search(record):
                cells = zip(self._columns, parse_record(record, self._csv_format), strict=True)
                column = next(column for column, cell in cells if _INVALID_UTF8.search(cell))
                rejections[row] = Rejection(RejectionRule.NOT_UTF8, f"{column}: {self._utf8_stream.encoding_error}")
        return rejections

    @cached_property
    def arrow_reads_nulls(self) -> bool:
        """Whether Arrow may turn null values into nulls while it parses.

        Arrow would do so in all columns. But null values are ordinary strings in columns without a field, and with
        `trim` they may be surrounded by whitespace, which Arrow would not remove.
        """
        return not self._source.trim and self._fields.keys() >= set(self._columns)

    def _cast_numbers(self, strings: pa.Array, name: str) -> pa.Array:
        """Cast a column of plain numbers; other columns are returned unchanged."""
        field = self._fields.get(name)
        if field is None or field.type not in _PLAIN_CHARACTERS or field.has_separators or self._source.trim:
            return strings
        if not self.arrow_reads_nulls:
            is_null_value = pc.is_in(strings, value_set=pa.array(self._source.null_values, pa.string()))
            strings = pc.if_else(is_null_value, pa.scalar(None, pa.string()), strings)
        return cast_plain_numbers(strings, field)


def cast_plain_numbers(strings: pa.Array, field: FieldDefinition) -> pa.Array:
    """Cast a column of numbers if Arrow reads all of them like `field`; otherwise return it unchanged.

    `field` must not have separators.
    """
    # One pass over the characters of all cells is faster than a regular expression for each cell.
    data = strings.buffers()[2]
    characters = data.to_pybytes() if data else b""
    if characters.translate(None, _PLAIN_CHARACTERS[field.type]) or _LEADING_ZEROS in characters:
        return strings
    try:
        numbers = strings.cast(ARROW_TYPES[field.type])
    except pa.ArrowInvalid:
        return strings
    if field.type is FieldType.DOUBLE and pc.all(pc.is_finite(numbers)).as_py() is False:
        return strings
    return numbers


def _is_utf8(data: bytes) -> bool:
    # `isascii` is faster than decoding, and most files are ASCII.
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
