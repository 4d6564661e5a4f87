"""What all definitions share: their base, and the forms of names, time zones and schedules."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""A source's, pipeline's, step's or column's name: lower case, digits and underscores, as Glue and SQL like it."""


@cache
def _zones() -> frozenset[str]:
    """The zones that are known wherever a definition is read: a machine's own files may hold others."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def _zone(value: str) -> str:
    if value not in _zones():
        raise ValueError(f"no such time zone: {value!r} (use an IANA name such as America/New_York)")
    return value


TimeZone = Annotated[str, AfterValidator(_zone)]


class Model(BaseModel):
    """Base of all definitions: a wrong key is an error, and a definition never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


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
