"""A pipeline's day: the hours between two local midnights."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slackwater.formatting import check_iso_date
from slackwater.sources.partitions import Partition

HOUR = timedelta(hours=1)


class Day(NamedTuple):
    """The interval `[start, end)`, UTC, that a local date covers."""

    date: date
    start: datetime
    end: datetime

    @property
    def hours(self) -> int:
        """Its length, rounded to hours: 24, or 23 or 25 on the day of a change to or from summer time."""
        return round((self.end - self.start) / HOUR)

    def contains(self, partition: Partition) -> bool:
        """Return whether all events of a partition are of the day; one in which the day begins has some of another."""
        hour = start_of(partition)
        return self.start <= hour and hour + HOUR <= self.end

    def partitions(self) -> Iterator[Partition]:
        """Yield the partition of every UTC hour that overlaps the day, in order."""
        # The first hour may begin before the day: the offsets of some timezones are not whole hours.
        hour = self.start.replace(minute=0, second=0, microsecond=0)
        while hour < self.end:
            yield partition_of(hour)
            hour += HOUR


def parse_date(value: str) -> date:
    """Return the date of a string such as 2013-03-10. Raises `ValueError` for any other format.

    >>> parse_date("2013-03-10")
    datetime.date(2013, 3, 10)
    """
    return date.fromisoformat(check_iso_date(value))


def day_of(local_date: date, timezone: str) -> Day:
    """Return the day of `local_date` in the IANA timezone, such as `America/New_York`.

    Where a change to summer time skips midnight, the day starts at the first local time after the gap.

    >>> day = day_of(date(2013, 11, 3), "America/New_York")  # clocks go back
    >>> day.start.isoformat(), (day.end - day.start).total_seconds() / 3600
    ('2013-11-03T04:00:00+00:00', 25.0)
    """
    # `time()` has `fold=0`, which means the offset before a change of the clocks. So a skipped midnight gives the
    # instant of the change, and a midnight that occurs twice gives the first one.
    start, end = (
        datetime.combine(midnight, time(), tzinfo=ZoneInfo(timezone)).astimezone(UTC)
        for midnight in (local_date, local_date + timedelta(days=1))
    )
    return Day(local_date, start, end)


def partition_of(instant: datetime) -> Partition:
    """Return the partition of an aware timestamp: its date and hour in UTC."""
    instant = instant.astimezone(UTC)
    # `strftime` takes five times as long, and a check of a week needs the partitions of hundreds of hours.
    return Partition(instant.date().isoformat(), f"{instant.hour:02d}")


def start_of(partition: Partition) -> datetime:
    """Return when the hour of a partition begins, UTC. Raises `ValueError` for no date, and for hours such as 24."""
    return datetime.fromisoformat(f"{partition.date}T{partition.hour}:00:00+00:00")
