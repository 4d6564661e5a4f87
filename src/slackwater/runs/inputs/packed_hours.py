"""Packed hours of a listing: one that is as an earlier manifest has found it needs no reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slackwater.runs.inputs.manifest import PackedHour
from slackwater.runs.packing.index import INDEX, folder_of
from slackwater.storage import StoredObject


class ListedHours(NamedTuple):
    """What a source's listing has of packed hours, and its other objects. Hours are named by their `folder_of`."""

    packed: dict[str, PackedHour]
    """All hours whose objects are members of packed objects, and of pushed batches."""
    unchanged: frozenset[str]
    """Those of them whose inputs are the ones that are known."""
    others: list[StoredObject]
    """The objects of all hours that are not unchanged."""


def known_indexes(known: Mapping[str, PackedHour]) -> dict[str, str]:
    """Return the ETags of the indexes of known hours by their URIs, for `objects_of_partitions`."""
    return {f"{folder}{INDEX}": hour.index for folder, hour in known.items()}


def listed_hours(objects: Iterable[StoredObject], known: Mapping[str, PackedHour]) -> ListedHours:
    """Split what `objects_of_partitions` has listed with the `known_indexes` of these hours."""
    listed = list(objects)
    indexes = {folder_of(item.uri): item.etag for item in listed if item.uri.endswith(f"/{INDEX}")}
    if not indexes:
        return ListedHours({}, frozenset(), listed)
    by_folder: dict[str, list[StoredObject]] = {}
    for item in listed:
        if not item.uri.endswith(f"/{INDEX}"):
            by_folder.setdefault(folder_of(item.uri), []).append(item)
    packed, unchanged = dict[str, PackedHour](), set[str]()
    for folder, etag in indexes.items():
        if folder not in by_folder and folder in known and known[folder].index == etag:
            packed[folder] = known[folder]
            unchanged.add(folder)
        elif all(item.packed for item in by_folder.get(folder, ())):
            sizes = {item.packed.uri: item.packed.size for item in by_folder.get(folder, ()) if item.packed}
            packed[folder] = PackedHour(index=etag, bytes=sum(sizes.values()))
    return ListedHours(packed, frozenset(unchanged), [item for items in by_folder.values() for item in items])
