"""The side-line: what could not be used, kept with its reason and as it came."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class SidelineRecord(BaseModel):
    """One rejected event or row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Annotated[int, Field(ge=0)]
    """Place among the events of its batch or file, from 0."""
    line: int | None = None
    """Line on which it starts, from 1; none in a JSON array."""
    reason: str
    batch_id: str
    origin: str
    """`push:<partner>`, or `pull:<path>`."""
    text: str
    """As it was sent."""


def sideline_uri(bucket: str, source: str, *, received_at: datetime, batch_id: str) -> str:
    """Return the address of a batch's rejected records: the same for a batch sent again on the same day."""
    date = received_at.astimezone(UTC).date().isoformat()
    return f"s3://{bucket}/sideline/source={source}/date={date}/{batch_id}.jsonl"


def to_jsonl(records: Iterable[SidelineRecord]) -> bytes:
    """Return the records as JSON, one on a line."""
    return "".join(f"{record.model_dump_json(exclude_none=True)}\n" for record in records).encode()
