"""A file's events, block by block, gathered into one Parquet file for each partition on local disk.

Memory holds what has come since all was written out last, whatever the size of the file and however its hours are
mixed. What is written out is a row group of its partition's file where that makes a good one; where it is too little,
it waits on disk for more of its hour: many small row groups would be slow to write, and slow to read.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import DataError
from slackwater.receiver.writing.partitioning import PARQUET, HourPart, first_places, places_of, split_by_hour
from slackwater.sources.partitions import Partition

MAX_PARTITIONS = 4_000
"""Hours that one file may touch: more would not fit its item in the file cache."""
BUDGET = 64 * 2**20
"""Bytes of events that are held in memory before all are written out."""
ROW_GROUP = 2**13
"""Events that make a good row group."""


class PartitionFile(NamedTuple):
    """The events of one partition, as Parquet."""

    partition: Partition
    path: Path
    rows: int


class PartitionWriter:
    """Takes events of any hours; each partition's go to a file in `folder`, in the order in which they came.

    It is to be used as a context, at the end of which no file is open.
    """

    def __init__(
        self, folder: Path, finish: Callable[[pa.Table], pa.Table], *, name: str, id_column: str | None = None
    ) -> None:
        """Write events as `finish` returns them, and of those of one partition with one `id_column` the first only.

        `name` is what errors call the file that they are from.
        """
        self._folder, self._finish, self._name, self._id_column = folder, finish, name, id_column
        self._held: list[pa.Table] = []
        self._size = 0
        self._rows: dict[Partition, int] = defaultdict(int)
        self._waiting = _Waiting(folder / "waiting.arrow")
        self._writers: dict[Partition, _Writer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()
        for writer in self._writers.values():
            writer.close()

    def add(self, table: pa.Table) -> None:
        """Take a block of events. Raises `DataError` when all together are of too many hours."""
        self._held.append(table)
        self._size += table.nbytes
        if self._size > BUDGET:
            self._write_out()

    def finish(self) -> list[PartitionFile]:
        """Write what is left, and return the files, oldest hour first. Raises `DataError` as `add` does."""
        left = dict(self._let_go())
        return [self._finished(partition, left.get(partition)) for partition in sorted(self._rows)]

    def _let_go(self) -> Iterator[HourPart]:
        """Return what is held, by partition: all of it at once, since a slice keeps the memory of the whole."""
        if not self._held:
            return
        found = split_by_hour(pa.concat_tables(self._held))
        self._held, self._size = [], 0
        for part in found.parts():
            self._rows[part.partition] += part.table.num_rows
        if len(self._rows) > MAX_PARTITIONS:
            raise DataError(f"{self._name}: its rows are of more than {MAX_PARTITIONS:,} hours: send it in parts")
        yield from found.parts()

    def _write_out(self) -> None:
        for partition, table in self._let_go():
            if table.num_rows < ROW_GROUP or partition in self._waiting:
                self._waiting.add(partition, table)
            else:
                self._write(partition, table)
                self._writers[partition].rest()

    def _write(self, partition: Partition, table: pa.Table) -> None:
        table = self._finish(table)
        if partition not in self._writers:
            self._writers[partition] = _Writer(self._path(partition), table.schema)
        self._writers[partition].write(table)

    def _finished(self, partition: Partition, left: pa.Table | None) -> PartitionFile:
        for table in _joined(chain(self._waiting.tables(partition), () if left is None else (left,))):
            self._write(partition, table)
        self._writers.pop(partition).close()
        path, rows = self._path(partition), self._rows[partition]
        return PartitionFile(partition, path, _keep_first(path, self._id_column) if self._id_column else rows)

    def _path(self, partition: Partition) -> Path:
        return self._folder / f"{partition.date}-{partition.hour}.parquet"


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Return the same events in tables that make good row groups, but for the last one."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(held.num_rows for held in some) >= ROW_GROUP:
            yield pa.concat_tables(some)
            some.clear()
    if some:
        yield pa.concat_tables(some)


def _keep_first(path: Path, id_column: str) -> int:
    """Leave out events whose id an earlier one has; return how many there are then."""
    ids = pq.read_table(path, columns=[id_column]).column(0)
    distinct: int = pc.count_distinct(ids).as_py()
    if distinct == len(ids):
        return distinct
    first = first_places(pa.table({"id": ids}))
    is_first, start, made = pc.is_in(places_of(len(ids)), value_set=first), 0, path.with_suffix(".first")
    with pq.ParquetFile(path) as file, pq.ParquetWriter(made, file.schema_arrow, **PARQUET) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            writer.write_table(table.filter(is_first[start : start + table.num_rows]))
            start += table.num_rows
    made.replace(path)
    return distinct


class _Waiting:
    """Pieces of partitions in one file, in the order in which they came: first all are added, then they are read."""

    def __init__(self, path: Path) -> None:
        self._path, self._count = path, 0
        self._places: dict[Partition, list[int]] = defaultdict(list)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._places

    def add(self, partition: Partition, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, table.schema)
        for batch in table.combine_chunks().to_batches():
            self._writer.write_batch(batch)
            self._places[partition].append(self._count)
            self._count += 1

    def tables(self, partition: Partition) -> Iterator[pa.Table]:
        for place in self._places.get(partition, ()):
            yield pa.Table.from_batches([self._reader.get_batch(place)])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    @cached_property
    def _reader(self) -> pa.ipc.RecordBatchFileReader:
        self.close()
        return pa.ipc.open_file(pa.OSFile(str(self._path)))


class _Writer:
    """A partition's Parquet file, which need not stay open: a process may open fewer than a file has hours."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = _Sink(path)
        self._parquet = pq.ParquetWriter(self._sink, schema, **PARQUET)

    def write(self, table: pa.Table) -> None:
        """Append the events as a row group."""
        self._parquet.write_table(table, row_group_size=table.num_rows)

    def rest(self) -> None:
        """Close the file until something is written again."""
        self._sink.rest()

    def close(self) -> None:
        self._parquet.close()
        self._sink.rest()


class _Sink(io.RawIOBase):
    """The end of a file that is opened by writing."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._file: BinaryIO | None = None

    def rest(self) -> None:
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
