"""The file cache: a record of each pulled file, and the decision what a pull does with it.

Every write names the revision that it is based on (optimistic locking): of two concurrent writers the first succeeds,
and the second gets `EntryChanged`. Such a write also takes the lease of a file. Until the lease expires only its owner
works on the file, and a pull whose lease has expired stops writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from slackwater.errors import CloudError
from slackwater.receiver.partners.partner import ListedFile, plain_etag
from slackwater.sources.partitions import Partition, object_uri


class EntryChanged(CloudError):
    """The record has been written by another pull since it was read."""


class FileState(StrEnum):
    """The outcome of the last attempt to fetch a file."""

    LEASED = "leased"
    """The first attempt has not ended yet."""
    STORED = "stored"
    """Its rows are stored."""
    DUPLICATE = "duplicate"
    """Another file has the same content, whose rows are stored once."""
    VANISHED = "vanished"
    """The partner listed it, but had deleted it before it was fetched."""
    FAILED = "failed"
    """The attempt ended with an error, which `FileEntry.reason` holds."""


class FileDecision(StrEnum):
    """What a pull does with a file."""

    NEW = "new"
    """Fetch it: none of its contents is stored."""
    CHANGED = "changed"
    """Fetch it: the stored content may be outdated."""
    UNCHANGED = "unchanged"
    """Do nothing: the stored content is the current one."""
    REPAIR = "repair"
    """Fetch it: an earlier pull of it was interrupted."""
    BUSY = "busy"
    """Do nothing: another pull is fetching it."""


class CacheRecord(BaseModel):
    """Base of everything that the file cache stores."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileVersion(CacheRecord):
    """One content of a file, and the partitions that hold its rows."""

    content_sha256: str
    partitions: tuple[Partition, ...]
    received_at: datetime | None = None
    """When the content was first received. Limits on the age of events are relative to this time."""

    def object_uris(self, bucket: str, source: str) -> Iterator[str]:
        """Yield the URIs of the objects that hold this content's rows, one for each partition."""
        for partition in self.partitions:
            yield object_uri(bucket, source, partition, self.object_name(partition))

    def object_name(self, partition: Partition) -> str:
        """Return the name of this content's object in a partition: 32 hex digits, a hash of both."""
        # Derived from the content, so a second attempt writes the same objects, and files with one content share them.
        return hashlib.sha256(f"{self.content_sha256}\n{'/'.join(partition)}".encode()).hexdigest()[:32]


class Lease(CacheRecord):
    """The exclusive right of `owner` to work on a record, until it expires."""

    owner: str
    until: datetime


class FileEntry(CacheRecord):
    """One file of one source."""

    source: str
    path: str
    revision: int = 0
    """0 until the entry is saved for the first time."""
    state: FileState = FileState.LEASED
    etag: str | None = None
    size: int = 0
    modified: datetime | None = None
    version: FileVersion | None = None
    """The committed content: readers see its rows."""
    writing: FileVersion | None = None
    """The content whose objects are being written. After a crash, some of them may exist."""
    superseded: tuple[FileVersion, ...] = ()
    """Earlier contents whose objects are still to be deleted."""
    duplicate_of: str | None = None
    """Path of the file whose stored rows it shares."""
    landing_uri: str | None = None
    """URI of the original file under `landing/`."""
    rows: int = 0
    rejected: int = 0
    stored_at: datetime | None = None
    reason: str | None = None
    """Why the last attempt failed."""
    lease: Lease | None = None
    """Held by the pull that is fetching the file."""

    @property
    def needed_contents(self) -> frozenset[str]:
        """SHA-256 digests of the contents whose objects this file needs."""
        return frozenset(version.content_sha256 for version in (self.version, self.writing) if version)

    def matches_listing(self, listed: ListedFile) -> bool:
        """Whether size and ETag (or else time) in a listing are those of the fetched file.

        An HTML index may show neither size nor time: a file with nothing to compare counts as unchanged.
        """
        if listed.size is not None and listed.size != self.size:
            return False
        # The time counts only without an ETag: a server that copies a file again changes its time, but not its content.
        etag = plain_etag(listed.etag)
        return etag == self.etag if etag and self.etag else listed.modified == self.modified


class Content(CacheRecord):
    """One content of a source's files. Files with the same content share its objects."""

    source: str
    content_sha256: str
    revision: int = 0
    """0 until the record is saved for the first time."""
    received_at: datetime
    """When a file first had it. Limits on the age of events are relative to this time."""
    first_path: str
    """Path of the first file that has it; files that got it later are duplicates of that file."""
    deletions: tuple[Lease, ...] = ()
    """One mark for each pull that may be deleting its objects; the owner is the path of the file that it fetches."""


class FileCache(Protocol):
    """Stores file entries and contents."""

    def entries(self, source: str) -> list[FileEntry]:
        """Return all files of the source (strongly consistent)."""

    def get(self, source: str, path: str) -> FileEntry | None:
        """Return one file, or None (strongly consistent)."""

    def save(self, entry: FileEntry) -> FileEntry:
        """Write the entry and return it with its new revision.

        Raises `EntryChanged` when the stored entry's revision is not `entry.revision`.
        """

    def content(self, source: str, content_sha256: str) -> Content | None:
        """Return one content, or None (strongly consistent)."""

    def save_content(self, content: Content) -> Content:
        """Write the content and return it with its new revision. Raises `EntryChanged` as `save` does."""


def uncommitted_objects(entries: Iterable[FileEntry], *, bucket: str) -> frozenset[str]:
    """Return the URIs of objects that may exist but that readers must ignore: not yet committed, or superseded.

    A file's new content replaces the old one at the instant at which its entry is saved with the new `version`.
    """
    committed: set[str] = set()
    others: set[str] = set()
    for entry in entries:
        if entry.version:
            committed.update(entry.version.object_uris(bucket, entry.source))
        for version in (*entry.superseded, *((entry.writing,) if entry.writing else ())):
            others.update(version.object_uris(bucket, entry.source))
    return frozenset(others - committed)


def decide(listed: ListedFile | None, entry: FileEntry | None, *, now: datetime) -> FileDecision:
    """Return what a pull does with a file.

    `listed` is None when the partner no longer lists it, `entry` when no pull has fetched it yet.
    """
    if entry is None:
        return FileDecision.NEW
    if entry.lease:
        # A pull releases its lease when it ends, so an expired lease belongs to an interrupted pull.
        return FileDecision.BUSY if now < entry.lease.until else FileDecision.REPAIR
    if entry.superseded or entry.writing:
        return FileDecision.REPAIR
    if listed is None:
        return FileDecision.UNCHANGED
    if entry.state in {FileState.VANISHED, FileState.FAILED}:
        return FileDecision.CHANGED if entry.version else FileDecision.NEW
    return FileDecision.UNCHANGED if entry.matches_listing(listed) else FileDecision.CHANGED
