"""Events that partners send, and the partitions that must contain them: computed without the receiver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.fakes_receiver import RECEIVED
from tests.reading import EventKey

AGE, FUTURE = timedelta(days=30), timedelta(hours=24)
LIMITS = {"max_age_days": 30, "max_future_hours": 24}
SOON = timedelta(hours=5)
EVENT_TIMES = [
    *(RECEIVED - timedelta(hours=hours) for hours in (0.6, 1.2, 2, 2.4, 9.6)),
    *(RECEIVED - AGE + delta for delta in (-40 * SOON, -SOON, SOON)),
    *(RECEIVED + FUTURE + delta for delta in (-SOON, SOON)),
]
"""Times of events: some pass an age limit while the clock of a test advances."""
VALID = object()
"""Marks an event without a fault."""


@dataclass(frozen=True)
class Event:
    """One event and its time in UTC; the time of an invalid event is None.

    The timestamp of a local event has no offset: its time is in the source's timezone.
    """

    number: int
    """Unique in a test."""
    name: str
    """Its id."""
    value: Any
    at: datetime | None
    is_local: bool = False

    def partition(
        self,
        received_at: datetime,
        *,
        limited: bool,
        utc_offset: timedelta = timedelta(),
        first_received_at: datetime | None = None,
    ) -> str | None:
        """Return its partition in a source whose timezone has that offset; None if it must be rejected.

        `first_received_at` is when the first content of its file was received.
        """
        if self.at is None:
            return None
        at = self.at - utc_offset if self.is_local else self.at
        if limited and (at - received_at > FUTURE or (first_received_at or received_at) - at > AGE):
            return None
        return f"date={at:%Y-%m-%d}/hour={at:%H}"


def make_event(
    number: int, name: str, at: datetime, *, offset: float | None = 0, fault: Any = VALID, **more: Any
) -> Event:
    """Return an event of that time, written with an offset from UTC in hours, or as local time.

    A fault replaces some values, or all.
    """
    local_time = (at + timedelta(hours=offset or 0)).replace(tzinfo=None).isoformat()
    suffix = {None: "", 0: "Z", 5.5: "+05:30", -11: "-11:00"}[offset]
    value = {"id": name, "count": number, "at": f"{local_time}{suffix}", **more}
    if fault is VALID:
        return Event(number, name, value, at, is_local=offset is None)
    return Event(number, name, {**value, **fault} if isinstance(fault, dict) else fault, None)


def expected_events(
    events: Sequence[Event],
    *,
    limited: bool,
    received_at_candidates: Sequence[tuple[datetime, datetime]],
    rejected: Sequence[int],
    by_id: bool,
) -> dict[EventKey, set[int]]:
    """Return the numbers of the events that may be read for each key; exactly the others must be `rejected`.

    Each of `received_at_candidates` is when the events may have been received first, and the first content of their
    file: the largest age is measured at the second time.
    """
    partitions = [
        [event.partition(at, limited=limited, first_received_at=first_at) for event in events]
        for at, first_at in received_at_candidates
    ]
    possible = [
        [index for index, partition in enumerate(one_attempt) if partition is None] for one_attempt in partitions
    ]
    assert list(rejected) in possible
    expected = defaultdict[EventKey, set[int]](set)
    for event, partition in zip(events, partitions[possible.index(list(rejected))], strict=True):
        if partition:
            expected[partition, event.name if by_id else event.number].add(event.number)
    return expected
