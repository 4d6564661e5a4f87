"""For how long a source is usually silent at an hour of the week."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from slackwater.runs.arrival_history import HISTORY_DAYS
from slackwater.runs.day import HOUR

_WEEKS = range(1, HISTORY_DAYS // 7 + 1)
# Deliveries are not punctual to the minute, so the hours before and after count as the same hour of the week.
_NEIGHBOURS = (-1, 0, 1)
# One week may be a holiday.
_FEWEST_WEEKS = 2
# Arrivals are known by the hour, and a pull of every hour may be late: below this, a silence means nothing.
_SHORTEST_HOURS = 2.0


def usual_silence(hours: Collection[int], *, now: datetime, timezone: str) -> float | None:
    """Return the usual silence of a source at this hour of the week, in hours: at least 2.

    It is the median of the longest silences of each of the last four weeks at the same local time, an hour before and
    an hour after. So the outage of one week does not count as usual. `hours` are those in which the source has
    delivered, in hours since 1970, UTC. None with fewer than two complete weeks.
    """
    local = now.astimezone(ZoneInfo(timezone))
    longest = list[float]()
    for week in _WEEKS:
        # Local time, so that the clocks may change in between.
        at = (local - timedelta(weeks=week)).astimezone(UTC)
        silences = [_silence(hours, at + shift * HOUR) for shift in _NEIGHBOURS]
        known = [silence for silence in silences if silence is not None]
        if len(known) == len(_NEIGHBOURS):
            longest.append(max(known))
    return max(median(longest), _SHORTEST_HOURS) if len(longest) >= _FEWEST_WEEKS else None


def _silence(hours: Collection[int], at: datetime) -> float | None:
    """Return the hours from the start of the latest hour with an arrival; None before the first known arrival."""
    now = at.timestamp() / 3600
    return min((now - hour for hour in hours if hour <= now), default=None)
