"""What is known of each pulled file, and what is to be done about it: the file cache.

Every write names the revision that it was decided upon, so of two writers only the first succeeds. A lease is such a
write: who has it takes the file, and when it has run out anybody may. No pull works on when its lease has run out.
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
    """The entry, or the content, has been written since it was read."""


class FileState(StrEnum):
    """What became of a file when it was last tried."""

    LEASED = "leased"
    """It is being taken for the first time."""
    TAKEN = "taken"
    DUPLICATE = "duplicate"
    """Its content is that of another file, and is stored once."""
    VANISHED = "vanished"
    FAILED = "failed"


class FileDecision(StrEnum):
    """What a listing and the file cache together say of a file."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REPAIR = "repair"
    """A pull was cut off while it took the file."""
    BUSY = "busy"
    """Another pull is taking it now."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileVersion(_Record):
    """One content of a file, and the partitions that its rows are in."""

    content_sha256: str
    partitions: tuple[Partition, ...]
    received_at: datetime | None = None
    """When the content was first received: the age of its events was judged by that."""

    def objects(self, bucket: str, source: str) -> Iterator[str]:
        """The addresses of the objects that this content gave."""
        for partition in self.partitions:
            yield object_uri(bucket, source, partition, self.hash_in(partition))

    def hash_in(self, partition: Partition) -> str:
        """Return the content hash of its object in that partition: 32 hex digits."""
        return hashlib.sha256(f"{self.content_sha256}\n{'/'.join(partition)}".encode()).hexdigest()[:32]


class Lease(_Record):
    """Who is at work on something, and until when nobody else may be."""

    owner: str
    until: datetime


class FileEntry(_Record):
    """One file of one source."""

    source: str
    path: str
    revision: int = 0
    """0 until it is saved for the first time."""
    state: FileState = FileState.LEASED
    etag: str | None = None
    size: int = 0
    modified: datetime | None = None
    version: FileVersion | None = None
    """The content whose rows stand in the partitions."""
    writing: FileVersion | None = None
    """The content whose objects are being written: after a crash, some of them may be there."""
    superseded: tuple[FileVersion, ...] = ()
    """Earlier contents whose objects are to be deleted."""
    duplicate_of: str | None = None
    landing: str | None = None
    """Address of the file as it came."""
    rows: int = 0
    rejected: int = 0
    taken_at: datetime | None = None
    reason: str | None = None
    """Why it failed."""
    lease: Lease | None = None
    """Which pull is taking it."""

    @property
    def contents(self) -> frozenset[str]:
        """SHA-256 of the contents whose objects this file needs."""
        return frozenset(found.content_sha256 for found in (self.version, self.writing) if found)

    def shows(self, listed: ListedFile) -> bool:
        """Whether the file is still as it was when it was taken, as far as its listing tells.

        An HTML index may tell neither size nor time: what such a one names is taken once.
        """
        if listed.size is not None and listed.size != self.size:
            return False
        etag = plain_etag(listed.etag)
        return etag == self.etag if etag and self.etag else listed.modified == self.modified


class Content(_Record):
    """One content of a source's files. Files that are alike share its objects."""

    source: str
    content_sha256: str
    revision: int = 0
    """0 until it is saved for the first time."""
    received_at: datetime
    """When a file first had it: the age of its events is judged by that, whichever file has it now."""
    first: str
    """Path of the file that has it; of several, of the one that had it first."""
    sweeps: tuple[Lease, ...] = ()
    """By the paths of their files: pulls that delete its objects unless a file needs them."""


class FileCache(Protocol):
    """Where entries and contents are kept."""

    def entries(self, source: str) -> list[FileEntry]:
        """Return all files of the source, as they are now."""

    def get(self, source: str, path: str) -> FileEntry | None:
        """Return one file, as it is now."""

    def save(self, entry: FileEntry) -> FileEntry:
        """Write the entry and return it with its new revision.

        Raises `EntryChanged` when the one that is kept does not have `entry.revision`.
        """

    def content(self, source: str, content_sha256: str) -> Content | None:
        """Return what is known of a content, as it is now."""

    def save_content(self, content: Content) -> Content:
        """Write it as `save` does an entry."""


def unsettled_objects(entries: Iterable[FileEntry], *, bucket: str) -> frozenset[str]:
    """Return the addresses of objects that may be there and are no file's content: half written, or superseded.

    A file's new content takes the place of the old one at the moment in which its entry says so.
    """
    settled: set[str] = set()
    others: set[str] = set()
    for entry in entries:
        if entry.version:
            settled.update(entry.version.objects(bucket, entry.source))
        for version in (*entry.superseded, *((entry.writing,) if entry.writing else ())):
            others.update(version.objects(bucket, entry.source))
    return frozenset(others - settled)


def decide(listed: ListedFile | None, entry: FileEntry | None, *, now: datetime) -> FileDecision:
    """Say what is to be done about a file that is wanted; `listed` is None when it is not there any more."""
    if entry is None:
        return FileDecision.NEW
    if entry.lease:
        return FileDecision.BUSY if now < entry.lease.until else FileDecision.REPAIR
    if entry.superseded or entry.writing:
        return FileDecision.REPAIR
    if listed is None:
        return FileDecision.UNCHANGED
    if entry.state in {FileState.VANISHED, FileState.FAILED}:
        return FileDecision.CHANGED if entry.version else FileDecision.NEW
    return FileDecision.UNCHANGED if entry.shows(listed) else FileDecision.CHANGED
