"""Writes of one pull to the file cache, repeated when another pull has changed a record or a response was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from slackwater.errors import CloudError
from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileCache, FileEntry

Changed = tuple[FileEntry, Iterable[Content]]
"""What a transaction writes: the entry of a file, and contents."""
_Record = TypeVar("_Record", FileEntry, Content)


@dataclass(frozen=True, kw_only=True)
class Records:
    """The records of one source."""

    source: str
    cache: FileCache
    now: Callable[[], datetime]

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry of a file, or None."""
        return next(iter(self.cache.entries(self.source, [path])), None)

    def content(self, content_id: str) -> Content:
        """Return a content; an unknown one is received now, and is not recorded yet."""
        contents = self.cache.contents(self.source, [content_id])
        return next(iter(contents), Content(source=self.source, id=content_id, received_at=self.now()))

    def update_content(self, content_id: str, change: Callable[[Content], Content]) -> Content:
        """Apply `change` to a content, record it if it is unknown, and return it."""
        while True:
            content = self.content(content_id)
            changed = change(content)
            if changed == content and content.revision:
                return content
            # Changed by another pull, or by this pull's own write whose response was lost: read again, then retry.
            with suppress(EntryChanged):
                self.cache.save(changed)
                return next_revision(changed)

    def transact(
        self, entry: FileEntry, ids: Iterable[str], change: Callable[[FileEntry, Mapping[str, Content]], Changed]
    ) -> FileEntry:
        """Write the entry and the contents that `change` returns in one transaction, and return the entry.

        `change` gets the contents with these ids. It is called again when another pull has changed one of them. Raises
        `EntryChanged` when another pull has changed the entry.
        """
        while True:
            changed, contents = change(entry, {content_id: self.content(content_id) for content_id in ids})
            try:
                return self._write(changed, *contents)
            except EntryChanged:
                current = self.entry(entry.path)
                if current is None or current.revision != entry.revision:
                    raise

    def save(self, entry: FileEntry, **changes: object) -> FileEntry:
        """Write the entry with the changes, and return it. Raises `EntryChanged`, `CloudError`."""
        return self._write(entry.model_copy(update=changes))

    def _write(self, entry: FileEntry, *contents: Content) -> FileEntry:
        try:
            self.cache.save(entry, *contents)
        except CloudError:
            # The write may have succeeded although the response was lost. The SDK's retry then fails its condition,
            # because it finds the revision that it wrote itself.
            if self.entry(entry.path) != next_revision(entry):
                raise
        return next_revision(entry)


def next_revision(record: _Record) -> _Record:
    """Return the record as `FileCache.save` has written it."""
    return record.model_copy(update={"revision": record.revision + 1})
