"""Write events to their partitions and rejected events to `sideline/`: the last step of a push and of a pull.

Every object is written with `If-None-Match: *` under a name that its content determines, so a retry after a crash
writes only what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa

from slackwater.receiver.writing.partition_writer import PartitionFile
from slackwater.receiver.writing.partitioning import (
    HourPart,
    add_metadata,
    drop_duplicates,
    encode_parquet,
    split_by_hour,
)
from slackwater.receiver.writing.rejects import RejectRecord, rejects_uri, to_jsonl
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, object_uri
from slackwater.storage import ObjectStore

ROWS, FILE = "rows", "file"
"""Metadata of a raw object: its number of events, and the path of the partner's file that held them."""

# Most of a write is waiting for the store.
_PARALLEL_WRITES = 8


class PartitionCatalog(Protocol):
    """The catalogue of partitions, as far as the receiver needs it."""

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Add the partitions to the catalogue; a partition that it already has is no error."""


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """The accepted events of one pushed body, without the body itself, so that many fit in memory."""

    table: pa.Table
    """By `event_schema`."""
    rejected: Collection[int]
    """Indexes of the other events of the body."""
    batch_id: str
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class RawWriter:
    """Writes to the raw bucket and to its catalogue."""

    store: ObjectStore
    partitions: PartitionCatalog
    raw_bucket: str

    def write_events(self, source: Source, batches: Sequence[EventBatch]) -> int:
        """Write the events of pushed batches of one source, joined, and register their partitions.

        Returns the number of events written. A partition for which these batches already have an object adds none. Of
        the events with one id in one partition only the first is written, by time of receipt.
        After an error some objects may be written; the same call again writes the others.
        """
        earliest_first = sorted(batches, key=lambda batch: (batch.received_at, batch.batch_id))
        tables = (
            add_metadata(
                batch.table, source, received_at=batch.received_at, batch_id=batch.batch_id, rejected=batch.rejected
            )
            for batch in earliest_first
        )
        split = split_by_hour(pa.concat_tables(tables))
        if source.id_column:
            split = drop_duplicates(split, source.id_column)
        batch_ids = sorted({batch.batch_id for batch in batches})

        def put(part: HourPart, body: bytes) -> int:
            # The name does not depend on the events: after the definition has changed, a retry still finds the objects.
            name = hashlib.sha256("\n".join([*batch_ids, "/".join(part.partition)]).encode()).hexdigest()[:32]
            uri = object_uri(self.raw_bucket, source.source, part.partition, name)
            rows: int = part.table.num_rows
            return rows if self.store.put_new(uri, body, metadata={ROWS: str(rows)}) else 0

        parts = list(split.parts())
        # Encode before any thread starts: encoding needs the processor, and the threads only wait.
        encoded = [encode_parquet(part.table) for part in parts]
        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            written = sum(pool.map(put, parts, encoded))
        self.partitions.register(source.source, split.partitions)
        return written

    def write_files(
        self, source: Source, files: Sequence[PartitionFile], *, object_names: Sequence[str], origin: str
    ) -> None:
        """Write the file of each partition under its object name, and register the partitions.

        `origin` is the path of the partner's file that holds the events.
        After an error some objects may be written; the same call again writes the others.
        """

        def put(file: PartitionFile, name: str) -> None:
            uri = object_uri(self.raw_bucket, source.source, file.partition, name)
            self.store.put_new_file(uri, file.path, metadata={ROWS: str(file.rows), FILE: quote(origin)})

        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            list(pool.map(put, files, object_names))
        self.partitions.register(source.source, [file.partition for file in files])

    def write_rejects(
        self, source: Source, records: Sequence[RejectRecord], *, received_at: datetime, batch_id: str
    ) -> None:
        """Write the rejected events of a batch, once; without any, no object."""
        if records:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new(uri, to_jsonl(records))

    def write_rejects_file(self, source: Source, path: Path, *, received_at: datetime, batch_id: str) -> None:
        """Write the rejected events of a file, which `path` holds as JSON lines; if it is empty, no object."""
        if path.stat().st_size:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new_file(uri, path)
