"""Files that the partner has removed although their rows are stored.

A removal is recorded in the file's entry and counted in its content, in one transaction, so that readers see either
both or none. Nothing is deleted. `PullConfig.on_removed` decides what the removal means for the days of the files.

A listing that lacks files proves little: a server may be half started, or a folder not mounted. So a pull records a
removal only if two of its listings lack the file, and each of them has more of the known files of the window than it
lacks. Otherwise the removal is doubtful: a person may accept it, up to the number of files that they have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice

from pydantic import BaseModel, ConfigDict

from slackwater.errors import AccessDenied, ObjectMissing
from slackwater.receiver.pull.file_cache import EntryChanged, FileCache, FileEntry
from slackwater.receiver.pull.records import Records
from slackwater.storage import ObjectStore

MAX_RECORDED = 500
"""Most removals, and most returns, that one pull records: each is a transaction. The next pull records more."""
_EXAMPLES = 5


class DoubtfulFiles(BaseModel):
    """The doubtful removals of the latest pull of a source as of today: the content of the object at `doubtful_uri`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    at: datetime
    """When the pull listed the files, UTC."""
    files: int
    examples: tuple[str, ...]
    """The first paths."""


def doubtful_uri(exchange_bucket: str, source: str) -> str:
    """Return the URI of the `DoubtfulFiles` of a source."""
    return f"s3://{exchange_bucket}/pulls/{source}/doubtful.json"


def save_doubtful(paths: Sequence[str], *, store: ObjectStore, exchange_bucket: str, source: str, at: datetime) -> None:
    """Store the doubtful removals of a pull, in place of those of the pull before; `paths` may be empty."""
    content = DoubtfulFiles(source=source, at=at, files=len(paths), examples=tuple(paths[:_EXAMPLES]))
    store.put(doubtful_uri(exchange_bucket, source), content.model_dump_json().encode())


def read_doubtful(store: ObjectStore, *, exchange_bucket: str, source: str) -> DoubtfulFiles | None:
    """Return the doubtful removals of the latest pull of a source; None if there are none."""
    try:
        content = DoubtfulFiles.model_validate_json(store.get(doubtful_uri(exchange_bucket, source)))
    except (ObjectMissing, AccessDenied):  # without permission to list, S3 denies access to a missing object
        return None
    return content if content.files else None


def record_removed(
    source: str,
    stored: Iterable[str],
    listed: Collection[str],
    *,
    list_again: Callable[[], Collection[str]],
    cache: FileCache,
    now: datetime,
    accepted: int = 0,
) -> Sequence[str]:
    """Record the files of the window that the partner has removed, and return the paths of the doubtful ones.

    Their removal is not recorded, because a listing lacks as many files of the window as it has, or more.

    `stored` are the paths of the window's files whose rows are stored, `listed` those that the partner lists, and
    `list_again` returns the paths of another listing: it is called after the entries were read, and only if files are
    missing. A file whose entry changes after that, or that a pull is fetching, is left to the next pull. So many
    missing files as `accepted` are not doubtful: a person has accepted their removal.
    """
    known = list(dict.fromkeys(stored))
    present = [path for path in known if path in listed]
    entries = cache.entries(source, [path for path in known if path not in listed])
    missing = [entry for entry in entries if entry.content and not entry.removed_since and not entry.is_leased(now)]
    if not missing:
        return []
    if _is_doubtful(len(missing), len(present), accepted):
        return [entry.path for entry in missing]
    again = list_again()
    missing = [entry for entry in missing if entry.path not in again]
    if _is_doubtful(len(missing), sum(path in again for path in known), accepted):
        return [entry.path for entry in missing]
    for entry in missing[:MAX_RECORDED]:
        _record(entry, now, cache=cache, now=now)
    return []


def _is_doubtful(missing: int, present: int, accepted: int) -> bool:
    """Return whether a listing without `missing` known files, which has `present` ones, proves no removal."""
    return missing > accepted and missing >= present


def record_returned(entries: Iterable[FileEntry], *, cache: FileCache, now: datetime) -> int:
    """Record that the partner lists these files again, if their removal is recorded; return how many these are."""
    returned = list(islice((entry for entry in entries if entry.removed_since), MAX_RECORDED))
    for entry in returned:
        _record(entry, None, cache=cache, now=now)
    return len(returned)


def _record(entry: FileEntry, since: datetime | None, *, cache: FileCache, now: datetime) -> None:
    """Write `removed_since`, and the number in the content, unless the entry has changed since it was read."""
    if entry.content is None:
        return
    changed = entry.model_copy(update={"removed_since": since})
    with suppress(EntryChanged):
        Records(source=entry.source, cache=cache, now=lambda: now).transact(
            entry,
            [entry.content],
            lambda _, contents: (changed, [content.with_removed(1 if since else -1) for content in contents.values()]),
        )
