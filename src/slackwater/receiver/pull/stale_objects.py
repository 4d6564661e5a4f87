"""Delete the objects of pulled files that readers do not see, some days after.

Attempts that were interrupted leave objects, and so do contents and definitions that were replaced. An object is
deleted if the record of its content names another attempt, and if both the object and the latest change of what readers
see of the content are older than `KEPT`:

- An attempt commits before its lease expires, which is at most hours after it has written its objects. So an object
  that is older than `KEPT`, and that readers do not see, is never seen again.
- A run that has frozen its inputs goes on to read them when they are replaced, for hours at most.

As `KEPT` is longer by days, S3 and the functions need not agree about the time. Rejected events are never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from slackwater.errors import ObjectMissing
from slackwater.receiver.pull.file_cache import FileCache, is_committed, version_of
from slackwater.sources.partitions import source_prefix
from slackwater.storage import ObjectStore

KEPT = timedelta(days=3)
# Objects that are compared with the file cache at a time. S3 lists and deletes at most 1,000 with one request.
_PAGE = 1000


class RemovedPage(NamedTuple):
    """The outcome of a page of objects."""

    deleted: int
    unrecorded: list[str]
    """URIs of objects whose content has no record. They are kept: if the record was lost, their rows may count."""
    last: str
    """URI of the last object of the page."""


class Removal(NamedTuple):
    """The outcome of a call of `remove_all_stale`."""

    deleted: int
    unrecorded: int
    """Objects whose content has no record."""
    example: str
    """URI of one of them, or an empty string."""
    is_finished: bool
    """Whether the objects of all sources have been looked at. Otherwise the next call continues."""


def remove_stale(
    source: str, *, store: ObjectStore, cache: FileCache, raw_bucket: str, now: datetime, start_after: str = ""
) -> Iterator[RemovedPage]:
    """Delete the stale objects of a source in order of URI, and yield after each page of objects.

    With `start_after`, continue behind this URI. Raises `CloudError`.
    """
    objects = store.list(source_prefix(raw_bucket, source), start_after=start_after)
    while page := list(islice(objects, _PAGE)):
        pulled = {item.uri: version[0] for item in page if (version := version_of(item.uri))}
        contents = {content.id: content for content in cache.contents(source, set(pulled.values()))}
        known = [(item, contents[pulled[item.uri]]) for item in page if pulled.get(item.uri) in contents]
        stale = [
            item.uri
            for item, content in known
            if max(item.modified, content.changed_at or item.modified) < now - KEPT
            and not is_committed(item.uri, contents)
        ]
        store.delete(stale)
        unrecorded = [uri for uri, content_id in pulled.items() if content_id not in contents]
        yield RemovedPage(len(stale), unrecorded, page[-1].uri)


def remove_all_stale(
    sources: Iterable[str],
    *,
    store: ObjectStore,
    cache: FileCache,
    raw_bucket: str,
    exchange_bucket: str,
    now: Callable[[], datetime],
    limit: timedelta,
) -> Removal:
    """Delete the stale objects of the sources until `limit` has passed. The next call continues there.

    Raises `CloudError`; then the next call begins where this one has begun.
    """
    ends_at, position = now() + limit, f"s3://{exchange_bucket}/stale-objects/position"
    try:
        last = store.get(position).decode()
    except ObjectMissing:
        last = ""
    deleted, unrecorded = 0, list[str]()
    for source in sorted(sources):
        prefix = source_prefix(raw_bucket, source)
        if not last.startswith(prefix) and last > prefix:
            continue
        start_after = last if last.startswith(prefix) else ""
        pages = remove_stale(
            source, store=store, cache=cache, raw_bucket=raw_bucket, now=now(), start_after=start_after
        )
        for page in pages:
            deleted += page.deleted
            unrecorded += page.unrecorded
            if now() >= ends_at:
                store.put(position, page.last.encode())
                return Removal(deleted, len(unrecorded), unrecorded[0] if unrecorded else "", is_finished=False)
    store.put(position, b"")
    return Removal(deleted, len(unrecorded), unrecorded[0] if unrecorded else "", is_finished=True)
