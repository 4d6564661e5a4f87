"""Write batches of rows as the content of one file: CSV, NDJSON, Parquet or Excel."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from slackwater.errors import DataError

# Bytes of rows that become one row group.
_ROW_GROUP = 64 * 2**20
# Excel's limits ("Excel specifications and limits").
_EXCEL_ROWS, _EXCEL_COLUMNS, _EXCEL_CHARACTERS, _EXCEL_DIGITS = 1_048_576, 16_384, 32_767, 15
# Excel's first day. It also has a 29 February 1900, so days before March differ between programs.
_EXCEL_FIRST_DAY = date(1900, 3, 1)


class FileWriter(ABC):
    """Writes the rows of one file, whose content is in memory until it is finished."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()

    def has_room(self, _rows: int, /) -> bool:
        """Whether the format allows so many further rows."""
        return True

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises `DataError` for a value that the format cannot hold."""

    def size(self) -> int:
        """Return about how many bytes the file has so far. The last row group of Parquet is not counted."""
        return self._sink.tell()

    def finish(self) -> bytes:
        """Return the content of the file."""
        return self._sink.getvalue()

    def close(self) -> None:  # noqa: B027 - most formats have nothing on disk
        """Free what the file takes on disk. It may be finished or not."""


class CsvWriter(FileWriter):
    """Writes CSV with a header: strings in quotes, nulls as nothing, timestamps in UTC.

    Readers skip an empty line, so a null in a file of one column is `""`, also in a column of strings.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__()
        self._writer = arrow_csv.CSVWriter(self._sink, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        column = batch.column(0)
        if batch.num_columns > 1 or not column.null_count:
            self._writer.write(batch)
        elif pa.types.is_string(column.type):
            self._writer.write(pa.record_batch([column.fill_null("")], schema=batch.schema))
        else:
            values = column.cast(pa.string()).fill_null('""')
            self._sink.writelines(f"{value}\n".encode() for value in values.to_pylist())

    def finish(self) -> bytes:
        """Return the content."""
        self._writer.close()
        return self._sink.getvalue()


class LineWriter(FileWriter):
    """Writes the strings of a single column, one per line."""

    def __init__(self, _schema: pa.Schema) -> None:
        super().__init__()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append lines."""
        self._sink.writelines(f"{line}\n".encode() for line in batch.column(0).to_pylist())


class ParquetWriter(FileWriter):
    """Writes Parquet, in row groups of about `_ROW_GROUP` bytes."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__()
        self._schema = schema
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._batches, self._bytes = [], 0

    def finish(self) -> bytes:
        """Return the content."""
        self._write_group()
        self._writer.close()
        return self._sink.getvalue()


class XlsxWriter(FileWriter):
    """Writes a workbook with one sheet. openpyxl keeps its rows in a temporary file."""

    def __init__(self, schema: pa.Schema) -> None:
        # openpyxl is imported only when it is needed: it adds 0.2 s to the start.
        from openpyxl import Workbook

        super().__init__()
        if len(schema) > _EXCEL_COLUMNS:
            raise DataError(f"{len(schema):,} columns, and a sheet of Excel has at most {_EXCEL_COLUMNS:,}")
        self._names = schema.names
        self._workbook = Workbook(write_only=True)
        self._sheet = self._workbook.create_sheet("rows")
        self._rows = self._bytes = 0
        self._append([self._cell(name, name) for name in self._names])

    def has_room(self, rows: int, /) -> bool:
        """Whether the sheet may have so many further rows."""
        return self._rows + rows <= _EXCEL_ROWS

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises `DataError` beyond one of Excel's limits, and for a value that Excel lacks."""
        if not self.has_room(batch.num_rows):
            raise DataError(
                f"more than {_EXCEL_ROWS:,} rows with the header, and a sheet of Excel has no more: set `parts: true`"
            )
        columns = []
        for name, column in zip(self._names, batch.columns, strict=True):
            # Excel has no timezones.
            values = column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
            columns.append([self._cell(value, name) for value in values.to_pylist()])
        for row in zip(*columns, strict=True):
            self._append(row)
        self._bytes += batch.nbytes

    def size(self) -> int:
        """Return the bytes of the rows, which take less in the compressed workbook."""
        return self._bytes

    def finish(self) -> bytes:
        """Return the content."""
        self._workbook.save(self._sink)
        return super().finish()

    def close(self) -> None:
        """Remove openpyxl's temporary file, which it otherwise keeps until the process ends."""
        if not self._sheet.closed:
            self._sheet.close()
            self._sheet._writer.cleanup()

    def _append(self, row: Any) -> None:
        self._sheet.append(row)
        self._rows += 1

    def _cell(self, value: Any, name: str) -> Any:
        """Return what openpyxl writes as exactly this value. Raises `DataError` for one that Excel cannot hold."""
        fault = _fault(value)
        if fault:
            raise DataError(f"column {name}: {fault}")
        if not (isinstance(value, str) and value[:1] in {"=", "#"}):
            return value
        # openpyxl would take the string for a formula or an error.
        from openpyxl.cell import WriteOnlyCell

        cell = WriteOnlyCell(self._sheet, value)
        cell.data_type = "s"
        return cell


def _fault(value: Any) -> str | None:
    """Return why Excel cannot hold a value, or None."""
    match value:
        case bool():
            fault = None
        case str() if len(value) > _EXCEL_CHARACTERS:
            fault = f"a string of {len(value):,} characters, and a cell of Excel has at most {_EXCEL_CHARACTERS:,}"
        case str() if _has_forbidden_character(value):
            fault = f"{value[:40]!r} contains a control character, which Excel refuses"
        case int() if abs(value) >= 10**_EXCEL_DIGITS:
            fault = f"{value} has more than {_EXCEL_DIGITS} digits, and Excel would round it: cast it to string"
        case Decimal() if len("".join(map(str, value.as_tuple().digits)).strip("0")) > _EXCEL_DIGITS:
            fault = f"{value} has more than {_EXCEL_DIGITS} digits, and Excel would round it: cast it to string"
        case float() if not isfinite(value):
            fault = f"{value}, which Excel lacks: replace it by null, for example with clean_nan"
        case datetime() | date() if (value.date() if isinstance(value, datetime) else value) < _EXCEL_FIRST_DAY:
            fault = f"{value} is before {_EXCEL_FIRST_DAY}, where Excel's days begin: cast it to string"
        case _:
            fault = None
    return fault


def _has_forbidden_character(value: str) -> bool:
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    # XML, which a workbook consists of, lacks the last two as well.
    return ILLEGAL_CHARACTERS_RE.search(value) is not None or "\ufffe" in value or "\uffff" in value
