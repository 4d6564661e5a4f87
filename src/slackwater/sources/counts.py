"""How a partner counts the events that it has sent: the key `counts` of a source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, StringConstraints

from slackwater.model import Duration, Model, duration_of
from slackwater.sources.file_pattern import FilePattern

WINDOW_MINUTES = {"5m": 5, "10m": 10, "1h": 60}
"""Minutes of the windows that are not days."""
PERCENT_UNITS = 1_000
"""`complete_percent` is a whole number of thousandths."""


def _check_percent(value: float) -> float:
    if Decimal(str(value)) * PERCENT_UNITS % 1:
        raise ValueError(f"{value} has more than three decimals")
    return value


def _check_files(value: str) -> str:
    FilePattern(value)
    return value


Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False), AfterValidator(_check_percent)]


class Counts(Model):
    """The partner reports how many events it has sent, by the timestamps of the events."""

    window: Literal["5m", "10m", "1h", "day"]
    """For how long each number counts. A `day` is a day in the timezone of the source's timestamps, or of its files."""
    complete_percent: Percent = 99.995
    """A period is complete when so many percent of the events sent are stored or rejected."""
    within: Duration = "2h"
    """An alarm fires when events of a period are missing for so long after its end: 30m, 2h or 1d."""
    files: Annotated[str, StringConstraints(max_length=640), AfterValidator(_check_files)] | None = None
    """Pattern of the names of files with counts, which each pull reads: as `pull.files`, such as
    `{date}/counts.json`."""

    @cached_property
    def wait(self) -> timedelta:
        """The duration of `within`."""
        return duration_of(self.within)

    @property
    def percent_units(self) -> int:
        """`complete_percent` in thousandths, exactly."""
        return int(Decimal(str(self.complete_percent)) * PERCENT_UNITS)

    @property
    def pattern(self) -> FilePattern | None:
        """The parsed pattern of `files`."""
        return FilePattern(self.files) if self.files else None


def has_whole_hours(timezone: str) -> bool:
    """Return whether the days of the timezone begin with a UTC hour, in each month of the last and the next years."""
    months = (datetime(year, month, 1, tzinfo=UTC) for year in range(2024, 2038) for month in range(1, 13))
    zone = ZoneInfo(timezone)
    return not any((instant.astimezone(zone).utcoffset() or timedelta()) % timedelta(hours=1) for instant in months)
