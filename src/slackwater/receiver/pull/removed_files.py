"""Files that the partner has removed although their rows are stored.

A removal is recorded in the file's entry and counted in its content, in one transaction, so that readers see either
both or none. Nothing is deleted. `PullConfig.on_removed` decides what the removal means for the days of the files.

A listing that lacks files proves little: a server may be half started, or a folder not mounted. So a pull records a
removal only if two of its listings lack the file, and each of them has at least as many of the known files of the
window as it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from slackwater.receiver.pull.file_cache import EntryChanged, FileCache, FileEntry
from slackwater.receiver.pull.records import Records

MAX_RECORDED = 500
"""Most removals, and most returns, that one pull records: each is a transaction. The next pull records more."""


class RemovedFiles(NamedTuple):
    """What a pull did about files that the partner does not list any more."""

    recorded: int = 0
    """Files whose removal this pull has recorded."""
    doubtful: int = 0
    """Files whose removal it did not record, because a listing lacked more files of the window than it had."""


def record_removed(
    source: str,
    stored: Iterable[str],
    listed: Collection[str],
    *,
    list_again: Callable[[], Collection[str]],
    cache: FileCache,
    now: datetime,
) -> RemovedFiles:
    """Record the files of the window that the partner has removed.

    `stored` are the paths of the window's files whose rows are stored, `listed` those that the partner lists, and
    `list_again` returns the paths of another listing: it is called after the entries were read, and only if files are
    missing. A file whose entry changes after that, or that a pull is fetching, is left to the next pull.
    """
    known = list(dict.fromkeys(stored))
    present = [path for path in known if path in listed]
    entries = cache.entries(source, [path for path in known if path not in listed])
    missing = [entry for entry in entries if entry.content and not entry.removed_since and not entry.is_leased(now)]
    if not missing:
        return RemovedFiles()
    if len(missing) > len(present):
        return RemovedFiles(doubtful=len(missing))
    again = list_again()
    missing = [entry for entry in missing if entry.path not in again]
    if len(missing) > sum(path in again for path in known):
        return RemovedFiles(doubtful=len(missing))
    recorded = sum(_record(entry, now, cache=cache, now=now) for entry in missing[:MAX_RECORDED])
    return RemovedFiles(recorded=recorded)


def record_returned(entries: Iterable[FileEntry], *, cache: FileCache, now: datetime) -> int:
    """Record that the partner lists these files again if their removal is recorded; return how many those were."""
    returned = islice((entry for entry in entries if entry.removed_since), MAX_RECORDED)
    return sum(_record(entry, None, cache=cache, now=now) for entry in returned)


def _record(entry: FileEntry, since: datetime | None, *, cache: FileCache, now: datetime) -> bool:
    """Write `removed_since`, and the number in the content; return False if the entry has changed since it was read."""
    if entry.content is None:
        return False
    changed = entry.model_copy(update={"removed_since": since})
    with suppress(EntryChanged):
        Records(source=entry.source, cache=cache, now=lambda: now).transact(
            entry,
            [entry.content],
            lambda _, contents: (changed, [content.with_removed(1 if since else -1) for content in contents.values()]),
        )
        return True
    return False
