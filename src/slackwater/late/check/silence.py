"""For how long a source is usually silent at an hour of the week."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.runs.arrival_history import HISTORY_DAYS
from slackwater.runs.day import HOUR

_WEEKS = range(1, HISTORY_DAYS // 7 + 1)
# Deliveries are not punctual to the minute, so the hours before and after count as the same hour of the week.
_NEIGHBOURS = (-1, 0, 1)
# Two weeks of samples: one week may be a holiday.
_FEWEST_SAMPLES = 2 * len(_NEIGHBOURS)
_PERCENTILE = 0.95
# Arrivals are known by the hour, and a pull of every hour may be late: below this, a silence means nothing.
_SHORTEST_HOURS = 2.0


def usual_silence(hours: Collection[int], *, now: datetime, timezone: str) -> float | None:
    """Return the 95th percentile, in hours, of a source's silences at this hour of the week; at least 2.

    `hours` are those in which it has delivered, in hours since 1970, UTC. The silences are those at the same local time
    of the last four weeks, and an hour before and after it. None with fewer than two weeks of them.
    """
    local = now.astimezone(ZoneInfo(timezone))
    # Local time, so that the clocks may change in between.
    instants = [
        (local - timedelta(weeks=week)).astimezone(UTC) + shift * HOUR for week in _WEEKS for shift in _NEIGHBOURS
    ]
    silences = sorted(silence for at in instants if (silence := _silence(hours, at)) is not None)
    if len(silences) < _FEWEST_SAMPLES:
        return None
    return max(silences[math.ceil(_PERCENTILE * len(silences)) - 1], _SHORTEST_HOURS)


def _silence(hours: Collection[int], at: datetime) -> float | None:
    """Return the hours from the start of the latest hour with an arrival; None before the first known arrival."""
    now = at.timestamp() / 3600
    return min((now - hour for hour in hours if hour <= now), default=None)
