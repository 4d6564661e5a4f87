"""The files that have the events of a run's objects: the objects themselves, or the packed objects with their rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from slackwater.runs.packing.index import read_names
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
    objects: dict[str, dict[str, int]] = {}
    for uri, size in sizes.items():
        folder, _, name = uri.rpartition("/")
        objects.setdefault(f"{folder}/", {})[name] = size
    files = list[EventFile]()
    with ThreadPoolExecutor(_READERS) as pool:
        indexes = pool.map(lambda folder: read_names(store, folder), objects)
        for (folder, own), packed in zip(objects.items(), indexes, strict=True):
            for each in reversed(packed):  # as `members_of`, which takes the last one that names a member
                found = [name for name in each.names if name in own]
                if found:
                    members = None if len(found) == len(each.names) else tuple(found)
                    files.append(EventFile(each.uri, each.size, True, members))
                for name in found:
                    own.pop(name, None)
            files += [EventFile(f"{folder}{name}", size) for name, size in own.items()]
    return files
