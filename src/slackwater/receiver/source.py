"""What a user writes about one partner feed: `sources/<name>.yaml`."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""A source's, pipeline's, step's or column's name: lower case, digits and underscores, as Glue and SQL like it."""


def _zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError(f"no such time zone: {value!r} (use an IANA name such as America/New_York)")
    return value


TimeZone = Annotated[str, AfterValidator(_zone)]


class Model(BaseModel):
    """Base of all definitions: a wrong key is an error, and a definition never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldType(StrEnum):
    """Types of event fields, by the names that Arrow gives them."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"


class FieldDefinition(Model):
    """One field of an event."""

    type: FieldType
    required: bool = False


def _shorthand(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class Timestamp(Model):
    """Where an event says when it happened: ISO 8601 with an offset, or naive in `timezone`."""

    field: Name
    timezone: TimeZone | None = None


def _cron(value: str) -> str:
    fields = value.split()
    if len(fields) != len(_CRON_FIELDS):
        raise ValueError(f"{value!r} has {len(fields)} fields; five are expected: {' '.join(_CRON_FIELDS)}")
    for (name, (low, high)), text in zip(_CRON_FIELDS.items(), fields, strict=True):
        if not all(_is_cron_part(part, name) for part in text.split(",")):
            such_as = f"*, {low}, {low}-{high}, */2, {low},{high}"
            raise ValueError(f"{value!r}: {text!r} is no {name} of a cron expression (such as {such_as})")
    return value


def _is_cron_part(part: str, field: str) -> bool:
    """Whether it is `*`, a value or a range, within the field's bounds, with a step or without."""
    found = _CRON_PART.fullmatch(part)
    if not found or found["step"] == "0":
        return False
    low, high = _CRON_FIELDS[field]
    names = _CRON_NAMES.get(field, ())
    values = [
        low + names.index(text.upper()) if text.upper() in names else int(text) if text.isdecimal() else -1
        for text in (found["first"], found["last"])
        if text
    ]
    return all(low <= value <= high for value in values) and values == sorted(values)


_CRON_FIELDS = {"minute": (0, 59), "hour": (0, 23), "day-of-month": (1, 31), "month": (1, 12), "day-of-week": (0, 7)}
_CRON_NAMES = {
    "month": ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    "day-of-week": ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}
_CRON_PART = re.compile(r"(\*|(?P<first>[0-9A-Za-z]+)(-(?P<last>[0-9A-Za-z]+))?)(/(?P<step>[0-9]+))?")

Cron = Annotated[str, AfterValidator(_cron)]
"""When something starts: minute, hour, day of the month, month, day of the week."""


class LateThresholds(Model):
    """How much late data of one source is worth running a finished day again; to reach one of them is enough.

    What counts is what has come since the day's inputs were frozen: new objects, and the whole of a changed file.
    """

    percent: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Rows, in percent of the source's rows that the published run read."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    rows: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _do_not_contradict(self) -> LateThresholds:
        given = {name: value for name, value in self if value is not None}
        if not given:
            raise ValueError("name at least one of percent, bytes, rows")
        zero = [name for name, value in given.items() if value == 0]
        if zero and len(given) > 1:
            others = ", ".join(name for name in given if name != zero[0])
            raise ValueError(
                f"{zero[0]}: 0 runs a day again for any late data, so {others} can never decide: "
                f"remove {others}, or give {zero[0]} a value above 0"
            )
        return self


ANY_LATE_DATA = LateThresholds(rows=0)
"""What holds for a source that names no thresholds."""


class Push(Model):
    """Partners POST events to the API."""

    max_events: Annotated[int, Field(gt=0)] = 10_000


class Pull(Model):
    """Files are fetched from a partner's server, over a rolling look-back window."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://")]
    """Answers with the JSON listing; a file's address is this, a slash and the file's name."""
    files: Annotated[str, StringConstraints(pattern=r"\{date\}")]
    """Names of the wanted files: `{date}` is the date (YYYY-MM-DD) that a file belongs to, `*` is any text."""
    format: Literal["csv"] = "csv"
    lookback_days: Annotated[int, Field(gt=0, le=366)] = 7
    timezone: TimeZone = "UTC"
    """Whose calendar `{date}` and "today" are of, and whose clock `schedule` is of."""
    schedule: Cron = "15 * * * *"
    """When the files are looked for."""


class Source(Model):
    """A partner feed: the shape of its events and the way they come."""

    source: Name
    description: str = ""
    timestamp: Timestamp
    fields: dict[Name, Annotated[FieldDefinition, BeforeValidator(_shorthand)]]
    null_values: tuple[str, ...] = ("",)
    """Texts that mean "no value", in CSV cells and in string fields of events alike."""
    push: Push | None = None
    pull: Pull | None = None
    late: LateThresholds = ANY_LATE_DATA
    silent_hours: Annotated[int, Field(gt=0)] = 48
    """After so long without new data, the partner is silent and an alarm rings."""

    @model_validator(mode="after")
    def _is_whole(self) -> Source:
        if self.push is None and self.pull is None:
            raise ValueError("a source needs `push` or `pull`: say how its data comes")
        declared = self.fields.get(self.timestamp.field)
        if declared is None or declared.type is not FieldType.TIMESTAMP:
            raise ValueError(f"timestamp.field {self.timestamp.field!r} must stand in `fields` with type timestamp")
        return self

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone of naive timestamps, if the source allows them."""
        return ZoneInfo(self.timestamp.timezone) if self.timestamp.timezone else None
