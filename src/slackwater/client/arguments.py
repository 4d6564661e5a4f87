"""What callers pass: dates, and names of sources that are pulled or pushed. Imported before any cloud is contacted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from slackwater.errors import InputError
from slackwater.formatting import check_period
from slackwater.runs.period import check_kind, is_hour, parse_date

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline
    from slackwater.project.project import Project
    from slackwater.sources.definition import Source

Date = date | str
"""A day: `datetime.date`, or a string such as 2013-03-10. Of an hourly pipeline, an hour of UTC: 2013-03-10T15."""

# The id is part of the names of executions, which have at most 80 characters and not every one, and it is an HTTP
# header and a tag of Spark jobs.
_CORRELATION_ID = re.compile(r"[A-Za-z0-9._-]{1,55}")


def iso_date(value: Date, *, name: str = "date") -> str:
    """Return a date as YYYY-MM-DD. Raises `InputError`, with the argument's name, for anything else.

    A timestamp is refused: its day depends on a timezone.

    >>> iso_date("2013-11-03")
    '2013-11-03'
    """
    try:
        if isinstance(value, str):
            return parse_date(value).isoformat()
    except ValueError:
        pass
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    raise InputError(f"{name}: {value!r} is not a date such as 2013-03-08")


def period_name(value: Date, *, name: str = "date") -> str:
    """Return the name of a day or of an hour. Raises `InputError`, with the argument's name, for anything else.

    >>> period_name("2013-11-03T05")
    '2013-11-03T05'
    """
    if isinstance(value, str):
        try:
            return check_period(value)
        except ValueError as error:
            message = f"{name}: {value!r} is not a date such as 2013-03-08, or an hour such as 2013-03-08T15"
            raise InputError(message) from error
    return iso_date(value, name=name)


def check_begun(period: str, timezone: str, *, name: str) -> None:
    """Raise `InputError`, with the argument's name, if the day or hour has not begun; days are in the timezone."""
    timezone = "UTC" if is_hour(period) else timezone
    now = datetime.now(ZoneInfo(timezone))
    if period > (f"{now:%Y-%m-%dT%H}" if is_hour(period) else now.date().isoformat()):
        raise InputError(f"{name}: {period} has not begun in {timezone}")


def check_runs(period: str, pipeline: Pipeline, *, name: str) -> None:
    """Raise `InputError`, with the argument's name, unless the pipeline has this period, and it has begun."""
    check_kind(period, pipeline, argument=name)
    check_begun(period, pipeline.timezone, name=name)


def checked_correlation_id(value: str) -> str:
    """Return a correlation id that a caller has chosen. Raises `InputError` if it cannot be one."""
    if not _CORRELATION_ID.fullmatch(value):
        raise InputError(f"correlation_id: {value!r} is not 1 to 55 letters, digits, dots, hyphens and underscores")
    return value


def pulled_source(project: Project, name: str) -> Source:
    """Return a source that has `pull`. Raises `UnknownName`, or `InputError` when it has none."""
    source = project.source(name)
    if source.pull is None:
        raise InputError(f"source {name!r} is not pulled: its definition has no `pull`")
    return source


def pushed_source(project: Project, name: str) -> Source:
    """Return a source that has `push`. Raises `UnknownName`, or `InputError` when it has none."""
    source = project.source(name)
    if source.push is None:
        raise InputError(
            f"source {name!r} is not pushed: its definition has no `push` (to push, replace `pull` by `push: {{}}`)"
        )
    return source


def check_grant(project: Project, partner: str, sources: Iterable[str]) -> None:
    """Raise `InputError` or `UnknownName` if a token cannot be for the partner, or not for one of the sources."""
    from slackwater.receiver.push.tokens import ALL_SOURCES, check_partner_name

    check_partner_name(partner)
    for name in sources:
        if name != ALL_SOURCES and project.source(name).push is None and project.source(name).counts is None:
            raise InputError(f"--source: {name!r} is not pushed: its definition has no `push`")


def optional_date(value: Date | None) -> str | None:
    """Return a date as YYYY-MM-DD, or None for None. Raises `InputError`."""
    return None if value is None else iso_date(value)


def optional_period(value: Date | None) -> str | None:
    """Return the name of a day or of an hour, or None for None. Raises `InputError`."""
    return None if value is None else period_name(value)


def last_period(value: Date) -> str:
    """Return the end of a range of periods; a day as the end includes all of its hours. Raises `InputError`."""
    last = period_name(value)
    return last if is_hour(last) else f"{last}T23"
