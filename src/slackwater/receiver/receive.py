"""Push: one body in, its events durable in their partitions or in the side-line, then the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slackwater.receiver.batch import Batch, Limits, decode
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.encode import content_hashes, split
from slackwater.receiver.events import Checked, check_events
from slackwater.receiver.sideline import SidelineRecord
from slackwater.receiver.source import Source


class RejectedEvent(BaseModel):
    """What a partner is told of an event that could not be used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    reason: str


class BatchResult(BaseModel):
    """What became of a batch: accepted, duplicates and rejected make up all its events."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_id: str
    accepted: Annotated[int, Field(ge=0)]
    duplicates: Annotated[int, Field(ge=0)]
    """Events whose partition object was there already: the batch has been sent before."""
    rejected: tuple[RejectedEvent, ...]


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Takes batches of events."""

    delivery: Delivery
    now: Callable[[], datetime]
    limits: Limits = field(default_factory=Limits)

    def receive(
        self, body: bytes, *, source: Source, content_type: str | None, content_encoding: str | None, origin: str
    ) -> BatchResult:
        """Return when every event of the batch is durable, and not before.

        A batch sent again, also one that was cut off half-way, writes only what is not there. Raises
        `slackwater.receiver.batch.Refused` for a body that cannot be read, and `CloudError`.
        """
        limits = replace(self.limits, events=source.push.max_events) if source.push else self.limits
        batch = decode(body, content_type=content_type, content_encoding=content_encoding, limits=limits)
        checked = check_events(batch.events, source)
        found = split(checked.table)
        received_at = self.now()
        accepted = self.delivery.write(
            source, found, contents=content_hashes(found), received_at=received_at, batch_id=batch.batch_id
        )
        self.delivery.sideline(
            source, _sidelined(batch, checked, origin), received_at=received_at, batch_id=batch.batch_id
        )
        self.delivery.register(source, found.partitions)
        return BatchResult(
            batch_id=batch.batch_id,
            accepted=accepted,
            duplicates=checked.table.num_rows - accepted,
            rejected=tuple(RejectedEvent(index=item.index, reason=item.reason) for item in checked.rejected),
        )


def _sidelined(batch: Batch, checked: Checked, origin: str) -> list[SidelineRecord]:
    texts = batch.texts([item.index for item in checked.rejected])
    return [
        SidelineRecord(
            index=item.index,
            line=batch.lines[item.index] if batch.lines else None,
            reason=item.reason,
            batch_id=batch.batch_id,
            origin=origin,
            text=text,
        )
        for item, text in zip(checked.rejected, texts, strict=True)
    ]
