"""A CSV file read into checked events: columns by the header's names, every cell a text until its field reads it."""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from slackwater.errors import DataError
from slackwater.receiver.columns import Column
from slackwater.receiver.events import Checked, Rejected, check_columns, reader_of
from slackwater.receiver.source import Source

_CHUNK = 2**20
_BROKEN = re.compile("[\udc80-\udcff]")
_MARK = "\uffff"
"""Stands for a byte that is not UTF-8: Unicode keeps it free of meaning."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file."""

    index: int
    """Its place among the rows below the header, from 0; empty lines do not count."""
    line: int
    """The line on which it starts, from 1."""
    text: str


def read_csv(path: Path, source: Source, *, name: str) -> Checked:
    """Read and check a whole file; `name` is what errors call it.

    A row that cannot be used is rejected with its reason. Raises `DataError` where no row could be: no header, a header
    without a column that every event needs, or two columns of one name.
    """
    header = _header(path, source, name)
    misfits: dict[int, str] = {}

    def note(row: arrow_csv.InvalidRow) -> str:
        # Arrow counts records from 1, the header being the first.
        misfits[row.number - 2] = f"{row.actual_columns} columns, where the header has {row.expected_columns}"
        return "skip"

    try:
        table = arrow_csv.read_csv(
            path if _is_utf8(path) else _marked(path),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_block(path)),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{name}: not readable as CSV: {error}") from error
    return _numbered(_check(table.combine_chunks(), source), misfits)


def original_rows(path: Path, wanted: Sequence[int]) -> Iterator[Row]:
    """Return those rows of the file as they came, bytes that are not UTF-8 written as escapes."""
    csv.field_size_limit(sys.maxsize)  # An unclosed quote makes a cell of the rest of the file.
    indexes, last = set(wanted), max(wanted, default=-1)
    taken: list[str] = []
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline="") as file:

        def lines() -> Iterator[str]:
            for line in file:
                taken.append(line)
                yield line

        reader, index, line = csv.reader(lines()), -2, 1
        for row in reader:
            index += bool(row)
            if row and index in indexes:
                yield Row(index, line, "".join(taken).rstrip("\r\n"))
            if index >= last:
                return
            taken.clear()
            line = reader.line_num + 1


def _block(path: Path) -> int:
    """Return a block size that holds the whole file, also with its marks: a row may be as long as it likes."""
    return max(3 * path.stat().st_size + 1, 2**16)


def _header(path: Path, source: Source, name: str) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            header = next((row for row in csv.reader(file) if row), None)
            "".join(header or ()).encode()
        except (UnicodeEncodeError, csv.Error) as error:
            raise DataError(f"{name}: its header is not readable: {error}") from error
    if header is None:
        raise DataError(f"{name}: empty: a header with the names of its columns is expected")
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise DataError(f"{name}: two columns of one name: {', '.join(twice)}")
    needed = {source.timestamp.field, *(field for field, kind in source.fields.items() if kind.required)}
    missing = sorted(needed - set(header))
    if missing:
        raise DataError(f"{name}: its header lacks {', '.join(missing)} (it has: {', '.join(header)})")
    return header


def _check(table: pa.Table, source: Source) -> Checked:
    faults: dict[int, str] = {}
    reader = reader_of(source)
    texts = {name: _texts(table[name], name, faults) for name in table.column_names}
    nothing = pa.nulls(table.num_rows, pa.string())
    columns: dict[str, Column] = {
        name: reader.texts(texts.get(name, nothing), field.type) for name, field in source.fields.items()
    }
    unknown = {name: texts[name].to_pylist() for name in table.column_names if name not in source.fields}
    return check_columns(columns, _extras(unknown, table.num_rows), source, faults=faults)


def _texts(column: pa.ChunkedArray, name: str, faults: dict[int, str]) -> pa.Array:
    cells = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
    for index in pc.indices_nonzero(pc.match_substring(cells, _MARK)).to_pylist():
        faults.setdefault(index, f"{name}: not UTF-8")
    return cells


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _marked(path: Path) -> Path:
    """Write the file beside itself with a mark for each byte that is not UTF-8, which Arrow refuses; return where."""
    marked = path.with_name(f"{path.name}.utf-8")
    with (
        path.open(encoding="utf-8", errors="surrogateescape", newline="") as file,
        marked.open("w", encoding="utf-8", newline="") as made,
    ):
        while chunk := file.read(_CHUNK):
            made.write(_BROKEN.sub(_MARK, chunk))
    return marked


def _extras(unknown: dict[str, list[str | None]], rows: int) -> pa.Array:
    if not unknown:
        return pa.nulls(rows, pa.string())
    names = list(unknown)
    found = zip(*unknown.values(), strict=True)
    return pa.array(
        [json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) for row in found], pa.string()
    )


def _numbered(checked: Checked, misfits: dict[int, str]) -> Checked:
    """Return the rejected rows by their place in the file, those of a wrong width among them."""
    if not misfits:
        return checked
    places, before = sorted(misfits), 0
    rejected = [Rejected(place, misfits[place]) for place in places]
    for item in checked.rejected:
        while before < len(places) and places[before] <= item.index + before:
            before += 1
        rejected.append(Rejected(item.index + before, item.reason))
    return Checked(checked.table, sorted(rejected, key=lambda item: item.index))
