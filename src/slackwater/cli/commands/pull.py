"""`slackwater pull`: fetch a partner's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, remark, say
from slackwater.errors import InputError
from slackwater.formatting import counted


def register(app: typer.Typer) -> None:
    """Add `pull`."""
    app.command(epilog=examples("slackwater pull flights", "slackwater pull flights --as-of 2013-03-12"))(pull)


def pull(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A source of the project that has `pull`.", show_default=False)
    ],
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Pull as if it were that day; today otherwise.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a partner's new and changed files.

    Looked at are the files of the source's look-back window.
    """
    day = read_date(as_of, option="--as-of") if as_of else None
    place = find_place(project)
    definitions = load(place)
    if definitions.source(source).pull is None:
        raise InputError(f"source {source!r} is not pulled: its definition has no `pull`")
    from slackwater.cli.session import Session

    totals = Session.open(place, definitions).pull(source, as_of=day)
    if as_json:
        document(totals)
    else:
        show(totals)


def show(totals: Mapping[str, Any]) -> None:
    """Print a pull's totals."""
    say(
        f"{totals['source']}: {counted(totals['listed'], 'file')} listed, {totals['taken']} taken "
        f"({counted(totals['rows'], 'event')}), {totals['unchanged']} unchanged, {totals['duplicate']} duplicate",
        style="green",
    )
    for count, what in (
        ("rejected", "events were side-lined with their reasons"),
        ("vanished", "files were gone when they were fetched; the next pull looks again"),
        ("busy", "files are being taken by another pull"),
        ("left", "more files wait for the next pull"),
    ):
        if totals.get(count):
            remark(f"{totals[count]} {what}", style="yellow")
