"""The interface through which the library reads and writes objects in S3.

Objects are identified by `s3://bucket/key` URIs. `slackwater.aws.objects` implements the interface with S3; unit tests
use an implementation in memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from slackwater.errors import InputError

# A record has at most 400 KB, a state of Step Functions 256 KB, and the cause of an execution 32,768 characters.
_MAX_REASON = 4000


class PackedRows(NamedTuple):
    """The rows of a packed object that are those of one of its members."""

    uri: str
    """Of the packed object."""
    size: int
    """Bytes of the packed object."""
    total: int
    """Rows of the packed object."""
    first: int
    """The number of the first of these rows; the object's rows are numbered from 0."""
    rows: int


class StoredObject(NamedTuple):
    """One object of a listing."""

    uri: str
    size: int
    """Bytes."""
    etag: str
    modified: datetime
    """UTC."""
    packed: PackedRows | None = None
    """Where its rows are, if it is a member of a packed object; the object itself may not exist any more."""


class ObjectHead(NamedTuple):
    """What a store keeps with an object."""

    etag: str
    metadata: Mapping[str, str]
    """User metadata."""
    size: int
    """Bytes."""
    modified: datetime
    """UTC."""


class ObjectStore(Protocol):
    """An object store. All methods raise `CloudError` when the store refuses or fails."""

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write an object; an existing object is replaced."""

    # Conditional writes make retries safe: of several writers of the same key, exactly one writes.
    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write an object unless `uri` exists (`If-None-Match: *`). Returns whether it was written."""

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write a local file like `put_new`, without loading it into memory as a whole."""

    def put_if_match(self, uri: str, body: bytes, *, etag: str, metadata: Mapping[str, str]) -> bool:
        """Write an object if the one at `uri` has this ETag (`If-Match`). Returns whether it was written.

        The object then has another ETag, also with the same content.
        """

    def delete_if_match(self, uri: str, *, etag: str) -> bool:
        """Delete an object if it has this ETag (`If-Match`). Returns whether it was deleted."""

    def head(self, uri: str) -> ObjectHead | None:
        """Return what the store keeps with an object; None if there is no object."""

    def get(self, uri: str) -> bytes:
        """Return the content of an object. Raises `ObjectMissing`."""

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`, which must be within it, or fewer up to its end.

        Raises `ObjectMissing`.
        """

    def metadata(self, uri: str) -> Mapping[str, str]:
        """Return the user metadata of an object. Raises `ObjectMissing`."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        """Generate the objects whose URI starts with `prefix`, in order of URI.

        With `start_after`, a URI of the same bucket, the objects up to it are left out; S3 does not read them.
        """

    def delete(self, uris: Iterable[str]) -> None:
        """Delete objects. URIs that do not exist are ignored."""


class ObjectFile(io.RawIOBase):
    """An object as a file that is read in parts, for objects that do not fit into memory."""

    def __init__(self, store: ObjectStore, uri: str, *, size: int) -> None:
        """Read the object at `uri`, which has `size` bytes."""
        self._store, self._uri, self._size, self._position = store, uri, size, 0

    def readable(self) -> bool:
        """Return True: the file is for reading."""
        return True

    def seekable(self) -> bool:
        """Return True: any part can be read."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes, or the rest without `size`. Raises `ObjectMissing`, `CloudError`."""
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        data = self._store.get_range(self._uri, self._position, length)
        self._position += len(data)
        return data


def stored_reason(store: ObjectStore, uri: str) -> str:
    """Return the error that a failed job has written to `uri`: a long one is cut, and names the object with all of it.

    Raises `ObjectMissing` if it has written none, and `AccessDenied` or `CloudError`.
    """
    return short_reason(store.get(uri).decode(), complete=uri)


def short_reason(reason: str, *, complete: str) -> str:
    """Return a reason that a record can hold: a long one is cut, and names where the complete one is."""
    if len(reason) <= _MAX_REASON:
        return reason
    return f"{reason[:_MAX_REASON]}... ({len(reason):,} characters; all: {complete})"


def split_uri(uri: str) -> tuple[str, str]:
    """Split `s3://bucket/key` into bucket and key. Raises `InputError` when `uri` is not an S3 URI.

    >>> split_uri("s3://bucket/folder/file.parquet")
    ('bucket', 'folder/file.parquet')
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InputError(f"not an S3 URI: {uri!r} (such as s3://bucket/key)")
    return bucket, key
