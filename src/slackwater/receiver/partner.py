"""The port to a partner's files: a listing, and one file at a time. One module per protocol implements it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, BinaryIO, Protocol

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_FILE_BYTES = 256 * 2**20
"""What is pulled at most: it fits a function's memory and /tmp, as a file and as a table."""


class ListedFile(BaseModel):
    """One file as the partner lists it. What else the listing says of it is let be."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^/\\\x00-\x1f]+$")]
    size: Annotated[int, Field(ge=0)]
    """Bytes."""
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

    def list(self) -> Sequence[ListedFile]:
        """Return all files there are. Raises `PartnerError`."""

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`. Raises `FileVanished`, or `PartnerError` for all else."""


def plain_etag(etag: str | None) -> str | None:
    """Return the entity tag without its quotes and without the mark of a weak one: listings differ in them."""
    return etag.removeprefix("W/").strip('"') if etag else None
