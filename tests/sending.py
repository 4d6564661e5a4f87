"""What partners send, and where it is to be found then, without asking the receiver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.fakes_receiver import RECEIVED
from tests.reading import Place

AGE, FUTURE = timedelta(days=30), timedelta(hours=24)
LIMITS = {"max_age_days": 30, "max_future_hours": 24}
SOON = timedelta(hours=5)
MOMENTS = [
    *(RECEIVED - timedelta(hours=hours) for hours in (0.6, 1.2, 2, 2.4, 9.6)),
    *(RECEIVED - AGE + delta for delta in (-40 * SOON, -SOON, SOON)),
    *(RECEIVED + FUTURE + delta for delta in (-SOON, SOON)),
]
"""When events may happen: some pass a limit while a test's time goes by."""
RIGHT = object()
"""Nothing is wrong with an event."""


@dataclass(frozen=True)
class Event:
    """One event, and when it happened; None for one that cannot be used."""

    number: int
    """By which it is told from all others."""
    name: str
    """Its id."""
    value: Any
    at: datetime | None

    def partition(self, received_at: datetime, *, limited: bool) -> str | None:
        """Return its partition; None if it is to be rejected."""
        if self.at is None or (limited and not -FUTURE <= received_at - self.at <= AGE):
            return None
        return f"date={self.at:%Y-%m-%d}/hour={self.at:%H}"


def an_event(number: int, name: str, at: datetime, *, offset: float = 0, fault: Any = RIGHT, **more: Any) -> Event:
    """Return an event of that time, as it stands in a zone so many hours ahead; a fault takes the place of values."""
    local = (at + timedelta(hours=offset)).replace(tzinfo=None).isoformat()
    zone = {0: "Z", 5.5: "+05:30", -11: "-11:00"}[offset]
    value = {"id": name, "count": number, "at": f"{local}{zone}", **more}
    if fault is RIGHT:
        return Event(number, name, value, at)
    return Event(number, name, {**value, **fault} if isinstance(fault, dict) else fault, None)


def wanted(
    events: Sequence[Event], *, limited: bool, tried: Sequence[datetime], sidelined: Sequence[int], by_id: bool
) -> dict[Place, set[int]]:
    """Return which events of a batch may be read at each place; all others, and no more, must be in the side-line.

    An event's age is that of its batch when that was received first, which is one of the times that it was tried.
    """
    judged = [[event.partition(at, limited=limited) for event in events] for at in tried]
    rejected = [[number for number, where in enumerate(found) if where is None] for found in judged]
    assert list(sidelined) in rejected
    found = defaultdict[Place, set[int]](set)
    for event, where in zip(events, judged[rejected.index(list(sidelined))], strict=True):
        if where:
            found[where, event.name if by_id else event.number].add(event.number)
    return found
