"""The port to a partner's files: a listing, and one file at a time. One module per protocol implements it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, BinaryIO, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import PartnerError
from slackwater.sources.file_pattern import FilePattern
from slackwater.storage import split_uri

MAX_FILE_BYTES = 256 * 2**20
"""What is pulled at most: it fits a function's memory and /tmp, as a file and as a table."""


def _path(value: str) -> str:
    if {"", ".", ".."} & set(value.split("/")) or any(character == "\\" or character < " " for character in value):
        raise ValueError(f"{value!r} is no path below the listed address")
    return value


class ListedFile(BaseModel):
    """One file as the partner lists it. What else the listing says of it is let be."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_path)]
    """Path of the file below the address that is listed: no step of it is empty, `.` or `..`."""
    size: Annotated[int, Field(ge=0)] | None = None
    """Bytes; an HTML index may not tell."""
    modified: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file as it was fetched."""

    sha256: str
    size: int
    etag: str | None
    """As the answer named it, which may be newer than the listing."""


class Partner(Protocol):
    """A partner's files."""

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of those days, and maybe others: one that cannot list asks for each name.

        Raises `PartnerError`.
        """

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`. Raises `FileVanished`, or `PartnerError` for all else."""


def listed_file(where: str, name: str, **facts: object) -> ListedFile:
    """Return the file of that name in the listing of `where`. Raises `PartnerError` for a name that is no path."""
    try:
        return ListedFile.model_validate({"name": name, **facts})
    except ValidationError as error:
        raise PartnerError(
            f"{where}: {name[:200]!r} cannot be taken: {error.errors()[0]['msg']}: have it renamed"
        ) from error


def bucket_folder(url: str) -> tuple[str, str]:
    """Return the bucket of an s3:// address, and what keys below it begin with: `prefix/`, or nothing."""
    bucket, folder = split_uri(url.rstrip("/"))
    return bucket, f"{folder}/" if folder else ""


def plain_etag(etag: str | None) -> str | None:
    """Return the entity tag without its quotes and without the mark of a weak one: listings differ in them."""
    return etag.removeprefix("W/").strip('"') if etag else None
