"""The hours of a local day, and the totals of a metric from those of its hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slackwater.late.comparison import Totals
from slackwater.runs.period import Period

QUARTER = timedelta(minutes=15)
"""All changes of UTC offsets since 1990 are at multiples of a quarter of an hour."""


class HourOfDay(NamedTuple):
    """An hour of a local day."""

    hour: int
    """0 to 23."""
    offset: int | None
    """From UTC in seconds: an hour that occurs twice has two of them. None where it is not known."""

    def start(self, date: str) -> str:
        """Return its start on a date as ISO 8601: `2013-11-03T01:00-05:00`, or `2013-11-03T01:00` without an offset."""
        offset = None if self.offset is None else timezone(timedelta(seconds=self.offset))
        start = datetime.fromisoformat(date).replace(hour=self.hour, tzinfo=offset)
        return start.isoformat(timespec="minutes")


def quarters_of_day(day: Period, timezone_name: str) -> list[HourOfDay]:
    """Return the hour of each quarter of an hour of the day in an IANA timezone, from its start.

    These are 24 different hours, or 23 or 25 when the clocks change.
    """
    zone, hours = ZoneInfo(timezone_name), []
    for index in range(math.ceil((day.end - day.start) / QUARTER)):
        local = (day.start + index * QUARTER).astimezone(zone)
        hours.append(HourOfDay(local.hour, round((local.utcoffset() or timedelta()).total_seconds())))
    return hours


class PartialTotal(NamedTuple):
    """The total of some rows of a day."""

    total: Fraction | float
    """Their smallest or largest value, or, of a sum or mean, their sum."""
    values: int
    """How many it comes from."""


def combined(totals: Totals, parts: Sequence[PartialTotal]) -> float | None:
    """Return the total of all rows. None without a value, and if it is too large for a double."""
    parts = [part for part in parts if part.values]
    if not parts:
        return None
    values = [part.total for part in parts]
    if totals in (Totals.MIN, Totals.MAX):
        result = min(values) if totals is Totals.MIN else max(values)
    else:
        # Fractions are summed and divided exactly; only the result is rounded to a double.
        result = sum(values) / (sum(part.values for part in parts) if totals is Totals.MEAN else 1)
    number = float(result)
    return number if math.isfinite(number) else None
