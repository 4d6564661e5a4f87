"""A pulled file read as its source's definition says, block by block: the one way into all formats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.receiver.parsing.formats.compression import expanded, expanded_file
from slackwater.receiver.parsing.formats.csv_file import read_csv
from slackwater.receiver.parsing.formats.json_file import read_json
from slackwater.receiver.parsing.formats.ndjson_file import read_ndjson
from slackwater.receiver.parsing.formats.parquet_file import read_parquet
from slackwater.receiver.pull.plan import pull_of
from slackwater.sources.definition import Source
from slackwater.sources.file_format import Csv, Json, Ndjson, Parquet, Xlsx


def read_file(path: Path, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
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
            from slackwater.receiver.parsing.formats.xlsx_file import read_xlsx  # noqa: PLC0415

            yield from read_xlsx(path, form, source, name=name, received_at=received_at)
