"""The interface to a partner's files: list them, and download one. Each protocol has a module that implements it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, BinaryIO, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import PartnerError
from slackwater.sources.file_pattern import FilePattern
from slackwater.storage import split_uri

MAX_PATH_BYTES = 640
"""Bytes of a file's path in UTF-8.

The path is part of keys in S3 and DynamoDB, which have at most 1,024 bytes. It is also part of the metadata of objects,
at most 2 kB: there it is percent-encoded, which takes up to three times its bytes.
"""


def _relative_path(value: str) -> str:
    # The path becomes part of a URL and of an S3 key, so it must not lead out of the folder: no `..`, and no backslash,
    # which some servers read as a slash. Control characters would break request lines and log lines.
    if {"", ".", ".."} & set(value.split("/")) or any(character == "\\" or character < " " for character in value):
        raise ValueError(f"{value[:200]!r} is not a path below the source's `url`")
    if (size := len(value.encode())) > MAX_PATH_BYTES:
        raise ValueError(f"the path {value[:200]!r} has {size:,} bytes in UTF-8, and the limit is {MAX_PATH_BYTES}")
    return value


class ListedFile(BaseModel):
    """One file as the partner lists it. Other fields of a listing are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(min_length=1), AfterValidator(_relative_path)]
    """Path of the file below the source's `url`, at most `MAX_PATH_BYTES`: no part of it is empty, `.` or `..`."""
    size: Annotated[int, Field(ge=0)] | None = None
    """Bytes; None if the listing does not show it."""
    modified: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Download:
    """A downloaded file."""

    sha256: str
    size: int
    """Bytes."""
    etag: str | None
    """The ETag of the downloaded version, which may be newer than the listing; None if the partner sent none."""


class Connector(Protocol):
    """Lists and downloads the files of one partner."""

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files whose names match `pattern` on one of `days`, and possibly others. Raises `PartnerError`."""

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""


def listed_file(listing: str, name: str, **fields: object) -> ListedFile:
    """Return one file of a listing; `fields` are the other fields of `ListedFile`.

    Raises `PartnerError`, which names the URL `listing`, when `name` is too long or is not a path below the
    source's `url`.
    """
    try:
        return ListedFile.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise PartnerError(
            f"{listing}: {name[:200]!r} cannot be fetched: {error.errors()[0]['msg']}: "
            "ask the partner to rename the file"
        ) from error


def bucket_folder(url: str) -> tuple[str, str]:
    """Return the bucket of an s3:// URL and the prefix of its keys: `folder/`, or "" for the whole bucket."""
    bucket, folder = split_uri(url.rstrip("/"))
    return bucket, f"{folder}/" if folder else ""


def plain_etag(etag: str | None) -> str | None:
    """Return the ETag without quotes and without the prefix `W/` of a weak one: servers add these inconsistently."""
    return etag.removeprefix("W/").strip('"') if etag else None
