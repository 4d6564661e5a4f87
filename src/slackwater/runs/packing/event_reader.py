"""Read the events of raw objects, wherever they are stored: in an object of their own, or in a packed one."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import chain
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid
from slackwater.runs.packing.index import is_packing
from slackwater.storage import ObjectFile, ObjectStore, PackedRows, StoredObject

# Larger objects are read one row group at a time.
MAX_BYTES = 64 * 2**20


class EventReader:
    """Reads objects. It reads each packed object once, and keeps those of one partition on the local disk.

    Members may be read in any order: events are counted in the order of their arrival, which changes between the packed
    objects of an hour with each member.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._lock, self._folder = store, Lock(), ""
        self._tables: dict[tuple[str, frozenset[str] | None], pa.Table] = {}

    def blocks(self, item: StoredObject, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        """Yield the events of an object in blocks, with those of the columns that it has; None for all of them.

        Only the row group of the current block is in memory. Raises `ObjectInvalid` for an object that is not Parquet,
        `ObjectMissing`, `CloudError`, and `OSError` when the disk is full.
        """
        if item.packed:
            wanted = None if columns is None else frozenset(columns)
            yield self._columns_of(item.packed, wanted).slice(item.packed.first, item.packed.rows)
        else:
            yield from self._read(item.uri, item.size, columns)

    def _columns_of(self, packed: PackedRows, columns: frozenset[str] | None) -> pa.Table:
        # Threads that need the same object wait for the one that reads it.
        with self._lock:
            folder = packed.uri.rpartition("/")[0]
            if folder != self._folder:
                self._folder = folder
                self._tables.clear()
            if (packed.uri, columns) not in self._tables:
                self._tables[packed.uri, columns] = _on_disk(self._read(packed.uri, packed.size, columns))
            return self._tables[packed.uri, columns]

    def _read(self, uri: str, size: int, columns: Collection[str] | None) -> Iterator[pa.Table]:
        try:
            with open_object(self._store, uri, size) as file, pq.ParquetFile(file) as parquet:
                names = [name for name in parquet.schema_arrow.names if columns is None or name in columns]
                read = partial(parquet.read_row_group, columns=names, use_threads=False)
                yield from map(read, range(parquet.num_row_groups))
        except (pa.ArrowException, OSError) as error:  # a damaged page is an error of the operating system
            remedy = "it was not written by the receiver (remove it)"
            if is_packing(uri):  # the objects of its members may be deleted
                remedy = "restore its first version (the bucket is versioned)"
            raise ObjectInvalid(f"{uri} is not readable as Parquet ({error}): {remedy}") from error


def _on_disk(blocks: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of one or more blocks. They are mapped from a file that ends with the last slice of the table."""
    blocks = iter(blocks)
    first = next(blocks)
    with tempfile.NamedTemporaryFile(prefix="packed-") as file:
        with pa.ipc.new_file(file, first.schema) as writer:
            for block in chain([first], blocks):
                writer.write_table(block)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def open_object(store: ObjectStore, uri: str, size: int) -> io.IOBase:
    """Open an object of the store; a large one is read in parts."""
    return ObjectFile(store, uri, size=size) if size > MAX_BYTES else io.BytesIO(store.get(uri))
