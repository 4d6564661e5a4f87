"""Write the events of a file, block by block, to one Parquet file for each partition on local disk.

At most `BUDGET` bytes of events are in memory, whatever the size of the file and the order of its hours. When the
buffer exceeds that, all buffered events are written to disk. An hour with at least `ROW_GROUP` buffered events becomes
a row group of its partition's file. The events of all other hours go to a spill file; at the end they are joined with
later events of their hour, because many small row groups are slow to write and to read.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import DataError
from slackwater.receiver.writing.duplicate_ids import duplicate_rows
from slackwater.receiver.writing.partitioning import PARQUET, row_indexes, split_by_hour
from slackwater.receiver.writing.raw_writer import PartitionFile
from slackwater.receiver.writing.spill_file import SpillFile
from slackwater.receiver.writing.windows import hourly_bins, windows_in
from slackwater.sources.counts import ALL
from slackwater.sources.partitions import Partition
from slackwater.state.facts import Histogram, added

# Hours of one file. The file cache lists the objects of a file in one item, and DynamoDB limits an item to 400 KB.
MAX_PARTITIONS = 4_000
# Bytes of events in memory before they are written to disk.
BUDGET = 64 * 2**20
# Smallest number of events that is written as a row group of its own, except for the last one of an hour.
ROW_GROUP = 2**13
# Bytes of events that are written as a row group even if they are fewer.
ROW_GROUP_BYTES = 64 * 2**20


class PartitionWriter:
    """Writes events of any hours to one file per partition; each partition's events keep their order.

    Use it as a context manager, which closes all files; call `add` for each block of events, then `finish` once.
    """

    def __init__(
        self,
        folder: Path,
        transform: Callable[[pa.Table], pa.Table],
        *,
        name: str,
        id_column: str | None = None,
        keys: tuple[str, ...] = (ALL,),
    ) -> None:
        """Write to `folder`, a local folder that exists.

        `transform` is applied to each table of events before it is written, for example to add metadata. With
        `id_column`, a partition keeps only the first event of each id. `name` is the partner's name for the file, for
        error messages. Events are counted by `keys` (`Counts.keys`).
        """
        self._folder, self._transform, self._name, self._id_column = folder, transform, name, id_column
        self._keys = keys
        self._buffer: list[pa.Table] = []
        self._buffered_bytes = 0
        self._rows: dict[Partition, int] = defaultdict(int)
        self._bins: dict[Partition, Histogram] = defaultdict(lambda: added([], keys))
        self._spill: SpillFile[Partition] = SpillFile(folder / "spill.arrow")
        self._files: dict[Partition, tuple[_AppendOnlyFile, pq.ParquetWriter]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spill.close()
        for partition in list(self._files):
            self._close(partition)

    def add(self, table: pa.Table) -> None:
        """Add a block of events. Raises `DataError` when all blocks together have too many hours."""
        self._buffer.append(table)
        self._buffered_bytes += table.nbytes
        if self._buffered_bytes <= BUDGET:
            return
        for partition, part in self._take_buffer():
            # Once an hour has spilled events, its later ones are spilled, too, so that they keep their order.
            if part.num_rows < ROW_GROUP or partition in self._spill:
                self._spill.add(partition, part)
            else:
                self._write(partition, part)

    def finish(self) -> list[PartitionFile]:
        """Write the remaining events, close all files, and return them, oldest hour first.

        Raises `DataError` when all blocks together have too many hours.
        """
        buffered = {partition: [part] for partition, part in self._take_buffer()}
        files = []
        for partition in sorted(self._rows):
            for table in _row_groups(chain(self._spill.tables(partition), buffered.get(partition, []))):
                self._write(partition, table)
            self._close(partition)
            path, rows, bins = self._path(partition), self._rows[partition], self._bins[partition]
            if self._id_column and (dropped := _drop_duplicates(path, self._id_column)):
                rows -= dropped
                with path.open("rb") as file:
                    bins = windows_in(file, self._keys, uri=path.name)
            files.append(PartitionFile(partition, path, rows, bins))
        return files

    def _take_buffer(self) -> Iterator[tuple[Partition, pa.Table]]:
        """Empty the buffer and return its events by partition. Raises `DataError` for too many partitions."""
        if not self._buffer:
            return
        # All parts are slices of one table and share its memory: writing only the large parts would free nothing, so
        # the whole buffer is emptied.
        parts = list(split_by_hour(pa.concat_tables(self._buffer)).runs())
        self._buffer, self._buffered_bytes = [], 0
        for partition, part in parts:
            self._rows[partition] += part.num_rows
        if len(self._rows) > MAX_PARTITIONS:
            raise DataError(f"{self._name}: its rows are from more than {MAX_PARTITIONS:,} hours: send it in parts")
        yield from parts

    def _write(self, partition: Partition, table: pa.Table) -> None:
        """Transform the events and append them to the file of their partition as one row group."""
        self._bins[partition] = added([self._bins[partition], *hourly_bins(table, self._keys)], self._keys)
        table = self._transform(table)
        if partition not in self._files:
            sink = _AppendOnlyFile(self._path(partition))
            self._files[partition] = sink, pq.ParquetWriter(sink, table.schema, **PARQUET)
        sink, writer = self._files[partition]
        writer.write_table(table, row_group_size=table.num_rows)
        sink.suspend()

    def _close(self, partition: Partition) -> None:
        sink, writer = self._files.pop(partition)
        writer.close()
        sink.suspend()

    def _path(self, partition: Partition) -> Path:
        return self._folder / f"{partition.date}-{partition.hour}.parquet"


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join consecutive tables until they have `ROW_GROUP` rows or `ROW_GROUP_BYTES`; the last result may have fewer."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        pending.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= ROW_GROUP or size > ROW_GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _drop_duplicates(path: Path, id_column: str) -> int:
    """Keep the first event of each id in the Parquet file at `path`; return the number of events dropped."""
    with pq.ParquetFile(path) as file:
        rows: int = file.metadata.num_rows
        # One bit for each row, in the format of Arrow's boolean arrays.
        duplicates, count = bytearray(-(-rows // 8)), 0
        for table in duplicate_rows(_numbered_ids(file, id_column), path.parent):
            count += table.num_rows
            for row in table["row"].to_pylist():
                duplicates[row >> 3] |= 1 << (row & 7)
        if not count:
            return 0
        kept = pc.invert(pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(duplicates)]))
        start, rewritten = 0, path.with_suffix(".rewritten")
        # One row group at a time, so that memory stays bounded.
        with pq.ParquetWriter(rewritten, file.schema_arrow, **PARQUET) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                writer.write_table(table.filter(kept.slice(start, table.num_rows)))
                start += table.num_rows
    rewritten.replace(path)
    return count


def _numbered_ids(file: pq.ParquetFile, id_column: str) -> Iterator[pa.Table]:
    """Yield the ids of each row group with their row numbers, from 0."""
    start = 0
    for group in range(file.num_row_groups):
        # One column is no work for several threads.
        ids = file.read_row_group(group, columns=[id_column], use_threads=False).column(0)
        yield pa.table({"id": ids, "row": pc.add(row_indexes(len(ids)), start)})
        start += len(ids)


class _AppendOnlyFile(io.RawIOBase):
    """A file that is opened by a write and can be closed between writes; `tell` counts what was written in all.

    pyarrow writes to it as to any Python file object. Otherwise a pulled file of thousands of hours would exceed the
    number of files that a process may have open: 1,024 in AWS Lambda.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._file: BinaryIO | None = None

    def suspend(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._file is None:
            self._file = self._path.open("ab")
        written = self._file.write(data)
        self._size += written
        return written

    def tell(self) -> int:
        return self._size
