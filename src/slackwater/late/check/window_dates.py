"""The days that a check looks at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.errors import InputError
from slackwater.late.check.facts import DayFacts
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import HOUR, Period, day_of, parse_date, period_of, shifted
from slackwater.state.waits import DayKey


def refuse_hours(definition: Pipeline) -> None:
    """Raise `InputError` for an hourly pipeline."""
    if definition.period == "hour":
        name = definition.pipeline
        raise InputError(
            f"{name} has `period: hour`, and no check looks at hours for late data yet: to run an hour again with it: "
            f"slackwater run {name} --date HOUR"
        )


def today(definition: Pipeline, now: datetime) -> date:
    """Return the date of the instant `now` in the pipeline's timezone."""
    return now.astimezone(ZoneInfo(definition.timezone)).date()


def window_start(definition: Pipeline, as_of: str) -> datetime:
    """Return when the first day of the window before `as_of`, an ISO date, begins, UTC."""
    return period_of(shifted(as_of, -definition.late.window_days), definition.timezone).start


def check_window(definition: Pipeline, as_of: str | None, now: datetime) -> list[Period]:
    """Return the days of the window in order, the day `as_of` (by default today) last.

    Raises `InputError` when `as_of` is not a date or has not begun.
    """
    try:
        current = parse_date(as_of) if as_of is not None else today(definition, now)
        days_back = range(definition.late.window_days, -1, -1)
        days = [day_of(current - timedelta(days=back), definition.timezone) for back in days_back]
    except (ValueError, OverflowError) as error:
        raise InputError(f"as_of: {as_of!r} is not a date such as 2013-03-10") from error
    if days[-1].start > now:
        raise InputError(f"as_of: {as_of} has not begun in {definition.timezone}: use today or an earlier day")
    return days


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
