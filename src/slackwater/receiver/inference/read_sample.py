"""Read the first rows of a sample: CSV, JSON, NDJSON, Parquet or Excel, in any encoding and compression."""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.formats.blocks import check_columns
from slackwater.receiver.formats.json_file import read_elements
from slackwater.receiver.formats.parquet_file import open_parquet, read_batches
from slackwater.receiver.formats.xlsx_file import (
    SheetRow,
    find_sheet,
    is_workbook,
    open_workbook,
    read_rows,
    to_json_value,
)
from slackwater.receiver.inference.sample import Sample, SampleColumn, unique_names
from slackwater.receiver.parsing.compression import decompressed_file, detect_compression, open_decompressed
from slackwater.receiver.parsing.json_lines import parse_json, parse_line
from slackwater.receiver.parsing.json_stream import describe_json_error
from slackwater.receiver.parsing.json_values import values_of
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import quote_value
from slackwater.sources.file_format import Csv, FileFormat, Json, Ndjson, Parquet, Xlsx

MAX_ROWS = 100_000
# Bytes: of a text file after decompression, of a Parquet file after decoding, and of a download.
MAX_BYTES = 16 * 2**20
# Bytes. Of the beginning of a compressed file, the last chunk is lost.
_CHUNK = 2**12
# Keys of the objects in a column, and dots in a path, that become fields: with more, an object is a map or a document.
_MAX_KEYS, _MAX_DOTS = 50, 4
_DELIMITERS = ",;\t|"
# Records in which cells are counted.
_COUNTED_RECORDS = 1_000
_SNIFF = """
SELECT Delimiter, HasHeader, len(Columns)
FROM sniff_csv(?, quote = '"', escape = '"', comment = '', ignore_errors = true, max_line_size = 33554432)
"""
# Encodings that are tried on a file that is not UTF-8; any bytes are valid in the last one.
_OTHER_ENCODINGS = ("cp1252", "latin-1")


def read_start(path: Path, name: str, *, is_whole: bool) -> tuple[bytes, bool]:
    """Return the first `MAX_BYTES` of a file, decompressed, and whether they are all of it."""
    data = bytearray()
    is_columnar = detect_compression(path) == "zip"
    if not is_columnar or is_whole:
        with open_decompressed(path, name=name) as stream:
            try:
                while len(data) <= MAX_BYTES and (chunk := stream.read(_CHUNK)):
                    data += chunk
            except DataError:
                # The beginning of a compressed file ends in the middle of its compressed data.
                if is_whole or not data:
                    raise
    if not is_whole and (is_columnar or data.startswith(b"PAR1")):
        limit = f"larger than {MAX_BYTES // 2**20} MiB"
        raise DataError(f"{name}: {limit}, and its format can only be read as a whole: download it, and name the file")
    return bytes(data[:MAX_BYTES]), is_whole and len(data) <= MAX_BYTES


def read_sample(path: Path, name: str, *, is_whole: bool) -> Sample:
    """Read the first rows of a file. Its content decides its format; the suffix of `name` only between text formats."""
    sample = _read(path, name, is_whole=is_whole)
    if not sample.rows:
        raise DataError(f"{name}: no rows: send a sample with at least one row, because types come from values")
    return replace(sample, rows=min(sample.rows, MAX_ROWS), is_complete=sample.is_complete and sample.rows <= MAX_ROWS)


def _read(path: Path, name: str, *, is_whole: bool) -> Sample:
    """Read at most one row more than a sample has, which shows that the file has more."""
    if is_whole and zipfile.is_zipfile(path) and is_workbook(path):
        return _read_workbook(path, name)
    data, is_complete = read_start(path, name, is_whole=is_whole)
    if data.startswith(b"PAR1"):
        return _read_parquet(path, name)
    if data.startswith(b"PK\x03\x04"):  # a compressed workbook
        return _read_workbook(path, name)
    if b"\0" in data[:_CHUNK] and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: neither text in UTF-8 nor Parquet nor an .xlsx workbook: save it as one of them")
    suffixes = set(Path(name.lower()).suffixes)
    first = data.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if not first:
        raise DataError(f"{name}: empty: send a sample with at least one row")
    if first in {b"[", b"{"} and suffixes.isdisjoint({".csv", ".tsv", ".txt"}):
        is_ndjson = not suffixes.isdisjoint({".ndjson", ".jsonl"})
        return _read_json(data.removeprefix(codecs.BOM_UTF8), name, is_complete=is_complete, is_ndjson=is_ndjson)
    return _read_csv(data, path.with_name("utf8.csv"), name, is_complete=is_complete)


def _read_csv(data: bytes, path: Path, name: str, *, is_complete: bool) -> Sample:
    """Read a CSV file; `path` is where DuckDB gets it in UTF-8."""
    encoding, notes = _find_encoding(data, is_complete=is_complete)
    # Rows that are not UTF-8 are rejected by the receiver's reader. Here they only must not stop the inference.
    text = data.decode(encoding, errors="replace").removeprefix("\ufeff")
    delimiter, _ = _sniff(text, path)
    width, _ = _most_common_width(text, delimiter)
    reader, skipped = _csv_reader(text, delimiter), 0
    for header in reader:
        if header and len(header) == width:
            break
        skipped = reader.line_num if header or skipped else 0
    else:
        raise DataError(f"{name}: no row that can be read as CSV: send a sample with at least one row")
    header_end, first, columns = reader.line_num, list[list[str]](), tuple[str, ...]()
    if skipped:
        notes.append(f"The first {skipped} lines are skipped: the header is line {skipped + 1}")
    if not _sniff("".join(islice(_lines(text), skipped, None)), path)[1]:
        columns, first = tuple(f"column_{number}" for number in range(1, width + 1)), [header]
        notes.append(
            f"There is no header: the first row is like the others ({quote_value(header[0])} ...). Name the `columns` "
            f"here and in `fields`; if the first row is the header, remove `columns`"
        )
    elif renamed := [name for name in header if header.count(name) > 1 or not name.strip(WHITESPACE)]:
        columns, skipped = tuple(unique_names(header)), header_end
        notes.append(
            f"The header has the name {quote_value(renamed[0])} twice, or a column without a name, which the receiver "
            f"refuses: it is skipped, and `columns` names the columns by position"
        )
    records = list(islice(chain(first, filter(None, reader)), MAX_ROWS + 2))
    # The last record of an incomplete sample is usually cut.
    records = records if is_complete else records[:-1]
    # The receiver rejects rows of another width.
    rows = {n: record for n, record in enumerate(records[:MAX_ROWS], start=1) if len(record) == width}
    values = list(zip(*rows.values(), strict=True)) or [()] * width
    arrays = [pa.array(cells, pa.string()) for cells in values]
    return Sample(
        file_format=Csv(delimiter=delimiter, encoding=encoding, skip_lines=skipped, columns=columns),
        columns=[SampleColumn(each, array, list(rows)) for each, array in zip(columns or header, arrays, strict=True)],
        rows=len(records) if rows else 0,
        is_complete=is_complete,
        notes=notes,
    )


def _lines(text: str) -> io.StringIO:
    return io.StringIO(text, newline="")


def _csv_reader(text: str, delimiter: str) -> Any:
    csv.field_size_limit(sys.maxsize)
    return csv.reader(_lines(text), delimiter=delimiter)


def _sniff(text: str, path: Path) -> tuple[str, bool]:
    """Return the delimiter that DuckDB finds, and whether the first row is a header."""
    import duckdb

    path.write_text(text, encoding="utf-8", newline="")
    with duckdb.connect() as connection:
        try:
            delimiter, has_header, width = connection.execute(_SNIFF, [str(path)]).fetchall()[0]
        except duckdb.Error:  # no dialect fits
            delimiter, has_header, width = ",", True, 1
    if width == 1:  # DuckDB reads one column if a quote is not closed, or if there are other lines before the header
        widths = {each: _most_common_width(text, each) for each in _DELIMITERS}
        delimiter = max(_DELIMITERS, key=lambda each: widths[each][1] if widths[each][0] > 1 else 0)
    return delimiter, has_header


def _most_common_width(text: str, delimiter: str) -> tuple[int, int]:
    """Return how many cells most of the first records have, and how many records have so many."""
    records = islice(filter(None, _csv_reader(text, delimiter)), _COUNTED_RECORDS)
    return (Counter(map(len, records)).most_common(1) or [(0, 0)])[0]


def _find_encoding(data: bytes, *, is_complete: bool) -> tuple[str, list[str]]:
    """Return the encoding and what a user should know about it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", []
    # At the end of an incomplete sample, a character may be cut.
    decode = codecs.getincrementaldecoder("utf-8")
    with suppress(UnicodeDecodeError):
        decode().decode(data, final=is_complete)
        return "utf-8", []
    text = decode("replace").decode(data, final=is_complete)
    invalid = text.count("\ufffd")
    # If most characters are UTF-8, the others are broken, and the receiver rejects their rows.
    if sum(not character.isascii() for character in text) > 2 * invalid:
        return "utf-8", []
    for encoding in _OTHER_ENCODINGS:
        with suppress(UnicodeDecodeError):
            word = re.search(r"\w*[^\x00-\x7f]+\w*", data.decode(encoding))
            break
    shown = quote_value(word[0] if word else "")
    return encoding, [f"Not UTF-8. In {encoding} it contains {shown}: if that is wrong, set another `encoding`"]


def _read_json(data: bytes, name: str, *, is_complete: bool, is_ndjson: bool) -> Sample:
    """Read NDJSON, a JSON array, or a JSON object with one list of objects."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    # The last line of an incomplete sample is usually cut.
    events: Iterable[object] = map(parse_line, lines if is_complete else lines[:-1])
    file_format: FileFormat = Ndjson()
    list_key = None
    if data.lstrip().startswith(b"[") and not is_ndjson:
        file_format, events = Json(), _read_array(data, name, is_complete=is_complete)
    # A single line that is an object with a list is either the response of an API, or the only line of an NDJSON file.
    elif not is_ndjson and (len(lines) == 1 or not isinstance(parse_line(lines[0]), dict)):
        try:
            document = parse_json(data)
        except (ValueError, RecursionError) as error:
            reason = describe_json_error(error) if is_complete else f"one object of more than {MAX_BYTES // 2**20} MiB"
            raise DataError(
                f"{name}: not NDJSON, and not JSON: {reason}: send one event per line, or one array"
            ) from error
        lists = [key for key, value in document.items() if _is_list_of_objects(value)]
        if len(lists) == 1:
            file_format, list_key, events = Json(), lists[0], document[lists[0]]
        elif len(lines) > 1:
            what = f"one JSON object with {len(lists)} lists of objects"
            raise DataError(f"{name}: {what}: send one event per line, or one array")
    read = list(islice(events, MAX_ROWS + 1))
    # The receiver rejects elements that are not objects.
    objects = {number: event for number, event in enumerate(read[:MAX_ROWS], start=1) if isinstance(event, dict)}
    rows = list(objects.values())
    keys, names = dict.fromkeys(key for event in rows for key in event), list[str]()
    for key in keys:
        paths = [key] if "." in key else _nested_paths(key, values_of(rows, key))
        # A key "a.b" of the event comes before the path a.b.
        names += [key] if any(path in keys for path in paths) else paths
    return Sample(
        file_format=file_format,
        columns=[SampleColumn(key, values_of(rows, key), list(objects)) for key in names],
        rows=len(read) if objects else 0,
        is_complete=is_complete,
        list_key=list_key,
    )


def _nested_paths(name: str, values: Sequence[object]) -> list[str]:
    """Return the paths `a.b` of the values in the objects of a column; only its name if there are other values."""
    objects = [value for value in values if isinstance(value, dict)]
    keys = dict.fromkeys(key for value in objects for key in value)
    has_fields = 0 < len(keys) <= _MAX_KEYS and not any("." in key for key in keys) and name.count(".") < _MAX_DOTS
    if not has_fields or len(objects) < sum(value is not None for value in values):
        return [name]
    return [path for key in keys for path in _nested_paths(f"{name}.{key}", [each.get(key) for each in objects])]


def _read_array(data: bytes, name: str, *, is_complete: bool) -> list[object]:
    """Return the first elements of an array, which may end within an element if it is incomplete."""
    elements: list[object] = []
    try:
        # What comes before an error is kept.
        elements.extend(each.value for each in islice(read_elements(io.BytesIO(data), name=name), MAX_ROWS + 1))
    except DataError:
        if is_complete or not elements:
            raise
    return elements


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _read_parquet(path: Path, name: str) -> Sample:
    tables, rows, size = list[pa.Table](), 0, 0
    with decompressed_file(path, name=name) as decompressed, open_parquet(decompressed, name) as file:
        check_columns(file.schema_arrow.names, None, name=name, part="schema")
        for table in read_batches(file, decompressed, name):
            tables.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows > MAX_ROWS or size >= MAX_BYTES:
                break
        is_complete = rows == file.metadata.num_rows
    table = pa.concat_tables(tables).slice(0, MAX_ROWS).combine_chunks() if tables else pa.table({})
    columns = [SampleColumn(column, table[column].combine_chunks()) for column in table.column_names]
    return Sample(file_format=Parquet(), columns=columns, rows=rows, is_complete=is_complete)


def _read_workbook(path: Path, name: str) -> Sample:
    with open_workbook(path, name) as workbook:
        header, *rows = [*islice(read_rows(find_sheet(workbook, None, name)), MAX_ROWS + 2)] or [SheetRow(0, [])]
    names = ["" if cell is None else str(to_json_value(cell)).strip() for cell in header.cells]
    check_columns([column for column in names if column], None, name=name, part="header")
    numbers = [row.number for row in rows]
    columns = []
    for index, column in enumerate(names):
        cells = [row.cells[index] if index < len(row.cells) else None for row in rows[:MAX_ROWS]]
        values = [cell if isinstance(cell, date) else to_json_value(cell) for cell in cells]
        columns += [SampleColumn(column, values, numbers)] if column else []
    return Sample(file_format=Xlsx(), columns=columns, rows=len(rows), is_complete=True)
