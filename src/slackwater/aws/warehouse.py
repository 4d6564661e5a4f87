"""Published tables and raw partitions as lazy Arrow datasets: a query reads only what it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType

from slackwater.aws.clients import SINGLE_CONFIG, Clients, default_session
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import ObjectMissing
from slackwater.runs.packing.index import OBJECT, with_members
from slackwater.runs.period import row_condition
from slackwater.sources.event_schema import TIMESTAMP
from slackwater.sources.partitions import source_prefix
from slackwater.storage import PackedRows

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

    from slackwater.storage import ObjectStore, StoredObject

_LOCATION_COLUMNS = (
    pa.field("_date", pa.string()),
    pa.field("_hour", pa.string()),
    pa.field(OBJECT, pa.string()),
    pa.field("_first_received_at", TIMESTAMP),
)
_EPOCH = date(1970, 1, 1)
# Iceberg's names for the settings of Arrow's S3 file system.
_ICEBERG_PROPERTIES = {
    "region": "s3.region",
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "endpoint_override": "s3.endpoint",
}


@dataclass(frozen=True, kw_only=True)
class Warehouse:
    """Reads raw events and published tables."""

    catalog: GlueCatalog
    files: FileSystem
    store: ObjectStore
    database: str
    raw_bucket: str

    def published(self, pipeline: str, *, tag: str | None = None) -> ds.Dataset | None:
        """Return the pipeline's published table, or None before its first day is published.

        With `tag`, the table is as it was when the version of that tag was published. Raises `ObjectMissing` if the
        tag does not exist, or `CloudError`.
        """
        with translated(f"open the table {self.database}.{pipeline}"):
            try:
                table = self.catalog.load_table(f"{self.database}.{pipeline}")
            except NoSuchTableError:
                return None
            snapshot = table.snapshot_by_name(tag) if tag else None
            if tag and snapshot is None:
                raise ObjectMissing(f"the table {self.database}.{pipeline} has no version {tag} any more")
            scan = table.scan(snapshot_id=snapshot.snapshot_id if snapshot else None)
            tasks = list(scan.plan_files())
            if any(task.delete_files for task in tasks) or len(table.schemas()) > 1:
                # Only Iceberg's own reader applies deleted rows and renamed columns. It loads the table into memory.
                return ds.dataset(scan.to_arrow())
            schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
            uris = [task.file.file_path for task in tasks]
            return self._files(uris, schema, [partition_condition(table, task) for task in tasks])

    def tags(self, pipeline: str) -> frozenset[str]:
        """Return the Iceberg tags of the pipeline's published table; none without a table. Raises `CloudError`."""
        with translated(f"read the tags of the table {self.database}.{pipeline}"):
            try:
                refs = self.catalog.load_table(f"{self.database}.{pipeline}").metadata.refs
            except NoSuchTableError:
                return frozenset()
        return frozenset(name for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG)

    def version(self, pipeline: str, *, date: str, tag: str, limit: int | None = None) -> pa.Table:
        """Return the rows of a period, such as 2013-03-10, in the version of the published table that the tag keeps.

        With `limit`, only so many rows are read. Raises `ObjectMissing` if there is no such version, or `CloudError`.
        """
        name = f"{self.database}.{pipeline}"
        with translated(f"read the version {tag} of the table {name}"):
            try:
                table = self.catalog.load_table(name)
            except NoSuchTableError as error:
                raise ObjectMissing(f"there is no table {name}: its version {tag} cannot be read") from error
            snapshot = table.snapshot_by_name(tag)
            if snapshot is None:
                raise ObjectMissing(f"the table {name} has no version {tag} any more")
            scan = table.scan(row_filter=row_condition(date), snapshot_id=snapshot.snapshot_id, limit=limit)
            return scan.to_arrow()

    def first_rows(self, name: str, *, limit: int) -> pa.Table:
        """Return some rows of any Iceberg table, `database.table`, as it is now.

        Raises `ObjectMissing` if there is no such table, or `CloudError`.
        """
        with translated(f"read the table {name}"):
            try:
                return self.catalog.load_table(name).scan(limit=limit).to_arrow()
            except NoSuchTableError as error:
                raise ObjectMissing(f"there is no table {name}") from error

    def rows_of_snapshot(self, name: str, snapshot: int) -> int:
        """Return how many rows any Iceberg table, `database.table`, has at one of its snapshots.

        Raises `ObjectMissing` if there is no such table or snapshot, or `CloudError`.
        """
        with translated(f"read the snapshot {snapshot} of the table {name}"):
            try:
                table = self.catalog.load_table(name)
            except NoSuchTableError as error:
                raise ObjectMissing(f"there is no table {name}") from error
            if table.snapshot_by_id(snapshot) is None:
                raise ObjectMissing(f"the table {name} has no snapshot {snapshot} any more")
            return table.scan(snapshot_id=snapshot).count()

    def objects(self, source: str) -> Iterator[StoredObject]:
        """Return all objects of a source's partitions, also those that are packed, in order of URI."""
        return with_members(self.store.list(source_prefix(self.raw_bucket, source)), self.store)

    def partitions(
        self, objects: Iterable[StoredObject], schema: pa.Schema, *, first_received: Mapping[str, datetime]
    ) -> ds.Dataset:
        """Return the events of a source's objects, in `schema` with four more columns.

        `_date` and `_hour` are the UTC partition as strings, `_object` is the name of the object, and
        `_first_received_at` the value in `first_received` for its URI, or null. Only of packed objects with rows of
        other objects as well, or with such a value, rows are read before the query reads them.
        """
        own, members = list[str](), dict[PackedRows, dict[str, int]]()
        for item in objects:
            if item.packed:
                members.setdefault(item.packed._replace(first=0, rows=0), {})[item.uri] = item.packed.rows
            else:
                own.append(item.uri)
        whole = [
            each.uri
            for each, rows in members.items()
            if sum(rows.values()) == each.total and not any(uri in first_received for uri in rows)
        ]
        no_time, columns = ds.field("_first_received_at").is_null(), pa.schema([*schema, *_LOCATION_COLUMNS])

        def place(uri: str) -> ds.Expression:
            return (ds.field("_date") == _part(uri, "date")) & (ds.field("_hour") == _part(uri, "hour"))

        def of_object(uri: str) -> ds.Expression:
            at = first_received.get(uri)
            time = no_time if at is None else ds.field("_first_received_at") == pa.scalar(at, TIMESTAMP)
            return place(uri) & (ds.field(OBJECT) == uri.rpartition("/")[2]) & time

        files = self._files([*own, *whole], columns, [*map(of_object, own), *(place(uri) & no_time for uri in whole)])

        def part(packed: PackedRows, uris: Iterable[str]) -> pa.Table:
            times = {uri.rpartition("/")[2]: first_received.get(uri) for uri in uris}
            found = self._files([packed.uri], columns, [place(packed.uri) & no_time])
            table = found.to_table(filter=ds.field(OBJECT).isin([*times]))
            received = pa.array([times[name] for name in table[OBJECT].to_pylist()], TIMESTAMP)
            return table.set_column(table.column_names.index("_first_received_at"), "_first_received_at", received)

        parts = [part(each, rows) for each, rows in members.items() if each.uri not in whole]
        return ds.dataset([files, ds.dataset(parts)]) if parts else files

    def _files(self, uris: Iterable[str], schema: pa.Schema, partitions: list[ds.Expression]) -> ds.Dataset:
        """Return a dataset of Parquet files, each with a condition that holds for all of its rows."""
        return ds.FileSystemDataset.from_paths(
            [uri.partition("://")[2] for uri in uris],
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=self.files,
            partitions=partitions,
        )


def open_warehouse(clients: Clients, *, database: str, raw_bucket: str) -> Warehouse:
    """Return the warehouse, with the region, credentials and endpoint of the environment. Raises `CloudError`."""
    return Warehouse(
        catalog=open_catalog(clients),
        files=S3FileSystem(**_s3_settings(clients)),
        store=S3ObjectStore(clients("s3")),
        database=database,
        raw_bucket=raw_bucket,
    )


def open_catalog_to_write() -> GlueCatalog:
    """Return the Iceberg catalog in Glue for commits, which it sends once. Raises `CloudError`.

    A commit whose answer is lost raises `Unavailable`: read the table again before you repeat it.
    """
    # If botocore repeated it, Glue would refuse the second request, and pyiceberg would take the commit for failed and
    # delete the metadata of the snapshot that the first one has committed: nobody could read the table any more.
    return open_catalog(Clients(SINGLE_CONFIG))


def open_catalog(clients: Clients) -> GlueCatalog:
    """Return the Iceberg catalog in Glue for readers, with the settings of `open_warehouse`. Raises `CloudError`."""
    iceberg = {_ICEBERG_PROPERTIES[name]: value for name, value in _s3_settings(clients).items()}
    iceberg["py-io-impl"] = "pyiceberg.io.pyarrow.PyArrowFileIO"
    return GlueCatalog("warehouse", client=clients("glue"), **iceberg)


def _s3_settings(clients: Clients) -> dict[str, str]:
    """Return the settings of Arrow's S3 file system."""
    session, s3 = default_session(), clients("s3")
    endpoint: str = s3.meta.endpoint_url
    with translated("read the AWS credentials"):
        credentials = session.get_credentials()
    settings: dict[str, str] = {"region": s3.meta.region_name}
    if credentials:
        keys = credentials.get_frozen_credentials()
        settings |= {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.token or ""}
    # boto3 reads AWS_ENDPOINT_URL by itself; Arrow's and Iceberg's own S3 clients do not. For AWS's own endpoints they
    # need no setting.
    if "amazonaws.com" not in endpoint:
        settings["endpoint_override"] = endpoint
    return {name: value for name, value in settings.items() if value}


def partition_condition(table: Table, task: FileScanTask) -> ds.Expression:
    """Return a condition that holds for all rows of the task's file. A query skips files that cannot match it."""
    condition = ds.scalar(True)
    for position, field in enumerate(table.specs()[task.file.spec_id].fields):
        column = table.schema().find_field(field.source_id)
        value: Any = task.file.partition[position]
        if isinstance(field.transform, IdentityTransform) and value is not None:
            # Iceberg stores a date as the number of days since 1970.
            if isinstance(column.field_type, DateType) and isinstance(value, int):
                value = _EPOCH + timedelta(days=value)
            condition = condition & (ds.field(column.name) == value)
    return condition


def _part(uri: str, key: str) -> str:
    """Return the value of `key=value` in a partition's URI."""
    return uri.partition(f"/{key}=")[2].partition("/")[0]
