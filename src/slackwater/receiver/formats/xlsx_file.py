"""Parses a sheet of an Excel workbook: cells have their own types, and formulas their last results."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, time, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl
import pyarrow as pa
from openpyxl.utils import get_column_letter

from slackwater.errors import DataError, SlackwaterError
from slackwater.receiver.formats.blocks import ParsedRows, check_columns, row_as_json
from slackwater.receiver.parsing.compression import check_zip_directory, decompressed_file, detect_compression
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule, list_names, quote_value
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType
from slackwater.sources.file_format import Xlsx

# Uncompressed bytes of all parts of a workbook, of the strings that its cells share, and of each part that openpyxl
# reads as a tree of objects. It keeps the last two in memory.
_MAX_BYTES = 2 * 2**30
_MAX_SHARED_STRINGS_BYTES = 128 * 2**20
_MAX_TREE_BYTES = 16 * 2**20
_TREES = ("[Content_Types].xml", "xl/workbook.xml", "xl/styles.xml", "xl/theme/theme1.xml")
# Excel's limit of rows in a sheet.
_MAX_ROWS = 2**20
# Rows, cells, and characters of strings that are checked together; the last row may exceed them.
_BLOCK_ROWS, _BLOCK_CELLS, _BLOCK_CHARACTERS = 10_000, 2**18, 4 * 2**20
# Excel stores integers as doubles, which are exact up to here.
_MAX_EXACT_INTEGER = 2**53


class SheetRow(NamedTuple):
    """A row of a sheet with at least one value."""

    number: int
    """Row number in the sheet, from 1."""
    cells: Sequence[object]
    """None for empty cells; long rows of empty cells at the end are left out."""


def parse_xlsx(path: Path, xlsx_format: Xlsx, source: Source, *, name: str) -> Iterator[ParsedRows]:
    """Parse a sheet, a block of rows at a time. `name` is the name of the file in errors.

    The first row that is not empty is the header. Empty rows count in row numbers, but not as events. A value in a
    column without a name rejects its row. Raises `DataError` when the file is not a workbook, has no such sheet, or
    lacks a required column.
    """
    with open_workbook(path, name) as workbook:
        rows = read_rows(find_sheet(workbook, xlsx_format.sheet, name))
        with _translated_errors(name):
            header = next(rows, None)
        if header is None:
            raise DataError(f"{name}: empty: a header with the names of its columns is expected")
        columns = SheetColumns(header, source)
        check_columns([column for column in columns.names if column], source, name=name, part="header")
        while True:
            with _translated_errors(name):
                block = take_block(rows)
            if not block:
                return
            events = [columns.to_event(row) for row in block]
            yield ParsedRows(events, partial(columns.locate, block), columns=columns.names)


class SheetColumns:
    """The columns that the header names; turns rows into events."""

    def __init__(self, header: SheetRow, source: Source) -> None:
        temporal = {
            name for name, field in source.partner_fields.items() if field.type in {FieldType.TIMESTAMP, FieldType.DATE}
        }
        self.names = [str(to_json_value(cell)).strip() if cell is not None else "" for cell in header.cells]
        self._named = [(index, column, column in temporal) for index, column in enumerate(self.names) if column]

    def to_event(self, row: SheetRow) -> dict[str, object] | Rejection:
        """Return the row's values by column; why the row is rejected, if a column without a name has a value.

        Dates outside timestamp and date fields become strings.
        """
        for index, cell in enumerate(row.cells):
            if not _is_empty(cell) and not self._name(index):
                letter, value = get_column_letter(index + 1), quote_value(to_json_value(cell))
                reason = f"column {letter} holds {value}, but the header has no name for this column"
                return Rejection(RejectionRule.WRONG_WIDTH, reason)
        cells = (*row.cells, *[None] * (len(self.names) - len(row.cells)))
        return {
            column: cells[index] if is_temporal and isinstance(cells[index], date) else to_json_value(cells[index])
            for index, column, is_temporal in self._named
        }

    def locate(self, rows: Sequence[SheetRow], indexes: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
        """Return the text and the row number of the rows at some positions."""
        located = [rows[index] for index in indexes.to_pylist()]
        return pa.array(map(self._to_text, located), pa.string()), pa.array((row.number for row in located), pa.int64())

    def _to_text(self, row: SheetRow) -> str:
        """Return the row as JSON; values in columns without a name are named by the column's letter."""
        values: dict[str, object] = dict.fromkeys(filter(None, self.names))
        for index, cell in enumerate(row.cells):
            if self._name(index) or not _is_empty(cell):
                values[self._name(index) or get_column_letter(index + 1)] = to_json_value(cell)
        return row_as_json(values)

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else ""


def take_block(rows: Iterator[SheetRow]) -> list[SheetRow]:
    """Return the next rows that are checked together; an empty list at the end."""
    block: list[SheetRow] = []
    cells = characters = 0
    for row in islice(rows, _BLOCK_ROWS):
        block.append(row)
        cells += len(row.cells)
        # A shared string is in memory once, but each event gets a copy of it.
        characters += sum(len(cell) for cell in row.cells if isinstance(cell, str))
        if cells >= _BLOCK_CELLS or characters >= _BLOCK_CHARACTERS:
            break
    return block


def to_json_value(cell: object) -> object:
    """Convert a cell to a value with a JSON type: whole floats to integers, dates, times and durations to strings."""
    match cell:
        case float() if cell.is_integer() and abs(cell) < _MAX_EXACT_INTEGER:
            return int(cell)
        case date() | time():
            return cell.isoformat()
        case timedelta():
            seconds = round(cell.total_seconds())
            return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        case _:
            return cell


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def read_rows(sheet: Any) -> Iterator[SheetRow]:
    """Yield the rows of a sheet that are not empty."""
    # Some programs write smaller dimensions into the file than the sheet has, and openpyxl would skip the other cells.
    sheet.reset_dimensions()
    for number, cells in enumerate(sheet.iter_rows(max_row=_MAX_ROWS, values_only=True), start=1):
        width = len(cells)
        # Halving and counting take less time than looking at each of 16,384 cells.
        while width and cells[(half := width // 2) : width].count(None) == width - half:
            width = half
        if not all(map(_is_empty, cells[:width])):
            yield SheetRow(number, cells[:width])


def find_sheet(workbook: Any, title: str | None, name: str) -> Any:
    """Return the sheet with this title, or the first visible sheet when `title` is None. Raises `DataError`."""
    for sheet in workbook.worksheets:
        if sheet.title == title or (title is None and sheet.sheet_state == "visible"):
            return sheet
    titles = list_names([sheet.title for sheet in workbook.worksheets]) or "none"
    missing = "no visible sheet" if title is None else f"no sheet {title!r}"
    raise DataError(f"{name}: {missing} (sheets: {titles}): set the format's `sheet` to one of them")


@contextmanager
def open_workbook(path: Path, name: str) -> Iterator[Any]:
    """Open a workbook, which may also be compressed as a whole. Raises `DataError`."""
    # openpyxl gets an open file, because it would refuse a path without the extension .xlsx.
    with _decompressed_workbook(path, name) as decompressed, decompressed.open("rb") as file:
        with _translated_errors(name):
            check_zip_directory(decompressed, name)
            check_size(decompressed, name)
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        with closing(workbook):
            yield workbook


@contextmanager
def _decompressed_workbook(path: Path, name: str) -> Iterator[Path]:
    """Yield the workbook's file, decompressed if needed. A workbook is a zip archive itself and is not unpacked."""
    is_plain = False
    if detect_compression(path) == "zip":
        with _translated_errors(name):
            check_zip_directory(path, name)
            is_plain = is_workbook(path)
    if is_plain:
        yield path
        return
    with decompressed_file(path, name=name) as decompressed:
        yield decompressed


def is_workbook(path: Path) -> bool:
    """Return whether a zip archive is a workbook itself."""
    with zipfile.ZipFile(path) as archive:
        return "[Content_Types].xml" in archive.namelist()


def check_size(path: Path, name: str) -> None:
    """Raise `DataError` when the workbook is too large for openpyxl.

    The sizes in the directory of the archive are reliable, because `zipfile` reads no more bytes than they state.
    """
    with zipfile.ZipFile(path) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
    shared_strings, tree = sizes.get("xl/sharedStrings.xml", 0), max(sizes.get(part, 0) for part in _TREES)
    if sum(sizes.values()) > _MAX_BYTES or shared_strings > _MAX_SHARED_STRINGS_BYTES or tree > _MAX_TREE_BYTES:
        raise DataError(f"{name}: the workbook is too large to be read: send it as csv, or in parts")


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        # openpyxl warns of styles and extensions, which are not read here.
        with warnings.catch_warnings(action="ignore"):
            yield
    except SlackwaterError:
        raise
    except Exception as error:
        # openpyxl raises errors of many types for broken workbooks, so no narrower list would be complete.
        cause = error.__cause__ or error
        raise DataError(
            f"{name}: not readable as an Excel workbook ({cause}): save it as .xlsx, without a password, and send that"
        ) from error
