"""`slackwater logs`: what a Spark job's driver wrote."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, remark
from slackwater.errors import InputError

_SHOWN_OTHERWISE = frozenset(
    {"timestamp", "level", "message", "traceback", "correlation_id", "pipeline", "date", "run_id", "job"}
)
"""What the line's beginning shows, what the command was asked for, and the same identifiers on every line."""


def register(app: typer.Typer) -> None:
    """Add `logs`."""
    app.command(
        epilog=examples(
            "slackwater logs daily_delays --date 2013-03-08",
            "slackwater logs daily_delays --date 2013-03-08 --stage publish --spark",
        )
    )(logs)


def logs(  # noqa: PLR0917 - the command line's own options
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of the project.", show_default=False)],
    date: Annotated[str, typer.Option(metavar="DATE", help="The day that was run.", show_default=False)],
    stage: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="A stage, or publish; the last job otherwise.", show_default=False),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Spark's own log in place of the job's.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the log of a day's last Spark job: what the job says, with the traceback of its failure.

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
    # A Python driver's standard error goes to standard output too, on EMR as here: spark-submit merges them.
    text = log.driver_log(job, "stderr" if spark else "stdout")
    if as_json:
        document({"job": job.id, "name": job.name, "state": job.state, "detail": job.detail, "log": text})
        return
    remark(f"job {job.id} ({job.name}): {job.state.lower()}{f', {job.detail}' if job.failed else ''}", style="bold")
    sys.stdout.writelines(f"{readable(line)}\n" for line in text.splitlines())


def readable(line: str) -> str:
    """Return one of the job's JSON lines as a person reads it, and any other line as it is."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict) or "message" not in entry:
        return line
    own = {name: value for name, value in entry.items() if name not in _SHOWN_OTHERWISE}
    fields = " ".join(f"{name}={value}" for name, value in own.items())
    traceback = f"\n{entry['traceback']}" if "traceback" in entry else ""
    return (
        f"{entry.get('timestamp', '')[11:19]} {entry.get('level', ''):7} {entry['message']} {fields}".rstrip()
        + traceback
    )
