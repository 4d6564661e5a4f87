"""The packed objects of a partition, and the index that names their members.

A packed object has the rows of many small objects of one partition, its members, in the order of their names. The
index, `members.json`, is beside the objects. It has all that a listing says about a member, so a member whose object
was deleted is listed as before. A partition without an index has no packed objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.sources.partitions import named_rows, version_of
from slackwater.storage import ObjectStore, PackedRows, StoredObject

INDEX, ENDING = "members.json", ".packed"
KEPT = timedelta(days=3)
"""For so long objects stay that readers do not need any more: a run reads those that it has found for hours at most."""
OBJECT, ROW = "_object", "_row"
"""Columns of a packed object: the name of the member, and the number of the row in it, from 0."""
_MEMBER = ".parquet"
_READERS = 16


class PackedObject(NamedTuple):
    """A packed object of an index."""

    uri: str
    size: int
    """Bytes."""
    etag: str
    packed_at: datetime
    """When it was written, UTC."""
    members: Sequence[StoredObject]
    """In order of URI, which is the order of their rows."""

    @property
    def rows(self) -> int:
        """The rows of all members."""
        return sum(item.packed.rows for item in self.members if item.packed)


class PackedNames(NamedTuple):
    """A packed object of an index, with only the names of its members."""

    uri: str
    size: int
    """Bytes."""
    names: Sequence[str]


_Packed = TypeVar("_Packed", PackedObject, PackedNames)


def is_packing(key: str) -> bool:
    """Return whether a key is that of a packed object or of an index."""
    return key.endswith((ENDING, f"/{INDEX}"))


def folder_of(uri: str) -> str:
    """Return the prefix of the URIs of all objects of a partition, from the URI of one of them."""
    return f"{uri.rpartition('/')[0]}/"


def members_of(packed: Iterable[PackedObject]) -> dict[str, StoredObject]:
    """Return the members of packed objects by their URIs."""
    return {item.uri: item for each in packed for item in each.members}


def with_members(
    listed: Iterable[StoredObject], store: ObjectStore, *, known: Mapping[str, str] | None = None
) -> Iterator[StoredObject]:
    """Yield the objects of partitions and the members of their indexes, in order of URI.

    `listed` are all objects of these partitions in order of URI. An object that is a member is yielded once, as the
    index has it.

    With `known`, each index whose members are all of pushed batches is yielded too, before its members. `known` has the
    ETags of such indexes, by URI, that the caller has read before. If a partition has the same index, and no objects
    but packed ones, the index is not read, and yielded without its members.

    Raises `ObjectInvalid` for an index that is not readable, `CloudError`.
    """
    objects = list(listed)
    indexes = {folder_of(item.uri): item for item in objects if item.uri.endswith(f"/{INDEX}")}
    if not indexes:
        yield from (item for item in objects if item.uri.endswith(_MEMBER))
        return
    of_known = {folder for folder, item in indexes.items() if known and known.get(item.uri) == item.etag}
    if of_known:
        of_known -= {folder_of(item.uri) for item in objects if item.uri.endswith(_MEMBER)}
    folders = [folder for folder in indexes if folder not in of_known]
    with ThreadPoolExecutor(_READERS) as pool:
        read = dict(zip(folders, pool.map(lambda folder: read_index(store, folder), folders), strict=True))
    for folder, group in groupby(objects, key=lambda item: folder_of(item.uri)):
        members = members_of(read.get(folder, ()))
        if known is not None and folder in indexes and not any(map(version_of, members)):
            yield indexes[folder]
        own = {item.uri: item for item in group if item.uri.endswith(_MEMBER)}
        if members:
            # Also if a partner has sent the batch of a deleted member again: its rows are in the packed object.
            yield from sorted({**own, **members}.values())
        else:
            yield from own.values()


def read_index(store: ObjectStore, folder: str) -> tuple[PackedObject, ...]:
    """Return the packed objects of the partition whose objects' URIs begin with `folder`; none without an index.

    Raises `ObjectInvalid`, `CloudError`.
    """
    return _read(store, folder, _packed)


def read_names(store: ObjectStore, folder: str) -> tuple[PackedNames, ...]:
    """Return only the names of the members of each packed object, in a quarter of the time of `read_index`.

    Raises `ObjectInvalid`, `CloudError`.
    """
    return _read(store, folder, _packed_names)


def _read(store: ObjectStore, folder: str, packed: Callable[[dict[str, Any], str], _Packed]) -> tuple[_Packed, ...]:
    try:
        body = store.get(f"{folder}{INDEX}")
    except ObjectMissing:
        return ()
    try:
        return tuple(packed(each, folder) for each in json.loads(body)["objects"])
    except (ValueError, KeyError, TypeError) as error:
        raise ObjectInvalid(
            f"{folder}{INDEX} is not readable as the index of packed objects ({error}): restore its former version "
            "(the bucket is versioned)"
        ) from error


def format_index(packed: Iterable[PackedObject]) -> bytes:
    """Return the index of these packed objects."""
    objects = [
        {
            "name": each.uri.rpartition("/")[2],
            "bytes": each.size,
            "etag": each.etag,
            "packed_at": each.packed_at.isoformat(),
            # Lists, because there may be thousands.
            "members": [
                [item.uri.rpartition("/")[2], item.size, item.etag, item.modified.isoformat()] for item in each.members
            ],
        }
        for each in packed
    ]
    return json.dumps({"objects": objects}, separators=(",", ":")).encode()


def packed_object(
    uri: str, *, size: int, etag: str, packed_at: datetime, members: Iterable[tuple[str, int, str, datetime]]
) -> PackedObject:
    """Return a packed object; `members` are in the order of their rows: URI, bytes, etag and time of each.

    Raises `ObjectInvalid` if the name of a member does not have its rows.
    """
    found = list(members)
    rows = [named_rows(item[0]) for item in found]
    total, first, placed = sum(filter(None, rows)), 0, list[StoredObject]()
    for item, count in zip(found, rows, strict=True):
        if count is None:
            raise ObjectInvalid(f"{uri}: the name of its member {item[0]} does not have its number of rows")
        placed.append(StoredObject(*item, PackedRows(uri, size, total, first, count)))
        first += count
    return PackedObject(uri, size, etag, packed_at, placed)


def _packed(document: dict[str, Any], folder: str) -> PackedObject:
    return packed_object(
        f"{folder}{document['name']}",
        size=document["bytes"],
        etag=document["etag"],
        packed_at=datetime.fromisoformat(document["packed_at"]),
        members=(
            (f"{folder}{name}", size, etag, datetime.fromisoformat(modified))
            for name, size, etag, modified in document["members"]
        ),
    )


def _packed_names(document: dict[str, Any], folder: str) -> PackedNames:
    return PackedNames(
        f"{folder}{document['name']}", document["bytes"], [name for name, _, _, _ in document["members"]]
    )
