"""The file cache: a record of each pulled file and of each content.

Files with the same content share its objects. A content is stored as one definition of the source reads it: when the
definition is corrected, the content is read again, and its new objects replace the old ones for all of its files. Each
attempt writes objects with names of its own, so the record of a content only says which attempt's objects readers see.

Every write names the revision of the records that it is based on (optimistic locking): of two concurrent writers the
first succeeds, and the second gets `EntryChanged`. Such a write also takes the lease of a file. Until the lease expires
only its owner works on the file, and a pull whose lease has expired cannot commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, model_validator

from slackwater.errors import CloudError
from slackwater.receiver.connectors.connector import ListedFile, plain_etag
from slackwater.sources.partitions import Partition, version_of

# The first retry of a file follows in the next pull. The next ones wait: 15 minutes, 30 minutes, and so on up to a day.
_FIRST_DELAY, _MAX_DELAY = timedelta(minutes=15), timedelta(days=1)
# Paths that a content keeps of the files that have it. They explain where rows come from; the number of files is exact.
_MAX_PATHS = 20


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
# What releases before objects were named by attempt have recorded of files and contents, to delete their objects.
_OF_EARLIER_RELEASES = ("writing", "superseded", "versions", "writers", "deleting", "changes")


class CacheRecord(BaseModel):
    """Base of everything that the file cache stores. Fields that a later version has added are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Lease(CacheRecord):
    """The exclusive right of `owner` to work on a record, until it expires."""

    owner: str
    until: datetime


class FileCounts(CacheRecord):
    """What the metrics count of files."""

    files: int = 0
    """Stored files, new or changed."""
    rows: int = 0
    rejected: int = 0

    def plus(self, other: FileCounts) -> FileCounts:
        """Return the sums."""
        return FileCounts(
            files=self.files + other.files, rows=self.rows + other.rows, rejected=self.rejected + other.rejected
        )


NO_COUNTS = FileCounts()


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
    changed: tuple[Partition, ...] = ()
    """Partitions of which readers see other rows since a commit whose pull has not ended: its result may be lost."""
    uncounted: FileCounts = NO_COUNTS
    """What commits have stored that no result of a pull has counted yet."""
    counted_by: str = ""
    """The attempt whose result has counted the last commit: of two that do so at the same time, one has."""
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
    attempted_definition: str = ""
    """The definition with which the last attempt read the file (`Source.reading_digest`); empty if unknown."""
    due: datetime | None = None
    """When the file is fetched again, if the last attempt does not succeed."""
    not_taken_since: datetime | None = None
    """When the first of these attempts began."""
    removed_since: datetime | None = None
    """When a pull found that the partner had removed the file, whose rows are stored. None if it is listed, and if no
    pull records removals of the source's files."""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_release(cls, data: dict[str, Any]) -> dict[str, Any]:
        has_leftovers = data.get("writing") or data.get("superseded")
        data = {name: value for name, value in data.items() if name not in _OF_EARLIER_RELEASES}
        if has_leftovers and data.get("state", FileState.LISTED) not in _NOT_TAKEN and not data.get("lease"):
            # The index of due files has the entry. As after an interrupted attempt, the next pull saves it again.
            data["lease"] = {"owner": "an earlier release", "until": datetime(1970, 1, 1, tzinfo=UTC)}
        return data

    @property
    def is_unfinished(self) -> bool:
        """Whether the file has to be fetched again, listed or not: an attempt failed, was interrupted, or goes on."""
        return bool(self.lease or self.is_unreported or self.state in _NOT_TAKEN)

    @property
    def is_unreported(self) -> bool:
        """Whether no result of a pull has reported a commit: which days it changes, or what it has stored."""
        return bool(self.changed or self.uncounted != NO_COUNTS)

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
    """The rows of one content, as one definition of the source reads them, and the attempt that has written them."""

    definition: str
    """Digest of the definition (`Source.reading_digest`)."""
    partitions: tuple[Partition, ...]
    rows: int = 0
    rejected: int = 0
    rows_digest: str = ""
    """Digest of the number of rows in each partition."""
    rejection: str | None = None
    """Why the content is rejected as a whole. None if it is not, also if each row is rejected for its own reason."""
    attempt: str = ""
    """Id of the attempt that has written the objects: 12 hex digits, as in their names. Empty for a version of an
    earlier release, whose objects have the digest in their names."""

    @property
    def digest(self) -> str:
        """Digest of what was read, 12 hex digits: two attempts with the same digest have read the same rows."""
        # With the rows, because another release may read the content differently with the same definition. Their digest
        # is enough: the digests that earlier releases have recorded must stay the same.
        of = {"definition", "partitions", "rows", "rejected", "rows_digest"}
        return hashlib.sha256(self.model_dump_json(include=of).encode()).hexdigest()[:12]

    @property
    def object_id(self) -> str:
        """What the names of the version's objects have after the content."""
        return self.attempt or self.digest


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
    current: ContentVersion | None = None
    """The version that readers see, if any file has the content."""
    changed_at: datetime | None = None
    """When readers last got to see other objects, or none. None before the first commit, and for a record of an earlier
    release."""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_release(cls, data: dict[str, Any]) -> dict[str, Any]:
        versions, current = data.get("versions", ()), data.get("current")
        data = {name: value for name, value in data.items() if name not in _OF_EARLIER_RELEASES}
        if isinstance(current, str):  # the digest of one of the versions
            found = (each for each in map(ContentVersion.model_validate, versions) if each.digest == current)
            # A version that is missing although files have it stays a string, which is refused: no row gets lost.
            data["current"] = next(found, current if data.get("files") else None)
        return data

    @property
    def ages_at(self) -> datetime:
        """The time to which the largest age of events is relative."""
        return self.first_received_at or self.received_at

    @property
    def committed(self) -> ContentVersion | None:
        """The version that readers see, or None."""
        return self.current if self.files else None

    @property
    def is_removed(self) -> bool:
        """Whether the partner has removed all files with the content."""
        return 0 < self.files <= self.removed

    def with_first_receipt(self, at: datetime | None) -> Content:
        """Return the content after a file has it whose first content was received at that time, if that is known."""
        return self.model_copy(update={"first_received_at": at}) if at and at < self.ages_at else self

    def with_file(self, path: str, version: ContentVersion, *, is_new: bool, at: datetime) -> Content:
        """Return the content after the file at `path` has committed it at that time: readers see the version.

        `is_new` is false when the file had the content before, and has read it with another definition.
        """
        changes: dict[str, object] = {"current": version}
        if version != self.committed:
            changes["changed_at"] = at
        if is_new:
            changes |= {"files": self.files + 1, "paths": (*self.paths, path)[:_MAX_PATHS]}
        return self.model_copy(update=changes)

    def without_file(self, path: str, *, at: datetime, was_removed: bool = False) -> Content:
        """Return the content after the file at `path` has got another content at that time.

        `was_removed` is whether the file's entry had `removed_since`.
        """
        changes = {
            "files": self.files - 1,
            "paths": tuple(other for other in self.paths if other != path),
            "removed": self.removed - was_removed,
            "changed_at": at if self.files == 1 else self.changed_at,
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


def is_committed(uri: str, contents: Mapping[str, Content | None]) -> bool:
    """Whether readers see the object: any of a pushed batch, and those of a content's committed version.

    `contents` are the recorded contents by id.
    """
    version = version_of(uri)
    if version is None:
        return True
    content = contents[version[0]]
    return content is not None and content.committed is not None and content.committed.object_id == version[1]


def retry_delay(attempts: int) -> timedelta:
    """Return how long a file waits after this number of attempts in a row did not succeed."""
    if attempts <= 1:
        return timedelta(0)
    factor: int = 2 ** min(attempts - 2, 10)
    return min(_FIRST_DELAY * factor, _MAX_DELAY)
