"""Events whose timestamps are implausibly old, such as seconds that were read as milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from slackwater.formatting import counted

_OLD_YEARS = 20


class OldEvents(NamedTuple):
    """Accepted events that are more than 20 years old, among more events that are not."""

    events: int
    first: str
    """The date (UTC) of the oldest of them."""
    last: str

    def note(self) -> str:
        """Return what a user should know about them."""
        verb = "is" if self.events == 1 else "are"
        dates = self.first if self.first == self.last else f"{self.first} to {self.last}"
        return (
            f"{counted(self.events, 'event')} {verb} of {dates}: more than {_OLD_YEARS} years old. Check the formats "
            "of the timestamp; `max_age_days` rejects such events"
        )

    def plus(self, other: OldEvents | None) -> OldEvents:
        """Return these events and those of another batch."""
        if other is None:
            return self
        return OldEvents(self.events + other.events, min(self.first, other.first), max(self.last, other.last))


def find_old_events(events: Iterable[tuple[str, int]], *, received_at: datetime) -> OldEvents | None:
    """Return the old ones of accepted events; None if there are none, or if they are not fewer than the others.

    `events` are ISO dates (UTC), each with a number of events; a date may occur again. An archive, whose events are all
    old, is loaded on purpose.
    """
    counts = list(events)
    limit = f"{received_at.year - _OLD_YEARS:04d}{received_at:-%m-%d}"
    old = [(date, count) for date, count in counts if date < limit]
    total = sum(count for _, count in old)
    if not total or 2 * total >= sum(count for _, count in counts):
        return None
    return OldEvents(total, min(old)[0], max(old)[0])
