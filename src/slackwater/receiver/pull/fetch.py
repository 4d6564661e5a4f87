"""Fetch one file of a pull, so that a crash at any point loses no row and stores no row twice.

`FileFetcher.fetch` and `_fetch_leased` do these steps, in this order:

1. Lease the file in the file cache, so that no other pull works on it.
2. Download it and keep it, unchanged, under `landing/`.
3. Parse the file into one Parquet file for each partition, on local disk.
4. Write the rejects and the objects. The names of the objects have the attempt, so no other attempt writes them.
5. Commit: one transaction makes these objects the ones that readers see, instead of the file's earlier content and of
   what other definitions have read in this content, and releases the lease.
6. Note that the result reports the partitions that the commit has changed, and what it has stored.

Readers ignore objects that no commit names (`slackwater.runs.inputs.consistent_listing`), and
`slackwater.receiver.pull.stale_objects` deletes them after some days. A pull that ends in between leaves its lease or
`FileEntry.changed` and `FileEntry.uncounted`, which show the next pull what is missing.

Several files may have one content, and share its objects. A file whose content is stored already, as the present
definition reads it, writes no object. The commit checks again that it still is; otherwise the file is left to the next
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
from errno import ENOSPC
from functools import cached_property
from pathlib import Path

from slackwater.errors import FileTooLarge, FileVanished, SlackwaterError, Throttled, Unavailable
from slackwater.receiver.connectors.connector import Connector, Download, plain_etag
from slackwater.receiver.pull.fetch_result import FetchResult, FetchState
from slackwater.receiver.pull.file_cache import (
    NO_COUNTS,
    Content,
    ContentVersion,
    EntryChanged,
    FileCache,
    FileCounts,
    FileEntry,
    FileState,
    Lease,
    retry_delay,
)
from slackwater.receiver.pull.plan import FileDecision, WorkItem
from slackwater.receiver.pull.records import Changed, Records
from slackwater.receiver.pull.stage_file import StagedFile, stage_file
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.receiver.writing.rejected_hours import rejected_by_hour
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition
from slackwater.state.facts import RejectedEvents, file_origin
from slackwater.storage import short_reason

# A Lambda function runs for 15 minutes at most, so it has ended before its lease expires.
LEASE = timedelta(minutes=16)
_LOG = logging.getLogger("slackwater.pull")
_BUSY = "another pull was changing rows of the same content"
_LARGER = "raise max_file_mb in sources/{source}.yaml (above function_mb, jobs fetch a file, which need a network)"
_REMOVED = "the partner has removed the file; before: "


class _ContentBusy(Exception):
    """Another pull has replaced the objects of the content, or reads it with an earlier `first_received_at`."""


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
    put_rejected: Callable[[str, Mapping[datetime, RejectedEvents]], None]
    """Stores the rejected events of a source by hour, as `StateTable.put_rejected` does."""
    lease: timedelta = LEASE
    """Must be longer than the process may run."""

    def fetch(self, item: WorkItem) -> FetchResult:
        """Fetch one file, or repair what an interrupted pull left of it.

        A file that vanished, or that another pull is fetching, gives a result and no error. Raises `PartnerError`,
        `DataError` or `CloudError` when the file cannot be fetched; the file cache keeps the reason. Raises
        `FileTooLarge` when the file exceeds the partner's `max_file_bytes` or the local disk, and `EntryChanged` when
        the lease expired and another pull leased the file.
        """
        entry = self._records.entry(item.path) or FileEntry(source=self.source.source, path=item.path)
        if self._is_only_to_report(entry, item):
            changed = entry.changed
            if entry.lease and entry.content and (committed := self._committed_version(entry.content)):
                # An earlier release has committed: it kept its lease until it had reported, and recorded no `changed`.
                changed = tuple(sorted({*changed, *committed.partitions}))
            counts = self._finish(entry)
            return FetchResult(path=item.path, state=FetchState.UNCHANGED, partitions=changed, counts=counts)
        leased = self._acquire_lease(entry, item)
        if leased is None:
            return FetchResult(path=item.path, state=FetchState.BUSY)
        try:
            with tempfile.TemporaryDirectory(prefix="pull-") as folder:
                return self._fetch_leased(leased, item, Path(folder) / "file")
        except EntryChanged:
            raise
        except _ContentBusy as error:
            self._record_failure(item, error)
            return FetchResult(path=item.path, state=FetchState.BUSY)
        except Exception as error:
            failure = error
            if isinstance(error, FileTooLarge):
                failure = FileTooLarge(f"{error}: {_LARGER.format(source=self.source.source)}")
            elif isinstance(error, OSError) and error.errno == ENOSPC:
                failure = FileTooLarge(f"{item.path}: the local disk has no room for the file and its Parquet files")
            # `EntryChanged`: another pull has leased the file. Its outcome counts, so this failure is not recorded.
            with suppress(EntryChanged):
                self._record_failure(item, failure)
            if failure is error:
                raise
            raise failure from error

    def _acquire_lease(self, entry: FileEntry, item: WorkItem) -> FileEntry | None:
        """Step 1: lease the file. Return its new entry, or None when another pull holds the lease."""
        now = self.now()
        is_given_up = entry.state is FileState.GIVEN_UP
        if entry.is_leased(now) or (is_given_up and item.listed in {None, entry.attempted}):
            return None  # leased, or given up after this pull was planned
        lease, attempts = Lease(owner=self.owner, until=now + self.lease), entry.attempts + 1
        try:
            return self._records.save(
                entry,
                lease=lease,
                # Not given up any more: if this process is killed, the next pull has to fetch the file.
                state=FileState.LEASED if is_given_up or entry.state is FileState.LISTED else entry.state,
                dated_pattern=item.dated_pattern or entry.dated_pattern,
                # Counted before the attempt: it may end with its process.
                attempts=attempts,
                attempted=item.listed or entry.attempted,
                attempted_definition=self.source.reading_digest,
                due=lease.until + retry_delay(attempts),
                not_taken_since=entry.not_taken_since or now,
            )
        except EntryChanged:
            return None

    def _fetch_leased(self, entry: FileEntry, item: WorkItem, path: Path) -> FetchResult:
        """Steps 2 to 6, with a download at `path`; fewer for a file that vanished or is unchanged."""
        try:
            with path.open("wb") as file:
                download = self.partner.fetch(item.path, file)
        except FileVanished as error:
            self._record_vanished(entry, str(error))
            return FetchResult(
                path=item.path, state=FetchState.VANISHED, partitions=entry.changed, counts=entry.uncounted
            )
        sha256, size, recorded = download.sha256, download.size, identity_of(item, download)
        content_id = sha256[:32]
        committed = self._committed_version(content_id)
        if entry.content == content_id and committed:
            recorded |= {"state": FileState.DUPLICATE if entry.duplicate_of else FileState.STORED, "reason": None}
            recorded |= {"attempted": None, "rows": committed.rows, "rejected": committed.rejected}
            counts = self._finish(entry, **recorded)
            return FetchResult(
                path=item.path, state=FetchState.UNCHANGED, bytes=size, partitions=entry.changed, counts=counts
            )
        # The digest is part of the key: a changed file does not overwrite the file whose rows readers still see.
        landing_uri = f"s3://{self.raw_writer.raw_bucket}/landing/source={entry.source}/{sha256}/{entry.path}"
        self.raw_writer.store.put_new_file(landing_uri, path)

        entry, received, staged = self._stage(entry, path, sha256)
        version = staged.version.model_copy(update={"attempt": attempt_id(entry, self.owner)})

        is_stored = received.committed is not None and received.committed.digest == version.digest
        if not is_stored:
            # Not with the attempt: each rejected row is stored once, whatever attempts there were.
            rejects = f"{content_id}-{version.digest}"
            self.raw_writer.write_rejects_file(
                self.source,
                staged.rejects,
                bins=staged.rejected_bins,
                received_at=received.received_at,
                batch_id=rejects,
            )
            if self.source.counts and staged.version.rejected:
                origin, at = file_origin(content_id, version.digest), received.received_at
                hours = rejected_by_hour(staged.rejected_bins, self.source.count_keys, origin=origin, received_at=at)
                self.put_rejected(self.source.source, hours)
            self.raw_writer.write_files(self.source, staged.files, origin=f"{content_id}-{version.attempt}")

        recorded |= {"landing_uri": landing_uri}
        entry = self._commit(entry, received, version, is_stored=is_stored, recorded=recorded)

        counts = self._finish(entry) if entry.is_unreported else NO_COUNTS
        is_first = entry.state is FileState.STORED
        return FetchResult(
            path=entry.path,
            state=FetchState.STORED if is_first else FetchState.DUPLICATE,
            rows=entry.rows if is_first else 0,
            rejected=entry.rejected if is_first else 0,
            bytes=size,
            reason=staged.first_reason if is_first and not entry.rows else "",
            new_columns=tuple(staged.new_columns),
            note=staged.note,
            partitions=entry.changed,
            counts=counts,
        )

    def _record_vanished(self, entry: FileEntry, reason: str) -> None:
        """Release the lease of a file that the partner has deleted."""
        changes: dict[str, object] = {"state": FileState.VANISHED, "reason": reason, "not_taken_since": None}
        attempts = entry.attempts
        if entry.state is FileState.FAILED or (entry.attempts > 1 and entry.state is not FileState.VANISHED):
            # Its rows were never stored, so a person has to know: the file stays a failed one until it is given up.
            first_reason = (entry.reason or "the attempt was interrupted").removeprefix(_REMOVED)
            changes = {"state": FileState.FAILED, "reason": _REMOVED + first_reason}
            # The next pull fetches a file that is back, but does not ask at once for one that had failed before.
            attempts = max(2, attempts)
        due = self.now() + retry_delay(attempts)
        changes |= {"uncounted": NO_COUNTS, "counted_by": self.owner}
        self._records.save(entry, lease=None, changed=(), due=due, **changes)

    def _stage(self, entry: FileEntry, path: Path, sha256: str) -> tuple[FileEntry, Content, StagedFile]:
        """Step 3: parse the file. Returns its entry, and the record of its content, with the times of their receipt."""
        # When the first content of the file was received, or the earliest known one; None if there is none.
        first_received_at = entry.first_received_at
        if not first_received_at and entry.content:
            first_received_at = self._records.content(entry.content).received_at
        received = self._records.update_content(sha256[:32], lambda each: each.with_first_receipt(first_received_at))
        staged = stage_file(
            path,
            self.source,
            name=entry.path,
            content_sha256=sha256,
            received_at=received.received_at,
            first_received_at=received.first_received_at,
        )
        first_received_at = first_received_at or self.now()
        if staged.version.rows:  # Unrelated files may have the same content without rows, for example only a header.
            first_received_at = min(first_received_at, received.ages_at)
        if entry.first_received_at != first_received_at:
            # Before the commit: a later attempt may find another content.
            entry = self._records.save(entry, first_received_at=first_received_at)
        return entry, received, staged

    def _commit(
        self,
        entry: FileEntry,
        received: Content,
        version: ContentVersion,
        *,
        is_stored: bool,
        recorded: Mapping[str, object],
    ) -> FileEntry:
        """Step 5: let readers see the version. Returns the entry, with the partitions that this has changed.

        `received` is the content's record when the file was parsed; `is_stored`, whether it had an equal version, so
        that no objects were written; `recorded` are values of the entry.
        """
        content_id = received.id

        # The commit is one transaction, so at every instant readers see exactly one content of the file: the old or
        # the new one. They also see exactly one version of the content, whatever files have it.
        def commit(entry: FileEntry, contents: Mapping[str, Content]) -> Changed:
            now = self.now()
            if entry.lease is None or now >= entry.lease.until:
                # Objects of an attempt whose lease has expired may be deleted some days later.
                raise EntryChanged(f"{entry.source}: {entry.path}: its lease has expired; the next pull repairs it")
            content, is_new = contents[content_id], entry.content != content_id
            if content.ages_at != received.ages_at:  # the pull of another file reads more rows of the content
                raise _ContentBusy(_BUSY)
            seen = content.committed
            if seen is None or seen.digest != version.digest:
                if is_stored:  # the objects that were stored then may be deleted
                    raise _ContentBusy(_BUSY)
                seen = version
            # Otherwise readers go on to see the objects of the equal version.
            others = [path for path in content.paths if path != entry.path]
            is_duplicate = content.files > (0 if is_new else 1)
            committed = {content_id: content.with_file(entry.path, seen, is_new=is_new, at=now)}
            if entry.content and is_new:
                was_removed = entry.removed_since is not None
                replaced = contents[entry.content].without_file(entry.path, was_removed=was_removed, at=now)
                committed[entry.content] = replaced
            # Those of an earlier commit, too, if its pull has ended before it reported them.
            changed = {*entry.changed}.union(
                *(changed_partitions(contents[each], after) for each, after in committed.items())
            )
            stored = NO_COUNTS if is_duplicate else FileCounts(files=1, rows=version.rows, rejected=version.rejected)
            uncounted = entry.uncounted.plus(stored)
            changes = {
                **recorded,
                "state": FileState.DUPLICATE if is_duplicate else FileState.STORED,
                "content": content_id,
                "changed": tuple(sorted(changed)),
                "uncounted": uncounted,
                "duplicate_of": others[0] if is_duplicate and others else None,
                "rows": version.rows,
                "rejected": version.rejected,
                "stored_at": now,
                "reason": None,
                "lease": None,
                "attempts": 0,
                "attempted": None,
                "due": now if changed or uncounted != NO_COUNTS else None,
                "not_taken_since": None,
                # With the same content, the next plan records that the file is back.
                "removed_since": None if is_new else entry.removed_since,
            }
            return entry.model_copy(update=changes), committed.values()

        return self._records.transact(entry, [content_id, *([entry.content] if entry.content else [])], commit)

    def _is_only_to_report(self, entry: FileEntry, item: WorkItem) -> bool:
        """Whether only step 6 of an earlier pull is missing: the file is given up, or stored and unchanged since."""
        # The commit resets the attempts: no other has ended before its commit since.
        if item.decision is not FileDecision.REPAIR or entry.attempts or entry.is_leased(self.now()):
            return False
        if entry.state not in {FileState.STORED, FileState.DUPLICATE} or entry.content is None:
            return entry.state is FileState.GIVEN_UP
        is_unchanged = item.listed is None or entry.matches_listing(item.listed)
        return is_unchanged and self._committed_version(entry.content) is not None

    def _finish(self, entry: FileEntry, **changes: object) -> FileCounts:
        """Step 6: note that the result reports `FileEntry.changed`, and release the lease if the attempt holds it.

        Return what the result counts: nothing if that cannot be noted, because a later pull counts it.
        """
        changes |= {"attempts": 0, "due": None, "not_taken_since": None, "changed": (), "uncounted": NO_COUNTS}
        if entry.uncounted != NO_COUNTS:
            changes["counted_by"] = self.owner
        try:
            self._records.save(entry, **changes, lease=None)
        except SlackwaterError as error:
            # Not a failure of the file: its rows are stored, and the caller has to learn which days they change.
            _LOG.warning("%s: %s: a later pull reports its partitions again: %s", entry.source, entry.path, error)
            with suppress(SlackwaterError):  # without this, the next pull would wait until the lease expires
                self._records.save(entry, lease=None, due=self.now())
            return NO_COUNTS
        return entry.uncounted

    def _record_failure(self, item: WorkItem, error: Exception) -> None:
        """Save the reason and release the lease, if this attempt still holds it."""
        entry = self._records.entry(item.path)
        if entry is None or entry.lease is None or entry.lease.owner != self.owner:
            return
        # A short failure of AWS says nothing about the file: its next attempt does not wait longer for that.
        is_transient = isinstance(error, (_ContentBusy, Throttled, Unavailable))
        attempts, reason = entry.attempts - is_transient, self._recorded_reason(str(error))
        due = self.now() + (timedelta(0) if isinstance(error, _ContentBusy) else retry_delay(attempts))
        self._records.save(entry, state=FileState.FAILED, reason=reason, lease=None, attempts=attempts, due=due)

    def _recorded_reason(self, reason: str) -> str:
        """Return the reason as the file cache can hold it. All of a long one is stored under `landing/`."""
        digest = hashlib.sha256(reason.encode()).hexdigest()
        uri = f"s3://{self.raw_writer.raw_bucket}/landing/source={self.source.source}/failures/{digest}.txt"
        recorded = short_reason(reason, complete=uri)
        if recorded != reason:
            self.raw_writer.store.put_new(uri, reason.encode())
        return recorded

    @cached_property
    def _records(self) -> Records:
        return Records(source=self.source.source, cache=self.cache, now=self.now)

    def _committed_version(self, content_id: str) -> ContentVersion | None:
        """Return the version of the content that readers see, if the present definition has read it."""
        committed = self._records.content(content_id).committed
        return committed if committed and committed.definition == self.source.reading_digest else None


def changed_partitions(before: Content, after: Content) -> set[Partition]:
    """Return the partitions of which readers see other rows after a commit has changed the content's record."""
    if (before.committed, before.is_removed) == (after.committed, after.is_removed):
        return set()
    versions = (before.committed, after.committed)
    return {partition for version in versions if version for partition in version.partitions}


def attempt_id(entry: FileEntry, owner: str) -> str:
    """Return the id of the attempt that holds the lease of the entry, 12 hex digits."""
    return hashlib.sha256(f"{owner}/{entry.path}/{entry.revision}".encode()).hexdigest()[:12]


def identity_of(item: WorkItem, download: Download) -> dict[str, object]:
    """Return `etag`, `size` and `modified` of `FileEntry`, with which later listings are compared."""
    listed = item.listed
    # Listings and downloads may show different ETags for one content. Later listings are compared with the listing's
    # ETag, except when the sizes differ: then the file changed after it was listed, and that ETag is outdated.
    etag = plain_etag(listed.etag) if listed and listed.size == download.size else download.etag
    return {"etag": etag, "size": download.size, "modified": listed.modified if listed else None}
