"""`slackwater counts`: how many events a source has sent in each hour of a day, and how many are missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import argument, date_option
from slackwater.cli.output import COUNT_STYLES, print_table, print_text
from slackwater.client.arguments import check_begun

if TYPE_CHECKING:
    from slackwater.client.counts import DayCounts, Period, ValueCounts

_COLUMNS = ("from", "value", "state", "sent", "stored", "rejected", "missing", "surplus", "windows without counts")
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
    rows = [row for period in day.periods for row in _rows(period, zone)]
    always = _COLUMNS.index("missing")
    first = {index for index in range(always) if _COLUMNS[index] != "value"}
    shown = [index for index in range(len(_COLUMNS)) if index in first or any(row[index] for row in rows)]
    print_table([_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
    print_text(f"{day.source} {day.date} ({day.timezone}): {day.state}, {day.line}", style=COUNT_STYLES[day.state])


def _rows(period: Period, zone: ZoneInfo) -> Iterator[tuple[object, ...]]:
    """Yield the row of a period, and one for each value if the source counts by a column."""
    # Of several values, one time is named once.
    unknown = list(dict.fromkeys(_time(window.start, zone) for window in period.windows if not window.known))
    listed = ", ".join(unknown[:_LISTED]) + (f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else "")
    listed = listed if len({window.start for window in period.windows}) > 1 else ""
    yield (_time(period.start, zone), "", *_numbers(period), listed)
    for value in period.values:
        yield ("", value.value, *_numbers(value), "")


def _numbers(counts: Period | ValueCounts) -> tuple[object, ...]:
    return (
        counts.state.value,
        counts.sent,
        counts.stored,
        counts.rejected,
        counts.missing or None,
        counts.surplus or None,
    )


def _time(instant: datetime, zone: ZoneInfo) -> str:
    local = instant.astimezone(zone)
    # Local times occur twice when the clocks go back.
    return f"{local:%H:%M}" if zone.key == "UTC" else f"{local:%H:%M %z}"
