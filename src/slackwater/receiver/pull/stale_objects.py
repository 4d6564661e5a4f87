"""Delete the objects of pulled files that readers do not see, some days after.

Attempts that were interrupted leave objects, and so do contents and definitions that were replaced. An object is
deleted if readers do not see it, and if both the object and the latest change of what readers see of its content are
older than `KEPT`:

- An attempt commits before its lease expires, which is at most hours after it has written its objects. So an object
  that is older than `KEPT`, and that readers do not see, is never seen again.
- A run that has frozen its inputs goes on to read them when they are replaced, for hours at most.

As `KEPT` is longer by days, S3 and the functions need not agree about the time. Rejected events are never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from slackwater.errors import ObjectMissing
from slackwater.receiver.pull.file_cache import FileCache, is_committed
from slackwater.sources.partitions import UpdateTable, object_partition, source_prefix, version_of
from slackwater.storage import ObjectStore, StoredObject

KEPT = timedelta(days=3)
# Objects that are compared with the file cache at a time. S3 lists and deletes at most 1,000 with one request.
_PAGE = 1000


class Removal(NamedTuple):
    """What was done with a number of objects."""

    deleted: int = 0
    unrecorded: int = 0
    """Objects whose content has no record. They are kept: if the record was lost, their rows may count."""
    example: str = ""
    """URI of one of them."""
    last: str = ""
    """URI of the last object, if there are more: the next call continues behind it."""


@dataclass(frozen=True, kw_only=True)
class StaleObjects:
    """The objects of pulled sources that may be stale."""

    store: ObjectStore
    cache: FileCache
    raw_bucket: str
    exchange_bucket: str
    """The position at which the next call continues is stored there."""
    update_table: UpdateTable
    """Called before objects are deleted: a table that still has them, because it missed a change, can be read again."""
    now: Callable[[], datetime]

    def remove(self, sources: Iterable[str], *, limit: timedelta) -> Removal:
        """Delete the stale objects of the sources, in order of URI, until all are looked at or `limit` has passed.

        Raises `CloudError`; then the next call begins where this one has begun.
        """
        ends_at, position, total = self.now() + limit, f"s3://{self.exchange_bucket}/stale-objects/position", Removal()
        try:
            start_after = self.store.get(position).decode()
        except ObjectMissing:
            start_after = ""
        for source in sorted(sources):
            for page in self._pages(source, start_after):
                done = self._remove_page(source, page)
                counts = total.deleted + done.deleted, total.unrecorded + done.unrecorded
                total = Removal(*counts, total.example or done.example, page[-1].uri)
                if self.now() >= ends_at:
                    self.store.put(position, total.last.encode())
                    return total
        self.store.put(position, b"")
        return total._replace(last="")

    def _pages(self, source: str, start_after: str) -> Iterator[list[StoredObject]]:
        # Nothing is listed of a source whose objects all come before that URI.
        objects = self.store.list(source_prefix(self.raw_bucket, source), start_after=start_after)
        while page := list(islice(objects, _PAGE)):
            yield page

    def _remove_page(self, source: str, page: list[StoredObject]) -> Removal:
        pulled = {item.uri: version[0] for item in page if (version := version_of(item.uri))}
        # Read after the objects were listed: one that was committed before is seen as such.
        contents = {content.id: content for content in self.cache.contents(source, set(pulled.values()))}
        kept_since, stale = self.now() - KEPT, list[str]()
        unrecorded = [uri for uri, content_id in pulled.items() if content_id not in contents]
        for item in page:
            content = contents.get(pulled.get(item.uri, ""))
            if content is None or is_committed(item.uri, contents):
                continue
            if max(item.modified, content.changed_at or item.modified) < kept_since:
                stale.append(item.uri)
        if stale:
            self.update_table(source, set(map(object_partition, stale)))
        self.store.delete(stale)
        return Removal(len(stale), len(unrecorded), unrecorded[0] if unrecorded else "")
