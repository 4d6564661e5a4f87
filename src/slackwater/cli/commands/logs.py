"""`slackwater logs`: what a Spark job's driver wrote."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, remark
from slackwater.errors import InputError


def register(app: typer.Typer) -> None:
    """Add `logs`."""
    app.command(
        epilog=examples(
            "slackwater logs daily_delays --date 2013-03-08",
            "slackwater logs daily_delays --date 2013-03-08 --stage publish --stdout",
        )
    )(logs)


def logs(  # noqa: PLR0917 - the command line's own options
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of the project.", show_default=False)],
    date: Annotated[str, typer.Option(metavar="DATE", help="The day that was run.", show_default=False)],
    stage: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="A stage, or publish; the last job otherwise.", show_default=False),
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Its standard output in place of standard error.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the log of a day's last Spark job.

    After a failed run that is the job that failed.
    """
    day = read_date(date, option="--date")
    place = find_place(project)
    definitions = load(place)
    definitions.pipeline(pipeline)
    from slackwater.cli.session import Session

    log = Session.open(place, definitions).logs
    jobs = [job for job in log.jobs(pipeline, day) if stage is None or job.name.endswith(f" {stage}")]
    if not jobs:
        raise InputError(f"no Spark job of {pipeline} for {day}{f' named {stage}' if stage else ''} is known")
    job = jobs[-1]
    text = log.driver_log(job, "stdout" if stdout else "stderr")
    if as_json:
        document({"job": job.id, "name": job.name, "state": job.state, "detail": job.detail, "log": text})
        return
    remark(f"job {job.id} ({job.name}): {job.state.lower()}{f', {job.detail}' if job.failed else ''}", style="bold")
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
