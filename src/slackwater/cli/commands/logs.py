"""`slackwater logs`: the log of a Spark job's driver."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError

# Fields that a formatted line leaves out: it begins with some of them, the others are the same on every line.
_OMITTED_FIELDS = frozenset(
    {"timestamp", "level", "message", "traceback", "correlation_id", "pipeline", "date", "run_id", "job"}
)


def register(app: typer.Typer) -> None:
    """Add `logs`."""
    app.command(
        epilog=examples(
            "slackwater logs daily_delays --date 2013-03-08",
            "slackwater logs daily_delays --date 2013-03-08 --stage delays_by_carrier --spark",
        )
    )(logs)


def logs(  # noqa: PLR0917 - the command line's own options
    pipeline: PipelineName,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day of the run.", show_default=False)],
    stage: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="A stage of the pipeline. Default: the last job.", show_default=False),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Print Spark's own log instead of the job's.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the log of a day's last Spark job.

    The log has the job's messages, and the traceback of a failure. After a failed run, the last job is the one that
    failed.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        jobs = [job for job in client.logs.jobs(pipeline, day) if stage is None or job.name.endswith(f" {stage}")]
        if not jobs:
            of_stage = f" and stage {stage}" if stage else ""
            raise InputError(f"{pipeline} has no Spark job for {day}{of_stage} (its runs: slackwater runs {pipeline})")
        job = jobs[-1]
        # spark-submit merges the driver's standard error into its standard output, on EMR as on the local cloud.
        text = client.logs.driver_log(job, "stderr" if spark else "stdout")
    if as_json:
        print_json({"job": job.id, "name": job.name, "state": job.state, "detail": job.detail, "log": text})
        return
    detail = f", {job.detail}" if job.failed else ""
    print_note(f"job {job.id} ({job.name}): {job.state.lower()}{detail}", style="bold")
    sys.stdout.writelines(f"{format_log_line(line)}\n" for line in text.splitlines())


def format_log_line(line: str) -> str:
    """Return a JSON line of our jobs as `TIME LEVEL MESSAGE FIELD=VALUE ...`, and any other line unchanged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict) or "message" not in entry:
        return line
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _OMITTED_FIELDS)
    time, level = entry.get("timestamp", "")[11:19], entry.get("level", "")
    traceback = f"\n{entry['traceback']}" if "traceback" in entry else ""
    return f"{time} {level:7} {entry['message']} {fields}".rstrip() + traceback
