"""The days or hours that a check looks at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.errors import InputError
from slackwater.late.check.facts import DayFacts
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import HOUR, Period, is_hour, period_at, period_of, shifted
from slackwater.state.waits import DayKey


def today(definition: Pipeline, now: datetime) -> date:
    """Return the date of the instant `now` in the pipeline's timezone."""
    return now.astimezone(ZoneInfo(definition.timezone)).date()


def window_start(definition: Pipeline, as_of: str) -> datetime:
    """Return when the first day or hour of the window before `as_of`, the name of one, begins, UTC."""
    return period_of(shifted(as_of, -definition.window_length), definition.timezone).start


def check_window(definition: Pipeline, as_of: str | None, now: datetime) -> list[Period]:
    """Return the days or hours of the window in order, `as_of` (by default the current one) last.

    For hours, `as_of` may also be a date: its last hour that has begun. Raises `InputError` when `as_of` is no such
    name or has not begun.
    """
    current = period_at(now, definition)
    try:
        if as_of is not None:
            current = _named(definition, as_of, current)
        back = range(definition.window_length, -1, -1)
        window = [period_of(shifted(current.name, -count), definition.timezone) for count in back]
    except (ValueError, OverflowError) as error:
        what = "a date such as 2013-03-10" + (", or an hour such as 2013-03-10T15" * (definition.period == "hour"))
        raise InputError(f"as_of: {as_of!r} is not {what}") from error
    if current.start > now:
        timezone = "UTC" if is_hour(current.name) else definition.timezone
        raise InputError(f"as_of: {as_of} has not begun in {timezone}: use an earlier {definition.period}, or none")
    return window


def _named(definition: Pipeline, as_of: str, current: Period) -> Period:
    """Return the day or hour of the pipeline with this name. Raises `ValueError`."""
    named = period_of(as_of, definition.timezone)
    if definition.period == "day" and is_hour(as_of):
        raise ValueError(as_of)
    if definition.period == "day" or is_hour(as_of) or named.start > current.end:
        return named
    # Today has hours that have not begun.
    return min(current, period_at(named.end - timedelta.resolution, definition), key=lambda each: each.start)


def in_windows(project: Project, days: Collection[DayKey], now: datetime) -> list[DayKey]:
    """Return those of the days of pipelines that are in the windows of today's checks, in order."""
    windows = {
        name: {day.name for day in check_window(project.pipelines[name], None, now)}
        for name in {key.pipeline for key in days}
    }
    return sorted(key for key in days if key.date in windows[key.pipeline])


def overdue_days(definition: Pipeline, window: Sequence[DayFacts], first: str | None, now: datetime) -> tuple[str, ...]:
    """Return the days past their deadline without a published run, after the first day that was ever published.

    `window` are the days without the current one, `first` is that first day.
    """
    # Days before the first published one are not overdue: a new pipeline does not process its past.
    deadline = definition.deadline_hours * HOUR
    days = [facts.day for facts in window if facts.is_published is False]
    overdue = [day for day in days if day.end + deadline < now]
    return tuple(day.name for day in overdue if first and day.name > first)
