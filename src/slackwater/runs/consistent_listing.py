"""A listing of a source's objects that is not mixed up by pulls running at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from slackwater.errors import DayChanged
from slackwater.receiver.pull.file_cache import FileCache, FileEntry, FileVersion, uncommitted_objects
from slackwater.sources.definition import Source
from slackwater.storage import StoredObject

_MAX_LISTINGS = 5


class ConsistentListing(NamedTuple):
    """Objects, and the file cache's entries that belong to them; a pushed source has no entries."""

    objects: list[StoredObject]
    entries: list[FileEntry]


def consistent_listing(
    source: Source, list_objects: Callable[[], Iterable[StoredObject]], *, files: FileCache, bucket: str
) -> ConsistentListing:
    """List objects of the source, without those that a pull has half written or superseded.

    Calls `list_objects` again when the content of a file has changed during the listing. Raises `DayChanged` when the
    files keep changing.
    """
    if source.pull is None:
        return ConsistentListing(list(list_objects()), [])
    # S3 and the file cache cannot be read in one transaction. When the entries are the same before and after the
    # listing, the objects in between belong to them.
    entries = files.entries(source.source)
    for _ in range(_MAX_LISTINGS):
        objects, entries_before = list(list_objects()), entries
        entries = files.entries(source.source)
        if _contents(entries) == _contents(entries_before):
            unsettled = uncommitted_objects(entries, bucket=bucket)
            return ConsistentListing([item for item in objects if item.uri not in unsettled], entries)
    raise DayChanged(f"files of {source.source} kept changing while its objects were listed")


def _contents(entries: Iterable[FileEntry]) -> dict[str, tuple[FileVersion | None, ...]]:
    """Return the contents of each file; leases and times are left out, because they do not change any object."""
    contents = {entry.path: (entry.version, entry.writing, *entry.superseded) for entry in entries}
    return {path: versions for path, versions in contents.items() if any(versions)}
