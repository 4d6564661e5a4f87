"""A pipeline's day: the hours between two local midnights."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slackwater.sources.partitions import Partition

HOUR = timedelta(hours=1)


class Day(NamedTuple):
    """The interval `[start, end)`, UTC, that a local date covers."""

    date: date
    start: datetime
    end: datetime

    @property
    def hours(self) -> int:
        """Whole hours: 24, or 23 or 25 on the day of a change to or from summer time."""
        return round((self.end - self.start) / HOUR)

    def partitions(self) -> Iterator[Partition]:
        """Yield the partition of every UTC hour that overlaps the day, in order."""
        hour = self.start.replace(minute=0, second=0, microsecond=0)
        while hour < self.end:
            yield partition_of(hour)
            hour += HOUR


def day_of(local_date: date, timezone: str) -> Day:
    """Return the day of `local_date` in the IANA timezone.

    Where a clock change skips midnight, the day starts at the first local time after the gap.
    """
    start, end = (
        datetime.combine(midnight, time(), tzinfo=ZoneInfo(timezone)).astimezone(UTC)
        for midnight in (local_date, local_date + timedelta(days=1))
    )
    return Day(local_date, start, end)


def partition_of(instant: datetime) -> Partition:
    """Return the partition of an aware timestamp: its date and hour in UTC."""
    instant = instant.astimezone(UTC)
    return Partition(instant.strftime("%Y-%m-%d"), instant.strftime("%H"))
