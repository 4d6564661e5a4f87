"""Read the first rows of a file of any format."""

from __future__ import annotations

import codecs
import json
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import DataError
from slackwater.receiver.parsing.compression import decompressed_file, detect_compression, open_decompressed
from slackwater.receiver.parsing.formats.parquet_file import read_batches
from slackwater.receiver.parsing.formats.xlsx_file import SheetRow, find_sheet, open_workbook, read_rows, to_json_value
from slackwater.receiver.parsing.inference.csv_layout import find_layout, read_records
from slackwater.receiver.parsing.inference.sample import Sample, SampleColumn
from slackwater.receiver.parsing.json_lines import describe_json_error, parse_json, parse_line
from slackwater.receiver.parsing.rejections import list_names, quote_name
from slackwater.sources.file_format import FileFormat, Json, Ndjson, Parquet, Xlsx

MAX_ROWS = 100_000
# Bytes: of a text file after decompression, of a Parquet file after decoding, and of a download.
MAX_BYTES = 16 * 2**20

# Bytes. Of the beginning of a compressed file, the last chunk is lost.
_CHUNK = 2**12
_WHITESPACE = " \t\r\n"
_DELIMITED_SUFFIXES, _LINES_SUFFIXES = frozenset({".csv", ".tsv", ".txt"}), frozenset({".ndjson", ".jsonl"})


def read_sample(path: Path, *, name: str, is_whole: bool = True, has_header: bool = True) -> Sample:
    """Read the first rows of a file. Its content decides its format; the suffix of `name` only between text formats.

    `name` is the name of the file in errors, and `is_whole` is False when the file is only the beginning of another.
    `has_header` is about CSV. Raises `DataError` when the file has no row that can be read.
    """
    if detect_compression(path) == "zip" and _is_workbook(path, name, is_whole=is_whole):
        return _read_workbook(path, name)
    data, is_complete = read_start(path, name, is_whole=is_whole)
    if data.startswith(b"PAR1"):
        if not is_whole:
            raise _incomplete(name)
        return _read_parquet(path, name)
    if data.startswith(b"PK\x03\x04"):  # a compressed workbook
        return _read_workbook(path, name)
    if b"\0" in data[:_CHUNK] and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: neither text in UTF-8 nor Parquet nor an .xlsx workbook: save it as one of them")
    suffixes = frozenset(Path(name.lower()).suffixes)
    first = data.removeprefix(codecs.BOM_UTF8).lstrip(_WHITESPACE.encode())[:1]
    if not first:
        raise DataError(f"{name}: empty: send a sample with at least one row")
    if first in {b"[", b"{"} and not suffixes & _DELIMITED_SUFFIXES:
        sample = _read_json(data, name, is_complete=is_complete, is_ndjson=bool(suffixes & _LINES_SUFFIXES))
    else:
        sample = _read_csv(data, name, is_complete=is_complete, has_header=has_header)
    if not sample.rows:
        raise DataError(f"{name}: no rows: send a sample with at least one row, because types come from values")
    return sample


def _incomplete(name: str) -> DataError:
    limit = MAX_BYTES // 2**20
    return DataError(
        f"{name}: larger than {limit} MiB, and its format can only be read as a whole: download it, and name the file"
    )


def _is_workbook(path: Path, name: str, *, is_whole: bool) -> bool:
    if not is_whole:
        raise _incomplete(name)
    try:
        with zipfile.ZipFile(path) as archive:
            return "[Content_Types].xml" in archive.namelist()
    except zipfile.BadZipFile as error:
        raise DataError(f"{name}: its compressed data is broken ({error}): send the file again") from error


def read_start(path: Path, name: str, *, is_whole: bool) -> tuple[bytes, bool]:
    """Return the first `MAX_BYTES` of a file, decompressed, and whether they are all of it.

    `name` is the name of the file in errors, and `is_whole` is False when the file is only the beginning of another.
    Raises `DataError` when its compressed data is broken.
    """
    data = bytearray()
    with open_decompressed(path, name=name) as stream:
        try:
            while len(data) <= MAX_BYTES and (chunk := stream.read(_CHUNK)):
                data += chunk
        except DataError:
            # The beginning of a compressed file ends in the middle of its compressed data.
            if is_whole or not data:
                raise
    return bytes(data[:MAX_BYTES]), is_whole and len(data) <= MAX_BYTES


def _read_csv(data: bytes, name: str, *, is_complete: bool, has_header: bool) -> Sample:
    layout = find_layout(data, name, is_complete=is_complete, has_header=has_header)
    records = list(islice(read_records(layout), MAX_ROWS + 1))
    # The receiver rejects rows of another width.
    rows = {
        number: record
        for number, record in enumerate(records[:MAX_ROWS], start=1)
        if len(record) == len(layout.columns)
    }
    columns = list(zip(*rows.values(), strict=True)) or [()] * len(layout.columns)
    return Sample(
        file_format=layout.csv_format,
        columns=[
            SampleColumn(column, pa.array(cells, pa.string()), row_numbers=list(rows))
            for column, cells in zip(layout.columns, columns, strict=True)
        ],
        rows=len(records[:MAX_ROWS]) if rows else 0,
        is_complete=is_complete and len(records) <= MAX_ROWS,
        notes=layout.notes,
        header=layout.header,
    )


def _read_json(data: bytes, name: str, *, is_complete: bool, is_ndjson: bool) -> Sample:
    """Read NDJSON, a JSON array, or a JSON object with one list of objects."""
    text = data.removeprefix(codecs.BOM_UTF8)
    first_line, _, rest = text.lstrip(_WHITESPACE.encode()).partition(b"\n")
    is_single = not rest.strip()
    if first_line.startswith(b"[") and not is_ndjson:
        elements, is_all = _array_elements(text, name, is_complete=is_complete)
        return _sample_of_objects(elements, Json(), is_complete=is_all)
    # A single line that is an object with a list is either the response of an API, or the only line of an NDJSON file.
    if not is_ndjson and (is_single or not isinstance(parse_line(first_line), dict)):
        document = _parse_document(text, name, is_complete=is_complete)
        lists = {key: value for key, value in document.items() if _is_list_of_objects(value)}
        if len(lists) == 1:
            ((key, elements),) = lists.items()
            return _sample_of_objects(elements, Json(), is_complete=is_complete, list_key=key)
        if not is_single:
            raise DataError(
                f"{name}: one JSON object with {len(lists)} lists of objects: send one event per line, or one array"
            )
    lines = text.split(b"\n")
    # The last line of an incomplete sample is usually cut.
    parsed = (parse_line(line) for line in (lines if is_complete else lines[:-1]) if line.strip())
    events = list(islice(parsed, MAX_ROWS + 1))
    return _sample_of_objects(events, Ndjson(), is_complete=is_complete)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _parse_document(data: bytes, name: str, *, is_complete: bool) -> dict[str, Any]:
    try:
        document: dict[str, Any] = parse_json(data)
    except (ValueError, RecursionError) as error:
        reason = describe_json_error(error) if is_complete else f"one object of more than {MAX_BYTES // 2**20} MiB"
        raise DataError(f"{name}: not NDJSON, and not JSON: {reason}: send one event per line, or one array") from error
    return document


def _array_elements(data: bytes, name: str, *, is_complete: bool) -> tuple[list[object], bool]:
    """Return the elements at the start of a JSON array, and whether they are all."""
    elements, decoder = list[object](), json.JSONDecoder()
    # Bytes that are not UTF-8 are an error of the receiver's reader.
    text = data.decode(errors="replace")
    position = text.index("[") + 1
    try:
        while len(elements) < MAX_ROWS:
            while text[position : position + 1] and text[position] in f"{_WHITESPACE},":
                position += 1
            if text[position : position + 1] == "]":
                return elements, True
            element, position = decoder.raw_decode(text, position)
            elements.append(element)
    except (ValueError, RecursionError) as error:
        # An incomplete array ends within an element.
        if is_complete or not elements:
            raise DataError(f"{name}: not JSON: {describe_json_error(error)}: send it again") from error
    return elements, False


def _sample_of_objects(
    events: Sequence[object], file_format: FileFormat, *, is_complete: bool, list_key: str | None = None
) -> Sample:
    # The receiver rejects elements that are not objects.
    objects = {number: event for number, event in enumerate(events[:MAX_ROWS], start=1) if isinstance(event, dict)}
    names = dict.fromkeys(key for event in objects.values() for key in event)
    return Sample(
        file_format=file_format,
        columns=[
            SampleColumn(column, [event.get(column) for event in objects.values()], row_numbers=list(objects))
            for column in names
        ],
        rows=len(events[:MAX_ROWS]) if objects else 0,
        is_complete=is_complete and len(events) <= MAX_ROWS,
        list_key=list_key,
    )


def _read_parquet(path: Path, name: str) -> Sample:
    tables, rows, size = list[pa.Table](), 0, 0
    with decompressed_file(path, name=name) as decompressed:
        try:
            file = pq.ParquetFile(decompressed, pre_buffer=False, coerce_int96_timestamp_unit="us")
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name}: not readable as Parquet: {error}: send it again") from error
        with file:
            _check_names(file.schema_arrow.names, name)
            total = file.metadata.num_rows
            for table in read_batches(file, decompressed, name):
                tables.append(table)
                rows, size = rows + table.num_rows, size + table.nbytes
                if rows >= MAX_ROWS or size >= MAX_BYTES:
                    break
    if not rows:
        raise DataError(f"{name}: no rows: send a sample with at least one row")
    table = pa.concat_tables(tables).slice(0, MAX_ROWS).combine_chunks()
    columns = [SampleColumn(column, table[column].combine_chunks()) for column in table.column_names]
    return Sample(file_format=Parquet(), columns=columns, rows=table.num_rows, is_complete=table.num_rows == total)


def _read_workbook(path: Path, name: str) -> Sample:
    with open_workbook(path, name) as workbook:
        rows: Iterator[SheetRow] = read_rows(find_sheet(workbook, None, name))
        header = next(rows, None)
        read = list(islice(rows, MAX_ROWS + 1))
    if header is None or not read:
        raise DataError(f"{name}: no rows: send a sample with a header and at least one row")
    names = ["" if cell is None else str(to_json_value(cell)).strip() for cell in header.cells]
    _check_names([column for column in names if column], name)
    cells_by_name = {
        column: [row.cells[index] if index < len(row.cells) else None for row in read[:MAX_ROWS]]
        for index, column in enumerate(names)
        if column
    }
    numbers = [row.number for row in read]
    return Sample(
        file_format=Xlsx(),
        columns=[
            SampleColumn(column, list(map(to_json_value, cells)), list(map(_temporal_cell, cells)), row_numbers=numbers)
            for column, cells in cells_by_name.items()
        ],
        rows=len(read[:MAX_ROWS]),
        is_complete=len(read) <= MAX_ROWS,
    )


def _temporal_cell(cell: object) -> object:
    """Return the value that the receiver passes to a field with dates or timestamps."""
    return cell if isinstance(cell, date) else to_json_value(cell)


def _check_names(names: Sequence[str], name: str) -> None:
    duplicates = sorted({column for column in names if names.count(column) > 1})
    if duplicates:
        raise DataError(
            f"{name}: two columns have the same name: {list_names(duplicates)}: "
            f"rename one {quote_name(duplicates[0])}, because the receiver refuses such files"
        )
