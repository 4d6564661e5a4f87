"""A listing of a source's objects that agrees with the file cache, also while pulls replace files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from slackwater.errors import DayChanged
from slackwater.receiver.pull.file_cache import FileCache, FileEntry, FileVersion, uncommitted_objects
from slackwater.sources.definition import Source
from slackwater.storage import StoredObject

# A pull changes a file's entry only a few times, so the first or second listing is usually consistent. After the last
# one the caller fails with `DayChanged`, which the state machine retries after a pause.
_MAX_LISTINGS = 5


class ConsistentListing(NamedTuple):
    """Objects, and the file cache's entries that belong to them; a pushed source has no entries."""

    objects: list[StoredObject]
    entries: list[FileEntry]


def consistent_listing(
    source: Source, list_objects: Callable[[], Iterable[StoredObject]], *, files: FileCache, bucket: str
) -> ConsistentListing:
    """List objects of the source, without those that a pull has only half written or has superseded.

    `list_objects` lists the objects of the source that the caller needs; it is called again when the content of a file
    has changed during the listing. `bucket` is the bucket of raw events. Raises `DayChanged` when files keep changing.
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
            uncommitted = uncommitted_objects(entries, bucket=bucket)
            return ConsistentListing([item for item in objects if item.uri not in uncommitted], entries)
    raise DayChanged(f"files of {source.source} kept changing while its objects were listed")


def _contents(entries: Iterable[FileEntry]) -> dict[str, tuple[FileVersion | None, ...]]:
    """Return the versions of each file, by path. Leases and times are left out: they do not change any object."""
    contents = {entry.path: (entry.version, entry.writing, *entry.superseded) for entry in entries}
    # An entry without any version, such as that of a file that was only claimed so far, has no objects.
    return {path: versions for path, versions in contents.items() if any(versions)}
