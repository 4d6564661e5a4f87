"""By how much the reject rate of a source is above its normal one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from statistics import median

from slackwater.receiver.event_counts import HISTORY_DAYS, EventCount

# Fewer events are no evidence: one rejected event of ten is 10 %.
_FEWEST_EVENTS = 100
# A source that delivers weekly has two of them in 14 days.
_FEWEST_DAYS = 2


def rejected_above_normal(hours: Mapping[int, EventCount], *, now: datetime) -> float:
    """Return by how many percentage points the reject rate of the latest 24 hours is above normal; 0 if it is not.

    `hours` has the hours with events, in hours since 1970, UTC. Normal is the median of the rates of the 14 UTC days
    before today that have at least 100 events. Without two such days, or with fewer than 100 events in the latest 24
    hours, the result is 0.
    """
    hour = int(now.timestamp() // 3600)
    latest = _rate(hours.get(hour - back) for back in range(24))
    days = (range(24 * (hour // 24 - back), 24 * (hour // 24 - back + 1)) for back in range(1, HISTORY_DAYS + 1))
    normal = [rate for day in days if (rate := _rate(map(hours.get, day))) is not None]
    if latest is None or len(normal) < _FEWEST_DAYS:
        return 0.0
    return max(latest - median(normal), 0.0)


def _rate(counts: Iterable[EventCount | None]) -> float | None:
    """Return the rejected events in percent of all; None if there are too few."""
    known = [count for count in counts if count is not None]
    events = sum(count.events for count in known)
    return 100 * sum(count.rejected for count in known) / events if events >= _FEWEST_EVENTS else None
