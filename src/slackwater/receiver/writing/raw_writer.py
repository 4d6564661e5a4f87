"""Write events to their partitions and rejected events to `sideline/`: the last step of a push and of a pull.

Every object is written with `If-None-Match: *` under a name that depends only on its batch or file, so a retry after a
crash writes only what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from slackwater.receiver.writing.partition_writer import PartitionFile
from slackwater.receiver.writing.partitioning import (
    HourPart,
    add_metadata,
    drop_duplicates,
    encode_parquet,
    split_by_hour,
)
from slackwater.receiver.writing.rejects import rejects_uri, to_jsonl
from slackwater.sources.definition import Source
from slackwater.sources.partitions import ROWS, Partition, object_name, object_uri
from slackwater.storage import ObjectStore

# Objects that are written at the same time. A write mostly waits for S3.
_PARALLEL_WRITES = 8


class PartitionCatalog(Protocol):
    """The operations of the catalogue of partitions that the receiver uses."""

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Add the partitions to the catalogue; one that it already has is no error. Raises `CloudError`."""


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """The accepted events of one pushed body. It does not refer to the body, so that many batches fit in memory."""

    table: pa.Table
    """With the columns of `event_schema`."""
    rejected: pa.Array
    """Indexes of the rejected events in the body; generated event ids skip them."""
    batch_id: str
    received_at: datetime
    """When the body was received first."""
    has_named_rows: bool = True
    """False for a batch that was received first before names of objects had rows: its objects keep their names."""


@dataclass(frozen=True, kw_only=True)
class RawWriter:
    """Writes to the raw bucket and to its catalogue."""

    store: ObjectStore
    partitions: PartitionCatalog
    raw_bucket: str

    def write_events(self, source: Source, batches: Sequence[EventBatch]) -> int:
        """Write the events of pushed batches of one source, one object per partition, and register the partitions.

        `source` is the definition by which the batches were checked, not a later one.
        Of the events with one id in one partition, only the first received is written. An object that the same batches
        have written before is left unchanged.
        Returns the number of events in the objects that are new. Raises `CloudError`; then some objects may be written,
        and the same call again writes the others.
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
            # The name depends on the batches, not on the events, and `source` is the definition in their receipts: a
            # retry finds the objects of the first attempt even if the source's definition has changed in between. The
            # number of events is that of the first attempt, too (`slackwater.receiver.push.receive.Receipt.rows`).
            name = hashlib.sha256("\n".join([*batch_ids, "/".join(part.partition)]).encode()).hexdigest()[:32]
            rows: int = part.table.num_rows
            if all(batch.has_named_rows for batch in batches):
                name = object_name(name, rows)
            uri = object_uri(self.raw_bucket, source.source, part.partition, name)
            return rows if self.store.put_new(uri, body, metadata={ROWS: str(rows)}) else 0

        parts = list(split.parts())
        # Encode before the threads start: encoding needs the processor, and the threads are only for waiting for S3.
        encoded = [encode_parquet(part.table) for part in parts]
        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            written = sum(pool.map(put, parts, encoded))
        # The catalogue comes last, also for objects that existed: a crash after the writes leaves objects without a
        # registered partition, and the retry must register it.
        self.partitions.register(source.source, split.partitions)
        return written

    def write_files(self, source: Source, files: Sequence[PartitionFile], *, object_names: Sequence[str]) -> None:
        """Write the local file of each partition as an object, and register the partitions.

        `object_names` has one name for each of `files`. Raises `CloudError`; then some objects may be written, and the
        same call again writes the others.
        """

        def put(file: PartitionFile, name: str) -> None:
            uri = object_uri(self.raw_bucket, source.source, file.partition, name)
            self.store.put_new_file(uri, file.path, metadata={ROWS: str(file.rows)})

        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            list(pool.map(put, files, object_names))  # `list` raises the first error of the threads
        self.partitions.register(source.source, [file.partition for file in files])

    def write_rejects(
        self, source: Source, rejections: pa.Table, *, received_at: datetime, batch_id: str, origin: str
    ) -> None:
        """Write the rejected events of a batch as one object, unless it exists or there are none.

        `rejections` and `origin` are as in `to_jsonl`. Raises `CloudError`.
        """
        if rejections.num_rows:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new(uri, to_jsonl(rejections, batch_id=batch_id, origin=origin))

    def write_rejects_file(self, source: Source, path: Path, *, received_at: datetime, batch_id: str) -> None:
        """Write the local file at `path`, rejected events as JSON lines, as one object, unless it exists or is empty.

        Raises `CloudError`.
        """
        if path.stat().st_size:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new_file(uri, path)
