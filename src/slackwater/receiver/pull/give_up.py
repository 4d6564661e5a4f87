"""Give up files that cannot be fetched, by a person's decision."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slackwater.errors import InputError
from slackwater.receiver.pull.file_cache import EntryChanged, FileCache, FileEntry, FileState

# DynamoDB writes at most 100 items in one transaction.
_MAX_FILES = 100
_TAKEN = {
    FileState.STORED: "its rows are stored",
    FileState.DUPLICATE: "another file has the same content, and its rows are stored",
    FileState.VANISHED: "the partner had deleted it before it was fetched",
    FileState.GIVEN_UP: "it was given up before",
}


def give_up(
    source: str, paths: Sequence[str], *, reason: str | None, cache: FileCache, now: datetime
) -> list[FileEntry]:
    """Give up files of a source: no pull fetches them, unless the partner changes them. Returns their new entries.

    The rows of an earlier content that is stored stay. Without `reason`, the reason of the last failure stays.

    Either all files are given up or none. Raises `InputError` when one of them is unknown, is being fetched, or is not
    missing, and `EntryChanged` when a pull has changed one of them meanwhile.
    """
    wanted = list(dict.fromkeys(paths))
    if len(wanted) > _MAX_FILES:
        raise InputError(f"{len(wanted)} files: give up at most {_MAX_FILES} at a time")
    entries = {entry.path: entry for entry in cache.entries(source, wanted)}
    for path in wanted:
        _check(source, path, entries.get(path), now)
    given_up = [_given_up(entries[path], reason, now) for path in wanted]
    try:
        cache.save(*given_up)
    except EntryChanged as error:
        raise EntryChanged(
            f"{source}: a pull has changed one of the files meanwhile, and none was given up: run the command again"
        ) from error
    return given_up


def _check(source: str, path: str, entry: FileEntry | None, now: datetime) -> None:
    """Raise `InputError` if the file cannot be given up."""
    if entry is None:
        raise InputError(f"{source}: no pull has seen a file {path!r} (to list the files: slackwater files {source})")
    if entry.lease and entry.is_leased(now):
        raise InputError(
            f"{source}: {path}: a pull is fetching it: wait until the pull has ended, at the latest at "
            f"{entry.lease.until:%H:%M} UTC"
        )
    if entry.is_taken:
        raise InputError(f"{source}: {path}: there is nothing to give up: {_TAKEN[entry.state]}")


def _given_up(entry: FileEntry, reason: str | None, now: datetime) -> FileEntry:
    changes = {
        "state": FileState.GIVEN_UP,
        "reason": reason or entry.reason,
        # A lease here has expired: its pull was interrupted.
        "lease": None,
        "attempts": 0,
        # The next pull reports what an interrupted one has changed.
        "due": now if entry.is_unreported else None,
        "not_taken_since": None,
    }
    return entry.model_copy(update=changes)
