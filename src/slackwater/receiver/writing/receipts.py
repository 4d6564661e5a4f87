"""Receipts: when a batch was received for the first time, so that a retry decides as the first attempt did.

What depends on that time is whether an event is too old, and the day under which rejected events are kept.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict

from slackwater.storage import ObjectStore


class Receipt(BaseModel):
    """What is kept of a batch's first receipt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    received_at: AwareDatetime


def receipt_uri(bucket: str, source: str, batch_id: str) -> str:
    """Return the address of a batch's receipt."""
    return f"s3://{bucket}/receipts/source={source}/{batch_id}.json"


def first_received(store: ObjectStore, bucket: str, source: str, batch_id: str, now: datetime) -> datetime:
    """Return when the batch was received first: `now`, kept for its retries, unless it has a receipt already."""
    uri = receipt_uri(bucket, source, batch_id)
    if store.put_new(uri, Receipt(received_at=now).model_dump_json().encode()):
        return now
    return Receipt.model_validate_json(store.get(uri)).received_at.astimezone(UTC)
