"""Read the events of raw objects, wherever they are stored: in an object of their own, or in a packed one."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from functools import partial
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid
from slackwater.storage import ObjectFile, ObjectStore, PackedRows, StoredObject

# Larger objects are read one row group at a time.
MAX_BYTES = 64 * 2**20


class EventReader:
    """Reads objects. It keeps the columns of the packed object that it has read last: its members follow each other."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._lock = store, Lock()
        self._last: tuple[str, frozenset[str] | None] | None = None
        self._table = pa.table({})

    def blocks(self, item: StoredObject, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        """Yield the events of an object in blocks, with those of the columns that it has; None for all of them.

        Only the row group of the current block is in memory, or all rows of a packed object. Raises `ObjectInvalid`
        for an object that is not Parquet, `ObjectMissing`, `CloudError`.
        """
        if item.packed:
            wanted = None if columns is None else frozenset(columns)
            yield self._columns_of(item.packed, wanted).slice(item.packed.first, item.packed.rows)
        else:
            yield from self._read(item.uri, item.size, columns)

    def _columns_of(self, packed: PackedRows, columns: frozenset[str] | None) -> pa.Table:
        # Threads that need the same object wait for the one that reads it.
        with self._lock:
            if self._last != (packed.uri, columns):
                self._table = pa.concat_tables(self._read(packed.uri, packed.size, columns)).combine_chunks()
                self._last = packed.uri, columns
            return self._table

    def _read(self, uri: str, size: int, columns: Collection[str] | None) -> Iterator[pa.Table]:
        try:
            with open_object(self._store, uri, size) as file, pq.ParquetFile(file) as parquet:
                names = [name for name in parquet.schema_arrow.names if columns is None or name in columns]
                read = partial(parquet.read_row_group, columns=names, use_threads=False)
                yield from map(read, range(parquet.num_row_groups))
        except pa.ArrowException as error:
            raise ObjectInvalid(
                f"{uri} is not Parquet ({error}): it was not written by the receiver (remove it)"
            ) from error


def open_object(store: ObjectStore, uri: str, size: int) -> io.IOBase:
    """Open an object of the store; a large one is read in parts."""
    return ObjectFile(store, uri, size=size) if size > MAX_BYTES else io.BytesIO(store.get(uri))
