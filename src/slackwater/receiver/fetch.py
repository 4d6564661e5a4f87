"""One file of a pull: leased, downloaded, kept as it came, split into partitions, and its earlier content superseded.

The order of writes makes every crash repairable by the next pull:

1. the lease, and then the content that is being written, stand in the file cache before any object of it does;
2. once all objects, the side-line and the catalogue are written, one write makes the new content the file's version,
   and the old one superseded;
3. superseded objects are deleted, and only then forgotten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from slackwater.errors import DataError, FileVanished, SlackwaterError
from slackwater.receiver.csv_file import original_rows, read_csv
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.encode import Split, split
from slackwater.receiver.events import Rejected
from slackwater.receiver.file_cache import (
    Decision,
    EntryChanged,
    FileCache,
    FileEntry,
    FileState,
    Lease,
    Version,
    decide,
)
from slackwater.receiver.partner import Download, Partner, plain_etag
from slackwater.receiver.pull import WorkItem
from slackwater.receiver.sideline import SidelineRecord
from slackwater.receiver.source import Source

MAX_PARTITIONS = 4_000
"""Hours that one file may touch: more would not fit its item in the file cache."""
LEASE = timedelta(minutes=16)
"""Longer than a function can run."""


class Fetched(BaseModel):
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


class _Content(NamedTuple):
    """A downloaded file, read."""

    split: Split
    rejected: list[Rejected]
    sideline: list[SidelineRecord]


@dataclass(frozen=True, kw_only=True)
class Fetcher:
    """Takes files of one source."""

    source: Source
    partner: Partner
    cache: FileCache
    delivery: Delivery
    now: Callable[[], datetime]
    owner: str
    """Names this attempt, and no other, in leases."""

    def fetch(self, item: WorkItem) -> Fetched:
        """Take one file, or repair what an earlier pull left of it.

        Raises `PartnerError` or `DataError` when the file cannot be taken, with its reason in the file cache, and
        `CloudError`. A file that vanished, or that another pull is taking, is an answer and no error.
        """
        entry = self._lease(item)
        if entry is None:
            return Fetched(path=item.path, state="busy")
        try:
            if _only_superseded(entry, item):
                self._settle(entry)
                return Fetched(path=item.path, state="unchanged")
            return self._take(entry, item)
        except EntryChanged:
            raise
        except (SlackwaterError, OSError) as error:
            with suppress(EntryChanged):
                self._fail(item, error)
            raise

    def _lease(self, item: WorkItem) -> FileEntry | None:
        entry = self.cache.get(self.source.source, item.path)
        if decide(item.listed, entry, now=self.now()) is Decision.BUSY:
            return None
        entry = entry or FileEntry(source=self.source.source, path=item.path)
        lease = Lease(owner=self.owner, until=self.now() + LEASE)
        try:
            return self.cache.save(entry.model_copy(update={"lease": lease}))
        except EntryChanged:
            return None

    def _take(self, entry: FileEntry, item: WorkItem) -> Fetched:
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
                return Fetched(path=item.path, state="unchanged", bytes=download.size)
            return self._store(entry, path, download)

    def _store(self, entry: FileEntry, path: Path, download: Download) -> Fetched:
        landing = f"s3://{self.delivery.raw_bucket}/landing/source={entry.source}/{download.sha256}/{entry.path}"
        self.delivery.store.put_new(landing, path.read_bytes())
        content = self._read(path, entry.path, download)
        version = Version(content_sha256=download.sha256, partitions=tuple(content.split.partitions))
        entry = self._announce(entry, version)
        self._deliver(content, version, entry.path)
        original = self._original(entry, version)
        entry = self.cache.save(
            entry.model_copy(
                update={
                    "state": FileState.DUPLICATE if original else FileState.TAKEN,
                    "version": version,
                    "writing": None,
                    "superseded": _others([*entry.superseded, entry.version], version),
                    "duplicate_of": original,
                    "landing": landing,
                    "rows": content.split.table.num_rows,
                    "rejected": len(content.rejected),
                    "taken_at": self.now(),
                    "reason": None,
                }
            )
        )
        self._settle(entry)
        rows, rejected = (0, 0) if original else (entry.rows, entry.rejected)
        return Fetched(path=entry.path, state=entry.state, rows=rows, rejected=rejected, bytes=download.size)

    def _read(self, path: Path, name: str, download: Download) -> _Content:
        checked = read_csv(path, self.source, name=name)
        found = split(checked.table)
        if len(found.partitions) > MAX_PARTITIONS:
            raise DataError(
                f"{name}: its rows are of {len(found.partitions)} hours, at most {MAX_PARTITIONS} are taken"
            )
        rows = {row.index: row for row in original_rows(path, [item.index for item in checked.rejected])}
        sideline = [
            SidelineRecord(
                index=item.index,
                line=rows[item.index].line if item.index in rows else None,
                reason=item.reason,
                batch_id=download.sha256[:32],
                origin=f"pull:{name}",
                text=rows[item.index].text if item.index in rows else "",
            )
            for item in checked.rejected
        ]
        return _Content(found, checked.rejected, sideline)

    def _announce(self, entry: FileEntry, version: Version) -> FileEntry:
        """Say what is about to be written; what an earlier attempt announced may be there, and is to go."""
        superseded = _others([*entry.superseded, entry.writing], version)
        return self.cache.save(entry.model_copy(update={"writing": version, "superseded": superseded}))

    def _deliver(self, content: _Content, version: Version, path: str) -> None:
        received_at, batch_id = self.now(), version.content_sha256[:32]
        self.delivery.write(
            self.source,
            content.split,
            contents=[version.hash_in(partition) for partition in version.partitions],
            received_at=received_at,
            batch_id=batch_id,
            file=path,
        )
        self.delivery.sideline(self.source, content.sideline, received_at=received_at, batch_id=batch_id)
        self.delivery.register(self.source, version.partitions)

    def _original(self, entry: FileEntry, version: Version) -> str | None:
        """Return the path of the file that had this content first, if it is another one."""
        sha256 = version.content_sha256
        first = self.cache.claim(entry.source, sha256, entry.path)
        if first == entry.path:
            return None
        other = self.cache.get(entry.source, first)
        if other and sha256 in other.contents:
            return first
        self.cache.claim(entry.source, sha256, entry.path, instead_of=first)
        return None

    def _vanished(self, entry: FileEntry, reason: str) -> Fetched:
        """Let go of what an earlier attempt may have written; the version that was taken stays."""
        superseded = _others([*entry.superseded, entry.writing], entry.version)
        update = {"state": FileState.VANISHED, "writing": None, "superseded": superseded, "reason": reason}
        self._settle(self.cache.save(entry.model_copy(update=update)))
        return Fetched(path=entry.path, state=FileState.VANISHED)

    def _fail(self, item: WorkItem, error: Exception) -> None:
        """Keep the reason and let go of the lease, if it still is ours; what is half done stays announced."""
        entry = self.cache.get(self.source.source, item.path)
        if entry and entry.lease and entry.lease.owner == self.owner:
            update = {"state": FileState.FAILED, "reason": str(error), "lease": None}
            self.cache.save(entry.model_copy(update=update))

    def _settle(self, entry: FileEntry) -> None:
        """Delete superseded objects that no file needs any more, forget them, and let go of the lease."""
        if entry.superseded:
            self._sweep(entry)
        self.cache.save(entry.model_copy(update={"superseded": (), "lease": None}))

    def _sweep(self, entry: FileEntry) -> None:
        others = [other for other in self.cache.entries(entry.source) if other.path != entry.path]
        needed = frozenset[str]().union(entry.contents, *(other.contents for other in others))
        for version in entry.superseded:
            if version.content_sha256 not in needed:
                self.delivery.store.delete(version.objects(self.delivery.raw_bucket, entry.source))


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


def _others(versions: list[Version | None], kept: Version | None) -> tuple[Version, ...]:
    """Return the versions of another content than `kept`, each once."""
    found = {version.content_sha256: version for version in versions if version}
    found.pop(kept.content_sha256 if kept else "", None)
    return tuple(found.values())
