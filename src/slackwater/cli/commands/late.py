"""`slackwater late`: the days on hold, and what to do with them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slackwater.cli.commands import late_older, late_suggest
from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_table, print_text
from slackwater.cli.progress import ProgressBoard
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError, RunFailed
from slackwater.formatting import counted

_LIST = "list"


class _LateGroup(TyperGroup):
    """A group whose command is `list` if the arguments name no other: `slackwater late daily_delays`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `list` in front if they begin with no command."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


group = typer.Typer(name="late", help="Days on hold: list, release or reject them.", cls=_LateGroup)

Day = Annotated[str, typer.Option("--date", metavar="DATE", help="The day, in the pipeline's timezone.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why. It is kept with the day.")]


def register(app: typer.Typer) -> None:
    """Add `late`, `late release`, `late reject` and `late suggest`."""
    late_suggest.register(group)
    app.add_typer(group)


@group.command(_LIST, epilog=examples("slackwater late list daily_delays", "slackwater late --older --json"))
def list_days(
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE]", help="A pipeline of the project. Default: all.", show_default=False),
    ] = None,
    *,
    older: Annotated[bool, typer.Option("--older", help="List days before the window with late data instead.")] = False,
    first: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="DATE", help="With --older: check all published days from this one.", show_default=False
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DATE", help="With --older: check all published days to this one.", show_default=False
        ),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the days on hold. `slackwater late` does the same.

    A day on hold keeps its published version. It waits until somebody releases or rejects it, or until its cause is
    gone. With --older, it lists days before the window with late data that no run has read.
    """
    if older:
        late_older.list_older(pipeline, first=first, last=last, project=project, as_json=as_json)
        return
    if first or last:
        raise InputError("--from and --to: use them with --older")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    if pipeline:
        definitions.pipeline(pipeline)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        days = client.days_on_hold(pipeline)
    if as_json:
        rows = [(day, day.hold) for day in days if day.hold]
        print_json(
            {
                "days": [
                    {"pipeline": day.pipeline, "date": day.date, **hold.model_dump(mode="json")} for day, hold in rows
                ]
            }
        )
        return
    if not days:
        print_text("no day is on hold")
        return
    print_table(
        ("pipeline", "date", "since", "rule", "reason"),
        [(day.pipeline, day.date, day.hold.since, day.hold.rule, day.hold.reason) for day in days if day.hold],
    )
    print_text(
        f"{counted(len(days), 'day')} on hold: slackwater late release | reject PIPELINE --date DATE --reason TEXT"
    )


@group.command(
    epilog=examples('slackwater late release daily_delays --date 2013-03-10 --reason "the partner withdrew the file"')
)
def release(
    pipeline: PipelineName, date: Day, reason: Reason, project: ProjectFolder = None, as_json: AsJson = False
) -> None:
    """Run a day again with its present inputs, although they have lost rows or its audit failed.

    If inputs vanish once more, the day is on hold again. A published day that is not on hold yet can be released too.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.cli.running import show_states
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client, ProgressBoard() as progress:
        try:
            result = client.release(pipeline, day, reason=reason).wait(on_progress=partial(show_states, progress))
        except RunFailed as error:
            raise RunFailed(
                f"{pipeline} for {day}: {error}\n  its log: slackwater logs {pipeline} --date {day}"
            ) from error
    if as_json:
        from slackwater.cli.commands.run import run_document

        print_json(run_document(result))
        return
    rows = counted(result.publication.rows, "row")
    print_text(f"{pipeline} {day}: released, {result.outcome} with {rows}", style="green")


@group.command(
    epilog=examples('slackwater late reject daily_delays --date 2013-03-10 --reason "the correction is wrong"')
)
def reject(
    pipeline: PipelineName, date: Day, reason: Reason, project: ProjectFolder = None, as_json: AsJson = False
) -> None:
    """Keep the published version of a day on hold.

    The same inputs are not held again. When newer data of the day arrives, the next check decides about it.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        record = client.reject(pipeline, day, reason=reason)
    if as_json:
        print_json(record.model_dump(mode="json", include={"pipeline", "date", "resolution"}))
        return
    print_text(f"{pipeline} {day}: rejected, the published version stays", style="green")
