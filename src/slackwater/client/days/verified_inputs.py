"""Read the inputs of a run, and compare each with the input manifest.

The events of an object may be in a packed object, beside an index of its members. An object is looked up in the index
first: if it is a member, its own object was deleted, or has come again and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.formatting import counted
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputManifest, InputObject, read_manifest
from slackwater.runs.outputs import Version
from slackwater.runs.packing.event_reader import open_object
from slackwater.runs.packing.index import INDEX, OBJECT, PackedObject, folder_of, members_of, read_index
from slackwater.sources.event_schema import raw_schema
from slackwater.storage import StoredObject

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse
    from slackwater.storage import ObjectStore

_READERS = 8
"""Objects that are read at the same time."""

_Item = TypeVar("_Item")


class _PackedInputs(NamedTuple):
    """The inputs whose events are in one packed object."""

    packed: PackedObject
    inputs: list[tuple[InputObject, StoredObject]]
    """Each as the manifest and as the index has it."""


class _Inputs(NamedTuple):
    """The inputs of a manifest by where their events are."""

    packed: Sequence[_PackedInputs]
    others: Sequence[InputObject]
    """Objects that are no members, and tables."""
    problems: Sequence[str]
    """Indexes that are not readable, one sentence each. The objects beside them are in none of the lists."""


@dataclass(frozen=True, kw_only=True)
class InputVerifier:
    """Reads the inputs of runs."""

    project: Project
    store: ObjectStore
    warehouse: Warehouse

    def problems(self, version: Version) -> Iterator[str]:
        """Yield what is wrong with the inputs of a run, one sentence each.

        A packed object is read once for all of its members. Raises `AccessDenied`, `CloudError`.
        """
        try:
            manifest = read_manifest(self.store, version.uri)
        except ObjectInvalid as error:
            yield str(error)
            return
        if (len(manifest.objects), manifest.rows, manifest.bytes) != (version.files, version.rows, version.bytes):
            yield f"{version.uri} lists other objects than the record of the run says"
        with ThreadPoolExecutor(_READERS) as readers:
            packed, others, problems = self._placed(manifest, readers)
            yield from problems
            yield from _found(self._packed_problems, packed, readers)
            yield from _found(self._object_problems, others, readers)

    def _placed(self, manifest: InputManifest, readers: ThreadPoolExecutor) -> _Inputs:
        """Look the objects up in the indexes of their partitions, one request for each partition."""
        folders = dict.fromkeys(folder_of(item.uri) for item in manifest.objects if item.tag is None)
        indexes = {folder: readers.submit(read_index, self.store, folder) for folder in folders}
        members, by_uri, unreadable = dict[str, StoredObject](), dict[str, _PackedInputs](), dict[str, str]()
        for folder, index in indexes.items():
            try:
                packed = index.result()
            except ObjectInvalid as error:
                unreadable[folder] = str(error)
                continue
            members |= members_of(packed)
            by_uri |= {each.uri: _PackedInputs(each, []) for each in packed}
        others = list[InputObject]()
        for item in manifest.objects:
            member = members.get(item.uri)
            if member and member.packed:
                by_uri[member.packed.uri].inputs.append((item, member))
            elif folder_of(item.uri) not in unreadable:
                others.append(item)
        return _Inputs([each for each in by_uri.values() if each.inputs], others, [*unreadable.values()])

    def _packed_problems(self, found: _PackedInputs) -> Iterator[str]:
        """Yield what is wrong with inputs in a packed object; what is wrong with this object is said once."""
        packed, inputs = found
        yield from self._file_problems(packed, inputs[0][0].source, used=len(inputs))
        for item, member in inputs:
            if (member.etag, member.size) != (item.etag, item.bytes):
                yield f"{_other_content(item, member)}, as {INDEX} says"
            elif member.packed:
                yield from self._row_problems(item, member.packed.rows)

    def _file_problems(self, packed: PackedObject, source: str, *, used: int) -> Iterator[str]:
        """Yield what is wrong with a packed object: it is as it was written, and has the rows that its index says."""
        name = f"{packed.uri}, with the rows of {counted(used, 'object')},"
        head = self.store.head(packed.uri)
        if head is None or (head.etag, head.size) != (packed.etag, packed.size):
            fault = "is not as it was written" if head else "does not exist any more"
            yield f"{name} {fault}: restore its first version (the bucket is versioned)"
            return
        try:
            rows, schema = self._read_packed(packed)
        except (pa.ArrowException, OSError) as error:  # the latter for pages that cannot be decoded
            reason = " ".join(str(error).split())
            yield (
                f"{name} is no Parquet file ({reason}): remove it from {INDEX}, and restore these objects (the bucket "
                "is versioned)"
            )
            return
        placed = [(item.uri.rpartition("/")[2], item.packed.rows) for item in packed.members if item.packed]
        # In this order, because rows are also found by their position.
        if [*rows.items()] != [(member, count) for member, count in placed if count]:
            yield (
                f"{packed.uri} does not have the rows of the members that {INDEX} says: restore the former version of "
                f"{INDEX} (the bucket is versioned)"
            )
            return
        yield from self._type_problems(packed.uri, source, schema)

    def _read_packed(self, packed: PackedObject) -> tuple[Counter[str], pa.Schema]:
        """Read a packed object as a whole; return the rows of each member, in order, and the types of the columns.

        Only one row group is in memory.
        """
        rows = Counter[str]()
        with open_object(self.store, packed.uri, packed.size) as file, pq.ParquetFile(file) as parquet:
            for number in range(parquet.num_row_groups):
                events = parquet.read_row_group(number, use_threads=False)
                if OBJECT in events.column_names:
                    counts = events[OBJECT].value_counts().to_pylist()
                    rows.update({each["values"]: each["counts"] for each in counts})
            return rows, parquet.schema_arrow

    def _object_problems(self, item: InputObject) -> Iterator[str]:
        """Yield what is wrong with an input: it is read as a whole, and its entity tag is that of the manifest."""
        if item.tag is not None:
            yield from self._table_problems(item, item.tag)
            return
        stored = next(self.store.list(item.uri), None)
        if stored is None or stored.uri != item.uri:
            yield f"{item.uri} does not exist any more: it was a stale object of a pulled file, or was deleted"
            return
        if (stored.etag, stored.size) != (item.etag, item.bytes):
            yield _other_content(item, stored)
            return
        try:
            events = pq.ParquetFile(pa.BufferReader(self.store.get(item.uri))).read()
        except pa.ArrowException as error:
            yield f"{item.uri} is no Parquet file: {error}"
            return
        yield from self._row_problems(item, len(events))
        yield from self._type_problems(item.uri, item.source, events.schema)

    def _row_problems(self, item: InputObject, rows: int) -> Iterator[str]:
        source = self.project.sources.get(item.source)
        # Of events with ids, duplicates do not count.
        if rows < item.rows or (source and not source.id_column and rows != item.rows):
            yield f"{item.uri} has {counted(rows, 'row')}; the input manifest says {item.rows}"

    def _type_problems(self, uri: str, name: str, schema: pa.Schema) -> Iterator[str]:
        source = self.project.sources.get(name)
        for field in raw_schema(source) if source else ():
            # Objects that were written before a column was defined lack it.
            if field.name in schema.names and schema.field(field.name).type != field.type:
                yield f"{uri}: the column {field.name} is of type {schema.field(field.name).type}, not {field.type}"

    def _table_problems(self, item: InputObject, tag: str) -> Iterator[str]:
        """Yield what is wrong with a published day, or with a snapshot of another system's table."""
        name, _, day = item.uri.partition("/date=")
        try:
            if day:
                rows = len(self.warehouse.version(name.rpartition(".")[2], date=item.date, tag=tag))
            else:
                rows = self.warehouse.rows_of_snapshot(name.partition(".")[2], int(tag))
        except ObjectMissing as error:
            yield str(error)
            return
        if rows != item.rows:
            yield f"{name} has {counted(rows, 'row')} at {tag}; the input manifest says {item.rows}"


def _found(
    check: Callable[[_Item], Iterator[str]], items: Iterable[_Item], readers: ThreadPoolExecutor
) -> Iterator[str]:
    """Yield what a check finds wrong with items, in their order; several are read at the same time."""
    for problems in readers.map(lambda item: [*check(item)], items):
        yield from problems


def _other_content(item: InputObject, stored: StoredObject) -> str:
    return f"{item.uri} has another content than the run has read: ETag {stored.etag}, {stored.size} bytes"
