"""One file of a pull: leased, downloaded, kept as it came, split into partitions, and its earlier content superseded.

The order of writes makes every crash repairable by the next pull:

1. the lease, and then the content that is being written, stand in the file cache before any object of it does;
2. once all objects, the side-line and the catalogue are written, one write makes the new content the file's version,
   and the old one superseded;
3. superseded objects are deleted, and only then forgotten.

What several files share is looked after by `slackwater.receiver.pull.contents`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from errno import ENOSPC
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slackwater.errors import CloudError, FileTooLarge, FileVanished
from slackwater.receiver.partners.partner import Download, Partner, plain_etag
from slackwater.receiver.pull.contents import Contents
from slackwater.receiver.pull.file_cache import (
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
from slackwater.receiver.pull.stage_file import StagedFile, stage_file
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source

LEASE = timedelta(minutes=16)
"""Longer than a function can run."""
_BUSY = "busy"


class FetchResult(BaseModel):
    """What became of one file: all that passes through the state machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    state: str
    """A `FileState`, or `unchanged` or `busy`."""
    rows: Annotated[int, Field(ge=0)] = 0
    """Rows that this pull added."""
    rejected: Annotated[int, Field(ge=0)] = 0
    bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that were downloaded."""


@dataclass(frozen=True, kw_only=True)
class FileFetcher:
    """Takes files of one source."""

    source: Source
    partner: Partner
    cache: FileCache
    delivery: RawWriter
    now: Callable[[], datetime]
    owner: str
    """Names this attempt, and no other, in leases."""
    lease: timedelta = LEASE
    """How long nobody else may take the file."""

    def fetch(self, item: WorkItem) -> FetchResult:
        """Take one file, or repair what an earlier pull left of it.

        Raises `PartnerError` or `DataError` when the file cannot be taken, with its reason in the file cache, and
        `CloudError`; `FileTooLarge` also where the disk has no room for it. A file that vanished, or that another pull
        is taking, is an answer and no error.
        """
        entry = self._lease(item)
        if entry is None:
            return FetchResult(path=item.path, state=_BUSY)
        try:
            if _only_superseded(entry, item):
                self._settle(entry)
                return FetchResult(path=item.path, state="unchanged")
            with _room(item.path):
                return self._take(entry, item)
        except EntryChanged:
            raise
        except Exception as error:
            with suppress(EntryChanged):
                self._fail(item, error)
            raise

    @cached_property
    def _contents(self) -> Contents:
        return Contents(
            source=self.source.source,
            cache=self.cache,
            store=self.delivery.store,
            raw_bucket=self.delivery.raw_bucket,
            now=self.now,
        )

    def _lease(self, item: WorkItem) -> FileEntry | None:
        entry = self.cache.get(self.source.source, item.path)
        if decide(item.listed, entry, now=self.now()) is FileDecision.BUSY:
            return None
        entry = entry or FileEntry(source=self.source.source, path=item.path)
        lease = Lease(owner=self.owner, until=self.now() + self.lease)
        try:
            return self._save(entry.model_copy(update={"lease": lease}))
        except EntryChanged:
            return None

    def _save(self, entry: FileEntry) -> FileEntry:
        """Save the entry. Where the answer was lost, or a second try met the first one's write, what is kept tells."""
        wanted = entry.model_copy(update={"revision": entry.revision + 1})
        try:
            return self.cache.save(entry)
        except CloudError:
            if self.cache.get(entry.source, entry.path) != wanted:
                raise
        return wanted

    def _take(self, entry: FileEntry, item: WorkItem) -> FetchResult:
        with tempfile.TemporaryDirectory(prefix="pull-") as folder:
            path = Path(folder) / "file"
            with path.open("wb") as file:
                try:
                    download = self.partner.fetch(item.path, file)
                except FileVanished as error:
                    return self._vanished(entry, str(error))
            entry = entry.model_copy(update=_identity(item, download))
            if entry.version and entry.version.content_sha256 == download.sha256 and not entry.writing:
                state = FileState.DUPLICATE if entry.duplicate_of else FileState.TAKEN
                self._settle(entry.model_copy(update={"state": state, "reason": None}))
                return FetchResult(path=item.path, state="unchanged", bytes=download.size)
            return self._store(entry, path, download)

    def _store(self, entry: FileEntry, path: Path, download: Download) -> FetchResult:
        landing = f"s3://{self.delivery.raw_bucket}/landing/source={entry.source}/{download.sha256}/{entry.path}"
        self.delivery.store.put_new_file(landing, path)
        gathered = stage_file(
            path,
            self.source,
            name=entry.path,
            content_sha256=download.sha256,
            received_at=self._contents.received_at(download.sha256, entry.path),
        )
        entry = self._announce(entry, gathered.version)
        if self._contents.is_swept(download.sha256, entry.path):
            self._save(entry.model_copy(update={"lease": None}))
            return FetchResult(path=entry.path, state=_BUSY)
        self._deliver(gathered, entry.path)
        original = self._contents.original(download.sha256, entry.path)
        entry = self._save(
            entry.model_copy(
                update={
                    "state": FileState.DUPLICATE if original else FileState.TAKEN,
                    "version": gathered.version,
                    "writing": None,
                    "superseded": _others([*entry.superseded, entry.version], gathered.version),
                    "duplicate_of": original,
                    "landing": landing,
                    "rows": gathered.rows,
                    "rejected": gathered.rejected,
                    "taken_at": self.now(),
                    "reason": None,
                }
            )
        )
        self._settle(entry)
        rows, rejected = (0, 0) if original else (entry.rows, entry.rejected)
        return FetchResult(path=entry.path, state=entry.state, rows=rows, rejected=rejected, bytes=download.size)

    def _announce(self, entry: FileEntry, version: FileVersion) -> FileEntry:
        """Say what is about to be written; what an earlier attempt announced may be there, and is to go."""
        superseded = _others([*entry.superseded, entry.writing], version)
        return self._save(entry.model_copy(update={"writing": version, "superseded": superseded}))

    def _deliver(self, gathered: StagedFile, path: str) -> None:
        version = gathered.version
        contents = [version.hash_in(partition) for partition in version.partitions]
        self.delivery.store_files(self.source, gathered.files, contents=contents, origin=path)
        self.delivery.sideline_file(
            self.source, gathered.sideline, received_at=gathered.received_at, batch_id=version.content_sha256[:32]
        )
        self.delivery.register(self.source, version.partitions)

    def _vanished(self, entry: FileEntry, reason: str) -> FetchResult:
        """Let go of what an earlier attempt may have written; the version that was taken stays."""
        superseded = _others([*entry.superseded, entry.writing], entry.version)
        update = {"state": FileState.VANISHED, "writing": None, "superseded": superseded, "reason": reason}
        self._settle(self._save(entry.model_copy(update=update)))
        return FetchResult(path=entry.path, state=FileState.VANISHED)

    def _fail(self, item: WorkItem, error: Exception) -> None:
        """Keep the reason and let go of the lease, if it still is ours; what is half done stays announced."""
        entry = self.cache.get(self.source.source, item.path)
        if entry and entry.lease and entry.lease.owner == self.owner:
            update = {"state": FileState.FAILED, "reason": str(error), "lease": None}
            self._save(entry.model_copy(update=update))

    def _settle(self, entry: FileEntry) -> None:
        """Delete superseded objects that no file needs any more, forget them, and let go of the lease."""
        until = entry.lease.until if entry.lease else self.now()
        for version in entry.superseded:
            self._contents.sweep(version, entry.path, until=until)
        self._save(entry.model_copy(update={"superseded": (), "lease": None}))


@contextmanager
def _room(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        raise FileTooLarge(f"{path}: the disk has no room for it and for what is made of it") from error


def _only_superseded(entry: FileEntry, item: WorkItem) -> bool:
    """Whether the file stands as it should, but for earlier objects that are still there."""
    taken = entry.state in {FileState.TAKEN, FileState.DUPLICATE}
    return taken and bool(entry.superseded) and not entry.writing and (item.listed is None or entry.shows(item.listed))


def _identity(item: WorkItem, download: Download) -> dict[str, object]:
    """Return what the file is known by: as it was downloaded, should it have changed since it was listed."""
    listed = item.listed
    # Listings and answers may name one content differently: the listing's name is the one to compare with later.
    etag = plain_etag(listed.etag) if listed and listed.size == download.size else download.etag
    return {"etag": etag, "size": download.size, "modified": listed.modified if listed else None}


def _others(versions: list[FileVersion | None], kept: FileVersion | None) -> tuple[FileVersion, ...]:
    """Return the versions of another content than `kept`, each once."""
    found = {version.content_sha256: version for version in versions if version}
    found.pop(kept.content_sha256 if kept else "", None)
    return tuple(found.values())
