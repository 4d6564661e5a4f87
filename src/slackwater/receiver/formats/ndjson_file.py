"""Reads and checks an NDJSON file: one event per line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa

from slackwater.receiver.formats.blocks import MAX_RECORD_BYTES, BlockReader
from slackwater.receiver.parsing.compression import ByteStream
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.json_lines import WHITESPACE, decode_lines, read_json_lines
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import partner_schema

# `read_json_lines` requires a limit, which pushed bodies need. This one exceeds the bytes of any block.
_NO_LIMIT = 4 * MAX_RECORD_BYTES


class _LineFormat:
    """Each line is a record. Implements `blocks.RecordFormat`."""

    remedy = "write each event on one line, or set the format to json if the file is one array"

    def complete_length(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def count_line_ends(self, data: bytes) -> int:
        return data.count(b"\n")


def read_ndjson(
    stream: ByteStream, source: Source, *, name: str, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[CheckedEvents]:
    """Read and check an NDJSON file, block by block. `name` is the name of the file in errors.

    Blank lines count in line numbers, but not as events. Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    schema, first_index = partner_schema(source), 0
    for block in BlockReader(stream, _LineFormat(), name=name):
        events, lines = read_json_lines(block.data, schema, max_events=_NO_LIMIT)
        if not lines:
            continue
        checked = check_events(events, source, received_at=received_at, first_received_at=first_received_at)
        numbers = [lines[index] for index in checked.rejections["index"].to_pylist()]
        texts = pa.array(decode_lines(block.data, numbers), pa.string())
        positions = pa.array([block.line + number - 1 for number in numbers], pa.int64())
        yield checked.located(texts, first_index=first_index, lines=positions)
        first_index += len(lines)


def count_ndjson_rows(stream: ByteStream, *, name: str) -> int:
    """Return the number of lines of an NDJSON file that are not blank.

    Raises `DataError` for a line of more than `MAX_RECORD_BYTES`.
    """
    blocks = BlockReader(stream, _LineFormat(), name=name)
    return sum(bool(line.strip(WHITESPACE)) for block in blocks for line in block.data.split(b"\n"))
