"""Write packed objects: the rows of many objects of a partition, in the order of the objects' names."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.receiver.writing.partitioning import PARQUET, row_indexes
from slackwater.runs.packing.event_reader import EventReader
from slackwater.runs.packing.index import ENDING, OBJECT, ROW, PackedObject, packed_object
from slackwater.sources.partitions import named_rows
from slackwater.storage import ObjectStore, StoredObject

_READERS = 16
# Bytes, rows and number of the objects that are read at the same time. Rows need up to 20 times as much in memory.
_READ_BYTES, _READ_ROWS, _READ_OBJECTS = 8 * 2**20, 500_000, 1000
# Bytes in memory of the rows of one packed object, which are much smaller when they are written.
MAX_BYTES = 256 * 2**20
_ROW_GROUP = 250_000
_OPTIONS = {**PARQUET, "use_dictionary": [*PARQUET["use_dictionary"], OBJECT]}


@dataclass(frozen=True, kw_only=True)
class PackedWriter:
    """Writes packed objects. The name of each is new: none that exists is replaced."""

    store: ObjectStore
    now: Callable[[], datetime]

    def write(self, folder: str, members: Sequence[StoredObject]) -> Iterator[PackedObject]:
        """Write the rows of the objects, which are in order of URI, and yield the packed objects.

        `folder` is the beginning of their URIs. Raises `ObjectInvalid` if an object does not have the number of rows
        that is in its name, `ObjectMissing`, `CloudError`; then some packed objects may be written.
        """
        for found, table in self._tables(members):
            sink = io.BytesIO()
            pq.write_table(table, sink, row_group_size=_ROW_GROUP, **_OPTIONS)
            uri = f"{folder}{uuid.uuid4().hex}-{table.num_rows}{ENDING}"
            self.store.put_new(uri, sink.getvalue())
            head = self.store.head(uri)
            if head is None:
                raise ObjectMissing(f"{uri} was deleted when it had just been written")
            placed = (item[:4] for item in found)
            yield packed_object(uri, size=head.size, etag=head.etag, packed_at=self.now(), members=placed)

    def _tables(self, members: Sequence[StoredObject]) -> Iterator[tuple[list[StoredObject], pa.Table]]:
        """Yield consecutive objects with their rows, as many as fit into memory."""
        reader, found, tables = EventReader(self.store), list[StoredObject](), list[pa.Table]()
        with ThreadPoolExecutor(_READERS) as pool:
            for group in _groups(members):
                # Small tables have more overhead than rows.
                tables.append(_joined(pool.map(lambda item: _rows(reader, item), group)))
                found += group
                if sum(table.nbytes for table in tables) >= MAX_BYTES:
                    yield found, _joined(tables)
                    found, tables = [], []
        if found:
            yield found, _joined(tables)


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    # Objects that were written before a column was defined lack it.
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _rows(reader: EventReader, item: StoredObject) -> pa.Table:
    """Return the rows of an object with the columns of packed objects."""
    table = pa.concat_tables(reader.blocks(item))
    if table.num_rows != named_rows(item.uri):
        raise ObjectInvalid(f"{item.uri} has {table.num_rows} rows: it was not written by the receiver (remove it)")
    if item.packed:
        return table
    name = pa.repeat(pa.scalar(item.uri.rpartition("/")[2], pa.string()), table.num_rows)
    return table.append_column(OBJECT, name).append_column(ROW, row_indexes(table.num_rows))


def _groups(members: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    """Split objects into consecutive groups that are read at the same time."""
    group, size, rows = list[StoredObject](), 0, 0
    for item in members:
        size, rows = size + item.size, rows + (named_rows(item.uri) or 0)
        if group and (size > _READ_BYTES or rows > _READ_ROWS or len(group) == _READ_OBJECTS):
            yield group
            group, size, rows = [], item.size, named_rows(item.uri) or 0
        group.append(item)
    if group:
        yield group
