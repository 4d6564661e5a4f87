"""Write the events of a file, block by block, to one Parquet file for each partition on local disk.

Memory holds at most `BUDGET` bytes of events, whatever the size of the file and the order of its hours. Beyond that
all buffered events go to disk. An hour with enough events becomes a row group of its partition's file; fewer events
wait in a spill file for more of their hour, because many small row groups are slow to write and to read.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import DataError
from slackwater.receiver.writing.partitioning import PARQUET, HourPart, first_rows, row_indexes, split_by_hour
from slackwater.sources.partitions import Partition

# Hours of one file: more would not fit its item in the file cache.
MAX_PARTITIONS = 4_000
# Bytes of events in memory before they are written to disk.
BUDGET = 64 * 2**20
# Events of a good row group.
ROW_GROUP = 2**13


class PartitionFile(NamedTuple):
    """The events of one partition, as a local Parquet file."""

    partition: Partition
    path: Path
    rows: int


class PartitionWriter:
    """Writes events of any hours to files in a folder; each partition's events keep their order.

    Use it as a context manager, which closes all files.
    """

    def __init__(
        self, folder: Path, transform: Callable[[pa.Table], pa.Table], *, name: str, id_column: str | None = None
    ) -> None:
        """Write to `folder` what `transform` returns for a table of events.

        With `id_column`, a partition keeps only the first event of each id. `name` is the partner's name for the file,
        for error messages.
        """
        self._folder, self._transform, self._name, self._id_column = folder, transform, name, id_column
        self._buffer: list[pa.Table] = []
        self._buffered_bytes = 0
        self._rows: dict[Partition, int] = defaultdict(int)
        self._spill = _SpillFile(folder / "spill.arrow")
        self._files: dict[Partition, _PartitionParquet] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spill.close()
        for file in self._files.values():
            file.close()

    def add(self, table: pa.Table) -> None:
        """Add a block of events. Raises `DataError` when all blocks together have too many hours."""
        self._buffer.append(table)
        self._buffered_bytes += table.nbytes
        if self._buffered_bytes <= BUDGET:
            return
        for partition, part in self._take_buffer():
            if part.num_rows < ROW_GROUP or partition in self._spill:
                self._spill.add(partition, part)
            else:
                self._write(partition, part)
                self._files[partition].suspend()

    def finish(self) -> list[PartitionFile]:
        """Write the remaining events and return all files, oldest hour first. Raises `DataError` as `add` does."""
        buffered = {part.partition: [part.table] for part in self._take_buffer()}
        files = []
        for partition in sorted(self._rows):
            for table in _row_groups(chain(self._spill.tables(partition), buffered.get(partition, []))):
                self._write(partition, table)
            self._files.pop(partition).close()
            path, rows = self._path(partition), self._rows[partition]
            if self._id_column:
                rows = _drop_duplicates(path, self._id_column)
            files.append(PartitionFile(partition, path, rows))
        return files

    def _take_buffer(self) -> Iterator[HourPart]:
        """Empty the buffer and return its events by partition."""
        if not self._buffer:
            return
        # All parts are slices of this table and share its memory, so the buffer can only be emptied as a whole.
        split = split_by_hour(pa.concat_tables(self._buffer))
        self._buffer, self._buffered_bytes = [], 0
        for part in split.parts():
            self._rows[part.partition] += part.table.num_rows
        if len(self._rows) > MAX_PARTITIONS:
            raise DataError(f"{self._name}: its rows are of more than {MAX_PARTITIONS:,} hours: send it in parts")
        yield from split.parts()

    def _write(self, partition: Partition, table: pa.Table) -> None:
        table = self._transform(table)
        if partition not in self._files:
            self._files[partition] = _PartitionParquet(self._path(partition), table.schema)
        self._files[partition].write(table)

    def _path(self, partition: Partition) -> Path:
        return self._folder / f"{partition.date}-{partition.hour}.parquet"


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join tables to good row groups; the last one may be small."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(part.num_rows for part in pending) >= ROW_GROUP:
            yield pa.concat_tables(pending)
            pending.clear()
    if pending:
        yield pa.concat_tables(pending)


def _drop_duplicates(path: Path, id_column: str) -> int:
    """Keep the first event of each id in the Parquet file at `path`; return the number of events left."""
    ids = pq.read_table(path, columns=[id_column]).column(0)
    distinct: int = pc.count_distinct(ids).as_py()
    if distinct == len(ids):
        return distinct
    kept = pc.is_in(row_indexes(len(ids)), value_set=first_rows(pa.table({"id": ids})))
    start, rewritten = 0, path.with_suffix(".rewritten")
    # One row group at a time, so that memory stays bounded.
    with pq.ParquetFile(path) as file, pq.ParquetWriter(rewritten, file.schema_arrow, **PARQUET) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            writer.write_table(table.filter(kept[start : start + table.num_rows]))
            start += table.num_rows
    rewritten.replace(path)
    return distinct


class _SpillFile:
    """Small parts of partitions in one Arrow file: all are added before the first one is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._batch_indexes: dict[Partition, list[int]] = defaultdict(list)
        self._batches = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._batch_indexes

    def add(self, partition: Partition, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, table.schema)
        for batch in table.combine_chunks().to_batches():
            self._writer.write_batch(batch)
            self._batch_indexes[partition].append(self._batches)
            self._batches += 1

    def tables(self, partition: Partition) -> Iterator[pa.Table]:
        for index in self._batch_indexes.get(partition, ()):
            if self._reader is None:
                self.close()
                self._reader = pa.ipc.open_file(pa.OSFile(str(self._path)))
            yield pa.Table.from_batches([self._reader.get_batch(index)])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _PartitionParquet:
    """A partition's Parquet file. It can be suspended: a process may open fewer files than a pulled file has hours."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = _AppendOnlyFile(path)
        self._writer = pq.ParquetWriter(self._sink, schema, **PARQUET)

    def write(self, table: pa.Table) -> None:
        """Append the events as one row group."""
        self._writer.write_table(table, row_group_size=table.num_rows)

    def suspend(self) -> None:
        """Close the file until the next write."""
        self._sink.suspend()

    def close(self) -> None:
        self._writer.close()
        self._sink.suspend()


class _AppendOnlyFile(io.RawIOBase):
    """A file that each write opens if it is closed."""

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
