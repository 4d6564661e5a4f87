"""Cron expressions of EventBridge Scheduler: which local minutes they match."""

from __future__ import annotations

import functools
import re
from datetime import datetime
from typing import NamedTuple

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Names, lowest and highest value, names of the values.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minutes", 0, 59, ()),
    ("hours", 0, 23, ()),
    ("day-of-month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day-of-week", 1, 7, _WEEKDAYS),
    ("year", 1970, 2199, ()),
)
_ITEM = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")


class AwsCron(NamedTuple):
    """The values of each field. None stands for `?`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    """1 is Sunday."""
    years: frozenset[int]

    def matches(self, local: datetime) -> bool:
        """Return whether a local time is one of the expression's, to the minute."""
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and (self.days is None or local.day in self.days)
            and local.month in self.months
            and (self.weekdays is None or local.isoweekday() % 7 + 1 in self.weekdays)
            and local.year in self.years
        )


@functools.cache
def parse_cron(fields: str) -> AwsCron:
    """Return the expression between the brackets of `cron(...)`.

    Raises `ValueError` for what AWS refuses, and for `L`, `W` and `#`, which AWS understands.
    """
    texts = fields.split()
    if len(texts) != len(_FIELDS):
        raise ValueError(f"cron({fields}) has {len(texts)} fields instead of {len(_FIELDS)}")
    if [texts[2], texts[4]].count("?") != 1:
        raise ValueError(f"cron({fields}): exactly one of day-of-month and day-of-week must be ?")
    minutes, hours, days, months, weekdays, years = (
        None if text == "?" and name.startswith("day-") else _values(text, name, low, high, names)
        for text, (name, low, high, names) in zip(texts, _FIELDS, strict=True)
    )
    if minutes is None or hours is None or months is None or years is None:
        raise ValueError(f"cron({fields}): only day-of-month and day-of-week can be ?")
    return AwsCron(minutes, hours, days, months, weekdays, years)


def _values(text: str, field: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    numbers = {name: number for number, name in enumerate(names, start=low)}
    values: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is not a valid {field}, or the local cloud does not know it")
        star, first, last, step = match.group(1) == "*", match.group(2), match.group(3), match.group(4)
        bounds = [numbers.get(name.upper(), int(name) if name.isdecimal() else -1) for name in (first, last) if name]
        if star:
            bounds = [low, high]
        elif len(bounds) == 1:
            bounds.append(high if step else bounds[0])
        if not low <= bounds[0] <= bounds[1] <= high or step == "0":
            raise ValueError(f"{item!r} is not a valid {field} ({low}-{high}), or the local cloud does not know it")
        values.update(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return frozenset(values)
