"""Rejected events as they are stored under `sideline/`: as they were sent, with the rule and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slackwater.receiver.parsing.rejections import RejectionRule


class RejectRecord(BaseModel):
    """One rejected event or row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Annotated[int, Field(ge=0)]
    """Position among the events of its batch or file, from 0."""
    line: int | None = None
    """Line on which it starts, from 1, or row number in a sheet; None in a JSON array or in Parquet."""
    reason: str
    rule: RejectionRule
    batch_id: str
    origin: str
    """`push:<partner>`, or `pull:<path>`."""
    text: str
    """As it was sent."""


def rejects_uri(bucket: str, source: str, *, received_at: datetime, batch_id: str) -> str:
    """Return the URI of a batch's rejected events, under the UTC day on which the batch was received first."""
    date = received_at.astimezone(UTC).date().isoformat()
    return f"{rejects_prefix(bucket, source, date)}{batch_id}.jsonl"


def rejects_prefix(bucket: str, source: str, date: str = "") -> str:
    """Return the prefix of a source's rejected events: those of one day, or of all days without a date."""
    return f"s3://{bucket}/sideline/source={source}/{f'date={date}/' if date else ''}"


def to_jsonl(records: Iterable[RejectRecord]) -> bytes:
    """Return the records as JSON lines."""
    return b"".join(record.model_dump_json(exclude_none=True).encode() + b"\n" for record in records)
