"""`slackwater diff`: what the latest version of a published day changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_text
from slackwater.cli.progress import ProgressBoard
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError, RunFailed


def register(app: typer.Typer) -> None:
    """Add `diff`."""
    app.command(
        epilog=examples(
            "slackwater diff daily_delays --date 2013-03-08", "slackwater diff daily_delays --date 2013-03-08 --json"
        )
    )(diff)


def diff(
    pipeline: PipelineName,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day, in the pipeline's timezone.", show_default=False)],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare the published version of a day with the version before.

    Shows which rows were added, removed or changed, how the metrics changed, and which inputs caused it. A Spark job
    compares each pair of versions once; later calls read its result.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.cli.running import show_states
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client, ProgressBoard() as progress:
        if client.day(pipeline, day).published is None:
            raise InputError(
                f"--date: {pipeline} has published nothing for {day} (slackwater run {pipeline} --date {day})"
            )
        try:
            comparison, reason = client.compare(pipeline, day, on_progress=partial(show_states, progress))
        except RunFailed as error:
            raise RunFailed(f"comparing {pipeline} for {day}: {error}") from error
    if as_json:
        print_json({"comparison": comparison.model_dump(mode="json") if comparison else None, "reason": reason or None})
    elif comparison is None:
        print_text(reason)
    else:
        from slackwater.cli.comparison import show_comparison

        show_comparison(comparison)
