"""The log of a run: transitions of its state machine, lines of its functions and of its Spark jobs, in time order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.aws.executions.execution_history import Transition, read_history, transitions
from slackwater.aws.executions.function_logs import MAX_LINES, FunctionLogs
from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.client.days.attempts import Attempt, Span
from slackwater.errors import AccessDenied, CloudError
from slackwater.runs.outcome import failure_message
from slackwater.runs.record import Run

RUN_FUNCTIONS = ("freeze-inputs", "record-run")
"""The functions that the state machine of a pipeline calls in an attempt, without the prefix of the deployment."""
STATE_MACHINE = "state machine"
"""The source of transitions."""

# A line reaches CloudWatch Logs with the time at which the function's process handed it over.
_DELAY = timedelta(minutes=1)
_LEVELS = {"failed": "ERROR", "timed out": "ERROR", "aborted": "ERROR", "retried": "WARNING"}


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a run's log."""

    at: datetime
    source: str
    """`state machine`, the name of a function, or `job STAGE`."""
    level: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """All other values of the line."""
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The log of one attempt of a run."""

    lines: tuple[LogLine, ...]
    """In time order."""
    missing: tuple[str, ...]
    """One sentence for each part that could not be read, such as one that the caller may not read."""


def read_run_log(
    attempt: Attempt, *, states: Any, functions: FunctionLogs, jobs: JobLogs, stage: str | None = None
) -> RunLog:
    """Return the log of an attempt, with `stage` only the states and the job of that stage.

    `states` is a client of Step Functions. Without a permission, or where a log does not exist (yet), the rest is
    returned. Each request covers the time of the run only.
    """
    run, missing, lines = attempt.record.run, list[str](), list[LogLine]()
    span, now = Span(attempt.record.started_at, attempt.record.ended_at), datetime.now(UTC)
    with noted(missing):
        history = list(transitions(read_history(states, attempt.record.execution)))
        part, span = attempt.part([(item.state if item.event == "entered" else "", item.at) for item in history])
        of_stage = {f"Is {stage} finished?", f"Run {stage}", f"Keep {stage}"}
        lines += [_transition_line(item) for item in history[part] if stage is None or item.state in of_stage]
    if stage is None:
        for function in RUN_FUNCTIONS:
            with noted(missing):
                lines += _function_lines(functions, function, run, span, now=now, missing=missing)
    with noted(missing):
        for job in attempt.jobs(jobs):
            if stage in {None, job.stage}:
                with noted(missing):
                    lines += _job_lines(job, jobs.driver_log(job, "stdout"))
    return RunLog(lines=tuple(sorted(lines, key=lambda line: line.at)), missing=tuple(missing))


def _function_lines(
    functions: FunctionLogs, function: str, run: Run, span: Span, *, now: datetime, missing: list[str]
) -> list[LogLine]:
    """Return the lines of a function about a run. All days that one client runs have the same correlation id."""
    read = list(
        functions.lines(function, containing=run.correlation_id, start=span.begin, end=(span.end or now) + _DELAY)
    )
    if len(read) == MAX_LINES:
        missing.append(f"lines of {function} after {read[-1].at.isoformat()}: only {MAX_LINES} are read")
    lines = [parse_line(message, source=function, at=at) for at, message in read]
    known = {"correlation_id": run.correlation_id, "pipeline": run.pipeline, "date": run.date}
    return [
        line
        for line in lines
        if all(line.fields.get(name, value) == value for name, value in known.items())
        if span.begin <= line.at and (span.end is None or line.at < span.end)
    ]


@contextmanager
def noted(missing: list[str]) -> Iterator[None]:
    """Add the error of a part that cannot be read to `missing`, and go on."""
    try:
        yield
    except (AccessDenied, CloudError) as error:
        missing.append(str(error))


def parse_line(text: str, *, source: str, at: datetime) -> LogLine:
    """Return a line of a function or a job. A line that is not one of our JSON lines has the time `at`."""
    try:
        entry = json.loads(text)
        written = datetime.fromisoformat(entry["timestamp"])
        message, level = str(entry["message"]), str(entry["level"])
    except (ValueError, KeyError, TypeError):
        return LogLine(at=at, source=source, level="", message=text)
    traceback = entry.get("traceback") or entry.get("exception") or ""
    fields = {name: value for name, value in entry.items() if name not in _PARSED}
    return LogLine(at=written, source=source, level=level, message=message, fields=fields, traceback=str(traceback))


_PARSED = frozenset({"timestamp", "level", "message", "traceback", "exception"})


def _job_lines(job: Job, text: str) -> list[LogLine]:
    """Return the lines of a job's log. A line without a time, such as one that a step prints, has that before it."""
    lines: list[LogLine] = []
    for line in text.splitlines():
        lines.append(parse_line(line, source=f"job {job.stage}", at=lines[-1].at if lines else job.created))
    return lines


def _transition_line(item: Transition) -> LogLine:
    message = f"{item.state or 'execution'} {item.event}"
    if item.error or item.cause:
        message += f": {failure_message(item.error, item.cause)}"
    level = _LEVELS.get(item.event, "INFO")
    return LogLine(at=item.at, source=STATE_MACHINE, level=level, message=message)
