"""Where an event says when it happened."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slackwater.model import Model, Name, TimeZone


class EventTimestamp(Model):
    """Where an event says when it happened, and how far from its receipt that may be."""

    field: Name
    timezone: TimeZone | None = None
    """Of times without an offset; without it they are rejected."""
    max_age_days: Annotated[int, Field(gt=0, le=36_500)] | None = None
    """Older events are rejected; without it every event is taken, however late."""
    max_future_hours: Annotated[int, Field(ge=0, le=876_000)] | None = None
    """Events that claim a later time are rejected."""

    @property
    def is_limited(self) -> bool:
        """Whether it matters when an event was received."""
        return self.max_age_days is not None or self.max_future_hours is not None
