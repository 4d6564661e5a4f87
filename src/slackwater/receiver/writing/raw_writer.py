"""Write each hour of events to its partition: the last step of push and pull.

Every object is written with `If-None-Match: *`. The name of a pushed batch's objects depends only on the batch, so a
retry after a crash writes only what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.receiver.writing.partitioning import PARQUET, HourSplit
from slackwater.receiver.writing.rejected_hours import RejectedBins, count_bins, metadata_of
from slackwater.receiver.writing.rejects import rejects_uri, to_jsonl
from slackwater.receiver.writing.windows import hourly_bins, windows_metadata
from slackwater.sources.definition import Source
from slackwater.sources.partitions import ROWS, Partition, object_name, object_uri
from slackwater.state.facts import Histogram, total_of
from slackwater.storage import ObjectStore

# Objects that are written at the same time. A write mostly waits for S3.
_PARALLEL_WRITES = 8


class PartitionFile(NamedTuple):
    """The events of one partition, as a local Parquet file."""

    partition: Partition
    path: Path
    rows: int
    bins: Histogram


@dataclass(frozen=True, kw_only=True)
class RawWriter:
    """Writes to the raw bucket."""

    store: ObjectStore
    raw_bucket: str

    def write_events(
        self,
        source: Source,
        split: HourSplit,
        *,
        batch_ids: Sequence[str],
        has_named_rows: bool = True,
        on_new: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Write the events of pushed batches of one source, one object per partition.

        `source` is the definition by which the batches were checked, not a later one. `split` has `raw_schema`. The
        names of objects depend on `batch_ids`, and with `has_named_rows` they have the number of events. An object that
        the same batches have written before is left unchanged.
        Returns the number of events in the objects that are new. Raises `CloudError`; then some objects may be written,
        and the same call again writes the others. `on_new` gets the number in either case: each event counts once,
        however often the call is repeated.
        """
        ids, new = sorted(set(batch_ids)), list[int]()

        def put(partition: Partition, bins: Histogram, body: bytes) -> int:
            rows = total_of(bins)
            # The name depends on the batches, not on the events, and `source` is the definition in their receipts: a
            # retry finds the objects of the first attempt even if the source's definition has changed in between. The
            # number of events is that of the first attempt, too (`slackwater.receiver.push.receive.Receipt.rows`).
            name = hashlib.sha256("\n".join([*ids, "/".join(partition)]).encode()).hexdigest()[:32]
            uri = object_uri(
                self.raw_bucket, source.source, partition, object_name(name, rows) if has_named_rows else name
            )
            if not self.store.put_new(uri, body, metadata={ROWS: str(rows), **windows_metadata(bins)}):
                return 0
            new.append(rows)
            return rows

        # Encode before the threads start: encoding needs the processor, and the threads are only for waiting for S3.
        hours = zip(split.runs(), hourly_bins(split.table, source.count_keys), strict=True)
        encoded = [(partition, bins, encode_parquet(table)) for (partition, table), bins in hours]
        try:
            with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
                return sum(pool.map(lambda part: put(*part), encoded))
        finally:
            on_new(sum(new))

    def write_files(self, source: Source, files: Sequence[PartitionFile], *, origin: str) -> None:
        """Write the local file of each partition as an object whose name begins with `origin`.

        Raises `CloudError`; then some objects may be written, and the
        same call again writes the others.
        """

        def put(file: PartitionFile) -> None:
            uri = object_uri(self.raw_bucket, source.source, file.partition, object_name(origin, file.rows))
            self.store.put_new_file(uri, file.path, metadata={ROWS: str(file.rows), **windows_metadata(file.bins)})

        with ThreadPoolExecutor(max_workers=_PARALLEL_WRITES) as pool:
            list(pool.map(put, files))  # `list` raises the first error of the threads

    def write_rejects(
        self, source: Source, rejections: pa.Table, *, received_at: datetime, batch_id: str, origin: str
    ) -> int:
        """Write the rejected events of a batch as one object, unless it exists or there are none.

        `rejections` and `origin` are as in `to_jsonl`. Returns the number of events in the object if it is new, else 0.
        Raises `CloudError`.
        """
        if not rejections.num_rows:
            return 0
        uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
        metadata = metadata_of(count_bins(rejections))
        is_new = self.store.put_new(uri, to_jsonl(rejections, batch_id=batch_id, origin=origin), metadata=metadata)
        return rejections.num_rows if is_new else 0

    def write_rejects_file(
        self, source: Source, path: Path, *, bins: RejectedBins, received_at: datetime, batch_id: str
    ) -> None:
        """Write the local file at `path`, rejected events as JSON lines, as one object, unless it exists or is empty.

        `bins` are those of `count_bins`. Raises `CloudError`.
        """
        if path.stat().st_size:
            uri = rejects_uri(self.raw_bucket, source.source, received_at=received_at, batch_id=batch_id)
            self.store.put_new_file(uri, path, metadata=metadata_of(bins))


def encode_parquet(table: pa.Table) -> bytes:
    """Return the table as a Parquet file with one row group; equal tables give equal bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=table.num_rows, **PARQUET)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
