"""The port through which everything reaches stored objects.

Addresses are `s3://bucket/key` strings. `slackwater.aws.objects` implements it over S3; unit tests use a fake
that keeps a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from slackwater.errors import InputError


class StoredObject(NamedTuple):
    """One object as a listing shows it."""

    uri: str
    size: int
    """Bytes."""
    etag: str
    modified: datetime
    """UTC."""


class ObjectStore(Protocol):
    """What the library asks of an object store."""

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write `body` to `uri`, whatever was there."""

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write `body` unless `uri` exists (`If-None-Match: *`); say whether it was written."""

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        """As `put_new`, with a file's content, which is never in memory as a whole."""

    def get(self, uri: str) -> bytes:
        """Return the whole object. Raises `ObjectMissing`."""

    def metadata(self, uri: str) -> Mapping[str, str]:
        """Return the object's user metadata. Raises `ObjectMissing`."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Every object whose address starts with `prefix`, in order of address."""

    def delete(self, uris: Iterable[str]) -> None:
        """Delete the objects; one that is not there is no error."""


def split_uri(uri: str) -> tuple[str, str]:
    """Split `s3://bucket/key` into bucket and key. Raises `InputError` for any other form."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InputError(f"not an s3:// address: {uri!r}")
    return bucket, key
