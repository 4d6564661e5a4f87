"""Starts the state machines for runs, pulls and comparisons, and reads their results."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.aws.machines import ExecutionView, Machines
from slackwater.cli.progress import ProgressBoard, TaskState
from slackwater.errors import RunFailed
from slackwater.runs.outcome import failure_message
from slackwater.runs.record import Publication, Run
from slackwater.runs.table import RunTable

_SPARK = "emr-serverless"
# Error names in the Fail states of our own state machines. Their cause is a message for people and needs no prefix.
_OWN_ERRORS = frozenset({"RunFailed", "DaysFailed", "ComparisonFailed"})
# The other types (Choice, Pass, Succeed, Fail) take no time, so they are not shown.
_SHOWN_TYPES = frozenset({"Task", "Map", "Wait"})


@dataclass(frozen=True, kw_only=True)
class RunSeconds:
    """How long a run took. The parts are None for a run that had nothing to do."""

    total: float
    spark_start: float | None = None
    """Waiting for Spark jobs: in the queue, for the start of the driver, and for its stop."""
    spark_work: float | None = None
    """Reading, computing and writing, measured by the jobs."""
    orchestration: float | None = None
    """The rest: transitions of the state machine, and functions."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of a successful run."""

    outcome: str
    """`published`, or `unchanged` if the published day already has these inputs and this definition."""
    run: Run
    publication: Publication
    seconds: RunSeconds
    execution: str
    files_not_taken: Mapping[str, int]
    """For each source: files of the day that were not taken when the inputs were listed, if there were any."""


def correlation_id() -> str:
    """Return a new correlation id. It is in all log lines of the executions, functions and jobs of one command."""
    return uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Starts runs of pipelines and reads their results."""

    machines: Machines
    table: RunTable
    prefix: str
    """ARN of the pipelines' state machines without the pipeline's name at the end."""

    def start(self, pipeline: str, date: str, *, force: bool = False, allow_fewer: bool = False) -> str:
        """Start a run; return the ARN of its execution."""
        correlation = correlation_id()
        payload = {"date": date, "force": force, "allow_fewer": allow_fewer, "correlation_id": correlation}
        # Step Functions requires a name that no execution of the last 90 days has: the date alone is not enough.
        return self.machines.start(f"{self.prefix}{pipeline}", name=f"{date}-{correlation}", payload=payload)

    def result(self, view: ExecutionView) -> RunResult:
        """Return the result of an execution that has ended. Raises `RunFailed` with the error of the run."""
        output = require_success(view)
        run, publication = Run.model_validate(output["run"]), Publication.model_validate(output["publication"])
        seconds = RunSeconds(total=round(view.seconds, 1))
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if output["outcome"] != "unchanged":
            stages = record.stages if record else ()
            work = sum(stage.reference.seconds for stage in stages) + publication.seconds
            jobs = sum(state.seconds for state in view.states if state.service == _SPARK)
            # Step Functions and Spark measure with different clocks: a difference can be slightly negative.
            seconds = RunSeconds(
                total=round(view.seconds, 1),
                spark_start=round(max(jobs - work, 0), 1),
                spark_work=round(work, 1),
                orchestration=round(max(view.seconds - jobs, 0), 1),
            )
        return RunResult(
            outcome=output["outcome"],
            run=run,
            publication=publication,
            seconds=seconds,
            execution=view.arn,
            files_not_taken=record.files_not_taken if record else {},
        )


def start_pull(machines: Machines, machine: str, *, source: str, as_of: str | None) -> str:
    """Start a pull of the source as of a date, by default today; return the ARN of its execution."""
    correlation = correlation_id()
    payload = {"source": source, "as_of": as_of, "correlation_id": correlation}
    return machines.start(machine, name=f"{as_of or 'today'}-{correlation}", payload=payload)


def start_comparison(machines: Machines, machine: str, *, pipeline: str, date: str) -> str:
    """Start comparing a day's published version with the version before it; return the ARN of the execution."""
    correlation = correlation_id()
    payload = {"pipeline": pipeline, "date": date, "since": "previous", "correlation_id": correlation}
    return machines.start(machine, name=f"{date}-{correlation}", payload=payload)


def require_success(view: ExecutionView) -> Mapping[str, Any]:
    """Return the output of an execution that has ended. Raises `RunFailed` if it failed."""
    if view.succeeded:
        return view.output
    raise execution_error(view)


def execution_error(view: ExecutionView) -> RunFailed:
    """Return the error of an execution that has failed, with its reason as the message."""
    if view.error in _OWN_ERRORS:
        return RunFailed(view.cause)
    if view.status == "ABORTED" and not view.error:
        return RunFailed("its execution was stopped")
    return RunFailed(failure_message(view.error or view.status, view.cause))


def show_states(progress: ProgressBoard, view: ExecutionView) -> None:
    """Show each state of an execution as a task, except states that take no time.

    A state that is entered again is another task, such as `Fetch a file (2)`.
    """
    times: Counter[str] = Counter()
    for state in view.states:
        if state.type not in _SHOWN_TYPES:
            continue
        times[state.name] += 1
        name = f"{state.name} ({times[state.name]})" if times[state.name] > 1 else state.name
        ended = TaskState.FAILED if state.failed else TaskState.DONE
        progress.update(name, TaskState.RUNNING if state.exited is None else ended, seconds=state.seconds)
