"""Fetch one file of a pull, so that a crash at any point loses no row and stores no row twice.

`FileFetcher.fetch` does these steps, in this order:

1. Lease the file in the file cache, so that no other pull works on it.
2. Download it and keep it, unchanged, under `landing/`.
3. Parse it into one Parquet file for each partition, on local disk.
4. Announce the new content (`writing`) in the file cache, before any of its objects exists.
5. Write the objects and the rejects, and register the partitions in the catalogue.
6. Commit: a single write to the file cache makes the new content the file's `version` and the old one `superseded`.
7. Delete superseded objects that no other file needs; then remove them from the entry and release the lease.

Until step 6 readers ignore the announced objects, and after it the superseded ones
(`slackwater.receiver.pull.file_cache.uncommitted_objects`). A pull that ends in between leaves a lease, `writing` or
`superseded` in the entry: these show the next pull that the file needs a repair, and which objects may exist.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from errno import ENOSPC
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slackwater.errors import CloudError, FileTooLarge, FileVanished
from slackwater.receiver.partners.partner import Download, Partner, plain_etag
from slackwater.receiver.pull.file_cache import (
    Content,
    EntryChanged,
    FileCache,
    FileDecision,
    FileEntry,
    FileState,
    FileVersion,
    Lease,
    decide,
)
from slackwater.receiver.pull.plan import WorkItem
from slackwater.receiver.pull.stage_file import stage_file
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from slackwater.storage import ObjectStore

# A Lambda function runs for 15 minutes at most, so it has ended before its lease expires.
LEASE = timedelta(minutes=16)


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


@dataclass(frozen=True, kw_only=True)
class FileFetcher:
    """Fetches files of one source."""

    source: Source
    partner: Partner
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
            with tempfile.TemporaryDirectory(prefix="pull-") as folder:
                return self._fetch_leased(entry, item, Path(folder) / "file")
        except EntryChanged:
            raise
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
        entry = self.cache.get(self.source.source, item.path)
        if decide(item.listed, entry, now=self.now()) is FileDecision.BUSY:
            return None
        entry = entry or FileEntry(source=self.source.source, path=item.path)
        lease = Lease(owner=self.owner, until=self.now() + self.lease)
        try:
            return self._save(entry.model_copy(update={"lease": lease}))
        except EntryChanged:
            return None

    def _fetch_leased(self, entry: FileEntry, item: WorkItem, path: Path) -> FetchResult:
        """Step 2: download to `path`. Then store the file, unless it vanished or is unchanged."""
        if is_only_to_finalize(entry, item):
            self._finalize(entry)
            return FetchResult(path=item.path, state=FetchState.UNCHANGED)
        try:
            with path.open("wb") as file:
                download = self.partner.fetch(item.path, file)
        except FileVanished as error:
            # The committed version stays. Objects that an interrupted attempt announced have to be deleted.
            superseded = other_contents([*entry.superseded, entry.writing], entry.version)
            changes = {"state": FileState.VANISHED, "writing": None, "superseded": superseded, "reason": str(error)}
            self._finalize(self._save(entry.model_copy(update=changes)))
            return FetchResult(path=item.path, state=FetchState.VANISHED)
        entry = entry.model_copy(update=identity_of(item, download))
        # `writing` means that an interrupted attempt may have written objects. Then the file is stored again, because
        # `_store` marks those objects for deletion.
        if entry.version and entry.version.content_sha256 == download.sha256 and not entry.writing:
            state = FileState.DUPLICATE if entry.duplicate_of else FileState.STORED
            self._finalize(entry.model_copy(update={"state": state, "reason": None}))
            return FetchResult(path=item.path, state=FetchState.UNCHANGED, bytes=download.size)
        return self._store(entry, path, download)

    def _store(self, entry: FileEntry, path: Path, download: Download) -> FetchResult:
        """Steps 2 (the copy under `landing/`) to 7, for the download at `path`."""
        bucket, sha256 = self.raw_writer.raw_bucket, download.sha256
        # The digest is part of the key: a changed file does not overwrite the file whose rows readers still see.
        landing_uri = f"s3://{bucket}/landing/source={entry.source}/{sha256}/{entry.path}"
        self.raw_writer.store.put_new_file(landing_uri, path)

        received_at = self._contents.first_received_at(sha256, entry.path)
        staged = stage_file(path, self.source, name=entry.path, content_sha256=sha256, received_at=received_at)
        version = staged.version

        # Announced before any object exists: after a crash the entry names every object that may exist. Objects that an
        # interrupted attempt announced may exist too, so the same write marks them for deletion.
        superseded = other_contents([*entry.superseded, entry.writing], version)
        entry = self._save(entry.model_copy(update={"writing": version, "superseded": superseded}))
        # Read only after the announcement was written: `SharedContents` explains why.
        if self._contents.is_being_deleted(sha256, entry.path):
            self._save(entry.model_copy(update={"lease": None}))
            return FetchResult(path=entry.path, state=FetchState.BUSY)

        # Object names derive from the content and existing objects are kept, so a retry writes only the missing ones.
        names = [version.object_name(partition) for partition in version.partitions]
        self.raw_writer.write_rejects_file(self.source, staged.rejects, received_at=received_at, batch_id=sha256[:32])
        self.raw_writer.write_files(self.source, staged.files, object_names=names, origin=entry.path)

        # The commit is one conditional write, so at every instant readers see exactly one content: the old or the new.
        original = self._contents.original_path(sha256, entry.path)
        committed = {
            "state": FileState.DUPLICATE if original else FileState.STORED,
            "version": version,
            "writing": None,
            "superseded": other_contents([*entry.superseded, entry.version], version),
            "duplicate_of": original,
            "landing_uri": landing_uri,
            "rows": staged.rows,
            "rejected": staged.rejected,
            "stored_at": self.now(),
            "reason": None,
        }
        entry = self._save(entry.model_copy(update=committed))
        self._finalize(entry)
        if original:
            return FetchResult(path=entry.path, state=FetchState.DUPLICATE, bytes=download.size)
        return FetchResult(
            path=entry.path, state=FetchState.STORED, rows=entry.rows, rejected=entry.rejected, bytes=download.size
        )

    def _finalize(self, entry: FileEntry) -> None:
        """Step 7: delete superseded objects, remove them from the entry, and release the lease."""
        until = entry.lease.until if entry.lease else self.now()
        # Deleted before the entry drops them: otherwise a crash in between would leave objects that no entry names.
        for version in entry.superseded:
            self._contents.collect_garbage(version, entry.path, until=until)
        self._save(entry.model_copy(update={"superseded": (), "lease": None}))

    def _record_failure(self, item: WorkItem, error: Exception) -> None:
        """Save the reason and release the lease, if this attempt still holds it; `writing` and `superseded` stay."""
        entry = self.cache.get(self.source.source, item.path)
        if entry and entry.lease and entry.lease.owner == self.owner:
            changes = {"state": FileState.FAILED, "reason": str(error), "lease": None}
            self._save(entry.model_copy(update=changes))

    def _save(self, entry: FileEntry) -> FileEntry:
        """Save the entry and return it with its new revision. Raises `EntryChanged`, `CloudError`."""
        saved = entry.model_copy(update={"revision": entry.revision + 1})
        try:
            return self.cache.save(entry)
        except CloudError:
            # The write may have succeeded although the response was lost. The SDK's retry then fails its condition,
            # because it finds the revision that it wrote itself.
            if self.cache.get(entry.source, entry.path) != saved:
                raise
        return saved

    @cached_property
    def _contents(self) -> SharedContents:
        return SharedContents(
            source=self.source.source,
            cache=self.cache,
            store=self.raw_writer.store,
            raw_bucket=self.raw_writer.raw_bucket,
            now=self.now,
        )


@dataclass(frozen=True, kw_only=True)
class SharedContents:
    """The contents of a source's files. Files with the same content share its objects, which are stored once.

    One pull may delete objects that another pull is about to need. Each of the two therefore writes before it reads.
    The deleting pull marks the content (`Content.deletions`), and then reads which files need it. The storing pull
    announces that its file needs the content, and then reads whether it is marked. So at least one of them sees the
    other's write: the deleting pull then keeps the objects, or the storing pull leaves its file to the next pull. A
    mark expires with the lease of its pull.
    """

    source: str
    cache: FileCache
    store: ObjectStore
    raw_bucket: str
    now: Callable[[], datetime]

    def first_received_at(self, content_sha256: str, path: str) -> datetime:
        """Return when a file first had the content. For an unknown content that is now, and `path` its first file."""
        return self._update(content_sha256, path).received_at

    def is_being_deleted(self, content_sha256: str, path: str) -> bool:
        """Whether the pull of another file than `path` may be deleting the content's objects."""
        content = self.cache.content(self.source, content_sha256)
        return content is not None and bool(self._other_deletions(content, path))

    def original_path(self, content_sha256: str, path: str) -> str | None:
        """Return the path of the first file with the content; None when that is `path` itself.

        When the first file no longer needs the content, `path` takes its place.
        """
        first = self._update(content_sha256, path).first_path
        entry = self.cache.get(self.source, first)
        if entry is None or content_sha256 not in entry.needed_contents:
            # Conditional, because `_update` may read the content again: another pull may have replaced the first file.
            def take_over(content: Content) -> Content:
                return content.model_copy(update={"first_path": path}) if content.first_path == first else content

            first = self._update(content_sha256, path, take_over).first_path
        return first if first != path else None

    def collect_garbage(self, version: FileVersion, path: str, *, until: datetime) -> None:
        """Delete the objects of a content that the file at `path` no longer needs, unless another file needs them.

        Raises `EntryChanged` after `until`, the end of this pull's lease, when another pull may work on the file.
        """
        sha256, mark = version.content_sha256, Lease(owner=path, until=until)

        def change_mark(*marks: Lease) -> Callable[[Content], Content]:
            return lambda content: content.model_copy(
                update={"deletions": (*self._other_deletions(content, path), *marks)}
            )

        self._update(sha256, path, change_mark(mark))
        if not any(sha256 in entry.needed_contents for entry in self.cache.entries(self.source)):
            if self.now() >= until:
                raise EntryChanged(f"{self.source}: {path}: the lease has expired; the next pull repairs the file")
            self.store.delete(version.object_uris(self.raw_bucket, self.source))
        self._update(sha256, path, change_mark())

    def _other_deletions(self, content: Content, path: str) -> Sequence[Lease]:
        return [mark for mark in content.deletions if mark.owner != path and self.now() < mark.until]

    def _update(
        self, content_sha256: str, path: str, change: Callable[[Content], Content] = lambda content: content
    ) -> Content:
        """Create the content for `path` if it is unknown, apply `change`, and return the saved content."""
        while True:
            saved = self.cache.content(self.source, content_sha256)
            content = saved or Content(
                source=self.source, content_sha256=content_sha256, received_at=self.now(), first_path=path
            )
            changed = change(content)
            if changed == saved:
                return changed
            # Changed by another pull, or by this pull's own write whose response was lost: read again, then retry.
            with suppress(EntryChanged):
                return self.cache.save_content(changed)


def is_only_to_finalize(entry: FileEntry, item: WorkItem) -> bool:
    """Whether the file is stored and unchanged, and only step 7 of an interrupted pull is missing."""
    stored = entry.state in {FileState.STORED, FileState.DUPLICATE} and not entry.writing
    return stored and bool(entry.superseded) and (item.listed is None or entry.matches_listing(item.listed))


def identity_of(item: WorkItem, download: Download) -> dict[str, object]:
    """Return `etag`, `size` and `modified` of `FileEntry`, with which later listings are compared."""
    listed = item.listed
    # Listings and downloads may show different ETags for one content. Later listings are compared with the listing's
    # ETag, except when the sizes differ: then the file changed after it was listed, and that ETag is outdated.
    etag = plain_etag(listed.etag) if listed and listed.size == download.size else download.etag
    return {"etag": etag, "size": download.size, "modified": listed.modified if listed else None}


def other_contents(versions: Sequence[FileVersion | None], kept: FileVersion | None) -> tuple[FileVersion, ...]:
    """Return the versions whose content differs from that of `kept`, each content once."""
    others = {version.content_sha256: version for version in versions if version}
    others.pop(kept.content_sha256 if kept else "", None)
    return tuple(others.values())
