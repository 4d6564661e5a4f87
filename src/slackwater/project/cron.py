"""Unix cron expressions, written as the expressions of EventBridge Scheduler.

EventBridge has six fields instead of five (the last is the year), numbers days of the week from 1 for Sunday, and
needs `?` for the day of the month or the day of the week.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from slackwater.model import CRON_ITEM, CRON_NAMES, Cron
from slackwater.project.clock_changes import skipped_minutes

_WEEKDAYS = CRON_NAMES["day-of-week"]
# From this length on, consecutive values are a range.
_SHORTEST_RANGE = 3


class _Field(NamedTuple):
    """The values that a field of a cron expression can have, and the names of the first of them."""

    low: int
    high: int
    names: Sequence[str] = ()

    def values(self, field: str) -> list[int]:
        """Return the values of a field in ascending order."""
        return sorted({value for item in field.split(",") for value in self._item(item)})

    def _item(self, item: str) -> Iterable[int]:
        match = CRON_ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is no part of a cron expression")
        if match["first"] is None:
            first, last = self.low, self.high
        else:
            first = self._number(match["first"])
            # `5/15` means from 5 on, as in Airflow. From 7 on, which is Sunday too, there is only Sunday.
            last = self._number(match["last"]) if match["last"] else max(self.high, first) if match["step"] else first
        return range(first, last + 1, int(match["step"] or 1))

    def _number(self, value: str) -> int:
        return int(value) if value.isdecimal() else self.low + self.names.index(value.upper())


_MINUTE, _HOUR, _DAY = _Field(0, 59), _Field(0, 23), _Field(1, 31)
_MONTH, _WEEKDAY = _Field(1, 12, CRON_NAMES["month"]), _Field(0, 6, _WEEKDAYS)
_FIELDS = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


def eventbridge_expressions(cron: Cron) -> tuple[str, ...]:
    """Return the expressions of EventBridge Scheduler that together have the times of a valid unix cron expression.

    If both the day of the month and the day of the week are restricted, cron means either of them, which needs two
    expressions. At a time that matches both of them, both fire.
    """
    minute, hour, day, month, weekday = (
        _format_field(values, field) for values, field in zip(_values(cron), _FIELDS, strict=True)
    )
    if weekday == "*":
        return (f"cron({minute} {hour} {day} {month} ? *)",)
    by_weekday = f"cron({minute} {hour} ? {month} {weekday} *)"
    return (by_weekday,) if day == "*" else (f"cron({minute} {hour} {day} {month} ? *)", by_weekday)


def skipped_expression(cron: Cron, timezone: str) -> str | None:
    """Return the expression that has the times that come instead of those of `cron` that `timezone` skips.

    It has other times too: in the same months and on the same days of the week, without a clock change. None if the
    timezone skips no time of the cron expression, or if that has the time that comes instead.
    """
    times = [
        instead
        for skipped, instead in skipped_minutes(timezone)
        if cron_matches(cron, skipped) and not cron_matches(cron, instead)
    ]
    if not times:
        return None
    fields = (
        {time.minute for time in times},
        {time.hour for time in times},
        {time.month for time in times},
        {_weekday(time) for time in times},
    )
    minute, hour, month, weekday = (
        _format_field(sorted(values), field)
        for values, field in zip(fields, (_MINUTE, _HOUR, _MONTH, _WEEKDAY), strict=True)
    )
    return f"cron({minute} {hour} ? {month} {weekday} *)"


def cron_matches(cron: Cron, local: datetime) -> bool:
    """Return whether a local time is one of those of a valid unix cron expression, to the minute."""
    minutes, hours, days, months, weekdays = _values(cron)
    by_day, by_weekday = local.day in days, _weekday(local) in weekdays
    # If only one of them is restricted, the other is always true.
    either = len(days) < _DAY.high and len(weekdays) < len(_WEEKDAYS)
    on_day = by_day or by_weekday if either else by_day and by_weekday
    return local.minute in minutes and local.hour in hours and local.month in months and on_day


def _weekday(local: datetime) -> int:
    return local.isoweekday() % len(_WEEKDAYS)


@cache
def _values(cron: Cron) -> tuple[list[int], ...]:
    """Return the values of the five fields. Sunday is 0."""
    *fields, weekdays = (field.values(expression) for field, expression in zip(_FIELDS, cron.split(), strict=True))
    return (*fields, sorted({day % len(_WEEKDAYS) for day in weekdays}))  # 7 is Sunday too


def _format_field(values: Sequence[int], field: _Field) -> str:
    """Return a field with these values: `*`, or single values and ranges.

    An expression may have 256 characters. Ranges keep every expression below that.
    """
    if len(values) == field.high - field.low + 1:
        return "*"
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])

    # Days of the week by name, because their numbers differ.
    def name(value: int) -> str:
        return field.names[value] if field.names is _WEEKDAYS else str(value)

    return ",".join(
        f"{name(run[0])}-{name(run[-1])}" if len(run) >= _SHORTEST_RANGE else ",".join(map(name, run)) for run in runs
    )
