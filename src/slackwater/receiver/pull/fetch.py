"""Fetch one file of a pull, so that a crash at any point loses no row and stores no row twice.

`FileFetcher.fetch` does these steps, in this order:

1. Lease the file in the file cache, so that no other pull works on it.
2. Download it and keep it, unchanged, under `landing/`.
3. Withdraw what an interrupted attempt announced, and delete its objects.
4. Parse the file into one Parquet file for each partition, on local disk.
5. Announce the version (a content, as the source's definition reads it) before any of its objects exists.
6. Write the objects and the rejects, and register the partitions in the catalog.
7. Commit: one transaction makes the version the one that readers see, instead of the file's earlier content and of the
   versions of other definitions.
8. Delete the objects that no file needs any more; then release the lease.

Until step 7 readers ignore the announced objects, and after it the replaced ones
(`slackwater.runs.inputs.consistent_listing`). A pull that ends in between leaves a lease, `writing` or `superseded` in
the entry: these show the next pull that the file needs a repair, and which objects may exist.

Several files may have one content, and share its objects. A pull that deletes objects marks the content first
(`Content.deleting`), and a pull that needs the content leaves its file to the next pull meanwhile. Both write the same
record, each on condition that it has not changed, so neither misses the other. A mark expires with the lease of its
pull.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from errno import ENOSPC
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from slackwater.errors import FileTooLarge, FileVanished, SlackwaterError, Throttled, Unavailable
from slackwater.receiver.connectors.connector import Connector, Download, ListedFile, plain_etag
from slackwater.receiver.pull.file_cache import (
    Content,
    ContentVersion,
    EntryChanged,
    FileCache,
    FileDecision,
    FileEntry,
    FileState,
    Lease,
    retry_delay,
    version_name,
)
from slackwater.receiver.pull.plan import WorkItem
from slackwater.receiver.pull.records import Changed, Records
from slackwater.receiver.pull.stage_file import stage_file
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.receiver.writing.rejects import rejects_uri
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition
from slackwater.storage import short_reason

# A Lambda function runs for 15 minutes at most, so it has ended before its lease expires.
LEASE = timedelta(minutes=16)
_LOG = logging.getLogger("slackwater.pull")
_REMOVED = "the partner has removed the file; before: "


class FetchState(StrEnum):
    """The outcome of fetching one file."""

    STORED = "stored"
    """Its rows are stored."""
    DUPLICATE = "duplicate"
    """Another file has the same content, whose rows are stored once."""
    UNCHANGED = "unchanged"
    """Its content is the one that is stored already."""
    VANISHED = "vanished"
    """The partner listed it, but had deleted it before it was fetched."""
    BUSY = "busy"
    """Another pull is fetching it, or deleting the objects of its content. The next pull fetches it."""
    LARGE = "large"
    """It is too large for a function, so a job has to fetch it."""


class FetchResult(BaseModel):
    """The outcome of fetching one file, as it passes through the state machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    state: FetchState
    rows: Annotated[int, Field(ge=0)] = 0
    """Rows that this pull added."""
    rejected: Annotated[int, Field(ge=0)] = 0
    """Rows that this pull rejected."""
    bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that were downloaded."""
    partitions: tuple[Partition, ...] = ()
    """Partitions of which readers see other rows from now on, or since an attempt that was interrupted. There may be
    thousands, so the state machine gets none."""

    def summary(self) -> dict[str, Any]:
        """Return the result as JSON without `partitions`."""
        return self.model_dump(mode="json", exclude={"partitions"})


class _ContentBusy(Exception):
    """Another pull deletes objects of the content, or reads it with an earlier `first_received_at`."""


@dataclass(frozen=True, kw_only=True)
class FileFetcher:
    """Fetches files of one source."""

    source: Source
    partner: Connector
    cache: FileCache
    raw_writer: RawWriter
    now: Callable[[], datetime]
    owner: str
    """Identifies this attempt in leases: unique among all attempts."""
    lease: timedelta = LEASE
    """Must be longer than the process may run."""

    def fetch(self, item: WorkItem) -> FetchResult:
        """Fetch one file, or repair what an interrupted pull left of it.

        A file that vanished, or that another pull is fetching, gives a result and no error. Raises `PartnerError`,
        `DataError` or `CloudError` when the file cannot be fetched; the file cache keeps the reason. Raises
        `FileTooLarge` when the file exceeds the partner's `max_file_bytes` or the local disk, and `EntryChanged` when
        the lease expired and another pull leased the file.
        """
        entry = self._acquire_lease(item)
        if entry is None:
            return FetchResult(path=item.path, state=FetchState.BUSY)
        try:
            partitions = self._unreported_partitions(entry, item)
            with tempfile.TemporaryDirectory(prefix="pull-") as folder:
                fetched = self._fetch_leased(entry, item, Path(folder) / "file")
            return fetched.model_copy(update={"partitions": tuple(sorted(partitions.union(fetched.partitions)))})
        except EntryChanged:
            raise
        except _ContentBusy:
            entry = self._leased_entry(item)
            if entry:
                reason = "another pull was changing rows of the same content"
                attempts = entry.attempts - 1
                self._records.save(
                    entry, state=FileState.FAILED, reason=reason, lease=None, attempts=attempts, due=self.now()
                )
            return FetchResult(path=item.path, state=FetchState.BUSY)
        except Exception as error:
            failure = error
            if isinstance(error, OSError) and error.errno == ENOSPC:
                failure = FileTooLarge(f"{item.path}: the local disk has no room for the file and its Parquet files")
            # `EntryChanged`: another pull has leased the file. Its outcome counts, so this failure is not recorded.
            with suppress(EntryChanged):
                self._record_failure(item, failure)
            if failure is error:
                raise
            raise failure from error

    def _acquire_lease(self, item: WorkItem) -> FileEntry | None:
        """Step 1: lease the file. Return its entry, or None when another pull holds the lease."""
        entry = self._records.entry(item.path) or FileEntry(source=self.source.source, path=item.path)
        now = self.now()
        if entry.is_leased(now):
            return None
        is_given_up = entry.state is FileState.GIVEN_UP and item.decision is not FileDecision.REPAIR
        if is_given_up and item.listed in {None, entry.attempted}:
            return None  # given up after this pull was planned
        lease, attempts = Lease(owner=self.owner, until=now + self.lease), entry.attempts + 1
        is_clean_up = is_only_to_clean_up(entry, item)
        is_first = entry.state is FileState.LISTED or (entry.state is FileState.GIVEN_UP and not is_clean_up)
        try:
            return self._records.save(
                entry,
                lease=lease,
                # Not given up any more: if this process is killed, the next pull has to fetch the file.
                state=FileState.LEASED if is_first else entry.state,
                dated_pattern=item.dated_pattern or entry.dated_pattern,
                # Counted before the attempt: it may end with its process.
                attempts=attempts,
                # What the partner has changed since a file was given up is not attempted by deleting its leftovers.
                attempted=entry.attempted if is_clean_up else item.listed or entry.attempted,
                due=lease.until + retry_delay(attempts),
                not_taken_since=entry.not_taken_since or now,
            )
        except EntryChanged:
            return None

    def _unreported_partitions(self, entry: FileEntry, item: WorkItem) -> set[Partition]:
        """Return the partitions of the committed version and of versions to delete, if the last attempt did not end.

        It may have ended after its commit, and then nobody was notified that these partitions have other rows.
        """
        if item.decision is not FileDecision.REPAIR and entry.state is not FileState.FAILED:
            return set()
        ids = {*entry.superseded, *([entry.content] if entry.content else [])}
        contents = self.cache.contents(entry.source, ids)
        versions = [version for content in contents for version in (content.committed, *content.garbage)]
        return {partition for version in versions if version for partition in version.partitions}

    def _fetch_leased(self, entry: FileEntry, item: WorkItem, path: Path) -> FetchResult:
        """Steps 2 and 3: download to `path`. Then store the file, unless it vanished or is unchanged."""
        if is_only_to_finalize(entry, item) and entry.content and self._committed_version(entry.content):
            self._finalize(entry)
            return FetchResult(path=item.path, state=FetchState.UNCHANGED)
        if is_only_to_clean_up(entry, item):
            self._finalize(self._withdraw(entry), attempted=entry.attempted)
            return FetchResult(path=item.path, state=FetchState.UNCHANGED)
        try:
            with path.open("wb") as file:
                download = self.partner.fetch(item.path, file)
        except FileVanished as error:
            if is_stored_as_attempted(entry) and entry.content and self._committed_version(entry.content):
                state = FileState.DUPLICATE if entry.duplicate_of else FileState.STORED
                self._finalize(entry.model_copy(update={"state": state, "reason": None}))
                return FetchResult(path=item.path, state=FetchState.VANISHED)
            # The committed version stays. Objects that an interrupted attempt announced have to be deleted.
            entry = self._delete_superseded(self._withdraw(entry))
            changes: dict[str, object] = {"state": FileState.VANISHED, "reason": str(error), "not_taken_since": None}
            if entry.state is FileState.FAILED or (entry.attempts > 1 and entry.state is not FileState.VANISHED):
                # Its rows were never stored, so a person has to know: the file stays a failed one until it is given up.
                first_reason = (entry.reason or "the attempt was interrupted").removeprefix(_REMOVED)
                changes = {"state": FileState.FAILED, "reason": _REMOVED + first_reason}
            # The next pull fetches a file that is back, but does not ask at once for one that had failed before.
            attempts = max(2, entry.attempts) if changes["state"] is FileState.FAILED else entry.attempts
            self._records.save(entry, lease=None, due=self.now() + retry_delay(attempts), **changes)
            return FetchResult(path=item.path, state=FetchState.VANISHED)
        content_id = download.sha256[:32]
        if entry.writing != content_id:
            entry = self._withdraw(entry)
        # Before the next version is announced, so that neither the entry nor the content grows with each attempt.
        entry = self._delete_superseded(entry)
        committed = self._committed_version(content_id)
        if entry.content == content_id and not entry.writing and committed:
            changes = {
                **identity_of(item, download),
                "state": FileState.DUPLICATE if entry.duplicate_of else FileState.STORED,
                "rows": committed.rows,
                "rejected": committed.rejected,
                "reason": None,
            }
            self._finalize(entry.model_copy(update=changes))
            return FetchResult(path=item.path, state=FetchState.UNCHANGED, bytes=download.size)
        return self._store(entry, item, path, download)

    def _store(self, entry: FileEntry, item: WorkItem, path: Path, download: Download) -> FetchResult:
        """Steps 2 (the copy under `landing/`) and 4 to 8, for the download at `path`."""
        bucket, sha256 = self.raw_writer.raw_bucket, download.sha256
        content_id = sha256[:32]
        # The digest is part of the key: a changed file does not overwrite the file whose rows readers still see.
        landing_uri = f"s3://{bucket}/landing/source={entry.source}/{sha256}/{entry.path}"
        self.raw_writer.store.put_new_file(landing_uri, path)

        first_received_at = self._first_received_at(entry)
        received = self._records.update_content(content_id, lambda each: each.with_first_receipt(first_received_at))
        staged = stage_file(
            path,
            self.source,
            name=entry.path,
            content_sha256=sha256,
            received_at=received.received_at,
            first_received_at=received.first_received_at,
        )
        version = staged.version
        first_received_at = first_received_at or self.now()
        if version.rows:  # Unrelated files may have the same content without rows, for example only a header.
            first_received_at = min(first_received_at, received.ages_at)

        # Attempts that failed may have announced versions of other definitions: without this, the record would grow.
        if not self._delete_garbage(content_id, entry.path, entry.lease.until if entry.lease else self.now()):
            raise _ContentBusy

        def announce(entry: FileEntry, contents: Mapping[str, Content]) -> Changed:
            nonlocal version
            content = contents[content_id]
            if content.is_deleted_by_another(entry.path, self.now()):
                raise _ContentBusy
            # An attempt before names had rows may have written some of the objects: they keep their names.
            version = content.recorded(staged.version)
            changes = {"writing": content_id, "first_received_at": first_received_at}
            return entry.model_copy(update=changes), [content.with_writer(entry.path, version)]

        entry = self._records.transact(entry, [content_id], announce)
        # Object names derive from content and version, and existing objects are kept, so a retry writes only the
        # missing ones.
        name = version_name(content_id, version)
        self.raw_writer.write_rejects_file(self.source, staged.rejects, received_at=received.received_at, batch_id=name)
        self.raw_writer.write_files(self.source, staged.files, object_names=version.object_names(content_id))

        changed: set[Partition] = set()

        # The commit is one transaction, so at every instant readers see exactly one content of the file: the old or
        # the new one. They also see exactly one version of the content, whatever files have it.
        def commit(entry: FileEntry, contents: Mapping[str, Content]) -> Changed:
            content, is_new = contents[content_id], entry.content != content_id
            if content.ages_at != received.ages_at:  # the pull of another file reads more rows of the content
                raise _ContentBusy
            others = [path for path in content.paths if path != entry.path]
            is_duplicate = content.files > (0 if is_new else 1)
            committed = {content_id: content.with_file(entry.path, version, is_new=is_new)}
            if entry.content and is_new:
                was_removed = entry.removed_since is not None
                committed[entry.content] = contents[entry.content].without_file(entry.path, was_removed=was_removed)
            changed.clear()  # After a change by another pull, this function is called again.
            changed.update(*(changed_partitions(contents[each], after) for each, after in committed.items()))
            changes = {
                **identity_of(item, download),
                "state": FileState.DUPLICATE if is_duplicate else FileState.STORED,
                "content": content_id,
                "writing": None,
                "superseded": (*entry.superseded, *(changed.id for changed in committed.values() if changed.garbage)),
                "duplicate_of": others[0] if is_duplicate and others else None,
                "landing_uri": landing_uri,
                "rows": version.rows,
                "rejected": version.rejected,
                "stored_at": self.now(),
                "reason": None,
                "attempts": 0,
                "not_taken_since": None,
                # With the same content, the next plan records that the file is back.
                "removed_since": None if is_new else entry.removed_since,
            }
            return entry.model_copy(update=changes), committed.values()

        entry = self._records.transact(entry, [content_id, *([entry.content] if entry.content else [])], commit)
        try:
            self._finalize(entry)
        except SlackwaterError as error:
            # Not a failure of the file: its rows are committed, and the caller has to learn which days they change.
            _LOG.warning("%s: %s: the next pull deletes what it replaces: %s", entry.source, entry.path, error)
            with suppress(SlackwaterError):  # without this, the next pull would wait until the lease expires
                self._records.save(entry, lease=None, due=self.now())
        is_stored = entry.state is FileState.STORED
        return FetchResult(
            path=entry.path,
            state=FetchState.STORED if is_stored else FetchState.DUPLICATE,
            rows=entry.rows if is_stored else 0,
            rejected=entry.rejected if is_stored else 0,
            bytes=download.size,
            partitions=tuple(sorted(changed)),
        )

    def _withdraw(self, entry: FileEntry) -> FileEntry:
        """Step 3: withdraw the version that an interrupted attempt announced, if there is one."""
        if entry.writing is None:
            return entry

        def withdraw(entry: FileEntry, contents: Mapping[str, Content]) -> Changed:
            (content,) = contents.values()
            superseded = tuple(dict.fromkeys([*entry.superseded, content.id]))
            changes = {"writing": None, "superseded": superseded}
            return entry.model_copy(update=changes), [content.without_writer(entry.path)]

        return self._records.transact(entry, [entry.writing], withdraw)

    def _finalize(self, entry: FileEntry, *, attempted: ListedFile | None = None) -> None:
        """Step 8: delete objects that no file needs, and release the lease of a file that was taken or given up."""
        entry = self._delete_superseded(entry)
        due = self.now() if entry.superseded else None
        self._records.save(entry, lease=None, attempts=0, attempted=attempted, due=due, not_taken_since=None)

    def _delete_superseded(self, entry: FileEntry) -> FileEntry:
        """Delete the objects of superseded contents. Return the entry without them; it is not saved yet.

        Contents of which another pull is deleting objects stay in the entry.
        """
        until = entry.lease.until if entry.lease else self.now()
        # Deleted before the entry drops them: otherwise a crash in between would leave objects that no entry names.
        busy = [
            content_id for content_id in entry.superseded if not self._delete_garbage(content_id, entry.path, until)
        ]
        return entry.model_copy(update={"superseded": tuple(busy)})

    def _delete_garbage(self, content_id: str, path: str, until: datetime) -> bool:
        """Delete the objects and rejects of the versions of a content that no file needs.

        Returns False when another pull is deleting objects of the content. Raises `EntryChanged` after `until`, the end
        of this pull's lease, when another pull may work on the file.
        """
        deleting = Lease(owner=path, until=until)

        def mark(content: Content) -> Content:
            if not content.garbage or content.is_deleted_by_another(path, self.now()):
                return content
            return content.model_copy(update={"deleting": deleting})

        content = self._records.update_content(content_id, mark)
        garbage, store, bucket = content.garbage, self.raw_writer.store, self.raw_writer.raw_bucket
        if not garbage:
            return True
        if content.is_deleted_by_another(path, self.now()):
            return False
        if self.now() >= until:
            raise EntryChanged(f"{self.source.source}: {path}: the lease has expired; the next pull repairs the file")
        for version in garbage:
            rejects = rejects_uri(
                bucket,
                self.source.source,
                received_at=content.received_at,
                batch_id=version_name(content_id, version),
            )
            store.delete([*content.object_uris(version, bucket), rejects])

        def drop(content: Content) -> Content:
            if content.deleting != deleting:
                return content  # the mark has expired, and another pull may have announced one of the versions
            versions = tuple(version for version in content.versions if version not in garbage)
            return content.model_copy(update={"versions": versions, "deleting": None})

        self._records.update_content(content_id, drop)
        return True

    def _record_failure(self, item: WorkItem, error: Exception) -> None:
        """Save the reason and release the lease, if this attempt still holds it; `writing` and `superseded` stay."""
        if entry := self._leased_entry(item):
            # A file that a person has given up stays given up when only its leftovers could not be deleted.
            given_up = entry.state is FileState.GIVEN_UP
            outcome = {} if given_up else {"state": FileState.FAILED, "reason": self._recorded_reason(str(error))}
            # A short failure of AWS says nothing about the file: its next attempt does not wait longer for that.
            is_transient = isinstance(error, (Throttled, Unavailable))
            attempts = entry.attempts - is_transient
            due = self.now() + retry_delay(attempts)
            self._records.save(entry, lease=None, attempts=attempts, due=due, **outcome)

    def _recorded_reason(self, reason: str) -> str:
        """Return the reason as the file cache can hold it. All of a long one is stored under `landing/`."""
        digest = hashlib.sha256(reason.encode()).hexdigest()
        uri = f"s3://{self.raw_writer.raw_bucket}/landing/source={self.source.source}/failures/{digest}.txt"
        recorded = short_reason(reason, complete=uri)
        if recorded != reason:
            self.raw_writer.store.put_new(uri, reason.encode())
        return recorded

    def _leased_entry(self, item: WorkItem) -> FileEntry | None:
        """Return the entry as it is stored now, or None when this attempt no longer holds the lease."""
        entry = self._records.entry(item.path)
        return entry if entry and entry.lease and entry.lease.owner == self.owner else None

    @cached_property
    def _definition(self) -> str:
        return self.source.reading_digest

    @cached_property
    def _records(self) -> Records:
        return Records(source=self.source.source, cache=self.cache, now=self.now)

    def _committed_version(self, content_id: str) -> ContentVersion | None:
        """Return the version of the content that readers see, if the present definition has read it."""
        committed = self._records.content(content_id).committed
        return committed if committed and committed.definition == self._definition else None

    def _first_received_at(self, entry: FileEntry) -> datetime | None:
        """Return when the first content of the file was received, or the earliest known one; None if there is none."""
        if entry.first_received_at or not entry.content:
            return entry.first_received_at
        return self._records.content(entry.content).received_at


def changed_partitions(before: Content, after: Content) -> set[Partition]:
    """Return the partitions of which readers see other rows after a commit has changed the content's record."""
    if (before.committed, before.is_removed) == (after.committed, after.is_removed):
        return set()
    versions = (before.committed, after.committed)
    return {partition for version in versions if version for partition in version.partitions}


def is_only_to_finalize(entry: FileEntry, item: WorkItem) -> bool:
    """Whether the file is stored and unchanged, and only step 8 of an interrupted pull is missing."""
    stored = entry.state in {FileState.STORED, FileState.DUPLICATE} and not entry.writing
    # The commit resets the attempts, so the only one is this attempt: no other has ended before its commit since.
    is_first = stored and bool(entry.superseded) and entry.attempts == 1
    return is_first and (item.listed is None or entry.matches_listing(item.listed))


def is_stored_as_attempted(entry: FileEntry) -> bool:
    """Whether the latest attempt has failed after its commit, so that what the partner listed is stored."""
    is_failed = entry.state is FileState.FAILED and not entry.writing
    return is_failed and entry.attempted is not None and entry.matches_listing(entry.attempted)


def is_only_to_clean_up(entry: FileEntry, item: WorkItem) -> bool:
    """Whether a person has given up the file, and only what an interrupted attempt has left is to be deleted."""
    return entry.state is FileState.GIVEN_UP and item.decision is FileDecision.REPAIR


def identity_of(item: WorkItem, download: Download) -> dict[str, object]:
    """Return `etag`, `size` and `modified` of `FileEntry`, with which later listings are compared."""
    listed = item.listed
    # Listings and downloads may show different ETags for one content. Later listings are compared with the listing's
    # ETag, except when the sizes differ: then the file changed after it was listed, and that ETag is outdated.
    etag = plain_etag(listed.etag) if listed and listed.size == download.size else download.etag
    return {"etag": etag, "size": download.size, "modified": listed.modified if listed else None}
