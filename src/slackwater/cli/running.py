"""Runs and pulls: starting their state machines, following them, and saying what came out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.aws.machines import ExecutionView, Machines
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.errors import RunFailed
from slackwater.runs.outcome import reason
from slackwater.runs.record import Publication, Run
from slackwater.runs.table import RunTable

_SPARK_STATES = ("Run ", "Publish ")
"""How the states begin that wait for a Spark job."""

_IN_WORDS = frozenset({"RunFailed", "DaysFailed", "ComparisonFailed"})
"""Errors of our own machines, whose cause is a sentence."""

_SILENT = frozenset(
    {"What to do", "Nothing to do", "Failed", "AnyFailed", "FilesFailed", "Pulled"}
    | {"Is it to be made?", "Nothing to make", "Comparison failed"}
)
"""States that take no time and say nothing."""


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Where a run's time went. The parts are None for a run that had nothing to do."""

    total: float
    spark_start: float | None = None
    """Waiting for Spark jobs to begin and end: queue, start of the driver, stop."""
    spark_work: float | None = None
    """Reading, computing and writing, as the jobs measured it."""
    orchestration: float | None = None
    """Everything else: states, functions, the record of the run."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended well."""

    outcome: str
    """`published`, or `unchanged` when the published day already comes from these inputs and this definition."""
    run: Run
    publication: Publication
    seconds: Seconds
    execution: str


def correlation_id() -> str:
    """Return a new id that goes with everything one call causes."""
    return uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs days of pipelines."""

    machines: Machines
    table: RunTable
    prefix: str
    """ARN of the pipelines' machines, but for the pipeline's name."""

    def start(self, pipeline: str, date: str, *, force: bool = False, allow_fewer: bool = False) -> str:
        """Start a run, and return its execution."""
        correlation = correlation_id()
        payload = {"date": date, "force": force, "allow_fewer": allow_fewer, "correlation_id": correlation}
        return self.machines.start(f"{self.prefix}{pipeline}", name=f"{date}-{correlation}", payload=payload)

    def outcome(self, view: ExecutionView) -> RunResult:
        """Return what an execution that is over has done. Raises `RunFailed` with the driver's words."""
        output = succeeded(view)
        run, publication = Run.model_validate(output["run"]), Publication.model_validate(output["publication"])
        unchanged = output["outcome"] == "unchanged"
        return RunResult(
            outcome=output["outcome"],
            run=run,
            publication=publication,
            seconds=Seconds(total=round(view.seconds, 1)) if unchanged else self._seconds(view, run, publication),
            execution=view.arn,
        )

    def _seconds(self, view: ExecutionView, run: Run, publication: Publication) -> Seconds:
        record = self.table.run(run.pipeline, run.date, run.attempt)
        stages = record.stages if record else ()
        work = sum(stage.reference.seconds for stage in stages) + publication.seconds
        jobs = sum(state.seconds for state in view.states if state.name.startswith(_SPARK_STATES))
        return Seconds(
            total=round(view.seconds, 1),
            spark_start=round(max(jobs - work, 0), 1),
            spark_work=round(work, 1),
            orchestration=round(max(view.seconds - jobs, 0), 1),
        )


def start_pull(machines: Machines, machine: str, *, source: str, as_of: str | None) -> str:
    """Start a pull of the source, as of a date or of today, and return its execution."""
    correlation = correlation_id()
    payload = {"source": source, "as_of": as_of, "correlation_id": correlation}
    return machines.start(machine, name=f"{as_of or 'today'}-{correlation}", payload=payload)


def start_comparison(machines: Machines, machine: str, *, pipeline: str, date: str) -> str:
    """Start comparing a day's published version with the one before, and return its execution."""
    correlation = correlation_id()
    payload = {"pipeline": pipeline, "date": date, "since": "previous", "correlation_id": correlation}
    return machines.start(machine, name=f"{date}-{correlation}", payload=payload)


def succeeded(view: ExecutionView) -> Mapping[str, Any]:
    """Return the output of an execution that is over. Raises `RunFailed` saying why, when it failed."""
    if view.succeeded:
        return view.output
    raise reason_of(view)


def reason_of(view: ExecutionView) -> RunFailed:
    """Return why an execution has failed."""
    if view.error in _IN_WORDS:
        return RunFailed(view.cause)
    if view.status == "ABORTED" and not view.error:
        return RunFailed("its execution was stopped")
    return RunFailed(reason(view.error or view.status, view.cause))


def show_states(board: ProgressBoard, view: ExecutionView) -> None:
    """Show each state of one execution as a part of its own."""
    entered: dict[str, int] = {}
    for state in view.states:
        entered[state.name] = times = entered.get(state.name, 0) + 1
        if state.name in _SILENT:
            continue
        mark = PartState.RUNNING if state.exited is None else PartState.FAILED if state.failed else PartState.DONE
        board.update(f"{state.name} ({times})" if times > 1 else state.name, mark, seconds=state.seconds)
