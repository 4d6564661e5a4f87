"""What all definitions share: their base class, and the types of names, dates, timezones and cron expressions."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from slackwater.formatting import check_iso_date
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


class Model(BaseModel):
    """Base class of all definitions: unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def first_error(error: ValidationError) -> str:
    """Return the first error of a stored model in one line: the model, the field, and what is wrong."""
    first = error.errors(include_url=False)[0]
    return f"{error.title}: {'.'.join(map(str, first['loc'])) or '(whole)'}: {first['msg']}"


# Airflow and EventBridge run cron expressions, so only what both understand is accepted. Libraries accept more
# (`L`, `#`, `?`, `@daily`, six fields), and their errors do not say which values a field may have.
_CRON_RANGES = {"minute": (0, 59), "hour": (0, 23), "day-of-month": (1, 31), "month": (1, 12), "day-of-week": (0, 7)}
CRON_NAMES = {
    "month": ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    "day-of-week": ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}
# `*`, a value or a range such as `MON-FRI`, each with or without a step such as `/15`.
CRON_ITEM = re.compile(r"(\*|(?P<first>[0-9A-Za-z]+)(-(?P<last>[0-9A-Za-z]+))?)(/(?P<step>[0-9]+))?")


def _check_cron(value: str) -> str:
    fields = value.split()
    if len(fields) != len(_CRON_RANGES):
        raise ValueError(f"{value!r} has {len(fields)} fields; five are expected: {' '.join(_CRON_RANGES)}")
    for (name, (low, high)), field in zip(_CRON_RANGES.items(), fields, strict=True):
        if not all(_is_cron_item(item, name) for item in field.split(",")):
            examples = f"*, {low}, {low}-{high}, */2, {low},{high}"
            raise ValueError(f"{value!r}: {field!r} is not a valid {name} (examples: {examples})")
    return value


def _is_cron_item(item: str, field: str) -> bool:
    """Whether `item` is `*`, a value or a range within the field's limits, with or without a step."""
    match = CRON_ITEM.fullmatch(item)
    if not match or match["step"] == "0":
        return False
    low, high = _CRON_RANGES[field]
    numbers = {name: number for number, name in enumerate(CRON_NAMES.get(field, ()), start=low)}
    values = []
    for value in (match["first"], match["last"]):
        if value:
            unknown = -1  # below every limit
            values.append(int(value) if value.isdecimal() else numbers.get(value.upper(), unknown))
    return all(low <= value <= high for value in values) and values == sorted(values)


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
