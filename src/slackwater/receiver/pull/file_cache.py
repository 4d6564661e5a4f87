"""The file cache: a record of each pulled file and of each content, and the decision what a pull does with a file.

Files with the same content share its objects. A content is stored as one definition of the source reads it: when the
definition is corrected, the content is read again, and its new objects replace the old ones for all of its files.

Every write names the revision of the records that it is based on (optimistic locking): of two concurrent writers the
first succeeds, and the second gets `EntryChanged`. Such a write also takes the lease of a file. Until the lease expires
only its owner works on the file, and a pull whose lease has expired stops writing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from slackwater.errors import CloudError
from slackwater.receiver.connectors.connector import ListedFile, plain_etag
from slackwater.sources.partitions import Partition, object_name, object_uri

# The first retry of a file follows in the next pull. The next ones wait: 15 minutes, 30 minutes, and so on up to a day.
_FIRST_DELAY, _MAX_DELAY = timedelta(minutes=15), timedelta(days=1)
# Paths that a content keeps of the files that have it. They explain where rows come from; the number of files is exact.
_MAX_PATHS = 20
_OBJECT_NAME = re.compile(r"/([0-9a-f]{32})-([0-9a-f]{12})(?:-[0-9]+)?\.parquet$")


class EntryChanged(CloudError):
    """The record has been written by another pull since it was read."""


class FileState(StrEnum):
    """The outcome of the last attempt to fetch a file."""

    LISTED = "listed"
    """A pull has listed it, and no attempt has begun."""
    LEASED = "leased"
    """The first attempt, or the first one since the file was given up, has not ended yet."""
    STORED = "stored"
    """Its rows are stored."""
    DUPLICATE = "duplicate"
    """Another file has the same content, whose rows are stored once."""
    VANISHED = "vanished"
    """The partner listed it, but had deleted it before it was fetched."""
    FAILED = "failed"
    """The attempt ended with an error, which `FileEntry.reason` holds."""
    GIVEN_UP = "given-up"
    """A person has decided that the file is not fetched, unless the partner changes it."""


_NOT_TAKEN = frozenset({FileState.LISTED, FileState.LEASED, FileState.FAILED})


class FileDecision(StrEnum):
    """What a pull does with a file."""

    NEW = "new"
    """Fetch it: none of its contents is stored."""
    CHANGED = "changed"
    """Fetch it: the stored content may be outdated, or was read with another definition of the source."""
    UNCHANGED = "unchanged"
    """Do nothing: the stored content is the current one."""
    REPAIR = "repair"
    """Fetch it: an earlier pull of it was interrupted."""
    BUSY = "busy"
    """Do nothing: another pull is fetching it."""
    WAITING = "waiting"
    """Do nothing yet: earlier attempts have failed, and the delay before the next one has not passed."""


class CacheRecord(BaseModel):
    """Base of everything that the file cache stores. Fields that a later version has added are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


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
    dated_pattern: str = ""
    """The source's pattern of file names with the file's date, such as `flights-2013-03-10*.csv`."""
    state: FileState = FileState.LISTED
    etag: str | None = None
    size: int = 0
    modified: datetime | None = None
    content: str | None = None
    """Id of the committed content: readers see its rows."""
    writing: str | None = None
    """Id of the content that is being written for this file. After a crash, some of its objects may exist."""
    superseded: tuple[str, ...] = ()
    """Ids of contents that may have objects to delete."""
    duplicate_of: str | None = None
    """Path of the file whose stored rows it shares."""
    landing_uri: str | None = None
    """URI of the original file under `landing/`."""
    rows: int = 0
    rejected: int = 0
    stored_at: datetime | None = None
    first_received_at: datetime | None = None
    """When the first content of the file was received. None for a file that an older version has stored."""
    reason: str | None = None
    """Why the last attempt failed, or why a person has given the file up."""
    lease: Lease | None = None
    """Held by the pull that is fetching the file."""
    attempts: int = 0
    """Number of attempts since the last one that succeeded."""
    attempted: ListedFile | None = None
    """The file as it was listed before the last attempt."""
    due: datetime | None = None
    """When the file is fetched again, if the last attempt does not succeed."""
    not_taken_since: datetime | None = None
    """When the first of these attempts began."""
    removed_since: datetime | None = None
    """When a pull found that the partner had removed the file, whose rows are stored. None if it is listed, and if no
    pull records removals of the source's files."""

    @property
    def is_unfinished(self) -> bool:
        """Whether the file has to be fetched again, listed or not: an attempt failed, was interrupted, or goes on."""
        return bool(self.lease or self.writing or self.superseded or self.state in _NOT_TAKEN)

    @property
    def is_taken(self) -> bool:
        """Whether no content of the file is missing, as far as its last listing shows."""
        return self.lease is None and self.state not in _NOT_TAKEN

    def is_leased(self, now: datetime) -> bool:
        """Whether a pull is fetching the file."""
        return self.lease is not None and now < self.lease.until

    def matches_listing(self, listed: ListedFile) -> bool:
        """Whether size and ETag (or else time) in a listing are those of the fetched file.

        An HTML index may show neither size nor time: a file with nothing to compare counts as unchanged.
        """
        if listed.size is not None and listed.size != self.size:
            return False
        # The time counts only without an ETag: a server that copies a file again changes its time, but not its content.
        etag = plain_etag(listed.etag)
        return etag == self.etag if etag and self.etag else listed.modified == self.modified


class ContentVersion(CacheRecord):
    """The rows of one content, as one definition of the source reads them."""

    definition: str
    """Digest of the definition (`Source.reading_digest`)."""
    partitions: tuple[Partition, ...]
    rows: int = 0
    rejected: int = 0
    rows_digest: str = ""
    """Digest of the number of rows in each partition."""
    partition_rows: tuple[int, ...] = ()
    """Number of rows in each of `partitions`, as the names of its objects have it. Empty for a version that was
    announced before names had rows."""
    rejection: str | None = None
    """Why the content is rejected as a whole. None if it is not, also if each row is rejected for its own reason."""

    @property
    def id(self) -> str:
        """Digest of the version, 12 hex digits."""
        # With the rows, because another release may read the content differently with the same definition. Their digest
        # is enough: the names of objects that were stored before these two fields existed must stay the same.
        return hashlib.sha256(self.model_dump_json(exclude={"partition_rows", "rejection"}).encode()).hexdigest()[:12]

    def object_names(self, content_id: str) -> list[str]:
        """Return the name of the object of each of `partitions`."""
        # Derived from content and version, so a second attempt writes the same objects.
        name = version_name(content_id, self)
        if not self.partition_rows:
            return [name] * len(self.partitions)
        return [object_name(name, rows) for rows in self.partition_rows]


class ContentWriter(CacheRecord):
    """A file for which a version of a content is being written."""

    path: str
    version: str


class Content(CacheRecord):
    """One content of a source's files. Files with the same content share its objects."""

    source: str
    id: str
    """The first 32 hex digits of its SHA-256; also the batch id of its events."""
    revision: int = 0
    """0 until the record is saved for the first time."""
    received_at: datetime
    """When a file first had it."""
    first_received_at: datetime | None = None
    """When the first content of a file that has it was received, if that was earlier."""
    files: int = 0
    """Number of files whose committed content it is."""
    paths: tuple[str, ...] = ()
    """Paths of these files, the first ones only if there are many."""
    removed: int = 0
    """How many of these files have `FileEntry.removed_since`."""
    current: str | None = None
    """Id of the version that readers see, if any file has the content."""
    changes: int = 0
    """How many times readers have got to see something else."""
    versions: tuple[ContentVersion, ...] = ()
    """All versions of which objects may exist."""
    writers: tuple[ContentWriter, ...] = ()
    """Files for which a version is being written."""
    deleting: Lease | None = None
    """Held by the pull that deletes objects of unneeded versions; the owner is the path of the file that it fetches."""

    @property
    def ages_at(self) -> datetime:
        """The time to which the largest age of events is relative."""
        return self.first_received_at or self.received_at

    @property
    def committed(self) -> ContentVersion | None:
        """The version that readers see, or None."""
        current = self.current if self.files else None
        return next((version for version in self.versions if version.id == current), None)

    @property
    def is_removed(self) -> bool:
        """Whether the partner has removed all files with the content."""
        return 0 < self.files <= self.removed

    @property
    def garbage(self) -> tuple[ContentVersion, ...]:
        """The versions that no file needs."""
        needed = {writer.version for writer in self.writers} | ({self.current} if self.files else set())
        return tuple(version for version in self.versions if version.id not in needed)

    def object_uris(self, version: ContentVersion, bucket: str) -> Iterator[str]:
        """Yield the URIs of the objects of a version, one for each partition."""
        for partition, name in zip(version.partitions, version.object_names(self.id), strict=True):
            yield object_uri(bucket, self.source, partition, name)

    def recorded(self, version: ContentVersion) -> ContentVersion:
        """Return the version with the same id that is recorded, or else `version`."""
        return next((recorded for recorded in self.versions if recorded.id == version.id), version)

    def is_deleted_by_another(self, path: str, now: datetime) -> bool:
        """Whether the pull of another file than `path` may be deleting objects."""
        return self.deleting is not None and self.deleting.owner != path and now < self.deleting.until

    def with_first_receipt(self, at: datetime | None) -> Content:
        """Return the content after a file has it whose first content was received at that time, if that is known."""
        return self.model_copy(update={"first_received_at": at}) if at and at < self.ages_at else self

    def with_writer(self, path: str, version: ContentVersion) -> Content:
        """Return the content after the file at `path` has announced that it writes the version."""
        others = tuple(other for other in self.versions if other != version)
        writers = tuple(writer for writer in self.writers if writer.path != path)
        writer = ContentWriter(path=path, version=version.id)
        return self.model_copy(update={"versions": (*others, version), "writers": (*writers, writer), "deleting": None})

    def without_writer(self, path: str) -> Content:
        """Return the content after the file at `path` has given up writing, or has committed."""
        return self.model_copy(update={"writers": tuple(writer for writer in self.writers if writer.path != path)})

    def with_file(self, path: str, version: ContentVersion, *, is_new: bool) -> Content:
        """Return the content after the file at `path` has committed it: readers see the version.

        `is_new` is false when the file had the content before, and has read it with another definition.
        """
        was_visible = self.files and self.current == version.id
        changes: dict[str, object] = {"current": version.id, "changes": self.changes + (not was_visible)}
        if is_new:
            changes |= {"files": self.files + 1, "paths": (*self.paths, path)[:_MAX_PATHS]}
        return self.without_writer(path).model_copy(update=changes)

    def without_file(self, path: str, *, was_removed: bool = False) -> Content:
        """Return the content after the file at `path` has got another content.

        `was_removed` is whether the file's entry had `removed_since`.
        """
        changes = {
            "files": self.files - 1,
            "paths": tuple(other for other in self.paths if other != path),
            "removed": self.removed - was_removed,
            "changes": self.changes + (self.files == 1),
        }
        return self.model_copy(update=changes)

    def with_removed(self, number: int) -> Content:
        """Return the content after the partner has removed `number` of its files; negative if some are back."""
        return self.model_copy(update={"removed": self.removed + number})


class FileOfDate(NamedTuple):
    """What an index of the file cache holds of a file."""

    path: str
    state: FileState
    is_stored: bool
    """Whether readers see rows of it."""
    is_taken: bool
    """`FileEntry.is_taken`"""


class FileCache(Protocol):
    """Stores file entries and contents. No request reads more than its arguments name."""

    def entries(self, source: str, paths: Iterable[str]) -> list[FileEntry]:
        """Return those of the files that are recorded (strongly consistent)."""

    def contents(self, source: str, ids: Iterable[str]) -> list[Content]:
        """Return those of the contents that are recorded (strongly consistent)."""

    def save(self, *records: FileEntry | Content) -> None:
        """Write all records, or none, with the next revision.

        Raises `EntryChanged` when the revision of a stored record is not that of the record.
        """

    def due(self, source: str, *, now: datetime, limit: int) -> list[FileEntry]:
        """Return unfinished files that are due, those first that have been due for longest.

        The result may miss writes of the last seconds.
        """

    def longest_not_taken(self, source: str) -> FileEntry | None:
        """Return the file that is not taken since the longest time, or None. May miss writes of the last seconds."""

    def not_taken(self, source: str) -> Iterator[FileEntry]:
        """Yield the files that are not taken, those first that are not taken since the longest time.

        Pages are read as the caller needs them. The result may miss writes of the last seconds.
        """

    def files_of_date(self, source: str, dated_pattern: str) -> list[FileOfDate]:
        """Return the recorded files of one date. May miss writes of the last seconds."""


def version_name(content: str, version: ContentVersion) -> str:
    """Return what the names of all objects of a content's version begin with."""
    return f"{content}-{version.id}"


def version_of(uri: str) -> tuple[str, str] | None:
    """Return the ids of content and version of a pulled file's object; None for an object of a pushed batch."""
    match = _OBJECT_NAME.search(uri)
    return (match[1], match[2]) if match else None


def retry_delay(attempts: int) -> timedelta:
    """Return how long a file waits after this number of attempts in a row did not succeed."""
    if attempts <= 1:
        return timedelta(0)
    factor: int = 2 ** min(attempts - 2, 10)
    return min(_FIRST_DELAY * factor, _MAX_DELAY)


def decide(
    listed: ListedFile | None, entry: FileEntry | None, *, is_definition_current: bool, now: datetime
) -> FileDecision:
    """Return what a pull does with a file.

    `listed` is None when the partner no longer lists it, `entry` when no pull has fetched it yet.
    `is_definition_current` says whether readers see its content as the source's present definition reads it.
    """
    if entry is None:
        return FileDecision.NEW
    if entry.is_leased(now):
        return FileDecision.BUSY
    fetch = FileDecision.CHANGED if entry.content else FileDecision.NEW
    was_listed_so = listed is None or listed == entry.attempted
    if entry.is_unfinished or (entry.state is FileState.VANISHED and listed):
        # A file that the partner has delivered again may be right now: it does not wait.
        if was_listed_so and entry.due and now < entry.due:
            return FileDecision.WAITING
        # A pull releases its lease when it ends, so an expired lease belongs to an interrupted pull.
        return FileDecision.REPAIR if entry.lease or entry.writing or entry.superseded else fetch
    if listed is None:
        return FileDecision.UNCHANGED
    if entry.state is FileState.GIVEN_UP:
        is_current = was_listed_so
    else:
        is_current = entry.matches_listing(listed) and is_definition_current
    return FileDecision.UNCHANGED if is_current else fetch
