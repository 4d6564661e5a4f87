"""The outcome of fetching one file."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from slackwater.receiver.pull.file_cache import NO_COUNTS, FileCounts
from slackwater.sources.partitions import Partition


class FetchState(StrEnum):
    """The outcome of fetching one file."""

    STORED = "stored"
    """Its rows are stored."""
    DUPLICATE = "duplicate"
    """Another file has the same content, whose rows are stored once."""
    UNCHANGED = "unchanged"
    """Its content is the one that is stored already."""
    VANISHED = "vanished"
    """The partner listed it, but had deleted it before it was fetched."""
    BUSY = "busy"
    """Another pull is fetching it, or has changed the rows of its content meanwhile. The next pull fetches it."""
    LARGE = "large"
    """It is too large for a function, so a job has to fetch it."""


class FetchResult(BaseModel):
    """The outcome of fetching one file, as it passes through the state machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    state: FetchState
    rows: Annotated[int, Field(ge=0)] = 0
    """Rows that this pull added."""
    rejected: Annotated[int, Field(ge=0)] = 0
    """Rows that this pull rejected."""
    bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that were downloaded."""
    reason: str = ""
    """Why the first row was rejected, if no row was accepted."""
    new_columns: tuple[str, ...] = ()
    """The first columns that the definition does not list, and whose values are in the column `_extra`."""
    note: str = ""
    """A sentence about columns that the file lacks, or its encoding; empty if there is nothing to say."""
    partitions: tuple[Partition, ...] = ()
    """Partitions of which readers see other rows from now on, or since an attempt that was interrupted. There may be
    thousands, so the state machine gets none."""

    counts: FileCounts = NO_COUNTS
    """What this result adds to the metrics: also what attempts have stored that were interrupted before their result.
    Only the result that has recorded it has it."""

    def summary(self) -> dict[str, Any]:
        """Return the result as JSON without `partitions` and `counts`."""
        return self.model_dump(mode="json", exclude={"partitions", "counts"})
