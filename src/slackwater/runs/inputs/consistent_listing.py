"""A listing of a source's objects that agrees with the file cache, also while pulls replace files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from slackwater.errors import DayChanged
from slackwater.receiver.pull.file_cache import Content, FileCache, is_committed
from slackwater.sources.definition import Source
from slackwater.sources.partitions import version_of
from slackwater.storage import StoredObject

# A pull changes a content only a few times, so the second listing is usually consistent. After the last one the caller
# fails with `DayChanged`, which the state machine retries after a pause.
_MAX_LISTINGS = 6


class Receipt(NamedTuple):
    """When an object's events were received, UTC."""

    first_received_at: datetime
    """When the first content of the file was received: earlier than the object's if the file has changed."""
    received_at: datetime
    """The `_received_at` of the events."""

    @property
    def order(self) -> tuple[datetime, float]:
        """Sorts objects as `is_first_of_its_id` does: of events with the same id, the first object's counts."""
        return self.first_received_at, -self.received_at.timestamp()


class ConsistentListing(NamedTuple):
    """Objects, and the files that they come from."""

    objects: list[StoredObject]
    """With indexes of packed hours, if the listing has them (`known_indexes` of `objects_of_partitions`)."""
    files: Mapping[str, Sequence[str]]
    """Paths of files by the id of their content: the first ones only, if many files have one content."""
    removed: frozenset[str] = frozenset()
    """Ids of the contents of which the partner has removed all files."""
    receipts: Mapping[str, Receipt] = {}
    """By the id of a content."""

    def files_of(self, uri: str) -> Sequence[str]:
        """Return the paths of the files to which an object belongs; none for an object of a pushed batch."""
        version = version_of(uri) if self.files else None
        return self.files[version[0]] if version else ()

    def is_removed(self, uri: str) -> bool:
        """Return whether the partner has removed all files to which an object belongs."""
        version = version_of(uri) if self.removed else None
        return version is not None and version[0] in self.removed

    def receipt(self, uri: str) -> Receipt | None:
        """Return when the events of a file's object were received; None for an object of a pushed batch."""
        version = version_of(uri) if self.receipts else None
        return self.receipts.get(version[0]) if version else None

    def first_received_at(self, uri: str) -> datetime | None:
        """Return when the first content of an object's file was received, if that was before the object's content."""
        receipt = self.receipt(uri)
        return receipt.first_received_at if receipt and receipt.first_received_at < receipt.received_at else None


def consistent_listing(
    source: Source, list_objects: Callable[[], Iterable[StoredObject]], *, files: FileCache, known: Iterable[str] = ()
) -> ConsistentListing:
    """List objects of the source, without those that a pull has only half written or has replaced.

    `list_objects` lists the objects of the source that the caller needs; it is called again when one of their contents
    has changed during the listing. `known` are the URIs that an earlier listing had: when they are still the same, or
    all objects are of pushed batches, one listing is enough. Raises `DayChanged` when the contents keep changing.
    """
    # S3 and the file cache cannot be read in one transaction. When the contents of the listed objects are the same
    # before and after the listing, the objects in between belong to them.
    contents = _contents(source, known, files)
    for _ in range(_MAX_LISTINGS):
        objects, contents_before = list(list_objects()), contents
        contents = _contents(source, (item.uri for item in objects), files)
        if visible(contents) == visible(contents_before):
            recorded = [content for content in contents.values() if content]
            return ConsistentListing(
                [item for item in objects if is_committed(item.uri, contents)],
                files={content.id: content.paths for content in recorded},
                removed=frozenset(content.id for content in recorded if content.is_removed),
                receipts={content.id: Receipt(content.ages_at, content.received_at) for content in recorded},
            )
    raise DayChanged(f"files of {source.source} kept changing while its objects were listed")


def _contents(source: Source, uris: Iterable[str], files: FileCache) -> dict[str, Content | None]:
    """Return the contents of the objects by id; None for a content that is not recorded."""
    ids = {version[0]: None for version in map(version_of, uris) if version}
    return {**ids, **{content.id: content for content in files.contents(source.source, ids)}}


def visible(contents: Mapping[str, Content | None]) -> dict[str, tuple[str | None, bool] | None]:
    """Return what readers see of each content; a file that gets an equal content does not change it."""
    # No version comes back: each has the id of its own attempt.
    return {
        name: (content.committed.object_id if content.committed else None, content.is_removed) if content else None
        for name, content in contents.items()
    }
