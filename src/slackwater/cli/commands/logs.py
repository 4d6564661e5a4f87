"""`slackwater logs`: everything that a run has logged, in time order, or Spark's own log of one stage."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import AttemptNumber, RunName, option, period_option
from slackwater.cli.output import print_note, print_text, to_json_value
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.client.client import Client
    from slackwater.client.days.attempts import Attempt
    from slackwater.client.days.run_log import LogLine

# Values that people do not see: they are the same on every line of a run, or say where in the code a line was written.
_OMITTED_FIELDS = frozenset(
    {
        *("correlation_id", "pipeline", "date", "run_id", "run", "job", "stage"),
        *("service", "location", "exception_name", "stack_trace"),
    }
)

# Characters of a list or an object that people see.
_LONGEST_VALUE = 80


@command(
    "slackwater logs daily_delays --date 2013-03-08",
    "slackwater logs 0f3b5f0c2d1e --attempt 2",
    "slackwater logs daily_delays --date 2013-03-08 --stage delays_by_carrier --spark",
)
def logs(
    run: RunName,
    date: Annotated[str | None, period_option(text="The day of the run of a PIPELINE.")] = None,
    attempt: AttemptNumber = None,
    stage: Annotated[
        str | None, option(metavar="STAGE", text="Only this stage. Default with --spark: the last job.")
    ] = None,
    spark: Annotated[bool, option("--spark", text="Print Spark's own log of one stage instead.")] = False,
    *,
    session: Session,
) -> Result:
    """Print everything that a run has logged, in time order.

    These are the transitions of its state machine, and the lines of its functions and of its Spark jobs, with the
    traceback of a failure. Times are in UTC. A job's lines appear when it has ended. Long lists and objects are cut,
    but not with --json.
    """
    from slackwater.client.days.attempts import check_run_name

    check_run_name(run, session.project.known_names, date=date)
    chosen = session.client.attempt(run, date=date, attempt=attempt)
    if spark:
        return _spark_log(session.client, chosen, stage)
    log, run_, state = session.client.run_log(chosen, stage=stage), chosen.record.run, chosen.record.state.value

    def view() -> None:
        print_note(
            f"{shown(run_.pipeline)} {run_.date}, attempt {run_.attempt}: {state} "
            f"(run {run_.run_id}, correlation id {run_.correlation_id})",
            style="bold",
        )
        width = max((len(line.source) for line in log.lines), default=0)
        for line in log.lines:
            print_text(format_log_line(line, width=width), style="red" if line.level == "ERROR" else "")
        for sentence in log.missing:
            print_note(f"not read: {sentence}", style="yellow")

    named = {name: getattr(run_, name) for name in ("pipeline", "date", "attempt", "run_id", "correlation_id")}
    lines = []
    for line in log.lines:
        values = {"time": line.at, **vars(line)}
        lines.append({name: value for name, value in values.items() if name != "at" and (value or name != "traceback")})
    return Result({**named, "state": state, "lines": lines, "missing": log.missing}, view)


def _spark_log(client: Client, attempt: Attempt, stage: str | None) -> Result:
    """Return what Spark itself has logged in the job of a stage, by default in the last job of the attempt."""
    jobs = [job for job in attempt.jobs(client.logs) if stage in {None, job.stage}]
    run = attempt.record.run
    if not jobs:
        of_stage = f" of stage {stage}" if stage else ""
        raise InputError(
            f"attempt {run.attempt} of {shown(run.pipeline)} for {run.date} has no Spark job{of_stage} "
            f"(its stages: slackwater runs {run.run_id[:12]} --attempt {run.attempt})"
        )
    job = jobs[-1]
    # Spark itself logs to standard error. spark-submit sends both streams of the driver's Python to standard output,
    # which `slackwater logs` reads without --spark.
    text = client.logs.driver_log(job, "stderr")

    def view() -> None:
        detail = f", {job.detail}" if job.failed else ""
        print_note(f"job {job.id} ({job.name}): {job.state.lower()}{detail}", style="bold")
        sys.stdout.writelines(f"{line}\n" for line in text.splitlines())

    document = {"job": job.id, "name": job.name, "state": job.state, "detail": job.detail, "log": text}
    return Result(document, view)


def format_log_line(line: LogLine, *, width: int) -> str:
    """Return a line as `TIME LEVEL SOURCE MESSAGE FIELD=VALUE ...`, its source padded to `width` characters."""
    fields = " ".join(f"{name}={_value(value)}" for name, value in line.fields.items() if name not in _OMITTED_FIELDS)
    time = f"{line.at:%H:%M:%S}.{line.at.microsecond // 1000:03}"
    traceback = f"\n{line.traceback}" if line.traceback else ""
    return f"{time} {line.level:7} {line.source:{width}}  {line.message} {fields}".rstrip() + traceback


def _value(value: Any) -> str:
    if not isinstance(value, Mapping | list):
        return str(value)
    text = json.dumps(to_json_value(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
