"""A pulled file read as its source's definition says, block by block: the one way into all formats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from slackwater.receiver.events import Checked
from slackwater.receiver.file_format import Csv, Json, Ndjson, Parquet, Xlsx
from slackwater.receiver.formats.compression import expanded, expanded_file
from slackwater.receiver.formats.csv_file import read_csv
from slackwater.receiver.formats.json_file import read_json
from slackwater.receiver.formats.ndjson_file import read_ndjson
from slackwater.receiver.formats.parquet_file import read_parquet
from slackwater.receiver.pull import pull_of
from slackwater.receiver.source import Source


def read_file(path: Path, source: Source, *, name: str, received_at: datetime) -> Iterator[Checked]:
    """Read and check a file; `name` is what errors call it, and `received_at` what events' ages are judged by.

    Each block holds few enough rows to be in memory. A rejected row has its place in the file, and its text. Raises
    `DataError` where no row could be read.
    """
    match form := pull_of(source).format:
        case Csv():
            with expanded(path, name=name) as stream:
                yield from read_csv(stream, form, source, name=name, received_at=received_at)
        case Ndjson():
            with expanded(path, name=name) as stream:
                yield from read_ndjson(stream, source, name=name, received_at=received_at)
        case Json():
            with expanded(path, name=name) as stream:
                yield from read_json(stream, source, name=name, received_at=received_at)
        case Parquet():
            with expanded_file(path, name=name) as bare:
                yield from read_parquet(bare, source, name=name, received_at=received_at)
        case Xlsx():
            # Reading its XML takes a library that no other format needs: 0.2 s of a cold start.
            from slackwater.receiver.formats.xlsx_file import read_xlsx  # noqa: PLC0415

            yield from read_xlsx(path, form, source, name=name, received_at=received_at)
