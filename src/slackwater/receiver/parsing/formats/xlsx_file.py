"""A sheet of an Excel workbook read into checked rows: cells have types of their own, formulas their last values."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl
from openpyxl.utils import get_column_letter

from slackwater.errors import DataError, SlackwaterError
from slackwater.receiver.parsing.event_checks import CheckedEvents, RejectedEvent, check_events
from slackwater.receiver.parsing.formats.compression import compression, expanded_file
from slackwater.receiver.parsing.formats.tables import as_json, expect_usable
from slackwater.receiver.parsing.rejections import RejectionRule, quote_value
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType
from slackwater.sources.file_format import Xlsx

_MOST_EXPANDED = 2 * 2**30
"""Bytes of all parts of a workbook."""
_MOST_TEXTS = 128 * 2**20
"""Bytes of the texts that its cells share, which are all in memory."""
_LAST_ROW = 2**20
"""Excel has no more of them."""
_ROWS = 10_000
"""Rows that are checked at once."""
_EXACT = 2**53
"""Excel has no integers: up to here each has a double of its own."""
_MOMENTS = frozenset({FieldType.TIMESTAMP, FieldType.DATE})


class _Row(NamedTuple):
    """A row that is not empty."""

    number: int
    """In the sheet, from 1."""
    cells: Sequence[object]
    """None where one is empty."""


def read_xlsx(path: Path, form: Xlsx, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a sheet, some rows at a time; `name` is what errors call the file.

    The first row that is not empty is the header. Empty rows count as lines, not as rows, and a value outside of the
    header's columns makes its row one of a wrong width. Raises `DataError` for a file that is no workbook, has no such
    sheet, or lacks a column that every row needs.
    """
    with _workbook(path, name) as workbook:
        rows = _rows(_sheet(workbook, form.sheet, name))
        with _readable(name):
            header = next(rows, None)
        if header is None:
            raise DataError(f"{name}: empty: a header with the names of its columns is expected")
        columns = _Columns(header, source)
        expect_usable([column for column in columns.names if column], source, name=name, what="header")
        index = 0
        while some := _some(rows, name):
            yield _checked(some, columns, source, received_at=received_at, first=index)
            index += len(some)


class _Columns:
    """What the header says, by which a row is an event."""

    def __init__(self, header: _Row, source: Source) -> None:
        moments = {field.origin or name for name, field in source.fields.items() if field.type in _MOMENTS}
        self.names = [str(_plain(cell)).strip() if cell is not None else "" for cell in header.cells]
        self._named = [(place, column, column in moments) for place, column in enumerate(self.names) if column]

    def event(self, row: _Row) -> dict[str, object]:
        """Return the row by its columns' names. Dates stay dates where a field is one; elsewhere they are texts."""
        cells = (*row.cells, *[None] * (len(self.names) - len(row.cells)))
        return {
            column: cells[place] if is_moment and isinstance(cells[place], date) else _plain(cells[place])
            for place, column, is_moment in self._named
        }

    def misfit(self, row: _Row) -> str | None:
        """Return what is wrong with a row that has a value where the header has no name."""
        for place, cell in enumerate(row.cells):
            if not _is_empty(cell) and not self._name(place):
                letter = get_column_letter(place + 1)
                return f"column {letter} holds {quote_value(_plain(cell))}, and the header has no name for that column"
        return None

    def text(self, row: _Row) -> str:
        """Return the row as JSON; a value without a name goes by its column's letter."""
        cells: dict[str, object] = dict.fromkeys(filter(None, self.names))
        for place, cell in enumerate(row.cells):
            if self._name(place) or not _is_empty(cell):
                cells[self._name(place) or get_column_letter(place + 1)] = _plain(cell)
        return as_json(cells)

    def _name(self, place: int) -> str:
        return self.names[place] if place < len(self.names) else ""


def _checked(
    rows: Sequence[_Row], columns: _Columns, source: Source, *, received_at: datetime, first: int
) -> CheckedEvents:
    misfits = {place: reason for place, row in enumerate(rows) if (reason := columns.misfit(row))}
    fitting = [place for place in range(len(rows)) if place not in misfits]
    checked = check_events([columns.event(rows[place]) for place in fitting], source, received_at=received_at)
    rejected = {place: RejectedEvent(place, reason, RejectionRule.WRONG_WIDTH) for place, reason in misfits.items()}
    rejected |= {fitting[item.index]: item for item in checked.rejected}
    return CheckedEvents(checked.table, list(_located(rejected, rows, columns, first=first)))


def _located(
    rejected: Mapping[int, RejectedEvent], rows: Sequence[_Row], columns: _Columns, *, first: int
) -> Iterator[RejectedEvent]:
    """Return the rejected rows by their place among all rows, with the number that the sheet has for each."""
    for place, item in sorted(rejected.items()):
        row = rows[place]
        yield replace(item, index=first + place, line=row.number, text=columns.text(row))


def _plain(cell: object) -> object:
    """Return what JSON could have held."""
    match cell:
        case float() if cell.is_integer() and abs(cell) < _EXACT:
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


def _some(rows: Iterator[_Row], name: str) -> list[_Row]:
    with _readable(name):
        return list(islice(rows, _ROWS))


def _rows(sheet: Any) -> Iterator[_Row]:
    sheet.reset_dimensions()  # Some programs write down fewer than there are.
    for number, cells in enumerate(sheet.iter_rows(max_row=_LAST_ROW, values_only=True), start=1):
        if not all(map(_is_empty, cells)):
            yield _Row(number, cells)


def _sheet(workbook: Any, wanted: str | None, name: str) -> Any:
    """Return the sheet of that name, or the first that is not hidden."""
    for sheet in workbook.worksheets:
        if sheet.title == wanted or (wanted is None and sheet.sheet_state == "visible"):
            return sheet
    held = ", ".join(sheet.title for sheet in workbook.worksheets) or "none"
    missing = "no sheet that is not hidden" if wanted is None else f"no sheet {wanted!r}"
    raise DataError(f"{name}: {missing} (it has: {held}): name one of them as the format's `sheet`")


@contextmanager
def _workbook(path: Path, name: str) -> Iterator[Any]:
    # As an open file, since openpyxl judges a path by how its name ends.
    with _bare(path, name) as bare, bare.open("rb") as file:
        with _readable(name):
            _expect_reasonable(bare, name)
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        with closing(workbook):
            yield workbook


@contextmanager
def _bare(path: Path, name: str) -> Iterator[Path]:
    """Yield the workbook, which is a zip archive by itself: expanded only if something else is around it."""
    if _is_workbook(path, name):
        yield path
        return
    with expanded_file(path, name=name) as expanded:
        yield expanded


def _is_workbook(path: Path, name: str) -> bool:
    if compression(path) != "zip":
        return False
    with _readable(name), zipfile.ZipFile(path) as archive:
        return "[Content_Types].xml" in archive.namelist()


def _expect_reasonable(path: Path, name: str) -> None:
    """Raise `DataError` for a workbook that would not fit: its archive tells, and is never read beyond that."""
    with zipfile.ZipFile(path) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
    if sum(sizes.values()) > _MOST_EXPANDED or sizes.get("xl/sharedStrings.xml", 0) > _MOST_TEXTS:
        raise DataError(f"{name}: a workbook too large to be read: send it as csv, or in parts")


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"):  # openpyxl warns of styles and such, which are of no use here.
            yield
    except SlackwaterError:
        raise
    except Exception as error:  # openpyxl raises whatever its parsing stumbles over.
        why = error.__cause__ or error
        raise DataError(
            f"{name}: not readable as an Excel workbook ({why}): save it as .xlsx, without a password, and send that"
        ) from error
