"""`slackwater run`: run one day of a pipeline."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from datetime import date as date_type
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_text
from slackwater.cli.progress import ProgressBoard
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError, RunFailed
from slackwater.formatting import counted
from slackwater.runs.day import day_of

if TYPE_CHECKING:
    from slackwater.client.runs import RunResult, RunSeconds


def register(app: typer.Typer) -> None:
    """Add `run`."""
    app.command(
        epilog=examples(
            "slackwater run daily_delays --date 2013-03-08", "slackwater run daily_delays --date 2013-03-08 --force"
        )
    )(run)


def run(
    pipeline: PipelineName,
    *,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day, in the pipeline's timezone.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Run even if inputs and definition are unchanged.")] = False,
    allow_fewer: Annotated[
        bool,
        typer.Option(
            "--allow-fewer", help="Publish even if rows or inputs of the published version are missing from this run."
        ),
    ] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run one day of a pipeline and publish it.

    The new version replaces the one that was published for this day before.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    timezone = definitions.pipeline(pipeline).timezone
    if day_of(date_type.fromisoformat(day), timezone).start > datetime.now(UTC):
        raise InputError(f"--date: {day} has not begun in {timezone}")
    from slackwater.cli.running import show_states
    from slackwater.client.client import Client
    from slackwater.runs.untaken_files import describe_untaken

    with Client.open(workspace, definitions) as client:
        try:
            started = client.run(pipeline, day, force=force, allow_fewer=allow_fewer)
            with ProgressBoard() as progress:
                result = started.wait(on_progress=partial(show_states, progress))
        except RunFailed as error:
            message = f"{pipeline} for {day}: {error}\n  its log: slackwater logs {pipeline} --date {day}"
            raise RunFailed(message) from error
        except KeyboardInterrupt as error:
            print_note(f"The run continues in the cloud. To see its state: slackwater runs {pipeline}", style="yellow")
            raise typer.Exit(130) from error
    if as_json:
        print_json(run_document(result))
        return
    run_, publication = result.run, result.publication
    verb = "published" if result.outcome == "published" else "unchanged, published before:"
    print_text(
        f"{run_.pipeline} {run_.date}: {verb} {counted(publication.rows, 'row')} from {counted(run_.rows, 'event')} "
        f"in {counted(run_.files, 'file')}",
        style="green",
    )
    print_text(f"  {result.seconds.total} s{format_breakdown(result.seconds)}")
    for note in describe_untaken(result.files_not_taken):
        print_note(f"when its inputs were listed, {note}", style="yellow")
    print_text(f"  to query it: slackwater query \"SELECT * FROM {run_.pipeline} WHERE date = '{run_.date}'\"")  # noqa: S608


def format_breakdown(seconds: RunSeconds) -> str:
    """Return how a run's time is divided: `: waiting for Spark 2 s, Spark work 9 s, ...`; empty if it is unknown."""
    if seconds.spark_work is None:
        return ""
    return (
        f": waiting for Spark {seconds.spark_start} s, Spark work {seconds.spark_work} s, "
        f"orchestration {seconds.orchestration} s"
    )


def run_document(result: RunResult) -> dict[str, Any]:
    """Return a run's result as its JSON document."""
    return {
        "pipeline": result.run.pipeline,
        "date": result.run.date,
        "outcome": result.outcome,
        "run_id": result.run.run_id,
        "attempt": result.run.attempt,
        "correlation_id": result.run.correlation_id,
        "execution": result.execution,
        "input": {"files": result.run.files, "rows": result.run.rows, "bytes": result.run.bytes},
        "publication": result.publication.model_dump(mode="json"),
        "files_not_taken": dict(result.files_not_taken),
        "seconds": asdict(result.seconds),
    }
