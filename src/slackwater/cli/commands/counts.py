"""`slackwater counts`: how many events a source has sent in each hour of a day, and how many are missing."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import argument, date_option
from slackwater.cli.output import COUNT_STYLES, print_table, print_text
from slackwater.client.arguments import check_begun

if TYPE_CHECKING:
    from slackwater.client.counts import DayCounts, Period

_COLUMNS = ("from", "state", "sent", "stored", "rejected", "missing", "surplus", "windows without counts")
_LISTED = 3


@command("slackwater counts clicks --date 2026-01-01", "slackwater counts clicks --date 2026-01-01 --json")
def counts(
    source: Annotated[str, argument("SOURCE", "A source of the project that has `counts`.")],
    *,
    date: Annotated[str, date_option(text="The day, in the source's timezone.")],
    session: Session,
) -> Result:
    """Show what a source has sent in each hour of a day, and what is stored, rejected and missing.

    The source reports what it has sent: by the API, by files with counts, or by slackwater push --counts. Stored events
    are counted by hour, so shorter windows show what was sent. Output in a pipe is JSON.
    """
    timezone = session.project.source(source).pull_timezone
    check_begun(date, timezone, name="--date")
    day = session.client.counts(source, date)
    return Result(day.model_dump(mode="json"), (lambda: _print(day)) if sys.stdout.isatty() else None)


def _print(day: DayCounts) -> None:
    zone = ZoneInfo(day.timezone)
    rows = [_row(period, zone) for period in day.periods]
    always = _COLUMNS.index("missing")
    shown = [index for index in range(len(_COLUMNS)) if index < always or any(row[index] for row in rows)]
    print_table([_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
    print_text(f"{day.source} {day.date} ({day.timezone}): {day.state}, {day.line}", style=COUNT_STYLES[day.state])


def _row(period: Period, zone: ZoneInfo) -> tuple[object, ...]:
    unknown = [_time(window.start, zone) for window in period.windows if not window.known]
    listed = ", ".join(unknown[:_LISTED]) + (f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else "")
    return (
        _time(period.start, zone),
        period.state.value,
        period.sent,
        period.stored,
        period.rejected,
        period.missing or None,
        period.surplus or None,
        listed if len(period.windows) > 1 else "",
    )


def _time(instant: datetime, zone: ZoneInfo) -> str:
    local = instant.astimezone(zone)
    # Local times occur twice when the clocks go back.
    return f"{local:%H:%M}" if zone.key == "UTC" else f"{local:%H:%M %z}"
