"""The Iceberg tables of other systems that a run reads: each at the snapshot that freezing finds."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Protocol

from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import AccessDenied, InputError, ObjectInvalid, ObjectMissing
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import IcebergInput
from slackwater.receiver.connectors.connector import bucket_folder
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.period import Period
from slackwater.storage import ObjectStore

MAX_METADATA = 64 * 2**20
"""Bytes of a table's metadata, uncompressed. Reading 64 MB takes about 0.3 GB of memory, and a function has 1 GB."""
# The operation of a snapshot with the same rows in other files, such as a compaction.
_REPLACE = "replace"
_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31  # zlib's `wbits` for a gzip header


class TableCatalog(Protocol):
    """Finds the metadata of Iceberg tables; `slackwater.aws.glue_tables` does with the Glue catalog."""

    def metadata_uri(self, database: str, table: str) -> str:
        """Return the URI of the table's current metadata.

        Raises `InputError` if there is no such table or it is no Iceberg table, `AccessDenied`, and `CloudError`.
        """


class _Metadata(BaseModel):
    """What is read of Iceberg's JSON; all other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=lambda name: name.replace("_", "-"))


class Summary(_Metadata):
    """What a snapshot did, and totals of the table. Writers need not record them."""

    operation: str = ""
    maintenance: str = Field(default="", alias="slackwater.maintenance")
    """What `slackwater.aws.table_maintenance` has done: pyiceberg cannot commit the operation `replace`."""
    total_records: Annotated[int, Field(ge=0)] = 0
    """Rows of all data files."""
    total_position_deletes: Annotated[int, Field(ge=0)] = 0
    """Rows of these files that delete files remove, each by its position (merge on read)."""
    total_files_size: Annotated[int, Field(ge=0)] = 0
    """Bytes."""

    @property
    def replaces_files(self) -> bool:
        """Whether the rows are those of the snapshot before, in other files."""
        return self.operation == _REPLACE or self.maintenance != ""

    @property
    def rows(self) -> int:
        """Rows of the table, without those that it has deleted by their position."""
        # A writer may count deletes of a file that is gone.
        return max(self.total_records - self.total_position_deletes, 0)


class Snapshot(_Metadata):
    """One snapshot of a table."""

    snapshot_id: int
    parent_snapshot_id: int | None = None
    timestamp_ms: int
    summary: Summary = Summary()

    @property
    def committed_at(self) -> datetime:
        """When the snapshot was committed, UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


@dataclass(frozen=True, kw_only=True)
class CurrentRows:
    """The snapshots that have the rows of the current one."""

    current: Snapshot
    content: Snapshot
    """The newest that changed rows. If all that are not expired only replaced files, the current one."""
    ids: frozenset[str]
    """Of both, of the snapshots between them, and of the parent of the oldest one if that is expired."""


class TableMetadata(_Metadata):
    """The snapshots of a table."""

    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()

    def current_rows(self) -> CurrentRows | None:
        """Return the snapshots with the current rows, on the branch `main`; None for a table without a snapshot."""
        by_id = {item.snapshot_id: item for item in self.snapshots}
        current = item = by_id.get(self.current_snapshot_id or 0)
        if current is None:
            return None
        ids = {current.snapshot_id}
        while item and item.summary.replaces_files:
            parent = item.parent_snapshot_id or 0
            # An expired parent has the same rows as well, and only its child names it.
            ids.add(parent)
            item = by_id.pop(parent, None)
        return CurrentRows(current=current, content=item or current, ids=frozenset(map(str, ids)))


class ForeignTables:
    """Finds the current snapshots of tables that other systems write."""

    def __init__(self, catalog: TableCatalog, store: ObjectStore) -> None:
        self._catalog, self._store = catalog, store
        # The snapshots of each table's latest metadata. A check asks once for each day, in two threads.
        self._latest: dict[str, tuple[str, CurrentRows]] = {}
        self._reading = threading.Lock()

    def inputs(
        self, pipeline: Pipeline, day: Period, known: Mapping[str, InputObject], *, unread: Collection[str] = ()
    ) -> Iterator[InputObject]:
        """Yield the current snapshot of each of the pipeline's Iceberg tables, as an input of `day`.

        The id of the newest snapshot that changed rows identifies the content: a compaction is no other input. `known`
        are the objects of an earlier manifest, by URI. A table keeps its identity there, also after that snapshot is
        expired, if the metadata shows that the rows are the same.

        Raises `InputError` for a table that does not exist, is empty or elsewhere than its `location`, or has too much
        metadata; `AccessDenied`, `ObjectMissing` or `ObjectInvalid` that names the table; and `CloudError`. Such a
        table is left out instead if its name is in `unread`.
        """
        for name, item in sorted(pipeline.foreign_tables.items()):
            try:
                rows = self._current_rows(item)
            except (AccessDenied, InputError, ObjectInvalid, ObjectMissing) as error:
                if name in unread:
                    continue
                if not isinstance(error, AccessDenied):
                    raise type(error)(f"tables.{name}: {error}") from error
                raise AccessDenied(
                    f"tables.{name}: {item.iceberg} may not be read: {error}: run slackwater deploy after a change of "
                    "`iceberg` or `location`; if Lake Formation, the bucket's policy or a key protects the table, let "
                    "the roles of freeze_inputs, check_days and the Spark jobs read it"
                ) from error
            uri, tag = f"warehouse.{item.iceberg}", str(rows.current.snapshot_id)
            before = known.get(uri)
            if before and not rows.ids.isdisjoint((before.etag, before.tag)):
                # Its size belongs to the identity, and a compaction changes the size.
                yield structs.replace(before, source=name, tag=tag)
                continue
            yield InputObject(
                uri=uri,
                source=name,
                date=day.name,
                hour="",
                etag=str(rows.content.snapshot_id),
                bytes=rows.content.summary.total_files_size,
                rows=rows.content.summary.rows,
                arrived=rows.content.committed_at,
                file=item.iceberg,
                tag=tag,
            )

    def _current_rows(self, item: IcebergInput) -> CurrentRows:
        # Hadoop's names for S3, which some writers use.
        uri = re.sub(r"^s3[an]://", "s3://", self._catalog.metadata_uri(*item.name))
        folder = "s3://{}/{}".format(*bucket_folder(item.location))
        if not uri.startswith(folder):
            raise InputError(f"location: the metadata of {item.iceberg} is {uri}, which is not below {folder}")
        with self._reading:
            if self._latest.get(item.iceberg, ("",))[0] != uri:
                rows = _read_metadata(self._store, uri).current_rows()
                if rows is None:
                    raise InputError(f"{item.iceberg} has no snapshot yet: write to it first")
                self._latest[item.iceberg] = uri, rows
            return self._latest[item.iceberg][1]


def _read_metadata(store: ObjectStore, uri: str) -> TableMetadata:
    """Return the metadata at `uri`, which may be compressed. Raises `InputError` for more than `MAX_METADATA`."""
    body = store.get_range(uri, 0, MAX_METADATA + 1)
    try:
        if body.startswith(_GZIP):
            body = zlib.decompressobj(_GZIP_FORMAT).decompress(body, MAX_METADATA + 1)
        if len(body) > MAX_METADATA:
            raise InputError(
                f"{uri} is larger than {MAX_METADATA // 2**20} MB: expire old snapshots of the table "
                "(Iceberg's procedure expire_snapshots)"
            )
        return TableMetadata.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "(whole)"
        raise ObjectInvalid(f"{uri} is not the metadata of an Iceberg table: {place}: {first['msg']}") from error
    except zlib.error as error:
        raise ObjectInvalid(f"{uri} is not the metadata of an Iceberg table: {error}") from error
