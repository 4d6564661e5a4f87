"""Unix cron expressions, written as the expressions of EventBridge Scheduler.

EventBridge has six fields instead of five (the last is the year), numbers days of the week from 1 for Sunday, and
needs `?` for the day of the month or the day of the week.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from slackwater.model import CRON_FIELDS, Cron, CronField
from slackwater.project.clock_changes import skipped_minutes

# From this length on, consecutive values are a range.
_SHORTEST_RANGE = 3
_FIVE_YEARS = 5 * 366


_FIELDS = _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY = tuple(CRON_FIELDS.values())


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
    either = len(days) < _DAY.high and len(weekdays) < len(_WEEKDAY.names)
    on_day = by_day or by_weekday if either else by_day and by_weekday
    return local.minute in minutes and local.hour in hours and local.month in months and on_day


def next_time(cron: Cron, timezone: str, *, after: datetime) -> datetime | None:
    """Return the first time of a valid unix cron expression after an instant, UTC; None without one in five years.

    A local time that the clocks skip comes at the time instead of it, one that they repeat at the first of both.
    """
    (minutes, hours, *_), zone = _values(cron), ZoneInfo(timezone)
    first = after.astimezone(zone).date()
    for date in (first + timedelta(days=days) for days in range(_FIVE_YEARS)):
        if cron_matches(cron, datetime.combine(date, time(hours[0], minutes[0]))):
            local = (datetime.combine(date, time(hour, minute), zone) for hour in hours for minute in minutes)
            if times := [at for each in local if (at := each.astimezone(UTC)) > after]:
                return min(times)
    return None


def _weekday(local: datetime) -> int:
    return local.isoweekday() % len(_WEEKDAY.names)


@cache
def _values(cron: Cron) -> tuple[list[int], ...]:
    """Return the values of the five fields. Sunday is 0."""
    *fields, weekdays = (field.values(expression) for field, expression in zip(_FIELDS, cron.split(), strict=True))
    return (*fields, sorted({day % len(_WEEKDAY.names) for day in weekdays}))  # 7 is Sunday too


def _format_field(values: Sequence[int], field: CronField) -> str:
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
        return field.names[value] if field is _WEEKDAY else str(value)

    return ",".join(
        f"{name(run[0])}-{name(run[-1])}" if len(run) >= _SHORTEST_RANGE else ",".join(map(name, run)) for run in runs
    )
