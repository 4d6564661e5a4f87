"""A CSV file read into checked rows: columns by the header's names, every cell a text until its field reads it."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from slackwater.errors import DataError
from slackwater.receiver.parsing.event_checks import CheckedEvents, RejectedEvent, check_table
from slackwater.receiver.parsing.formats.blocks import Block
from slackwater.receiver.parsing.formats.compression import Stream
from slackwater.receiver.parsing.formats.csv_numbers import read_numerals
from slackwater.receiver.parsing.formats.csv_records import Dialect, Records
from slackwater.receiver.parsing.formats.tables import expect_usable
from slackwater.receiver.parsing.formats.text import Text
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule
from slackwater.receiver.parsing.values import BLANKS
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType
from slackwater.sources.file_format import Csv

_NUMBERS = frozenset({FieldType.INT64, FieldType.DOUBLE})
_BROKEN = re.compile("[\udc80-\udcff]")
"""What stands for a byte that is not UTF-8."""


def read_csv(stream: Stream, form: Csv, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a file, block by block; `name` is what errors call it.

    A row that cannot be used is rejected with its reason. Raises `DataError` where no row could be: no header, a header
    without a column that every event needs, two columns of one name, or a row that does not end.
    """
    text, dialect = Text(stream, form.encoding), Dialect(form)
    records = Records(text, dialect, name=name)
    records.skip_lines(form.skip_lines)
    columns = form.columns or _header(records.first(), form, source, name)
    expect_usable(columns, source, name=name, what="definition" if form.columns else "header")
    reader = _Reader(form, source, columns, text=text, dialect=dialect)
    index = 0
    for block in records:
        rows = reader.read(block.data)
        checked = check_table(rows.table, source, received_at=received_at, faults=rows.faults)
        rejected = [
            *(replace(item, index=rows.places[item.index]) for item in checked.rejected),
            *(RejectedEvent(place, reason, RejectionRule.WRONG_WIDTH) for place, reason in rows.misfits.items()),
        ]
        yield CheckedEvents(checked.table, list(_located(rejected, block, dialect, text, first=index)))
        index += rows.table.num_rows + len(rows.misfits)


def _header(record: bytes, form: Csv, source: Source, name: str) -> list[str]:
    if not record:
        raise DataError(f"{name}: empty: a header with the names of its columns is expected")
    try:
        columns = _cells(record.decode(), form)
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: its header is not readable: {error}") from error
    return [column.strip(BLANKS) for column in columns] if source.trim else columns


def _cells(record: str, form: Csv) -> list[str]:
    csv.field_size_limit(sys.maxsize)
    quoted = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    return next(csv.reader(io.StringIO(record, newline=""), delimiter=form.delimiter, **quoted))


class _Rows(NamedTuple):
    """A block, parsed."""

    table: pa.Table
    """The records of the right width."""
    places: Sequence[int]
    """Where each of them stands among all records of the block."""
    misfits: Mapping[int, str]
    """Why the others, by their place, are not in the table."""
    faults: Mapping[int, Rejection]
    """Of rows of the table that are of no use."""


class _Reader:
    """Parses the blocks of one file."""

    def __init__(self, form: Csv, source: Source, columns: Sequence[str], *, text: Text, dialect: Dialect) -> None:
        self._form, self._source, self._columns = form, source, columns
        self._text, self._dialect = text, dialect
        self._fields = {field.origin or name: field for name, field in source.fields.items()}

    def read(self, data: bytes) -> _Rows:
        """Parse whole records."""
        rows = self._parse(data) if _is_utf8(data) else self._parse_broken(data)
        columns = [self._numbers(rows.table[name].chunk(0), name) for name in self._columns]
        return rows._replace(table=pa.table(columns, names=self._columns))

    def _parse(self, data: bytes) -> _Rows:
        misfits: dict[int, str] = {}

        def note(row: arrow_csv.InvalidRow) -> str:
            where = "definition" if self._form.columns else "header"
            misfits[row.number - 1] = f"{row.actual_columns} columns, where the {where} has {row.expected_columns}"
            return "skip"

        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._columns),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._form.delimiter,
                quote_char=self._form.quote or False,
                newlines_in_values=self._dialect.has_quotes(data),
                invalid_row_handler=note,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._columns, pa.string()),
                null_values=self._source.null_values,
                strings_can_be_null=self._has_nulls,
                check_utf8=False,
            ),
        )
        records = range(table.num_rows + len(misfits))
        places = [place for place in records if place not in misfits] if misfits else records
        return _Rows(table, places, misfits, {})

    def _parse_broken(self, data: bytes) -> _Rows:
        """Parse records of which some are not UTF-8: those have a fault, and the others are what they are."""
        rows = self._parse(data.decode(errors="replace").encode())
        texts = [data[start:end].decode(errors="surrogateescape") for start, end in self._dialect.records(data)]
        faults = {
            row: Rejection(RejectionRule.NOT_UTF8, f"{self._broken_column(texts[place])}: {self._text.misread}")
            for row, place in enumerate(rows.places)
            if _BROKEN.search(texts[place])
        }
        return rows._replace(faults=faults)

    def _broken_column(self, record: str) -> str:
        cells = zip(self._columns, _cells(record, self._form), strict=True)
        return next(column for column, cell in cells if _BROKEN.search(cell))

    @cached_property
    def _has_nulls(self) -> bool:
        """Whether a null value means none in whatever column it stands: in an unknown one it is a text."""
        return not self._source.trim and self._fields.keys() >= set(self._columns)

    def _numbers(self, texts: pa.Array, name: str) -> pa.Array:
        """Return plain numbers as such, which is much quicker for all of them at once; else the same texts."""
        field = self._fields.get(name)
        if field is None or field.type not in _NUMBERS or field.is_punctuated or self._source.trim:
            return texts
        if not self._has_nulls:
            nothing = pc.is_in(texts, value_set=pa.array(self._source.null_values, pa.string()))
            texts = pc.if_else(nothing, pa.scalar(None, pa.string()), texts)
        return read_numerals(texts, field)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _located(
    rejected: Sequence[RejectedEvent], block: Block, dialect: Dialect, text: Text, *, first: int
) -> Iterator[RejectedEvent]:
    """Return rejected rows, by their place in the block, with their place in the file, their line and their text."""
    records, line, counted = enumerate(dialect.records(block.data)), block.line, 0
    for item in sorted(rejected, key=attrgetter("index")):
        start, end = next(span for place, span in records if place == item.index)
        line, counted = line + dialect.line_ends(block.data[counted:start]), start
        yield replace(item, index=first + item.index, line=line, text=text.shown(block.data[start:end]))
