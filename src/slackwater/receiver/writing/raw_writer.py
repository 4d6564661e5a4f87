"""Parts written to their partitions, side-line and catalogue: the end of every way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from slackwater.receiver.writing.partition_writer import PartitionFile
from slackwater.receiver.writing.partitioning import HourPart, HourSplit, encode_parquet
from slackwater.receiver.writing.rejects import RejectRecord, rejects_uri, to_jsonl
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, object_uri
from slackwater.storage import ObjectStore

ROWS, FILE = "rows", "file"
"""Metadata of an object: how many events it holds, and the path of the partner's file that they came in."""

_WRITERS = 8
"""Objects written at once: most of a write is waiting."""


class PartitionCatalog(Protocol):
    """What the receiver asks of the catalogue."""

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Make the partitions known; one that is known already is no error."""


@dataclass(frozen=True, kw_only=True)
class RawWriter:
    """Writes to the raw bucket."""

    store: ObjectStore
    partitions: PartitionCatalog
    raw_bucket: str

    def store_parts(self, source: Source, found: HourSplit, *, names: Sequence[str]) -> int:
        """Write each partition's stamped events unless an object of that name is there; return the events written.

        When it raises, some may have been written: the same call again writes the others.
        """

        def put(part: HourPart, name: str, body: bytes) -> int:
            uri = object_uri(self.raw_bucket, source.source, part.partition, name)
            rows: int = part.table.num_rows
            return rows if self.store.put_new(uri, body, metadata={ROWS: str(rows)}) else 0

        parts = list(found.parts())
        # Encoded before any thread starts: that is work, while theirs is waiting.
        encoded = [encode_parquet(part.table) for part in parts]
        with ThreadPoolExecutor(max_workers=_WRITERS) as pool:
            return sum(pool.map(put, parts, names, encoded))

    def store_files(
        self, source: Source, files: Sequence[PartitionFile], *, contents: Sequence[str], origin: str
    ) -> None:
        """Write each partition's file unless an object of that content is there.

        When it raises, some may have been written: the same call again writes the others.
        `origin` is the path of the partner's file that holds the events.
        """

        def put(file: PartitionFile, content: str) -> None:
            uri = object_uri(self.raw_bucket, source.source, file.partition, content)
            self.store.put_new_file(uri, file.path, metadata={ROWS: str(file.rows), FILE: quote(origin)})

        with ThreadPoolExecutor(max_workers=_WRITERS) as pool:
            list(pool.map(put, files, contents))

    def sideline(
        self, source: Source, records: Sequence[RejectRecord], *, received_at: datetime, batch_id: str
    ) -> None:
        """Keep the rejected records of a batch, once; none leaves no object."""
        if records:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new(uri, to_jsonl(records))

    def sideline_file(self, source: Source, path: Path, *, received_at: datetime, batch_id: str) -> None:
        """Keep the rejected records of a file, which stand in `path` as JSON, one on a line; none leaves no object."""
        if path.stat().st_size:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new_file(uri, path)

    def register(self, source: Source, partitions: Iterable[Partition]) -> None:
        """Make the partitions known to the catalogue."""
        self.partitions.register(source.source, partitions)
