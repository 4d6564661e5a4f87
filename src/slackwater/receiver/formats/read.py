"""Reads and checks a pulled file with the parser of its source's format, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from slackwater.receiver.formats.blocks import ParsedRows
from slackwater.receiver.formats.csv_file import count_csv_rows, parse_csv
from slackwater.receiver.formats.json_file import count_ndjson_rows, parse_json_array, parse_ndjson
from slackwater.receiver.formats.parquet_file import open_parquet, parse_parquet
from slackwater.receiver.parsing.compression import decompressed_file, open_decompressed
from slackwater.receiver.parsing.count_keys import KEY_NUMBER
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.rejections import REJECTIONS, first_rejections, rejections_table
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.sources.file_format import Csv, Json, Ndjson, Parquet, Xlsx


def read_file(
    path: Path, source: Source, *, name: str, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Read and check a file, block by block; each block fits into memory.

    `name` is the name of the file in errors. The ages of events are relative to `received_at`, but the largest age to
    `first_received_at`, if it is set. The index of a rejected row is its position among all rows of the file, from 0.
    Raises `DataError` when no row can be read.
    """
    parsed = parse_file(path, source, name=name)
    return check_rows(parsed, source, received_at=received_at, first_received_at=first_received_at)


def check_rows(
    parsed: Iterable[ParsedRows], source: Source, *, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Check the rows of a file; the ages of events, and the indexes of rejected ones, are as in `read_file`."""
    first_index, names = 0, list(source.partner_fields)
    for rows in parsed:
        checked = check_events(
            rows.events,
            source,
            received_at=received_at,
            first_received_at=first_received_at,
            rejections=rows.rejections,
            is_clean=rows.is_clean,
        )
        if rows.left_out:
            checked = add_left_out(checked, rows)
        located = checked.located(*rows.locate(checked.rejections["index"]), first_index=first_index)
        missing = [] if rows.columns is None else [name for name in names if name not in rows.columns]
        yield located._replace(missing_columns=missing)
        first_index += rows.row_count


def add_left_out(checked: CheckedEvents, rows: ParsedRows) -> CheckedEvents:
    """Return the checked `rows.events` with `rows.left_out` as rejected ones; the index of each is its position."""
    positions = pa.array([row for row in range(rows.row_count) if row not in rows.left_out], pa.int64())
    indexes = positions.take(checked.rejections["index"])
    rejections = checked.rejections.set_column(0, REJECTIONS.field("index"), indexes)
    left_out = rejections_table(rows.left_out)
    # Nothing in them is readable.
    for name in (EVENT_TIME, KEY_NUMBER):
        field = rejections.schema.field(name)
        left_out = left_out.append_column(field, pa.nulls(left_out.num_rows, field.type))
    return CheckedEvents(checked.table, first_rejections([rejections, left_out]))


def count_rows(path: Path, source: Source, *, name: str) -> int:
    """Return the number of rows of a file, which are neither parsed nor checked where the format allows it.

    `name` is the name of the file in errors. Raises `DataError` when the end of a row cannot be found, or the file's
    compressed data is broken.
    """
    match file_format := source.require_pull().format:
        case Csv():
            with open_decompressed(path, name=name) as stream:
                return count_csv_rows(stream, file_format, name=name)
        case Ndjson():
            with open_decompressed(path, name=name) as stream:
                return count_ndjson_rows(stream, name=name)
        case Parquet():
            with decompressed_file(path, name=name) as decompressed, open_parquet(decompressed, name) as file:
                rows: int = file.metadata.num_rows
                return rows
        case _:
            return sum(rows.row_count for rows in parse_file(path, source, name=name))


def parse_file(path: Path, source: Source, *, name: str) -> Iterator[ParsedRows]:
    """Parse a file, block by block. `name` is the name of the file in errors.

    Raises `DataError` when no row can be read, or the file's compressed data is broken.
    """
    match file_format := source.require_pull().format:
        case Csv():
            with open_decompressed(path, name=name) as stream:
                yield from parse_csv(stream, file_format, source, name=name)
        case Ndjson():
            with open_decompressed(path, name=name) as stream:
                yield from parse_ndjson(stream, source, name=name)
        case Json():
            with open_decompressed(path, name=name) as stream:
                yield from parse_json_array(stream, name=name)
        case Parquet():
            with decompressed_file(path, name=name) as decompressed:
                yield from parse_parquet(decompressed, source, name=name)
        case Xlsx():
            # openpyxl is imported only when it is needed: it adds 0.2 s to a cold start.
            from slackwater.receiver.formats.xlsx_file import parse_xlsx  # noqa: PLC0415

            yield from parse_xlsx(path, file_format, source, name=name)
