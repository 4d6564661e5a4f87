"""`slackwater state`: the states of the hours of sources as a heat map, and the periods that have failed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import argument, date_option
from slackwater.cli.output import COUNT_STYLES, print_note, print_text
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.client.states import SourcePeriod, SourceStates
    from slackwater.client.verdicts import FailedPeriod

_DAYS = 7
_MOST_DAYS = 366
_SIGNS = {"complete": "█", "short": "▁", "surplus": "▲", "unknown": "·"}
_FAILED = "✗"
_HOURS = "00    06    12    18"
_NAMED = 5


@command("slackwater state", "slackwater state clicks --from 2026-01-01 --to 2026-01-07", "slackwater state --json")
def state(
    name: Annotated[str | None, argument("[NAME]", "A source or a pipeline. Default: all of them.")] = None,
    *,
    first: Annotated[str | None, date_option("--from", text="The first day, UTC. Default: a week.")] = None,
    last: Annotated[str | None, date_option("--to", text="The last day, UTC. Default: today.")] = None,
    session: Session,
) -> Result:
    """Show which hours of sources are complete, which hours and days have failed by a verdict, or are provisional.

    Each sign is a UTC hour, or a day of a source that counts by day. The states of sources with `counts` follow some
    seconds after what is stored and reported; slackwater counts computes those of one day now. slackwater verdict gives
    verdicts. Output in a pipe is JSON.
    """
    end = date.fromisoformat(last) if last else datetime.now(UTC).date()
    start = date.fromisoformat(first) if first else end - timedelta(days=_DAYS - 1)
    if not start <= end < start + timedelta(days=_MOST_DAYS):
        raise InputError(f"--from: {start} to {end} is not 1 to {_MOST_DAYS} days")
    client = session.client
    failed: dict[tuple[str, str], list[FailedPeriod]] = {}
    for period in client.failed_periods(name, first=start, last=end):
        failed.setdefault((period.of, period.name), []).append(period)
    source = client.project.sources.get(name or "")
    names = client.project.known_names
    of_name = None if name is None else [name] if name in names else []
    open_days = [
        day for day in client.provisional_days(of_name) if start.isoformat() <= day.date[:10] <= end.isoformat()
    ]
    # A pipeline, and a source without counts, have nothing but verdicts.
    has_states = name is None or (source is not None and (source.counts or ("source", name) not in failed))
    states = client.states(name, first=start, last=end) if has_states else []
    of_states = [(item, failed.pop(("source", item.source), [])) for item in states]
    documents = [_document(item, periods) for item, periods in of_states] + [
        {of: each, "first": start, "last": end, "failed": [period.document for period in periods]}
        for (of, each), periods in failed.items()
    ]
    if open_days:
        documents.append({"provisional": [day.document for day in open_days]})

    def view() -> None:
        for number, (item, periods) in enumerate(of_states):
            if number:
                print_text("")
            _print_source(item, periods)
        for (_, each), periods in failed.items():
            print_text(shown(each))
            _print_failed(periods)
        for day in open_days:
            print_text(f"{shown(day.pipeline)} {day.line}", style="yellow")
        if states:
            signs = {**_SIGNS, **({"failed": _FAILED} if any(periods for _, periods in of_states) else {})}
            print_text("  ".join(f"{sign} {state}" for state, sign in signs.items()), style="dim")
        elif not failed and not open_days:
            print_note(
                "no source of the project has counts (docs/completeness.md shows how to add them), and nothing has "
                "failed"
                if name is None
                else f"{shown(name)}: no day from {start} to {end} has failed by a verdict"
            )

    return Result(documents, view if sys.stdout.isatty() else None)


def _document(item: SourceStates, failed: list[FailedPeriod]) -> dict[str, Any]:
    document = item.model_dump(mode="json", exclude={"periods": {"__all__": {"files"}}})
    return {**document, "failed": [period.document for period in failed]}


def _print_failed(failed: list[FailedPeriod]) -> None:
    from slackwater.client.results import describe_verdicts

    of_hours = [verdict for period in failed if period.of == "source" for verdict in period.verdicts]
    lines = list(describe_verdicts(of_hours))
    for period in failed:
        if period.of == "pipeline":
            lines += [
                f"{period.period}, version {period.version}: {line}" for line in describe_verdicts(period.verdicts)
            ]
    for line in lines:
        print_text(f"  {line}", style="red")


def _print_source(item: SourceStates, failed: list[FailedPeriod]) -> None:
    bad = {datetime.fromisoformat(f"{period.period}:00:00+00:00") for period in failed}
    _print_map(item, item.source, {period.start: period.state.value for period in item.periods}, bad)
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
    _print_failed(failed)


def _print_map(
    item: SourceStates, title: str, states: Mapping[datetime, str], bad: Collection[datetime] = frozenset()
) -> None:
    """Print the states of a source, or of one of its values, by day, with the hours that have failed."""
    by_day = item.total.unit == "day"
    print_text(title if by_day else f"{title:<12}{_HOURS}")
    signs_of = {start: _SIGNS[state] for start, state in states.items()}
    for number in range((item.last - item.first).days + 1):
        day = item.first + timedelta(days=number)
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        hours = [midnight + timedelta(hours=hour) for hour in range(24)]
        if by_day:
            # A local day may begin on another UTC date: it is shown on the one that most of it is on.
            found = [sign for start, sign in signs_of.items() if (start + timedelta(hours=12)).date() == day]
            signs = _FAILED if any(hour in bad for hour in hours) else found[0] if found else _SIGNS["unknown"]
        else:
            signs = "".join(_FAILED if hour in bad else signs_of.get(hour, _SIGNS["unknown"]) for hour in hours)
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
