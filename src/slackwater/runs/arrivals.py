"""The queue of arrivals, and the message that a run sends to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import uuid4

from pydantic import AwareDatetime

from slackwater.model import Model, PeriodName


class SendsArrivals(Protocol):
    """Sends messages to the queue of arrivals."""

    def __call__(self, messages: Sequence[tuple[str, int]]) -> None:
        """Send messages: the body of each, and after how many seconds it is received. Raises `SlackwaterError`."""


class DayPublished(Model):
    """A pipeline has published a day with other rows than before. Other pipelines may have read the earlier ones."""

    id: str
    pipeline: str
    date: PeriodName
    time: AwareDatetime
    """An instant after the publication was recorded."""


def day_published(pipeline: str, date: str, *, time: datetime) -> DayPublished:
    """Return the message that the day was published at or before `time`."""
    return DayPublished(id=uuid4().hex, pipeline=pipeline, date=date, time=time)
