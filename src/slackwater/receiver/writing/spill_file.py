"""Keep parts of tables in one file on local disk, and read them again by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

_Key = TypeVar("_Key", bound=Hashable)


class SpillFile(Generic[_Key]):
    """Tables of one schema by key, in one Arrow file. All tables must be added before the first one is read."""

    def __init__(self, path: Path) -> None:
        """Create the file at `path` when the first table is added."""
        self._path = path
        # Arrow's file format gives access to single record batches by index, so a key's tables can be anywhere.
        self._batch_indexes: dict[_Key, list[int]] = defaultdict(list)
        self._batches = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def __bool__(self) -> bool:
        """Return whether the file has any table."""
        return bool(self._batches)

    def __contains__(self, key: _Key) -> bool:
        """Return whether the file has a table of the key."""
        return key in self._batch_indexes

    def add(self, key: _Key, table: pa.Table) -> None:
        """Append a table of the key."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, table.schema)
        for batch in table.combine_chunks().to_batches():
            self._writer.write_batch(batch)
            self._batch_indexes[key].append(self._batches)
            self._batches += 1

    def tables(self, key: _Key) -> Iterator[pa.Table]:
        """Yield the tables of the key in the order in which they were added."""
        for index in self._batch_indexes.get(key, ()):
            if self._reader is None:
                self.close()
                self._reader = pa.ipc.open_file(pa.OSFile(str(self._path)))
            yield pa.Table.from_batches([self._reader.get_batch(index)])

    def close(self) -> None:
        """End the file; it stays on disk."""
        if self._writer is not None:
            self._writer.close()
