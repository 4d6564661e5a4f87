"""`slackwater sideline`: what was rejected, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from datetime import date as day_of
from itertools import chain, islice
from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, remark, say
from slackwater.errors import InputError

_DAYS = 7
"""Looked at where no day is named."""
Date = Annotated[str | None, typer.Option(metavar="DATE", help="What came on that day, UTC.", show_default=False)]

group = typer.Typer(name="sideline", help="Rejected events, with their reasons.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `sideline list` and `sideline show`."""
    app.add_typer(group)


@group.command(
    "list", epilog=examples("slackwater sideline list", "slackwater sideline list weather --since 2013-03-08")
)
def list_(
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="All of the project's otherwise.", show_default=False)
    ] = None,
    date: Date = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="What came on that day, UTC, or later.", show_default=False)
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Count rejected events by day, source and rule, the latest day first.

    Without a day: those of the last seven.
    """
    days = read_days(date, since)
    place = find_place(project)
    definitions = load(place)
    names = [definitions.source(source).source] if source else sorted(definitions.sources)
    from slackwater.cli.session import Session
    from slackwater.cli.sideline import described_day, show_days

    sideline = Session.open(place, definitions).sideline
    by_source = chain.from_iterable(sideline.days(name, days) for name in names)
    found = sorted(by_source, key=lambda day: day.date, reverse=True)
    if as_json:
        document({"days": [described_day(day) for day in found]})
    elif found:
        show_days(found)
    else:
        say(f"nothing was rejected{f' of {source}' if source else ''} {_when(days)}")


@group.command(
    epilog=examples(
        "slackwater sideline show weather", "slackwater sideline show weather --date 2013-03-08 --limit 100"
    )
)
def show(  # noqa: PLR0917 - the command line's own options
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of the project.", show_default=False)],
    date: Date = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="ID", help="What came in that batch or file, whenever.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many events.")] = 20,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print rejected events with their reasons, the latest batch first.

    Without a day and a batch: those of the last seven days. A terminal shows the beginning of long texts.
    """
    if date and batch:
        raise InputError("--date and --batch: give one of them")
    days = read_days(date, None)
    place = find_place(project)
    definitions = load(place)
    definitions.source(source)
    from slackwater.cli.session import Session
    from slackwater.cli.sideline import described_event, show_events

    sideline = Session.open(place, definitions).sideline
    events = sideline.events_of_batch(source, batch) if batch else sideline.events(source, days)
    found = list(islice(events, limit + 1))
    shown, more = found[:limit], len(found) > limit
    if as_json:
        document({"source": source, "events": [described_event(event) for event in shown], "more": more})
    elif shown:
        show_events(source, shown)
        if more:
            remark(f"these are the first {limit:,}: --limit shows more", style="yellow")
    else:
        say(f"nothing was rejected of {source} {f'in batch {batch}' if batch else _when(days)}")


def read_days(date: str | None, since: str | None) -> list[str]:
    """Return the days to look at, the latest first. Raises `InputError`."""
    if date and since:
        raise InputError("--date and --since: give one of them")
    if date:
        return [read_date(date, option="--date")]
    today = _today()
    first = day_of.fromisoformat(read_date(since, option="--since")) if since else today - timedelta(days=_DAYS - 1)
    if first > today:
        raise InputError(f"--since: {since} has not begun in UTC")
    return [(today - timedelta(days=back)).isoformat() for back in range((today - first).days + 1)]


def _today() -> day_of:
    return datetime.now(UTC).date()


def _when(days: Sequence[str]) -> str:
    return f"on {days[0]}" if len(days) == 1 else f"since {days[-1]}"
