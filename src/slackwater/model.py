"""What all definitions share: their base class, and the types of names, dates, timezones and cron expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from slackwater.formatting import check_iso_date, check_period
from slackwater.problems import Problem, Problems, closest

# The name of a source, pipeline, step or column: characters that Glue and SQL accept without quotes. Glue stores names
# in lower case, so upper case is refused.
NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


@cache
def known_timezones() -> frozenset[str]:
    """Return the IANA names of timezones, from the package tzdata.

    A definition is then valid or invalid on every machine: the timezone files of an operating system may list others.
    """
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def _check_timezone(value: str) -> str:
    if value not in known_timezones():
        by_city = {zone.rpartition("/")[2]: zone for zone in known_timezones()}
        similar = closest(value, known_timezones()) or by_city.get(closest(value, by_city), "")
        expected = "" if similar else "an IANA name such as America/New_York"
        raise Problems(Problem(message=f"no such timezone: {value!r}", expected=expected, suggestion=similar))
    return value


TimeZone = Annotated[str, AfterValidator(_check_timezone)]


IsoDate = Annotated[str, AfterValidator(check_iso_date)]
"""A date such as 2013-03-10."""
PeriodName = Annotated[str, AfterValidator(check_period)]
"""A day such as 2013-03-10, or an hour of UTC such as 2013-03-10T15."""


_DURATION = re.compile(r"([1-9][0-9]{0,3})(m|h|d)")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def duration_of(value: str) -> timedelta:
    """Return the time that a duration such as `30m`, `2h` or `1d` means. Raises `ValueError` for any other string.

    >>> duration_of("90m")
    datetime.timedelta(seconds=5400)
    """
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 30m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2]]


def _check_duration(value: str) -> str:
    duration_of(value)
    return value


Duration = Annotated[str, AfterValidator(_check_duration)]
"""A number of minutes, hours or days: `30m`, `2h` or `1d`."""


class Model(BaseModel):
    """Base class of all definitions: unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def first_error(error: ValidationError) -> str:
    """Return the first error of a stored model in one line: the model, the field, and what is wrong."""
    first = error.errors(include_url=False)[0]
    return f"{error.title}: {'.'.join(map(str, first['loc'])) or '(whole)'}: {first['msg']}"


# Airflow and EventBridge run cron expressions, so only what both understand is accepted. Libraries accept more
# (`L`, `#`, `?`, `@daily`, six fields), and their errors do not say which values a field may have.
_CRON_ITEM = re.compile(r"(\*|(?P<first>[0-9A-Za-z]+)(-(?P<last>[0-9A-Za-z]+))?)(/(?P<step>[0-9]+))?")
"""`*`, a value or a range such as `MON-FRI`, each with or without a step such as `/15`."""


class CronField(NamedTuple):
    """The values that a field of a cron expression can have, and the names of the first of them."""

    low: int
    high: int
    names: Sequence[str] = ()
    also: int = 0
    """A value above `high` that is valid too: 7 for Sunday, which is 0."""

    def values(self, field: str) -> list[int]:
        """Return the values of a field in ascending order. Raises `ValueError` for a field that is not valid."""
        return sorted({value for item in field.split(",") for value in self._item(item)})

    def _item(self, item: str) -> Iterable[int]:
        match = _CRON_ITEM.fullmatch(item)
        if match is None or match["step"] == "0":
            raise ValueError(f"{item!r} is no part of a cron expression")
        first, last = self.low, self.high
        if match["first"] is not None:
            first = self._number(match["first"])
            # `5/15` means from 5 on, as in Airflow. From 7 on, which is Sunday too, there is only Sunday.
            last = self._number(match["last"]) if match["last"] else max(self.high, first) if match["step"] else first
        if first > last:
            raise ValueError(f"{item!r} ends before it begins")
        return range(first, last + 1, int(match["step"] or 1))

    def _number(self, value: str) -> int:
        number = int(value) if value.isdecimal() else self.low + self.names.index(value.upper())
        if not self.low <= number <= max(self.high, self.also):
            raise ValueError(f"{value} is out of range")
        return number


CRON_FIELDS = {
    "minute": CronField(0, 59),
    "hour": CronField(0, 23),
    "day-of-month": CronField(1, 31),
    "month": CronField(1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    "day-of-week": CronField(0, 6, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), also=7),
}


def _check_cron(value: str) -> str:
    fields = value.split()
    if len(fields) != len(CRON_FIELDS):
        raise ValueError(f"{value!r} has {len(fields)} fields; five are expected: {' '.join(CRON_FIELDS)}")
    for (name, valid), field in zip(CRON_FIELDS.items(), fields, strict=True):
        try:
            valid.values(field)
        except ValueError as error:
            low, high = valid.low, max(valid.high, valid.also)
            examples = f"*, {low}, {low}-{high}, */2, {low},{high}"
            raise ValueError(f"{value!r}: {field!r} is not a valid {name} (examples: {examples})") from error
    return value


# When something starts: minute, hour, day of the month, month, day of the week.
Cron = Annotated[str, AfterValidator(_check_cron)]


class Record(BaseModel):
    """Base of the models that are stored as JSON: immutable.

    Unknown fields are ignored: during a deployment, functions of the older version read what the newer one has stored.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)


class UpdatedRecord(Record):
    """Base of the records that are read, changed and stored again, and of their parts: unknown fields are kept."""

    model_config = ConfigDict(extra="allow")


def json_schema(document: type[BaseModel]) -> str:
    """Return the JSON Schema of a stored document that other programs read, as a file of docs/contracts holds it."""
    schema = document.model_json_schema(mode="serialization")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"
