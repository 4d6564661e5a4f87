"""What readers see of a source's objects: those at rest, while files of a pull are written and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from slackwater.errors import DayChanged
from slackwater.receiver.pull.file_cache import FileCache, FileEntry, FileVersion, unsettled_objects
from slackwater.sources.definition import Source
from slackwater.storage import StoredObject

_LISTINGS = 5
"""How often the objects are listed at most, when files are being taken meanwhile."""


class ConsistentListing(NamedTuple):
    """Objects, and the files that they were listed with; a source whose events are pushed has none."""

    objects: list[StoredObject]
    entries: list[FileEntry]


def consistent_listing(
    source: Source, listing: Callable[[], Iterable[StoredObject]], *, files: FileCache, bucket: str
) -> ConsistentListing:
    """List objects of the source, but for those that are half written or superseded.

    `listing` is called again when a file's content has changed meanwhile. Raises `DayChanged` if that never rests.
    """
    if source.pull is None:
        return ConsistentListing(list(listing()), [])
    entries = files.entries(source.source)
    for _ in range(_LISTINGS):
        listed, before = list(listing()), entries
        entries = files.entries(source.source)
        if _contents(entries) == _contents(before):
            unsettled = unsettled_objects(entries, bucket=bucket)
            return ConsistentListing([found for found in listed if found.uri not in unsettled], entries)
    raise DayChanged(f"files of {source.source} kept changing while its objects were listed")


def _contents(entries: Iterable[FileEntry]) -> dict[str, tuple[FileVersion | None, ...]]:
    """Return what of each file decides over its objects: a lease, or a new time of taking, changes none of them."""
    found = {entry.path: (entry.version, entry.writing, *entry.superseded) for entry in entries}
    return {path: versions for path, versions in found.items() if any(versions)}
