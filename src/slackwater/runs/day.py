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
        """Whole hours: 24, and 23 or 25 when clocks change."""
        return round((self.end - self.start) / HOUR)

    def partitions(self) -> Iterator[Partition]:
        """Every UTC hour that the day touches, in order."""
        hour = self.start.replace(minute=0, second=0, microsecond=0)
        while hour < self.end:
            yield partition_of(hour)
            hour += HOUR


def day_of(local_date: date, timezone: str) -> Day:
    """Return the day that `local_date` names in `timezone`.

    Where a clock change skips midnight, the day starts when the clocks resume.
    """
    zone = ZoneInfo(timezone)
    start, end = (
        datetime.combine(when, time(), tzinfo=zone).astimezone(UTC)
        for when in (local_date, local_date + timedelta(days=1))
    )
    return Day(local_date, start, end)


def partition_of(moment: datetime) -> Partition:
    """Return the partition of an aware timestamp."""
    moment = moment.astimezone(UTC)
    return Partition(moment.strftime("%Y-%m-%d"), moment.strftime("%H"))
