"""Parts written to their partitions, side-line and catalogue: the end of every way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

from slackwater.receiver.encode import Part, Split, encode, stamp
from slackwater.receiver.partition import Partition, object_uri
from slackwater.receiver.sideline import SidelineRecord, sideline_uri, to_jsonl
from slackwater.receiver.source import Source
from slackwater.storage import ObjectStore

ROWS, FILE = "rows", "file"
"""Metadata of an object: how many events it holds, and the path of the partner's file that they came in."""

_WRITERS = 8
"""Objects written at once: most of a write is waiting."""


class Partitions(Protocol):
    """What the receiver asks of the catalogue."""

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Make the partitions known; one that is known already is no error."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Writes to the raw bucket."""

    store: ObjectStore
    partitions: Partitions
    raw_bucket: str

    def write(
        self,
        source: Source,
        found: Split,
        *,
        contents: Sequence[str],
        received_at: datetime,
        batch_id: str,
        file: str | None = None,
    ) -> int:
        """Write each partition's events unless an object of that content hash is there; return the events written.

        When it raises, some may have been written: the same call again writes the others.
        `file` is the path of the partner's file that holds the events.
        """

        def write_part(part: Part, content: str) -> int:
            uri = object_uri(self.raw_bucket, source.source, part.partition, content)
            rows: int = part.table.num_rows
            metadata = {ROWS: str(rows), **({FILE: quote(file)} if file else {})}
            return rows if self.store.put_new(uri, encode(part.table), metadata=metadata) else 0

        stamped = stamp(found, source, received_at=received_at, batch_id=batch_id)
        with ThreadPoolExecutor(max_workers=_WRITERS) as pool:
            return sum(pool.map(write_part, stamped.parts(), contents))

    def sideline(
        self, source: Source, records: Sequence[SidelineRecord], *, received_at: datetime, batch_id: str
    ) -> None:
        """Keep the rejected records of a batch; none leaves no object."""
        if records:
            uri = sideline_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put(uri, to_jsonl(records))

    def register(self, source: Source, partitions: Iterable[Partition]) -> None:
        """Make the partitions known to the catalogue."""
        self.partitions.register(source.source, partitions)
