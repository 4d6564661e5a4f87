"""An NDJSON file read into checked events: one on each line that is not blank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from slackwater.receiver.batch import Batch, Limits, read_lines
from slackwater.receiver.events import Checked, check_events
from slackwater.receiver.formats.blocks import MOST_RECORD, Blocks
from slackwater.receiver.formats.compression import Stream
from slackwater.receiver.schema import wire_schema
from slackwater.receiver.source import Source

_ANY_NUMBER = Limits(events=4 * MOST_RECORD)
"""More events than a block has bytes."""


class _Lines:
    """A line's end is a record's end: a `slackwater.receiver.formats.blocks.Cut`."""

    remedy = "write each event on a line of its own, or name the format json if the file is one array"

    def whole(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def line_ends(self, data: bytes) -> int:
        return data.count(b"\n")


def read_ndjson(stream: Stream, source: Source, *, name: str, received_at: datetime) -> Iterator[Checked]:
    """Read and check a file, block by block; `name` is what errors call it.

    A line that is no event is rejected with its reason; a blank one counts as a line, not as an event. Raises
    `DataError` for a line that is too long.
    """
    wanted, index = wire_schema(source), 0
    for block in Blocks(stream, _Lines(), name=name):
        events, lines = read_lines(block.data, _ANY_NUMBER, wanted)
        if not lines:
            continue
        checked = check_events(events, source, received_at=received_at)
        batch = Batch(batch_id="", events=events, body=block.data, lines=lines)
        texts = batch.texts([item.index for item in checked.rejected])
        rejected = [
            replace(item, index=index + item.index, line=block.line + lines[item.index] - 1, text=text)
            for item, text in zip(checked.rejected, texts, strict=True)
        ]
        yield Checked(checked.table, rejected)
        index += len(lines)
