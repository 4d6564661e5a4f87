"""`slackwater state`: the states of the hours of sources, as a heat map."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import argument, date_option
from slackwater.cli.output import COUNT_STYLES, print_note, print_text
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.client.states import SourcePeriod, SourceStates

_DAYS = 7
_MOST_DAYS = 366
_SIGNS = {"complete": "█", "short": "▁", "surplus": "▲", "unknown": "·"}
_HOURS = "00    06    12    18"
_NAMED = 5


@command("slackwater state", "slackwater state clicks --from 2026-01-01 --to 2026-01-07", "slackwater state --json")
def state(
    name: Annotated[str | None, argument("[SOURCE]", "A source that has `counts`. Default: all of them.")] = None,
    *,
    first: Annotated[str | None, date_option("--from", text="The first day, UTC. Default: a week.")] = None,
    last: Annotated[str | None, date_option("--to", text="The last day, UTC. Default: today.")] = None,
    session: Session,
) -> Result:
    """Show which hours of sources are complete, as they were when something was last stored or reported.

    Each sign is a UTC hour, or a day of a source that counts by day. The states follow some seconds after what is
    stored and reported; slackwater counts computes those of one day now. Output in a pipe is JSON.
    """
    end = date.fromisoformat(last) if last else datetime.now(UTC).date()
    start = date.fromisoformat(first) if first else end - timedelta(days=_DAYS - 1)
    if not start <= end < start + timedelta(days=_MOST_DAYS):
        raise InputError(f"--from: {start} to {end} is not 1 to {_MOST_DAYS} days")
    found = session.client.states(name, first=start, last=end)
    documents = [item.model_dump(mode="json", exclude={"periods": {"__all__": {"files"}}}) for item in found]
    return Result(documents, (lambda: _print(found)) if sys.stdout.isatty() else None)


def _print(found: list[SourceStates]) -> None:
    if not found:
        print_note("no source of the project has counts: docs/completeness.md shows how to add them")
        return
    for number, item in enumerate(found):
        if number:
            print_text("")
        _print_source(item)
    print_text("  ".join(f"{sign} {state}" for state, sign in _SIGNS.items()), style="dim")


def _print_source(item: SourceStates) -> None:
    _print_map(item, item.source, {period.start: period.state.value for period in item.periods})
    for value in dict.fromkeys(each.value for period in item.periods for each in period.values):
        found = {each.start: [of.state.value for of in each.values if of.value == value] for each in item.periods}
        _print_map(item, value, {start: states[0] for start, states in found.items() if states})
    print_text(f"{item.state.value}, {item.line}", style=COUNT_STYLES[item.state])
    wrong = [period for period in item.periods if period.missing or period.surplus]
    for period in wrong[:_NAMED]:
        print_text(f"  {_described(period)}")
    if len(wrong) > _NAMED:
        counts = Counter(period.state.value for period in wrong[_NAMED:])
        print_text(f"  and {', '.join(f'{count} more {state}' for state, count in sorted(counts.items()))}")


def _print_map(item: SourceStates, title: str, states: Mapping[datetime, str]) -> None:
    """Print the states of a source, or of one of its values, by day."""
    by_day = item.total.unit == "day"
    print_text(title if by_day else f"{title:<12}{_HOURS}")
    for number in range((item.last - item.first).days + 1):
        day = item.first + timedelta(days=number)
        if by_day:
            # A local day may begin on another UTC date: it is shown on the one that most of it is on.
            found = [state for start, state in states.items() if (start + timedelta(hours=12)).date() == day]
            signs = _SIGNS[found[0] if found else "unknown"]
        else:
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
            hours = (midnight + timedelta(hours=hour) for hour in range(24))
            signs = "".join(_SIGNS[states.get(hour, "unknown")] for hour in hours)
        print_text(f"{day}  {signs}")


def _described(period: SourcePeriod) -> str:
    differences = {"missing": period.missing, "surplus": period.surplus}
    difference = ", ".join(f"{name} {number:,}" for name, number in differences.items() if number)
    missing = [
        f"{window.start:%H:%M}{f' {window.value}' if window.value else ''}: {window.missing:,}"
        for window in period.windows
        if window.missing
    ]
    named = f"{', '.join(missing[:_NAMED])}{', ...' if len(missing) > _NAMED else ''}"
    detail = f" ({named})" if missing and len(period.windows) > 1 else ""
    return f"{period.start:%Y-%m-%d %H:%M} {period.state.value}, {difference}{detail}"
