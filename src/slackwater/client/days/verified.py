"""Read the versions of a day's data, and compare each with what was recorded when it was written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.files import read_batches
from slackwater.arrow.messages import decode_schema
from slackwater.arrow.verification import dataset_problems
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.formatting import counted
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputObject, read_manifest
from slackwater.runs.outputs import Version, VersionState, VersionType
from slackwater.runs.period import is_hour
from slackwater.sources.event_schema import raw_schema

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse
    from slackwater.storage import ObjectStore

_READERS = 8
"""Objects that are read at the same time."""


class VerifiedVersion(NamedTuple):
    """A version that was read."""

    version: Version
    problems: tuple[str, ...] | None
    """What differs from the records, one sentence each. None for a version that was not read, because retention has
    removed it."""


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Reads versions of the days of one pipeline."""

    project: Project
    pipeline: str
    date: str
    published: int
    """The attempt whose version is published now; 0 without one."""
    store: ObjectStore
    warehouse: Warehouse

    def verify(self, version: Version) -> VerifiedVersion:
        """Read a version, and compare rows, schema and checksums. Raises `AccessDenied`, `CloudError`."""
        if version.state is VersionState.REMOVED:
            return VerifiedVersion(version, None)
        if version.state is VersionState.MISSING:
            return VerifiedVersion(version, (f"{version.uri} does not exist any more",))
        if version.type is VersionType.INPUT:
            return VerifiedVersion(version, tuple(self._input_problems(version)))
        if version.reference:
            manifest = load_manifest(version.uri, store=self.store)
            return VerifiedVersion(version, tuple(dataset_problems(version.reference, manifest, store=self.store)))
        try:
            return VerifiedVersion(version, tuple(self._published_problems(version)))
        except ObjectMissing as error:
            # Retention removes versions that another one has replaced, and of hours all.
            is_removed = version.attempt != self.published or is_hour(self.date)
            return VerifiedVersion(version, None if is_removed else (str(error),))

    def _input_problems(self, version: Version) -> Iterator[str]:
        try:
            manifest = read_manifest(self.store, version.uri)
        except ObjectInvalid as error:
            yield str(error)
            return
        if (len(manifest.objects), manifest.rows, manifest.bytes) != (version.files, version.rows, version.bytes):
            yield f"{version.uri} lists other objects than the record of the run says"
        with ThreadPoolExecutor(_READERS) as readers:
            for problems in readers.map(lambda item: list(self._object_problems(item)), manifest.objects):
                yield from problems

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
            yield f"{item.uri} has another content than the run has read: ETag {stored.etag}, {stored.size} bytes"
            return
        try:
            events = pq.ParquetFile(pa.BufferReader(self.store.get(item.uri))).read()
        except pa.ArrowException as error:
            yield f"{item.uri} is no Parquet file: {error}"
            return
        source = self.project.sources.get(item.source)
        # Of events with ids, duplicates do not count.
        if len(events) < item.rows or (source and not source.id_column and len(events) != item.rows):
            yield f"{item.uri} has {counted(len(events), 'row')}; the input manifest says {item.rows}"
        for field in raw_schema(source) if source else ():
            # Objects that were written before a column was defined lack it.
            if field.name in events.schema.names and events.schema.field(field.name).type != field.type:
                actual = events.schema.field(field.name).type
                yield f"{item.uri}: the column {field.name} is of type {actual}, not {field.type}"

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

    def _published_problems(self, version: Version) -> Iterator[str]:
        """Yield what is wrong with a published version: it has the rows and the columns of the last stage."""
        tag = version.uri.rpartition("'")[0].rpartition("'")[2]
        table = self.warehouse.version(self.pipeline, date=self.date, tag=tag)
        if len(table) != version.rows:
            yield f"the version {tag} has {counted(len(table), 'row')}; the record of the run says {version.rows}"
        (uri,) = version.parents
        try:
            manifest = load_manifest(uri, store=self.store)
        except ObjectMissing:
            return  # the columns are in the manifest
        schema = decode_schema(manifest.arrow_schema)
        missing = sorted(set(schema.names) - set(table.column_names))
        if missing:
            yield f"the version {tag} lacks the columns {', '.join(missing)}"
            return
        try:
            published = table.select(schema.names).cast(schema)
        except pa.ArrowException as error:
            yield f"the columns of the version {tag} have other types than its stage has written: {error}"
            return
        try:
            batches = [
                batch for file in manifest.files for batch in read_batches(file, schema=schema, store=self.store)
            ]
        except (ObjectMissing, ObjectInvalid):
            return  # removed by retention, or damaged, which the version of the stage says
        different = _different_rows(published, pa.Table.from_batches(batches, schema))
        if different:
            yield f"{counted(different, 'row')} of the version {tag} differ from those that its stage has written"


def _different_rows(one: pa.Table, other: pa.Table) -> int:
    """Return how many rows only one of two tables with the same columns has."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("one", one)
        connection.register("other", other)
        query = "SELECT count(*) FROM ((FROM one EXCEPT ALL FROM other) UNION ALL (FROM other EXCEPT ALL FROM one))"
        found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0
