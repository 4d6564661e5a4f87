"""Reads and checks a pulled file with the reader of its source's format, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from slackwater.receiver.formats.csv_file import count_csv_rows, read_csv
from slackwater.receiver.formats.json_file import count_json_rows, count_ndjson_rows, read_json, read_ndjson
from slackwater.receiver.formats.parquet_file import count_parquet_rows, read_parquet
from slackwater.receiver.parsing.compression import decompressed_file, open_decompressed
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.definition import Source
from slackwater.sources.file_format import Csv, Json, Ndjson, Parquet, Xlsx


def read_file(
    path: Path, source: Source, *, name: str, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Read and check a file, block by block; each block fits into memory.

    `name` is the name of the file in errors. The ages of events are relative to `received_at`, but the largest age to
    `first_received_at`, if it is set. The index of a rejected row is its position among all rows of the file, from 0.
    Raises `DataError` when no row can be read.
    """
    match file_format := source.require_pull().format:
        case Csv():
            with open_decompressed(path, name=name) as stream:
                yield from read_csv(
                    stream, file_format, source, name=name, received_at=received_at, first_received_at=first_received_at
                )
        case Ndjson():
            with open_decompressed(path, name=name) as stream:
                yield from read_ndjson(
                    stream, source, name=name, received_at=received_at, first_received_at=first_received_at
                )
        case Json():
            with open_decompressed(path, name=name) as stream:
                yield from read_json(
                    stream, source, name=name, received_at=received_at, first_received_at=first_received_at
                )
        case Parquet():
            with decompressed_file(path, name=name) as decompressed:
                yield from read_parquet(
                    decompressed, source, name=name, received_at=received_at, first_received_at=first_received_at
                )
        case Xlsx():
            # openpyxl is imported only when it is needed: it adds 0.2 s to a cold start.
            from slackwater.receiver.formats.xlsx_file import read_xlsx  # noqa: PLC0415

            yield from read_xlsx(
                path, file_format, source, name=name, received_at=received_at, first_received_at=first_received_at
            )


def count_rows(path: Path, source: Source, *, name: str) -> int:
    """Return the number of rows of a file, which are read but not checked.

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
        case Json():
            with open_decompressed(path, name=name) as stream:
                return count_json_rows(stream, name=name)
        case Parquet():
            with decompressed_file(path, name=name) as decompressed:
                return count_parquet_rows(decompressed, name=name)
        case Xlsx():
            from slackwater.receiver.formats.xlsx_file import count_xlsx_rows  # noqa: PLC0415

            return count_xlsx_rows(path, file_format, name=name)
