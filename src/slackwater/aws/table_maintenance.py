"""Maintenance of the ledger and of published tables: it changes their files, and no row of any version.

Each step is one commit that Iceberg refuses if somebody else has committed first, or a deletion of files that nothing
names. So a process that ends anywhere leaves a readable table, and the next maintenance does the rest.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, write_file
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import WriteTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.bin_packing import ListPacker

from slackwater.aws.failures import translated
from slackwater.errors import DataError, SlackwaterError
from slackwater.pipeline.definition import LEDGER_TABLE
from slackwater.storage import ObjectStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table

# A partition with so many files below so many bytes is rewritten.
_MANY_FILES, _SMALL_BYTES = 20, 8 * 2**20
# Compressed bytes of one new file, and of all that a call reads: these bound the memory and the time.
_FILE_BYTES, _CALL_BYTES = 64 * 2**20, 2**30
# So many snapshots are worth a commit that removes them.
_MANY_SNAPSHOTS = 20
ORPHANED_FOR = timedelta(days=3)
"""A file that nothing names is deleted when it is older: by then, the job that wrote it has committed or ended."""
_READERS = 16
# Iceberg's property: with `false`, no file of the table may be deleted.
_GC = "gc.enabled"
_CONFLICTS = (CommitFailedException, ValidationException)


# For so long, a reader that has begun with a snapshot that nothing names can read it, and a repeated job finds its
# commit.
_KEPT_LEDGER, _KEPT_PUBLISHED = timedelta(days=1), timedelta(days=7)
_DAYS_OF_WEEK = 7


class Maintained(NamedTuple):
    """What the maintenance of a table did."""

    files: int = 0
    """Small data files whose rows larger files have now."""
    snapshots: int = 0
    """Snapshots that were removed from the metadata."""
    orphans: int = 0
    """Files that were deleted."""


class AllMaintained(NamedTuple):
    """What the maintenance of several tables did."""

    tables: Mapping[str, Maintained]
    """By name, without the database, in order. Tables that there was no time for are missing."""
    failures: Sequence[str]
    """Of other tables: the name, and why."""


@dataclass(frozen=True, kw_only=True)
class TableMaintenance:
    """Maintains the Iceberg tables of a database. `catalog` must send each commit only once."""

    catalog: Catalog
    store: ObjectStore
    database: str
    now: Callable[[], datetime]

    def maintain_all(self, pipelines: Iterable[str], *, limit: timedelta) -> AllMaintained:
        """Maintain the ledger, and the tables with the stored names of pipelines, in another order each day.

        After `limit`, no further table begins. Files that nothing names are looked for on one day of the week, another
        one for each table, because that lists all files. A table that fails stops no other one.
        """
        began = self.now()
        today = began.toordinal()
        tables, failures = dict[str, Maintained](), list[str]()
        for name in (LEDGER_TABLE, *sorted(pipelines, key=lambda name: crc32(f"{today} {name}".encode()))):
            if self.now() - began > limit:
                break
            kept = _KEPT_LEDGER if name == LEDGER_TABLE else _KEPT_PUBLISHED
            is_day = (today + crc32(name.encode())) % _DAYS_OF_WEEK == 0
            try:
                tables[name] = self.maintain(f"{self.database}.{name}", kept=kept, orphans=is_day)
            # pyiceberg and Arrow raise errors of many classes about tables that other tools have changed.
            except Exception as error:  # noqa: BLE001
                failures.append(f"{name}: {error if isinstance(error, SlackwaterError) else repr(error)}")
        return AllMaintained(tables, failures)

    def maintain(self, name: str, *, kept: timedelta, orphans: bool) -> Maintained:
        """Maintain a table, `database.table`; a table that does not exist needs nothing.

        The rows of small files move to larger ones; snapshots are removed that no tag and no branch names and that were
        replaced longer than `kept` ago; and with `orphans`, files are deleted that no snapshot names and that are older
        than three days. Where another writer commits at the same time, the next call continues. Raises `CloudError`,
        and `DataError` if the files of the table are not those that its metadata names; then none is deleted.
        """
        with translated(f"maintain the table {name}"):
            try:
                table = self.catalog.load_table(name)
            except NoSuchTableError:
                return Maintained()
            files = _rewrite_small_files(table)
            if table.metadata.properties.get(_GC, "true").lower() != "true":
                return Maintained(files)
            snapshots = _remove_snapshots(table, before=self.now() - kept)
            deleted = self._delete_orphans(name, table.location()) if orphans else 0
            return Maintained(files, snapshots, deleted)

    def _delete_orphans(self, name: str, location: str) -> int:
        at = self.now()
        listed = {item.uri: item.modified for item in self.store.list(f"{location.rstrip('/')}/")}
        old = {uri for uri, modified in listed.items() if modified < at - ORPHANED_FOR}
        if not old:
            return 0
        # Loaded after the listing: what was committed meanwhile is in use.
        table = self.catalog.load_table(name)
        for snapshot in table.snapshots():
            if snapshot.timestamp_ms < (at - ORPHANED_FOR).timestamp() * 1000 and snapshot.manifest_list not in listed:
                raise DataError(f"the table {name} names {snapshot.manifest_list}, which is not below {location}")
        orphans = sorted(old - _files_in_use(table))
        self.store.delete(orphans)
        return len(orphans)


def _rewrite_small_files(table: Table) -> int:
    """Move the rows of small files to larger ones, in one commit; return the number of small files."""
    snapshot, spec = table.current_snapshot(), table.spec()
    if snapshot is None or not all(isinstance(field.transform, IdentityTransform) for field in spec.fields):
        return 0
    total = snapshot.summary["total-data-files"] if snapshot.summary else None
    if total is not None and int(total) < _MANY_FILES:
        return 0
    groups = list(_groups(table))
    if not groups:
        return 0
    try:
        with table.transaction() as transaction:
            # Its name keeps it apart from publications. pyiceberg cannot commit the operation `replace`.
            properties = {"slackwater.maintenance": "rewrite"}
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite:
                for group in groups:
                    overwrite.append_data_file(_joined(table, group))
                    for task in group:
                        overwrite.delete_data_file(task.file)
    except _CONFLICTS:
        return 0
    return sum(map(len, groups))


def _groups(table: Table) -> Iterator[Sequence[FileScanTask]]:
    """Yield the small files of partitions that have many, those of one new file together."""
    partitions = defaultdict[tuple[object, ...], list["FileScanTask"]](list)
    for task in table.scan().plan_files():
        if _size(task) < _SMALL_BYTES and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            partitions[tuple(task.file.partition[index] for index in range(len(table.spec().fields)))].append(task)
    left = _CALL_BYTES
    packer = ListPacker["FileScanTask"](target_weight=_FILE_BYTES, lookback=1, largest_bin_first=False)
    for tasks in partitions.values():
        for group in packer.pack(tasks, _size) if len(tasks) >= _MANY_FILES else ():
            if len(group) > 1:
                yield group
                left -= sum(map(_size, group))
            if left <= 0:
                return


def _size(task: FileScanTask) -> int:
    return task.file.file_size_in_bytes


def _joined(table: Table, group: Sequence[FileScanTask]) -> DataFile:
    """Write the rows of these files of a partition to a new one, in the table's present schema."""
    metadata, spec, schema = table.metadata, table.spec(), table.schema()
    rows = ArrowScan(metadata, table.io, schema, AlwaysTrue()).to_table(group)
    if rows.num_rows != sum(task.file.record_count for task in group):
        raise DataError(f"files of the table {table.name()} have other numbers of rows than its metadata says")
    partition = group[0].file.partition
    values = [PartitionFieldValue(field, partition[index]) for index, field in enumerate(spec.fields)]
    key = PartitionKey(values, spec, schema) if values else None
    task = WriteTask(
        write_uuid=uuid.uuid4(), task_id=0, schema=schema, record_batches=rows.to_batches(), partition_key=key
    )
    (file,) = write_file(table.io, metadata, iter([task]))
    return file


def _remove_snapshots(table: Table, *, before: datetime) -> int:
    """Remove the snapshots that no tag and no branch names and that were replaced before this time; files stay."""
    table.refresh()
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    in_order = sorted(table.snapshots(), key=lambda item: item.timestamp_ms)
    # Until a later one replaced it, a reader may have begun with a snapshot, however old it is.
    old = [
        item.snapshot_id
        for item, later in pairwise(in_order)
        if item.snapshot_id not in named and datetime.fromtimestamp(later.timestamp_ms / 1000, UTC) < before
    ]
    if len(old) < _MANY_SNAPSHOTS:
        return 0
    try:
        table.maintenance.expire_snapshots().by_ids(old).commit()
    except _CONFLICTS:
        return 0
    return len(old)


def _files_in_use(table: Table) -> set[str]:
    """Return the files that the metadata of a table names: those of all snapshots, and its own earlier versions."""
    metadata, snapshots = table.metadata, table.snapshots()
    used = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    used |= {item.statistics_path for item in (*metadata.statistics, *metadata.partition_statistics)}
    used |= {snapshot.manifest_list for snapshot in snapshots}
    with ThreadPoolExecutor(_READERS) as pool:
        lists: Iterable[list[ManifestFile]] = pool.map(lambda snapshot: snapshot.manifests(table.io), snapshots)
        manifests = {manifest.manifest_path: manifest for found in lists for manifest in found}
        entries = pool.map(lambda manifest: manifest.fetch_manifest_entry(table.io), manifests.values())
        return used.union(manifests, *({entry.data_file.file_path for entry in found} for found in entries))
