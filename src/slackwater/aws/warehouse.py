"""Published tables and raw partitions as Arrow datasets: nothing is read before a query asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType

from slackwater.aws.clients import client
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

    from slackwater.storage import ObjectStore, StoredObject

_PLACE = (pa.field("_date", pa.string()), pa.field("_hour", pa.string()), pa.field("_object", pa.int64()))
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Warehouse:
    """Reads what the receiver and the publishing jobs have written."""

    catalog: GlueCatalog
    files: FileSystem
    store: ObjectStore
    database: str
    raw_bucket: str

    def published(self, pipeline: str) -> ds.Dataset | None:
        """Return the pipeline's published table as it is now, or None when no day was published yet."""
        with translated(f"open the table {self.database}.{pipeline}"):
            try:
                table = self.catalog.load_table(f"{self.database}.{pipeline}")
            except NoSuchTableError:
                return None
            return self._dataset(table)

    def objects(self, source: str) -> Iterator[StoredObject]:
        """List all objects of a source's partitions, in order of address."""
        found = self.store.list(f"s3://{self.raw_bucket}/raw/source={source}/")
        return (item for item in found if item.uri.endswith(".parquet"))

    def partitions(self, uris: Sequence[str], schema: pa.Schema) -> ds.Dataset:
        """Return the events of a source's objects, which are in order of address, in `schema`, and where each lies.

        That is the UTC `_date` and `_hour` of its partition, as text, and its `_object`: its number among the objects.
        """
        places = [
            (ds.field("_date") == _part(uri, "date"))
            & (ds.field("_hour") == _part(uri, "hour"))
            & (ds.field("_object") == number)
            for number, uri in enumerate(uris)
        ]
        return self._files(uris, pa.schema([*schema, *_PLACE]), places)

    def _dataset(self, table: Table) -> ds.Dataset:
        scan = table.scan()
        tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks) or len(table.schemas()) > 1:
            # Deleted rows and renamed columns are Iceberg's to apply; files alone do not show them.
            return ds.dataset(scan.to_arrow())
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        return self._files(
            [task.file.file_path for task in tasks], schema, [_partition_of(table, task) for task in tasks]
        )

    def _files(self, uris: Iterable[str], schema: pa.Schema, places: list[ds.Expression]) -> ds.Dataset:
        return ds.FileSystemDataset.from_paths(
            [uri.partition("://")[2] for uri in uris],
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=self.files,
            partitions=places,
        )


def open_warehouse(*, database: str, raw_bucket: str) -> Warehouse:
    """Return the warehouse in the cloud, and with the credentials, that the environment names."""
    session = boto3.session.Session()
    s3 = client("s3", session=session)
    endpoint: str = s3.meta.endpoint_url
    with translated("read the AWS credentials"):
        credentials = session.get_credentials()
    settings: dict[str, str] = {"region": s3.meta.region_name}
    if credentials:
        keys = credentials.get_frozen_credentials()
        settings |= {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.token or ""}
    if "amazonaws.com" not in endpoint:
        settings["endpoint_override"] = endpoint
    return Warehouse(
        catalog=GlueCatalog("warehouse", client=client("glue", session=session), **_for_iceberg(settings)),
        files=S3FileSystem(**{name: value for name, value in settings.items() if value}),
        store=S3ObjectStore(s3),
        database=database,
        raw_bucket=raw_bucket,
    )


def _for_iceberg(settings: dict[str, str]) -> dict[str, str]:
    names = {
        "region": "s3.region",
        "access_key": "s3.access-key-id",
        "secret_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
        "endpoint_override": "s3.endpoint",
    }
    return {names[name]: value for name, value in settings.items() if value} | {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"
    }


def _partition_of(table: Table, task: FileScanTask) -> ds.Expression:
    """Return what the file's partition says of its rows, so that other days' files are not opened."""
    place = ds.scalar(True)
    for position, field in enumerate(table.specs()[task.file.spec_id].fields):
        column, value = table.schema().find_field(field.source_id), task.file.partition[position]
        if isinstance(field.transform, IdentityTransform) and value is not None:
            place = place & (ds.field(column.name) == _value(column.field_type, value))
    return place


def _value(kind: Any, value: Any) -> Any:
    return _EPOCH + timedelta(days=value) if isinstance(kind, DateType) and isinstance(value, int) else value


def _part(uri: str, key: str) -> str:
    """Return the value of `key=value` in a partition's address."""
    return uri.partition(f"/{key}=")[2].partition("/")[0]
