"""Iceberg tables of raw events, one for each source, for other engines: they follow the listing of the objects.

Objects and file cache are the truth. Runs, checks and queries of ours never read the tables, so each can be dropped and
rebuilt. Their metadata is in the warehouse bucket, and their data files are the raw objects themselves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from slackwater.aws.failures import translated
from slackwater.errors import Unavailable
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.inputs.listing import stored_rows
from slackwater.runs.inputs.partition_objects import objects_of_partitions
from slackwater.runs.packing.index import OBJECT, ROW
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import TIMESTAMP, raw_schema
from slackwater.sources.partitions import Partition, object_partition, source_partition, source_prefix, version_of
from slackwater.storage import ObjectStore, StoredObject, split_uri

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

# Not `date` and `hour`: events may have fields with these names, and none begins with an underscore.
_PARTITION_COLUMNS = ("_date", "_hour")
_TYPES = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.date32(): DateType(),
    TIMESTAMP: TimestamptzType(),
}
_PROPERTIES = {
    "format-version": "2",
    # Without these, the metadata that each commit writes and reads would grow with the number of commits.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.target-size-bytes": str(2**20),
    # No footer is read, so there are no statistics of columns; engines must not expect or write any.
    "write.metadata.metrics.default": "none",
    # A commit must fail when another one was faster: its difference is that of an older version.
    "commit.retry.num-retries": "0",
    "write.delete.isolation-level": "snapshot",
    # The data files are raw objects: no engine may delete them.
    "gc.enabled": "false",
}
# Above so many snapshots, all but the newest leave the metadata, which each commit reads and writes as a whole.
_MAX_SNAPSHOTS, _KEPT_SNAPSHOTS = 300, 100
# Changes in one commit, which bounds the memory: about 1 KB each. Only a rebuild has more.
_MAX_CHANGES = 100_000
# Files in a manifest of 1 MB: each takes about 130 bytes.
_MANIFEST_FILES = 8_000
# Above so many manifests, a commit merges them. pyiceberg does not merge fewer.
_MAX_MANIFESTS = 100
# How often a difference is computed when other writers are faster. The pauses between add up to half a minute on
# average: hours of several days may be packed at the same time, each with an update of the same table.
_ATTEMPTS = 8
# Threads that read the metadata of objects whose names have no rows.
_READERS = 16


class Difference(NamedTuple):
    """Numbers of objects by which a table has changed."""

    added: int = 0
    removed: int = 0


@dataclass(frozen=True, kw_only=True)
class RawTables:
    """The tables of a deployment's sources. `catalog` must send each commit only once."""

    catalog: Catalog
    database: str
    location: str
    """URI of the folder of the tables' metadata, which has a folder for each source."""
    project: Project
    store: ObjectStore
    files: FileCache
    raw_bucket: str

    def reconcile(self, source: str, partitions: Iterable[Partition]) -> Difference:
        """Let the source's table have exactly the objects of these partitions that readers see, with one commit.

        Creates the table if it does not exist, and adds new columns of the source. Without a difference, nothing is
        committed. More than 100,000 changes take several commits.

        Raises `Unavailable` if other writers keep being faster or the answer to a commit is lost, `DayChanged` if files
        of the source keep changing, `ObjectInvalid` for an object that the receiver has not written, `UnknownName`, and
        `CloudError`. The same call can always be repeated: it commits what is different by then.
        """
        definition, wanted = self.project.source(source), sorted(set(partitions))
        with translated(f"update the table {self._name(source)}"):
            for attempt in range(_ATTEMPTS):
                if attempt:
                    time.sleep(random.uniform(0, 2**attempt / 4))  # noqa: S311 - so that two do not meet again
                with suppress(CommitFailedException):
                    return self._reconcile(definition, wanted)
        raise Unavailable(f"other writers keep changing the table {self._name(source)}: repeat the command")

    def rebuild(self, source: str) -> Difference:
        """Drop the source's table, and create it again from the listing. No object of the source is touched.

        Raises what `reconcile` raises. The same call can be repeated.
        """
        self.project.source(source)
        old = [item.uri for item in self.store.list(f"{self.location}/{source}/metadata/")]
        with translated(f"drop the table {self._name(source)}"), suppress(NoSuchTableError):
            self.catalog.drop_table(self._name(source))
        keys = (split_uri(item.uri)[1] for item in self.store.list(source_prefix(self.raw_bucket, source)))
        change = self.reconcile(source, {found[1] for key in keys if (found := source_partition(key))})
        self.store.delete(old)
        return change

    def _reconcile(self, source: Source, partitions: list[Partition]) -> Difference:
        # Before the listing: what is committed on this version of the table is then newer than it.
        table, total = self._table(source), Difference()
        added, removed = list[StoredObject](), list[DataFile]()
        # A day at a time bounds what is in memory.
        for date, group in groupby(partitions, key=attrgetter("date")):
            wanted = set(group)
            list_objects = partial(
                objects_of_partitions, source.source, wanted, store=self.store, raw_bucket=self.raw_bucket
            )
            listed = consistent_listing(source, list_objects, files=self.files).objects
            stored = {file.file_path: file for file in _files_of_day(table, date) if _partition(file) in wanted}
            # Packed objects take the places of their members.
            objects = {item.packed.uri if item.packed else item.uri: item for item in listed}
            added += [item for uri, item in objects.items() if uri not in stored]
            removed += [stored[uri] for uri in stored.keys() - objects.keys()]
            if len(added) + len(removed) >= _MAX_CHANGES:
                total = self._commit(table, added, removed, total)
                added, removed = [], []
        return self._commit(table, added, removed, total)

    def _commit(
        self, table: Table, added: list[StoredObject], removed: list[DataFile], total: Difference
    ) -> Difference:
        """Commit a difference, and return the sum of `total` and it."""
        if added or removed:
            changed = {_partition(file) for file in removed}
            new, replacing = list[StoredObject](), list[StoredObject]()
            for item in added:
                # An object of a pushed batch that is no member replaces nothing.
                replaces = object_partition(item.uri) in changed and (item.packed or version_of(item.uri))
                (replacing if replaces else new).append(item)
            # Several snapshots in one commit: each writes one manifest.
            with table.transaction() as transaction:
                # Only an append merges manifests, so one without files may come before an overwrite.
                if new or _has_many_manifests(table):
                    for items in _parts_of(new):
                        with transaction.update_snapshot().merge_append() as append:
                            for file in self._data_files(table, items):
                                append.append_data_file(file)
                # Not an append: readers of appended rows would read those of packed objects again.
                if removed:
                    for number, items in enumerate(_parts_of(replacing)):
                        with transaction.update_snapshot().overwrite() as overwrite:
                            for file in removed if number == 0 else ():
                                overwrite.delete_data_file(file)
                            for file in self._data_files(table, items):
                                overwrite.append_data_file(file)
            self._expire_snapshots(table)
        return Difference(total.added + len(added), total.removed + len(removed))

    def _data_files(self, table: Table, items: list[StoredObject]) -> Iterator[DataFile]:
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(partial(self._data_file, table.metadata.default_spec_id), items)

    def _data_file(self, spec_id: int, item: StoredObject) -> DataFile:
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=item.packed.uri if item.packed else item.uri,
            file_format=FileFormat.PARQUET,
            partition=Record(*object_partition(item.uri)),
            record_count=item.packed.total if item.packed else stored_rows(self.store, item.uri),
            file_size_in_bytes=item.packed.size if item.packed else item.size,
            spec_id=spec_id,
        )

    def _expire_snapshots(self, table: Table) -> None:
        """Remove old snapshots, and the manifests that only they have."""
        snapshots = table.snapshots()
        if len(snapshots) <= _MAX_SNAPSHOTS:
            return
        old, kept = snapshots[:-_KEPT_SNAPSHOTS], snapshots[-_KEPT_SNAPSHOTS]
        # A commit of somebody else in between is no harm: the next call removes them.
        with suppress(CommitFailedException):
            table.maintenance.expire_snapshots().by_ids([item.snapshot_id for item in old]).commit()
            # A manifest that has left the table does not come back, so the oldest snapshot that is kept has all others.
            needed = {manifest.manifest_path for manifest in kept.manifests(table.io)}
            manifests = {manifest.manifest_path for item in old for manifest in item.manifests(table.io)}
            self.store.delete([*(manifests - needed), *(item.manifest_list for item in old)])

    def _name(self, source: str) -> str:
        return f"{self.database}.{source}"

    def _table(self, source: Source) -> Table:
        name, schema = self._name(source.source), _schema(source)
        try:
            table = self.catalog.load_table(name)
        except NoSuchTableError:
            # Another execution may be faster.
            with suppress(TableAlreadyExistsError):
                self.catalog.create_table(
                    name,
                    schema=schema,
                    location=f"{self.location}/{source.source}",
                    partition_spec=PartitionSpec(
                        *(
                            PartitionField(field.field_id, 1000 + index, IdentityTransform(), field.name)
                            for index, field in enumerate(map(schema.find_field, _PARTITION_COLUMNS))
                        )
                    ),
                    # Raw objects have no field ids, so readers find their columns by name.
                    properties={**_PROPERTIES, "schema.name-mapping.default": schema.name_mapping.model_dump_json()},
                )
            table = self.catalog.load_table(name)
        if not set(schema.column_names) <= set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(schema)
        return table


def _files_of_day(table: Table, date: str) -> Iterator[DataFile]:
    """Yield the files of the manifests that have files of this day. `Table.scan` takes ten times as long."""
    snapshot, day = table.current_snapshot(), date.encode()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        is_near = all(
            (dates.lower_bound or day) <= day <= (dates.upper_bound or day) for dates in (manifest.partitions or [])[:1]
        )
        has_files = manifest.has_added_files() or manifest.has_existing_files()
        if manifest.content is ManifestContent.DATA and is_near and has_files:
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))


def _partition(file: DataFile) -> Partition:
    return Partition(file.partition[0], file.partition[1])


def _parts_of(items: list[StoredObject]) -> list[list[StoredObject]]:
    """Divide objects into those of one manifest each; at least one list."""
    return [items[first : first + _MANIFEST_FILES] for first in range(0, max(len(items), 1), _MANIFEST_FILES)]


def _has_many_manifests(table: Table) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is not None and len(snapshot.manifests(table.io)) > _MAX_MANIFESTS


def _schema(source: Source) -> Schema:
    """Return the columns of a source's objects and of packed ones, and those of their partition as in their URIs."""
    partition = [pa.field(column, pa.string()) for column in _PARTITION_COLUMNS]
    # A reader may refuse a file with a column that the table does not have.
    fields = [*raw_schema(source), *partition, pa.field(OBJECT, pa.string()), pa.field(ROW, pa.int64())]
    return Schema(
        *(NestedField(number, field.name, _TYPES[field.type], required=False) for number, field in enumerate(fields, 1))
    )
