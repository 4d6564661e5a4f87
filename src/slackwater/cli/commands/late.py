"""`slackwater late`: the days on hold, and what to do with them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slackwater.cli.commands import late_older, late_suggest
from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_table, print_text
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
    gone. Days of which nobody is notified, because their comparison keeps failing, files whose removal is doubtful, and
    days that have read tables before these changed (`on_change: notify`) are named too. With --older, it lists days
    before the window with late data that no run has read.
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
        days, given_up = client.days_on_hold(pipeline), client.comparisons_given_up(pipeline)
        doubtful, changed = client.doubtful_files(pipeline), client.changed_tables(pipeline)
    if as_json:
        shown = {"since", "reason"}
        rows = [(day, day.hold) for day in days if day.hold]
        print_json(
            {
                "days": [
                    {"pipeline": day.pipeline, "date": day.date, **hold.model_dump(mode="json")} for day, hold in rows
                ],
                "comparisons": [item.model_dump(mode="json") for item in given_up],
                "doubtful_files": [item.model_dump(mode="json") for item in doubtful],
                "changed_tables": [
                    day.model_dump(mode="json", include={"pipeline": True, "date": True, "table_notice": shown})
                    for day in changed
                ],
            }
        )
        return
    if days:
        print_table(
            ("pipeline", "date", "since", "rule", "reason"),
            [(day.pipeline, day.date, day.hold.since, day.hold.rule, day.hold.reason) for day in days if day.hold],
        )
        print_text(
            f"{counted(len(days), 'day')} on hold: slackwater late release | reject PIPELINE --date DATE --reason TEXT"
        )
    else:
        print_text("no day is on hold")
    for item in given_up:
        print_text(f"nobody is notified of {item.pipeline} {item.date}: {item.reason}", style="yellow")
    for day in changed:
        if day.table_notice:
            print_text(
                f"{day.pipeline} {day.date} has read an earlier version of {day.table_notice.reason}. To run it with "
                f"the new one: slackwater run {day.pipeline} --date {day.date}",
                style="yellow",
            )
    for files in doubtful:
        print_text(
            f"{files.source}: the listing of {files.at:%Y-%m-%d %H:%M} UTC lacks more stored files than it has: "
            f"{counted(files.files, 'file')}, such as {files.examples[0]}. Their rows still count. If the partner has "
            f"removed them on purpose: slackwater pull {files.source} --accept-removed {files.files}",
            style="yellow",
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
        except KeyboardInterrupt as error:
            print_note(
                f"A run that has started continues: slackwater runs {pipeline}. If there is none, repeat the release",
                style="yellow",
            )
            raise typer.Exit(130) from error
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
