"""`slackwater diff`: what the latest version of a published day changed."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, say
from slackwater.errors import InputError, RunFailed


def register(app: typer.Typer) -> None:
    """Add `diff`."""
    app.command(
        epilog=examples(
            "slackwater diff daily_delays --date 2013-03-08", "slackwater diff daily_delays --date 2013-03-08 --json"
        )
    )(diff)


def diff(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of the project.", show_default=False)],
    date: Annotated[
        str, typer.Option(metavar="DATE", help="The day, in the pipeline's time zone.", show_default=False)
    ],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare a published day with its version before.

    Which rows are new, gone or other, how its numbers have moved, and which inputs explain it. A pair of versions is
    compared once, by a Spark job; after that it is known.
    """
    day = read_date(date, option="--date")
    place = find_place(project)
    definitions = load(place)
    definitions.pipeline(pipeline)
    from slackwater.cli.session import Session

    session = Session.open(place, definitions)
    if session.table.day(pipeline, day).published is None:
        raise InputError(f"--date: {pipeline} has published nothing for {day} (slackwater run {pipeline} --date {day})")
    try:
        comparison, why = session.compare(pipeline, day)
    except RunFailed as error:
        raise RunFailed(f"comparing {pipeline} for {day}: {error}") from error
    if as_json:
        document({"comparison": comparison.model_dump(mode="json") if comparison else None, "why": why or None})
    elif comparison is None:
        say(why)
    else:
        from slackwater.cli.comparison import show_comparison

        show_comparison(comparison)
