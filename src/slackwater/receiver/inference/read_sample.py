"""Read the first rows of a sample: CSV, JSON, NDJSON, Parquet or Excel, in any encoding and compression."""

from __future__ import annotations

import codecs
import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import DataError
from slackwater.receiver.formats.csv_file import parse_record
from slackwater.receiver.formats.csv_records import CsvRecordFormat, Utf8Stream
from slackwater.receiver.formats.json_file import read_elements
from slackwater.receiver.formats.parquet_file import read_batches
from slackwater.receiver.formats.xlsx_file import SheetRow, find_sheet, open_workbook, read_rows, to_json_value
from slackwater.receiver.inference.columns import unique_names
from slackwater.receiver.inference.sample import Sample, SampleColumn
from slackwater.receiver.parsing.compression import decompressed_file, detect_compression, open_decompressed
from slackwater.receiver.parsing.json_lines import describe_json_error, parse_json, parse_line
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import list_names, quote_name, quote_value
from slackwater.sources.file_format import Csv, FileFormat, Json, Ndjson, Parquet, Xlsx

MAX_ROWS = 100_000
# Bytes: of a text file after decompression, of a Parquet file after decoding, and of a download.
MAX_BYTES = 16 * 2**20
# Bytes. Of the beginning of a compressed file, the last chunk is lost.
_CHUNK = 2**12
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
    if is_whole and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            is_workbook = "[Content_Types].xml" in archive.namelist()
        if is_workbook:
            return _read_workbook(path, name)
    data, is_complete = read_start(path, name, is_whole=is_whole)
    if data.startswith(b"PAR1"):
        return _read_parquet(path, name)
    if data.startswith(b"PK\x03\x04"):  # a compressed workbook
        return _read_workbook(path, name)
    if b"\0" in data[:_CHUNK] and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: neither text in UTF-8 nor Parquet nor an .xlsx workbook: save it as one of them")
    suffixes = Path(name.lower()).suffixes
    first = data.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if not first:
        raise DataError(f"{name}: empty: send a sample with at least one row")
    if first in {b"[", b"{"} and not {".csv", ".tsv", ".txt"}.intersection(suffixes):
        is_ndjson = not {".ndjson", ".jsonl"}.isdisjoint(suffixes)
        sample = _read_json(data.removeprefix(codecs.BOM_UTF8), name, is_complete=is_complete, is_ndjson=is_ndjson)
    else:
        sample = _read_csv(data, path.with_name("utf8.csv"), name, is_complete=is_complete)
    if not sample.rows:
        raise DataError(f"{name}: no rows: send a sample with at least one row, because types come from values")
    return sample


def _read_csv(data: bytes, path: Path, name: str, *, is_complete: bool) -> Sample:
    """Read a CSV file; `path` is where DuckDB gets it in UTF-8."""
    encoding, notes = _find_encoding(data, is_complete=is_complete)
    utf8 = Utf8Stream(io.BytesIO(data), encoding).read(-1).removeprefix(codecs.BOM_UTF8)
    # Rows that are not UTF-8 are rejected by the receiver's reader. Here they only must not stop the inference.
    utf8 = utf8.decode(errors="replace").encode()
    delimiter, _ = _sniff(utf8, path)
    divided = Csv(delimiter=delimiter, encoding=encoding)
    record_format = CsvRecordFormat(divided)
    if not is_complete:
        utf8 = utf8[: record_format.complete_length(utf8)]
    widths = Counter(len(record) for record in islice(_records(utf8, delimiter), _COUNTED_RECORDS))
    width = max(widths, key=lambda width: widths[width], default=0)
    spans = record_format.spans(utf8)
    cells = ((parse_record(utf8[start:end].decode(), divided), start, end) for start, end in spans)
    first, start, end = next((found for found in cells if len(found[0]) == width), ([], 0, 0))
    if not first:
        raise DataError(f"{name}: no row that can be read as CSV: send a sample with at least one row")
    before = record_format.count_line_ends(utf8[:start]) if utf8[:start].strip() else 0
    columns = unique_names(first)
    if before:
        notes.append(f"The first {before} lines are skipped: the header is line {before + 1}")
    if not _sniff(utf8[start:], path)[1]:
        columns, end = [f"column_{number}" for number in range(1, width + 1)], start
        notes.append(
            f"There is no header: the first row is like the others ({quote_value(first[0])} ...). Name the `columns` "
            f"here and in `fields`; if the first row is the header, remove `columns`"
        )
        options = {"skip_lines": before, "columns": tuple(columns)}
    elif len(set(first)) == len(first) and all(column.strip(WHITESPACE) for column in first):
        columns, options = first, {"skip_lines": before}
    else:
        renamed = next(column for column in first if first.count(column) > 1 or not column.strip(WHITESPACE))
        notes.append(
            f"The header has the name {quote_value(renamed)} twice, or a column without a name, which the receiver "
            f"refuses: it is skipped, and `columns` names the columns by position"
        )
        # The header may contain line ends in quotes.
        options = {"skip_lines": record_format.count_line_ends(utf8[:end]) + 1, "columns": tuple(columns)}
    records = list(islice(_records(utf8[end:], delimiter), MAX_ROWS + 1))
    # The receiver rejects rows of another width.
    rows = {n: record for n, record in enumerate(records[:MAX_ROWS], start=1) if len(record) == width}
    values = list(zip(*rows.values(), strict=True)) or [()] * width
    return Sample(
        file_format=divided.model_copy(update=options),
        columns=[
            SampleColumn(column, pa.array(cells, pa.string()), list(rows))
            for column, cells in zip(columns, values, strict=True)
        ],
        rows=len(records[:MAX_ROWS]) if rows else 0,
        is_complete=is_complete and len(records) <= MAX_ROWS,
        notes=notes,
    )


def _records(utf8: bytes, delimiter: str) -> Any:
    return filter(None, csv.reader(io.StringIO(utf8.decode(), newline=""), delimiter=delimiter))


def _sniff(utf8: bytes, path: Path) -> tuple[str, bool]:
    """Return the delimiter that DuckDB finds, and whether the first row is a header."""
    import duckdb

    path.write_bytes(utf8)
    with duckdb.connect() as connection:
        try:
            delimiter, has_header, width = connection.execute(_SNIFF, [str(path)]).fetchall()[0]
        except duckdb.Error:  # no dialect fits
            delimiter, has_header, width = ",", True, 1
    if width == 1:  # DuckDB reads one column if a quote is not closed, or if there are other lines before the header
        delimiter = max(_DELIMITERS, key=lambda each: _divided_records(utf8, each))
    return delimiter, has_header


def _divided_records(utf8: bytes, delimiter: str) -> int:
    """Return how many of the first records have the number of cells that most of them have; 0 if that is one."""
    widths = Counter(len(record) for record in islice(_records(utf8, delimiter), _COUNTED_RECORDS))
    [(width, count)] = widths.most_common(1) or [(1, 0)]
    return count if width > 1 else 0


def _find_encoding(data: bytes, *, is_complete: bool) -> tuple[str, list[str]]:
    """Return the encoding and what a user should know about it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", []
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=is_complete)
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        characters = Counter(character == "\ufffd" for character in text if not character.isascii())
        # If most characters are UTF-8, the others are broken, and the receiver rejects their rows.
        for encoding in _OTHER_ENCODINGS if characters[False] <= characters[True] else ():
            try:
                word = re.search(r"\w*[^\x00-\x7f]+\w*", data.decode(encoding))
            except UnicodeDecodeError:
                continue
            shown = quote_value(word[0] if word else "")
            return encoding, [f"Not UTF-8. In {encoding} it contains {shown}: if that is wrong, set another `encoding`"]
    return "utf-8", []


def _read_json(data: bytes, name: str, *, is_complete: bool, is_ndjson: bool) -> Sample:
    """Read NDJSON, a JSON array, or a JSON object with one list of objects."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if data.lstrip().startswith(b"[") and not is_ndjson:
        elements = list[object]()
        try:
            # What comes before an error is kept.
            elements.extend(each.value for each in islice(read_elements(io.BytesIO(data), name=name), MAX_ROWS + 1))
        except DataError:
            # An incomplete array ends within an element.
            if is_complete or not elements:
                raise
        return _sample_of_objects(elements, Json(), is_complete=is_complete)
    # A single line that is an object with a list is either the response of an API, or the only line of an NDJSON file.
    if not is_ndjson and (len(lines) == 1 or not isinstance(parse_line(lines[0]), dict)):
        try:
            document = parse_json(data)
        except (ValueError, RecursionError) as error:
            reason = describe_json_error(error) if is_complete else f"one object of more than {MAX_BYTES // 2**20} MiB"
            raise DataError(
                f"{name}: not NDJSON, and not JSON: {reason}: send one event per line, or one array"
            ) from error
        lists = {key: value for key, value in document.items() if _is_list_of_objects(value)}
        if len(lists) == 1:
            ((key, elements),) = lists.items()
            return replace(_sample_of_objects(elements, Json(), is_complete=is_complete), list_key=key)
        if len(lines) > 1:
            what = f"one JSON object with {len(lists)} lists of objects"
            raise DataError(f"{name}: {what}: send one event per line, or one array")
    # The last line of an incomplete sample is usually cut.
    events = map(parse_line, lines if is_complete else lines[:-1])
    return _sample_of_objects(list(islice(events, MAX_ROWS + 1)), Ndjson(), is_complete=is_complete)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _sample_of_objects(events: Sequence[object], file_format: FileFormat, *, is_complete: bool) -> Sample:
    # The receiver rejects elements that are not objects.
    objects = {number: event for number, event in enumerate(events[:MAX_ROWS], start=1) if isinstance(event, dict)}
    names = dict.fromkeys(key for event in objects.values() for key in event)
    return Sample(
        file_format=file_format,
        columns=[SampleColumn(key, [event.get(key) for event in objects.values()], list(objects)) for key in names],
        rows=len(events[:MAX_ROWS]) if objects else 0,
        is_complete=is_complete and len(events) <= MAX_ROWS,
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
        header, *rows = [*islice(read_rows(find_sheet(workbook, None, name)), MAX_ROWS + 2)] or [SheetRow(0, [])]
    if not rows:
        raise DataError(f"{name}: no rows: send a sample with a header and at least one row")
    names = ["" if cell is None else str(to_json_value(cell)).strip() for cell in header.cells]
    _check_names([column for column in names if column], name)
    columns, numbers = list[SampleColumn](), [row.number for row in rows]
    for index, column in enumerate(names):
        cells = [row.cells[index] if index < len(row.cells) else None for row in rows[:MAX_ROWS]]
        values = [to_json_value(cell) for cell in cells]
        temporal = [cell if isinstance(cell, date) else value for cell, value in zip(cells, values, strict=True)]
        if column:
            columns.append(SampleColumn(column, values, numbers, temporal))
    is_complete = len(rows) <= MAX_ROWS
    return Sample(file_format=Xlsx(), columns=columns, rows=len(rows[:MAX_ROWS]), is_complete=is_complete)


def _check_names(names: Sequence[str], name: str) -> None:
    if duplicates := sorted({column for column in names if names.count(column) > 1}):
        raise DataError(
            f"{name}: two columns have the same name: {list_names(duplicates)}: "
            f"rename one {quote_name(duplicates[0])}, because the receiver refuses such files"
        )
