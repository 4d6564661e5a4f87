"""The files that have the events of a run's objects: the objects themselves, or the packed objects with their rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from slackwater.runs.packing.index import members_of, read_index
from slackwater.storage import ObjectStore

_READERS = 16


class EventFile(NamedTuple):
    """A Parquet file with events."""

    uri: str
    size: int
    """Bytes."""
    is_packed: bool = False
    """Whether it is a packed object: it has the columns `OBJECT` and `ROW`."""
    members: tuple[str, ...] | None = None
    """The names of the members whose rows are read, if it has others too."""


def event_files(store: ObjectStore, sizes: Mapping[str, int]) -> list[EventFile]:
    """Return the files with the events of raw objects; `sizes` are the bytes of the objects by their URIs.

    A manifest names objects, which may have been packed since. The index of each partition of the objects is read,
    which takes one request. Raises `ObjectInvalid`, `CloudError`.
    """
    folders = sorted({f"{uri.rpartition('/')[0]}/" for uri in sizes})
    with ThreadPoolExecutor(_READERS) as pool:
        packed = [each for index in pool.map(lambda folder: read_index(store, folder), folders) for each in index]
    rows = {uri: item.packed for uri, item in members_of(packed).items() if uri in sizes and item.packed}
    files = [EventFile(uri, size) for uri, size in sizes.items() if uri not in rows]
    wanted: dict[str, list[str]] = {}
    for uri, place in rows.items():
        wanted.setdefault(place.uri, []).append(uri.rpartition("/")[2])
    for each in packed:
        if names := wanted.get(each.uri):
            is_whole = len(names) == len(each.members)
            files.append(EventFile(each.uri, each.size, True, None if is_whole else tuple(sorted(names))))
    return files
