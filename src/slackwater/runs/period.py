"""A pipeline's period: a local day, which has the hours between two midnights, or an hour of UTC.

A period has a name by which runs, versions and records are stored: `2013-03-10`, or `2013-03-10T15`. Names of one kind
sort by time, and `shifted` and `distance` count with them, whatever the timezone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from slackwater.errors import InputError
from slackwater.formatting import check_iso_date, check_period
from slackwater.sources.partitions import Partition

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline

HOUR = timedelta(hours=1)
# Of the name of a day, such as 2013-03-10; that of an hour is longer.
_DAY_LENGTH = 10


class Period(NamedTuple):
    """The interval `[start, end)`, UTC, that a local date or an hour covers."""

    date: date
    """The local date of a day, the UTC date of an hour."""
    start: datetime
    end: datetime
    hour: int | None = None
    """From 0 to 23; None for a day."""

    @property
    def name(self) -> str:
        """The name by which it is stored, such as 2013-03-10 or 2013-03-10T15."""
        return self.date.isoformat() if self.hour is None else f"{self.date}T{self.hour:02d}"

    @property
    def hours(self) -> int:
        """Its length, rounded to hours: 24, or 23 or 25 on the day of a change to or from summer time."""
        return round((self.end - self.start) / HOUR)

    def contains(self, partition: Partition) -> bool:
        """Return whether all events of a partition are its own; one in which a day begins has some of another day."""
        hour = start_of(partition)
        return self.start <= hour and hour + HOUR <= self.end

    def partitions(self) -> Iterator[Partition]:
        """Yield the partition of every UTC hour that overlaps it, in order."""
        # The first hour may begin before a day: the offsets of some timezones are not whole hours.
        hour = self.start.replace(minute=0, second=0, microsecond=0)
        while hour < self.end:
            yield partition_of(hour)
            hour += HOUR

    def started_hours(self) -> list[str]:
        """Return the names of the UTC hours that start in it, in order: each hour starts in one day of a timezone.

        >>> day_of(date(2013, 11, 3), "Asia/Kolkata").started_hours()[0]  # it begins at 18:30
        '2013-11-02T19'
        """
        hours = (start_of(partition) for partition in self.partitions())
        return [f"{hour:%Y-%m-%dT%H}" for hour in hours if hour >= self.start]


def parse_date(value: str) -> date:
    """Return the date of a string such as 2013-03-10. Raises `ValueError` for any other format.

    >>> parse_date("2013-03-10")
    datetime.date(2013, 3, 10)
    """
    return date.fromisoformat(check_iso_date(value))


def day_of(local_date: date, timezone: str) -> Period:
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
    return Period(local_date, start, end)


def period_of(name: str, timezone: str) -> Period:
    """Return the period of a name: a day in the IANA timezone, or an hour of UTC. Raises `ValueError` for no name.

    >>> period_of("2013-11-03T04", "UTC").start.isoformat()
    '2013-11-03T04:00:00+00:00'
    """
    day, _, hour = check_period(name).partition("T")
    if not hour:
        return day_of(date.fromisoformat(day), timezone)
    start = datetime.fromisoformat(f"{name}:00:00+00:00")
    return Period(start.date(), start, start + HOUR, start.hour)


def has_whole_hours(timezone: str) -> bool:
    """Return whether each day of the timezone, since 2020, begins with an hour of UTC.

    >>> has_whole_hours("America/New_York"), has_whole_hours("Asia/Kolkata"), has_whole_hours("Australia/Lord_Howe")
    (True, False, False)
    """
    days = (date(year, month, 1) for year in range(2020, 2038) for month in (1, 7))
    return not any(day_of(day, timezone).start.minute for day in days)


def local_date(instant: datetime, timezone: str) -> str:
    """Return the date of an aware timestamp in an IANA timezone, such as 2013-03-10."""
    return instant.astimezone(ZoneInfo(timezone)).date().isoformat()


def period_at(instant: datetime, pipeline: Pipeline) -> Period:
    """Return the day or the hour of the pipeline that an aware timestamp belongs to."""
    if pipeline.period == "day":
        return period_of(local_date(instant, pipeline.timezone), pipeline.timezone)
    return period_of(f"{instant.astimezone(UTC):%Y-%m-%dT%H}", "UTC")


def names_in_hour(start: datetime, pipeline: Pipeline) -> set[str]:
    """Return the names of the pipeline's periods that an hour of UTC belongs to: two days if a midnight is in it.

    Raises `OverflowError` if the local date is not in a year from 1 to 9999.
    """
    return {period_at(instant, pipeline).name for instant in (start, start + HOUR - timedelta.resolution)}


def check_kind(name: str, pipeline: Pipeline, *, argument: str = "date") -> None:
    """Raise `InputError`, with the argument's name, unless this is the name of a period of the pipeline."""
    expected = "an hour of UTC such as 2013-03-10T15" if pipeline.period == "hour" else "a date such as 2013-03-10"
    try:
        check_period(name)
    except ValueError as error:
        raise InputError(f"{argument}: {name!r} is not {expected}") from error
    if is_hour(name) != (pipeline.period == "hour"):
        raise InputError(f"{argument}: {name} is not {expected}: {pipeline.pipeline} has `period: {pipeline.period}`")


def is_hour(name: str) -> bool:
    """Return whether this is the name of an hour, and not of a day."""
    return len(name) > _DAY_LENGTH


def period_kind(name: str) -> str:
    """Return what a name is that of: `day` or `hour`."""
    return "hour" if is_hour(name) else "day"


def shifted(name: str, count: int) -> str:
    """Return the name of the period that comes `count` days or hours after this one, or before it if it is negative.

    Raises `OverflowError` before the year 1 and after the year 9999.

    >>> shifted("2013-03-10", -1), shifted("2013-03-09T23", 1)
    ('2013-03-09', '2013-03-10T00')
    """
    if not is_hour(name):
        return (date.fromisoformat(name) + timedelta(days=count)).isoformat()
    return f"{datetime.fromisoformat(f'{name}:00') + count * HOUR:%Y-%m-%dT%H}"


def distance(first: str, last: str) -> int:
    """Return by how many days or hours the second name is after the first one, which is of the same kind.

    >>> distance("2013-03-10", "2013-03-09"), distance("2013-03-09T23", "2013-03-10T01")
    (-1, 2)
    """
    if not is_hour(first):
        return (date.fromisoformat(last) - date.fromisoformat(first)).days
    return (datetime.fromisoformat(f"{last}:00") - datetime.fromisoformat(f"{first}:00")) // HOUR


def partition_values(name: str) -> dict[str, date | int]:
    """Return the partition of a published table that has the rows of a period: the values of its columns.

    >>> partition_values("2013-03-10T05")
    {'date': datetime.date(2013, 3, 10), 'hour': 5}
    """
    period = period_of(name, "UTC")
    return {"date": period.date} if period.hour is None else {"date": period.date, "hour": period.hour}


def row_condition(name: str) -> str:
    """Return the condition of SQL that holds for the published rows of a period.

    >>> row_condition("2013-11-03T05")
    "date = '2013-11-03' AND hour = 5"
    """
    values = partition_values(name).items()
    return " AND ".join(f"{column} = {value if column == 'hour' else repr(str(value))}" for column, value in values)


def partition_of(instant: datetime) -> Partition:
    """Return the partition of an aware timestamp: its date and hour in UTC."""
    instant = instant.astimezone(UTC)
    # `strftime` takes five times as long, and a check of a week needs the partitions of hundreds of hours.
    return Partition(instant.date().isoformat(), f"{instant.hour:02d}")


def start_of(partition: Partition) -> datetime:
    """Return when the hour of a partition begins, UTC. Raises `ValueError` for no date, and for hours such as 24."""
    return datetime.fromisoformat(f"{partition.date}T{partition.hour}:00:00+00:00")
