"""The format of rejected events under `sideline/`: the event as the partner sent it, with the rule and the reason."""

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
    """Line on which it starts, from 1, or row number in an Excel sheet; None in a JSON array or in Parquet."""
    reason: str
    rule: RejectionRule
    batch_id: str
    origin: str
    """`push:<partner>`, or `pull:<path of the partner's file>`."""
    text: str
    """The event as the partner sent it."""
    rows: int | None = None
    """In the last example of a file that was rejected as a whole: how many rows it stands for, itself and all later
    ones."""


def rejects_uri(bucket: str, source: str, *, received_at: datetime, batch_id: str) -> str:
    """Return the URI of a batch's rejected events: `received_at`, the first time of receipt, decides its UTC day."""
    date = received_at.astimezone(UTC).date().isoformat()
    return f"{rejects_prefix(bucket, source, date)}{batch_id}.jsonl"


def rejects_prefix(bucket: str, source: str, date: str = "") -> str:
    """Return the URI prefix of a source's rejected events of one day (`2013-03-10`), or of all days without a date."""
    return f"s3://{bucket}/sideline/source={source}/{f'date={date}/' if date else ''}"


def to_jsonl(records: Iterable[RejectRecord]) -> bytes:
    """Return the records as JSON lines; fields without a value are left out."""
    return b"".join(record.model_dump_json(exclude_none=True).encode() + b"\n" for record in records)
