"""The Iceberg tables of other systems that a run reads: each at the snapshot that freezing finds."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import AccessDenied, InputError, ObjectInvalid, ObjectMissing
from slackwater.pipeline.definition import IcebergInput, Pipeline
from slackwater.receiver.partners.partner import bucket_folder
from slackwater.runs.day import Day
from slackwater.runs.manifest import InputObject
from slackwater.storage import ObjectStore

MAX_METADATA = 64 * 2**20
"""Bytes of a table's metadata, uncompressed. Reading 64 MB takes about 0.3 GB of memory, and a function has 1 GB."""
# The operation of a snapshot with the same rows in other files, such as a compaction.
_REPLACE = "replace"
_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31  # zlib's `wbits` for a gzip header


class TableCatalog(Protocol):
    """Finds the metadata of Iceberg tables. `slackwater.aws.glue_tables` implements it with the Glue catalogue."""

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
    total_records: Annotated[int, Field(ge=0)] = 0
    total_files_size: Annotated[int, Field(ge=0)] = 0
    """Bytes."""


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


class TableMetadata(_Metadata):
    """The snapshots of a table."""

    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()

    def newest_rows(self) -> Snapshot | None:
        """Return the newest snapshot that changed rows, on the branch `main`; None for a table without a snapshot.

        It has the same rows as the current one. If all ancestors that are not expired only replaced files, the current
        snapshot itself is returned.
        """
        by_id = {item.snapshot_id: item for item in self.snapshots}
        current = by_id.get(self.current_snapshot_id or 0)
        newest = current
        while newest and newest.summary.operation == _REPLACE:
            newest = by_id.pop(newest.parent_snapshot_id or 0, None)
        return newest or current


class ForeignTables:
    """Finds the current snapshots of tables that other systems write."""

    def __init__(self, catalog: TableCatalog, store: ObjectStore) -> None:
        self._catalog, self._store = catalog, store
        # The snapshot of each table's latest metadata. A check asks once for each day, in two threads.
        self._latest: dict[str, tuple[str, Snapshot]] = {}
        self._reading = threading.Lock()

    def inputs(self, pipeline: Pipeline, day: Day) -> Iterator[InputObject]:
        """Yield the current snapshot of each of the pipeline's Iceberg tables, as an input of `day`.

        The id of the newest snapshot that changed rows identifies the content: a compaction is no other input.

        Raises `InputError` for a table that does not exist, is empty or elsewhere than its `location`, or has too much
        metadata; `AccessDenied`, `ObjectMissing` or `ObjectInvalid` that names the table; and `CloudError`.
        """
        for name, item in sorted(pipeline.foreign_tables.items()):
            try:
                snapshot = self._snapshot(item)
            except AccessDenied as error:
                raise AccessDenied(
                    f"tables.{name}: {item.iceberg} may not be read: {error}: run slackwater deploy after a change of "
                    "`iceberg` or `location`; if Lake Formation, the bucket's policy or a key protects the table, let "
                    "the roles of freeze_inputs, check_days and the Spark jobs read it"
                ) from error
            except (InputError, ObjectInvalid, ObjectMissing) as error:
                raise type(error)(f"tables.{name}: {error}") from error
            yield InputObject(
                uri=f"warehouse.{item.iceberg}",
                source=name,
                date=day.date.isoformat(),
                hour="",
                etag=str(snapshot.snapshot_id),
                bytes=snapshot.summary.total_files_size,
                rows=snapshot.summary.total_records,
                arrived=snapshot.committed_at,
                file=item.iceberg,
            )

    def _snapshot(self, item: IcebergInput) -> Snapshot:
        # Hadoop's names for S3, which some writers use.
        uri = re.sub(r"^s3[an]://", "s3://", self._catalog.metadata_uri(*item.name))
        folder = "s3://{}/{}".format(*bucket_folder(item.location))
        if not uri.startswith(folder):
            raise InputError(f"location: the metadata of {item.iceberg} is {uri}, which is not below {folder}")
        with self._reading:
            if self._latest.get(item.iceberg, ("",))[0] != uri:
                snapshot = _read_metadata(self._store, uri).newest_rows()
                if snapshot is None:
                    raise InputError(f"{item.iceberg} has no snapshot yet: write to it first")
                self._latest[item.iceberg] = uri, snapshot
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
