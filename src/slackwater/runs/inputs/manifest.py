"""The input manifest: the exact objects that a run reads, recorded when the run starts."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.runs.record import PublishedRun, Run
from slackwater.storage import ObjectStore

_OF_RUN = re.compile(r"/manifests/([^/]+)/([^/]+)/")
_Number = Annotated[int, msgspec.Meta(ge=0)]


# Not a `Record`: a manifest may have 86,400 objects, which msgspec reads in a quarter of the time (decision 58).
class InputObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An input of a run.

    It is a Parquet object of raw events, which belongs to one partition; a published day of another pipeline; or an
    Iceberg table of another system.
    """

    uri: str
    source: str
    """The source, or the name of the table in the pipeline."""
    date: str
    """Of the partition, UTC, such as 2013-03-10; the published day; of an Iceberg table, the day of the run."""
    hour: str
    """Of the partition, UTC: two digits. `00` for a published day, empty for an Iceberg table."""
    etag: str
    """Entity tag of the object; of a published day, the digest of its rows; of an Iceberg table, the id of the snapshot
    that identifies its rows: the newest that changed them."""
    bytes: _Number
    rows: _Number
    """Events that count: duplicates do not, if the source has an id column."""
    arrived: datetime
    """When the object was written, or the snapshot committed, UTC."""
    file: str | None = None
    """The partner's file that the events come from; None for pushed events. The pipeline and its published day. The
    Iceberg table as `database.table`."""
    first_received_at: datetime | None = None
    """When the first content of a changed file was received, if the source has an id column: it decides which of
    several events with the same id counts. None for other objects."""
    tag: str | None = None
    """What the run reads: of a published day, the Iceberg tag of the version; of an Iceberg table, the id of the
    snapshot; None for an object."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """URI, entity tag and size: equal for the same content at the same URI."""
        return self.uri, self.etag, self.bytes

    @property
    def is_published_day(self) -> bool:
        """Whether it is a published day or hour of another pipeline."""
        # An Iceberg table has no hour, and an object no tag.
        return self.tag is not None and self.hour != ""

    @property
    def published_day(self) -> tuple[str, str]:
        """The pipeline and the day or hour, if it is a published one."""
        pipeline, _, date = (self.file or "").rpartition(" ")
        return pipeline, date

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let records have fields of this type."""
        written = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        return core_schema.no_info_plain_validator_function(cls._validated, serialization=written)

    @classmethod
    def _validated(cls, value: Any) -> InputObject:
        try:
            return value if isinstance(value, cls) else msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


class PackedHour(msgspec.Struct, frozen=True):
    """A partition whose inputs are all members of packed objects, and of pushed batches."""

    index: str
    """The ETag of the index that names the members."""
    bytes: _Number
    """Size of the packed objects."""


class InputManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that one run reads.

    It is stored as JSON. `read_manifest` checks the types of fields and ignores unknown ones. The constructor checks
    nothing.
    """

    pipeline: str
    date: str
    """The local date of the day, such as 2013-03-10."""
    frozen_at: datetime
    """When the objects were listed, UTC; by the first of several runs with equal manifests."""
    objects: tuple[InputObject, ...]
    """In order of URI."""
    left_out: dict[str, Literal["hold", "drop"]] = {}
    """URIs of objects that are no inputs, because the partner has removed their files: by `pull.on_removed`. Objects of
    former contents of such a file, which an earlier run has read, are among them."""
    packed: dict[str, PackedHour] = {}
    """Packed hours, by what the URIs of their objects begin with: the next listing reads only the indexes that have
    changed."""

    @property
    def digest(self) -> str:
        """SHA-256 over the identities of the objects, in hexadecimal: equal inputs have equal digests.

        `frozen_at`, and the rows, files and times of the objects, do not change it.
        """
        digest = hashlib.sha256()
        for item in sorted(self.objects, key=lambda item: item.uri):
            # No URI of ours contains a tab or a line feed, so different objects never give the same bytes.
            digest.update(f"{item.uri}\t{item.etag}\t{item.bytes}\n".encode())
        return digest.hexdigest()

    def lists_as(self, other: InputManifest | None) -> bool:
        """Return whether another manifest differs from it only in the time at which the objects were listed."""
        return other is not None and self == msgspec.structs.replace(other, frozen_at=self.frozen_at)

    @property
    def rows(self) -> int:
        """Events that count, in all objects."""
        return sum(item.rows for item in self.objects)

    @property
    def bytes(self) -> int:
        """Size of all objects."""
        return sum(item.bytes for item in self.objects)

    @property
    def read_bytes(self) -> int:
        """Size of the objects with the rows: of a packed hour, that of its packed objects instead of their members."""
        members = {folder: sum(item.bytes for item in self.of_folder(folder)) for folder in self.packed}
        # A manifest of fewer objects may have none of an hour.
        return self.bytes + sum(self.packed[folder].bytes - size for folder, size in members.items() if size)

    def of_folder(self, folder: str) -> tuple[InputObject, ...]:
        """Return the objects whose URIs begin with `folder`, which ends with a slash."""
        # "0" is the character after the slash.
        bounds = (bisect_left(self.objects, uri, key=lambda item: item.uri) for uri in (folder, f"{folder[:-1]}0"))
        return self.objects[slice(*bounds)]

    def of_source(self, source: str) -> tuple[InputObject, ...]:
        """Return the objects of one source; none for a source that the manifest does not have."""
        return tuple(item for item in self.objects if item.source == source)

    def by_source(self) -> dict[str, tuple[InputObject, ...]]:
        """Return the objects of each source that has any, in one pass over all of them."""
        groups: dict[str, list[InputObject]] = {}
        for item in self.objects:
            groups.setdefault(item.source, []).append(item)
        return {source: tuple(items) for source, items in groups.items()}


def store_manifest(store: ObjectStore, uri: str, manifest: InputManifest) -> None:
    """Store an input manifest as JSON; an existing object is replaced. Raises `CloudError`."""
    store.put(uri, msgspec.json.encode(manifest))


def published_manifest(store: ObjectStore, published: PublishedRun) -> InputManifest | None:
    """Return the input manifest of the published run, or None when it no longer exists.

    Raises `ObjectInvalid` that names the remedy when it is not a valid manifest.
    """
    return run_manifest(store, published.run)


def run_manifest(store: ObjectStore, run: Run) -> InputManifest | None:
    """Return the input manifest of a run, or None when it no longer exists.

    Raises `ObjectInvalid` that names the remedy when it is not a valid manifest.
    """
    try:
        return read_manifest(store, run.manifest)
    except ObjectMissing:
        return None


def read_manifest(store: ObjectStore, uri: str) -> InputManifest:
    """Return the input manifest at a URI.

    Raises `ObjectMissing`, `ObjectInvalid` that names the remedy when it is not a valid manifest, and `CloudError`.
    """
    try:
        return msgspec.json.decode(store.get(uri), type=InputManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        of_run = _OF_RUN.search(uri)
        command = f" (slackwater run {of_run[1]} --date {of_run[2]} --force)" if of_run else ""
        raise ObjectInvalid(
            f"{uri} is not readable as an input manifest ({error}): remove it, and run the day again by hand{command}"
        ) from error
