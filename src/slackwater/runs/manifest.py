"""The input manifest: the exact objects that a run reads, frozen when it starts."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of what is written down of runs: never changed, and nothing in it that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InputObject(Record):
    """One object of one partition."""

    uri: str
    source: str
    date: str
    hour: str
    etag: str
    bytes: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=0)]
    """Events that count: of a source with an id column, those whose id stands in no object before this one."""
    arrived: datetime
    """When it was written, UTC."""
    file: str | None = None
    """The partner's file that it came from, if it was pulled: a changed file's objects replace its earlier ones."""


class InputManifest(Record):
    """Everything that one run reads, and nothing else."""

    pipeline: str
    date: str
    frozen_at: datetime
    objects: tuple[InputObject, ...]
    """In order of address."""

    @property
    def digest(self) -> str:
        """SHA-256 over addresses, entity tags and sizes: equal for equal inputs, whenever they were listed."""
        digest = hashlib.sha256()
        for item in sorted(self.objects, key=lambda item: item.uri):
            digest.update(f"{item.uri}\t{item.etag}\t{item.bytes}\n".encode())
        return digest.hexdigest()

    @property
    def rows(self) -> int:
        """Events in all objects."""
        return sum(item.rows for item in self.objects)

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(item.bytes for item in self.objects)

    def of_source(self, source: str) -> tuple[InputObject, ...]:
        """The objects of one source."""
        return tuple(item for item in self.objects if item.source == source)
