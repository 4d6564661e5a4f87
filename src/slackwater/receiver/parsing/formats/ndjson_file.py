"""An NDJSON file read into checked events: one on each line that is not blank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.formats.blocks import MOST_RECORD, Blocks
from slackwater.receiver.parsing.formats.compression import Stream
from slackwater.receiver.parsing.json_lines import line_texts, read_json_lines
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import partner_schema

_ANY_NUMBER = 4 * MOST_RECORD
"""More events than a block has bytes."""


class _Lines:
    """A line's end is a record's end: a `slackwater.receiver.parsing.formats.blocks.Cut`."""

    remedy = "write each event on a line of its own, or name the format json if the file is one array"

    def whole(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def line_ends(self, data: bytes) -> int:
        return data.count(b"\n")


def read_ndjson(stream: Stream, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a file, block by block; `name` is what errors call it.

    A line that is no event is rejected with its reason; a blank one counts as a line, not as an event. Raises
    `DataError` for a line that is too long.
    """
    wanted, index = partner_schema(source), 0
    for block in Blocks(stream, _Lines(), name=name):
        events, lines = read_json_lines(block.data, wanted, max_events=_ANY_NUMBER)
        if not lines:
            continue
        checked = check_events(events, source, received_at=received_at)
        texts = line_texts(block.data, [lines[item.index] for item in checked.rejected])
        rejected = [
            replace(item, index=index + item.index, line=block.line + lines[item.index] - 1, text=text)
            for item, text in zip(checked.rejected, texts, strict=True)
        ]
        yield CheckedEvents(checked.table, rejected)
        index += len(lines)
