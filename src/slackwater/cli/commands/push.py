"""`slackwater push`: send a file of events to the API."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, say
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.cli.sender import Pushed

_REASONS_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add `push`."""
    app.command(
        epilog=examples(
            "slackwater push weather weather-2013-03-08.ndjson",
            "zcat events.gz | slackwater push weather - --json",
        )
    )(push)


def push(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A source of the project that has `push`.", show_default=False)
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="NDJSON or a JSON array, gzip or not; - is standard input.", show_default=False
        ),
    ],
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="SLACKWATER_TOKEN",
            help="The partner's bearer token; one of the operator is made and kept otherwise.",
            show_default=False,
        ),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Send a file of events to the API.

    The same file can be sent again: what is there already is recognised.
    Rejected events are kept with their reasons and are no failure, unless every event was rejected: then the exit code
    is 1.
    """
    from slackwater.cli.events import read_events

    place = find_place(project)
    definitions = load(place)
    if definitions.source(source).push is None:
        raise InputError(f"source {source!r} is not pushed: its definition has no `push`")
    events = read_events(file)
    from slackwater.cli.session import Session

    session = Session.open(place, definitions)
    with ProgressBoard() as board:
        board.update(f"push {source}", note=counted(len(events), "event"))
        pushed = session.push(
            source,
            events,
            token=token,
            progress=lambda now: board.update(f"push {source}", note=f"{now.events:,} of {len(events):,} events"),
        )
        board.update(
            f"push {source}", PartState.DONE if pushed.ok else PartState.FAILED, note=counted(pushed.events, "event")
        )
    if as_json:
        document(asdict(pushed))
    else:
        show(pushed)
    if not pushed.ok:
        raise typer.Exit(1)


def show(pushed: Pushed) -> None:
    """Print what became of the events."""
    say(
        f"{pushed.source}: {pushed.accepted:,} accepted, {pushed.duplicates:,} duplicates, "
        f"{len(pushed.rejected):,} rejected, in {counted(pushed.batches, 'batch').replace('batchs', 'batches')}",
        style="green" if pushed.ok else "red",
    )
    for item in pushed.rejected[:_REASONS_SHOWN]:
        remark(f"  event {item['index']}: {item['reason']}", style="yellow")
    more = len(pushed.rejected) - _REASONS_SHOWN
    if more > 0:
        remark(f"  and {more:,} more (--json lists them all)", style="yellow")
