"""How a partner counts the events that it has sent: the key `counts` of a source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from slackwater.model import Duration, Model, Name, duration_of
from slackwater.sources.file_pattern import FilePattern

WINDOW_MINUTES = {"5m": 5, "10m": 10, "1h": 60}
"""Minutes of the windows that are not days."""
OTHER = "other"
"""The name of all values that `values` does not list, and of events without a value."""
ALL = ""
"""The key of all events of a source that counts without values."""
_MAX_VALUES = 8
PERCENT_UNITS = 1_000
"""`complete_percent` is a whole number of thousandths."""


def _check_percent(value: float) -> float:
    if Decimal(str(value)) * PERCENT_UNITS % 1:
        raise ValueError(f"{value} has more than three decimals")
    return value


def _check_files(value: str) -> str:
    FilePattern(value)
    return value


def _check_values(values: tuple[str, ...]) -> tuple[str, ...]:
    if OTHER in values:
        raise ValueError(f"{OTHER!r} is the name of all values that are not listed: remove it")
    if repeated := sorted({value for value in values if values.count(value) > 1}):
        raise ValueError(f"{repeated[0]!r} is listed twice: remove one")
    return values


Values = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...],
    Field(max_length=_MAX_VALUES),
    AfterValidator(_check_values),
]
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

    by: Name | None = None
    """A field of type string: the partner counts the events of each of its values by themselves."""
    values: Values = ()
    """The values of `by` that are counted, at most 8. All others, and no value, count as `other`."""

    @model_validator(mode="after")
    def _check_by(self) -> Counts:
        if self.by and not self.values:
            raise ValueError(f"values: list the values of {self.by!r} that are counted, such as [EU, US]")
        if self.values and not self.by:
            raise ValueError("by: name the field whose values `values` lists")
        return self

    @model_serializer(mode="wrap")
    def _without_new_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Digests of definitions without `by` stay the same.
        return {key: value for key, value in serialize(self).items() if self.by or key not in {"by", "values"}}

    @property
    def keys(self) -> tuple[str, ...]:
        """What events are counted by: `region=EU` for each value, and `region=` for all others; without `by`, `ALL`."""
        return (*(f"{self.by}={value}" for value in self.values), f"{self.by}=") if self.by else (ALL,)

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


def column_of(keys: tuple[str, ...]) -> tuple[str, list[str]] | None:
    """Return the column by which `keys` count, and its values; None for `ALL`."""
    *values, others = keys
    return (others[:-1], [key.removeprefix(others) for key in values]) if others else None


def value_of(key: str) -> str | None:
    """Return the value that a key of `Counts.keys` counts, `OTHER` for all others; None for `ALL`."""
    return (key.partition("=")[2] or OTHER) if key else None


def has_whole_hours(timezone: str) -> bool:
    """Return whether the days of the timezone begin with a UTC hour, in each month of the last and the next years."""
    months = (datetime(year, month, 1, tzinfo=UTC) for year in range(2024, 2038) for month in range(1, 13))
    zone = ZoneInfo(timezone)
    return not any((instant.astimezone(zone).utcoffset() or timedelta()) % timedelta(hours=1) for instant in months)
