"""`slackwater sideline`: rejected events and their reasons."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from datetime import date as date_type
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_table, print_text
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.receiver.writing.rejects_reader import RejectedEventOnDay

# Days that are read by default, today included.
_DEFAULT_DAYS = 7
# Characters of an event that a terminal shows.
_EVENT_WIDTH = 60

Date = Annotated[
    str | None, typer.Option(metavar="DATE", help="Events that were received on this day (UTC).", show_default=False)
]

group = typer.Typer(name="sideline", help="Rejected events and their reasons.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `sideline list` and `sideline show`."""
    app.add_typer(group)


@group.command(
    "list", epilog=examples("slackwater sideline list", "slackwater sideline list weather --since 2013-03-08")
)
def list_(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="A source of the project. Default: all.", show_default=False),
    ] = None,
    date: Date = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Events that were received on this day (UTC) or later.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Count rejected events by day, source and rule, the latest day first.

    Without --date and --since: the last seven days.
    """
    days = read_days(date, since)
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    names = [definitions.source(source).source] if source else sorted(definitions.sources)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        by_source = chain.from_iterable(client.rejects.days(name, days) for name in names)
        rejected_days = sorted(by_source, key=lambda day: day.date, reverse=True)
    if as_json:
        documents = [
            {
                "source": day.source,
                "date": day.date,
                "rejected": day.events,
                "batches": day.batches,
                "rules": dict(day.rules.most_common()),
            }
            for day in rejected_days
        ]
        print_json({"days": documents})
    elif rejected_days:
        rows = []
        for day in rejected_days:
            rules = ", ".join(f"{rule} {count:,}" for rule, count in day.rules.most_common())
            rows.append((day.date, day.source, day.events, day.batches, rules))
        print_table(("date (UTC)", "source", "rejected", "batches", "by rule"), rows)
    else:
        of_source = f" of {source}" if source else ""
        print_text(f"no rejected events{of_source} {_period(days)}")


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
        typer.Option(metavar="ID", help="Events of this batch or file, received on any day.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Print at most N events.")] = 20,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print rejected events with their reasons, the latest batch first.

    Without --date and --batch: the last seven days. On a terminal, long events are cut.
    """
    if date and batch:
        raise InputError("--date and --batch: give one of them")
    days = read_days(date, None)
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.source(source)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        rejects = client.rejects
        stored = rejects.events_of_batch(source, batch) if batch else rejects.events(source, days)
        # One more than is printed, to know whether there are more.
        events = list(islice(stored, limit + 1))
    printed, more = events[:limit], len(events) > limit
    if as_json:
        documents = [{"date": event.date, **event.record.model_dump()} for event in printed]
        print_json({"source": source, "events": documents, "more": more})
    elif printed:
        _print_events(source, printed)
        if more:
            print_note(f"these are the first {limit:,} events (to see more: --limit N)", style="yellow")
    else:
        print_text(f"no rejected events of {source} {f'in batch {batch}' if batch else _period(days)}")


def read_days(date: str | None, since: str | None) -> list[str]:
    """Return the days (UTC) that `--date` or `--since` select, the latest first; by default the last seven days.

    Raises `InputError` for both options, a wrong date, or a `--since` after today.
    """
    if date and since:
        raise InputError("--date and --since: give one of them")
    if date:
        return [read_date(date, option="--date")]
    today = _today()
    first = today - timedelta(days=_DEFAULT_DAYS - 1)
    if since:
        first = date_type.fromisoformat(read_date(since, option="--since"))
    if first > today:
        raise InputError(f"--since: {since} has not begun in UTC")
    return [(today - timedelta(days=back)).isoformat() for back in range((today - first).days + 1)]


def _today() -> date_type:
    return datetime.now(UTC).date()


def _period(days: Sequence[str]) -> str:
    return f"on {days[0]}" if len(days) == 1 else f"since {days[-1]}"


def _print_events(source: str, events: Sequence[RejectedEventOnDay]) -> None:
    """Print a table for each batch or file."""

    def batch_of(event: RejectedEventOnDay) -> tuple[str, str, str]:
        return event.date, event.record.batch_id, event.record.origin

    for (date, batch, origin), grouped in groupby(events, batch_of):
        of_batch = list(grouped)
        rows = []
        for record in (event.record for event in of_batch):
            content = record.text
            if sys.stdout.isatty() and len(content) > _EVENT_WIDTH:
                content = f"{content[: _EVENT_WIDTH - 3]}..."
            rows.append((record.index, record.line, record.rule, record.reason, content))
        print_text(f"{source} {date}: {counted(len(rows), 'event')} of batch {batch}, {origin}", style="bold")
        print_table(("index", "line", "rule", "reason", "event"), rows)
        if more := sum(event.record.rows - 1 for event in of_batch):
            print_note(f"and {counted(more, 'row')} more: the file was rejected as a whole", style="yellow")
