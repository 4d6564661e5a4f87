"""`slackwater run`: one day of a pipeline, followed to its end."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from datetime import date as date_type
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, remark, say
from slackwater.errors import InputError, RunFailed
from slackwater.formatting import counted
from slackwater.runs.day import day_of

if TYPE_CHECKING:
    from slackwater.cli.running import RunResult, Seconds


def register(app: typer.Typer) -> None:
    """Add `run`."""
    app.command(
        epilog=examples(
            "slackwater run daily_delays --date 2013-03-08", "slackwater run daily_delays --date 2013-03-08 --force"
        )
    )(run)


def run(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of the project.", show_default=False)],
    *,
    date: Annotated[
        str, typer.Option(metavar="DATE", help="The day, in the pipeline's time zone.", show_default=False)
    ],
    force: Annotated[bool, typer.Option("--force", help="Run even if inputs and definition are unchanged.")] = False,
    allow_fewer: Annotated[
        bool,
        typer.Option("--allow-fewer", help="Publish fewer rows than stand published, or from inputs that are gone."),
    ] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Process one day and publish it.

    It takes the place of what was published for that day before.
    """
    day = read_date(date, option="--date")
    place = find_place(project)
    definitions = load(place)
    zone = definitions.pipeline(pipeline).timezone
    if day_of(date_type.fromisoformat(day), zone).start > datetime.now(UTC):
        raise InputError(f"--date: {day} has not begun in {zone}")
    from slackwater.cli.session import Session

    session = Session.open(place, definitions)
    try:
        outcome = session.run(pipeline, day, force=force, allow_fewer=allow_fewer)
    except RunFailed as error:
        raise RunFailed(f"{pipeline} for {day}: {error}\n  its log: slackwater logs {pipeline} --date {day}") from error
    except KeyboardInterrupt as error:
        remark(f"The run goes on without this terminal. To follow it: slackwater runs {pipeline}", style="yellow")
        raise typer.Exit(130) from error
    if as_json:
        document(described(outcome))
    else:
        show(outcome)


def show(outcome: RunResult) -> None:
    """Print how a run ended."""
    run, publication = outcome.run, outcome.publication
    what = "published" if outcome.outcome == "published" else "unchanged, as published before:"
    say(
        f"{run.pipeline} {run.date}: {what} {counted(publication.rows, 'row')} from {counted(run.rows, 'event')} "
        f"in {counted(run.files, 'file')}",
        style="green",
    )
    say(f"  {outcome.seconds.total} s{split(outcome.seconds)}")
    say(f"  to see it: slackwater query \"SELECT * FROM {run.pipeline} WHERE date = '{run.date}'\"")  # noqa: S608


def split(seconds: Seconds) -> str:
    """Return where a run's time went, in words, after a colon."""
    if seconds.spark_work is None:
        return ""
    return (
        f": waiting for Spark {seconds.spark_start} s, Spark work {seconds.spark_work} s, "
        f"orchestration {seconds.orchestration} s"
    )


def described(outcome: RunResult) -> dict[str, Any]:
    """Return the outcome as its JSON document."""
    return {
        "pipeline": outcome.run.pipeline,
        "date": outcome.run.date,
        "outcome": outcome.outcome,
        "run_id": outcome.run.run_id,
        "attempt": outcome.run.attempt,
        "correlation_id": outcome.run.correlation_id,
        "execution": outcome.execution,
        "input": {"files": outcome.run.files, "rows": outcome.run.rows, "bytes": outcome.run.bytes},
        "publication": outcome.publication.model_dump(mode="json"),
        "seconds": asdict(outcome.seconds),
    }
