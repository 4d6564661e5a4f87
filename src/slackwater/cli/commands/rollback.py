"""`slackwater rollback`: publish an earlier version of a day again."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from slackwater.cli.commands.run import run_document
from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_text
from slackwater.cli.progress import ProgressBoard
from slackwater.client.workspace import find_workspace
from slackwater.errors import RunFailed
from slackwater.formatting import counted


def register(app: typer.Typer) -> None:
    """Add `rollback`."""
    app.command(
        epilog=examples('slackwater rollback daily_delays --date 2013-03-10 --to 1 --reason "wrong weather file"')
    )(rollback)


def rollback(
    pipeline: PipelineName,
    *,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day.", show_default=False)],
    to: Annotated[
        int, typer.Option(metavar="N", help="The version, as `slackwater history` shows it.", show_default=False)
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why. It is stored.", show_default=False)],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish an earlier version of a day again, as a new version.

    The day is then on hold: late data does not run it again until `slackwater late release` releases it. Load steps do
    not run, so what they have written outside of the warehouse stays as it is.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    loads = definitions.pipeline(pipeline).load
    from slackwater.cli.running import show_states
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        started = client.rollback(pipeline, day, to=to, reason=reason)
        try:
            with ProgressBoard() as progress:
                result = started.wait(on_progress=partial(show_states, progress))
        except RunFailed as error:
            hint = f"its log: slackwater logs {pipeline} --date {day}"
            raise RunFailed(f"rollback of {pipeline} for {day}: {error}\n  {hint}") from error
        except KeyboardInterrupt as error:
            print_note(f"The rollback continues. To see its state: slackwater runs {pipeline}", style="yellow")
            raise typer.Exit(130) from error
    if as_json:
        print_json(run_document(result) | {"rollback": {"to": to, "reason": reason}})
        return
    print_text(
        f"{pipeline} {day}: version {to} is published again as version {result.run.attempt}, "
        f"{counted(result.publication.rows, 'row')}",
        style="green",
    )
    release = f"slackwater late release {pipeline} --date {day} --reason TEXT"
    print_text(f"  the day is on hold; to run it again with its present inputs: {release}")
    if loads:
        print_note(f"the load steps did not run: {', '.join(loads)}", style="yellow")
