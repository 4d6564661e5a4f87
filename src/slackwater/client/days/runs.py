"""Runs that a client has started: their state, their result, and the version of the day that they published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from slackwater.aws.executions.state_machines import ExecutionView, StateView
from slackwater.aws.resources import utc_now
from slackwater.client.days.executions import Executions, OnProgress, ignore, require_success
from slackwater.client.tables import PublishedTable
from slackwater.errors import StillRunning
from slackwater.pipeline.compile import WAIT_STATE
from slackwater.runs.period import is_hour, period_of
from slackwater.runs.record import DayRecord, Publication, ResolutionAction, Run, RunRecord, RunState
from slackwater.runs.table import RunTable
from slackwater.state.completeness import SourceCounts

_SPARK = "emr-serverless"


@dataclass(frozen=True, kw_only=True)
class RunSeconds:
    """How long a run took. The parts are None for a run that had nothing to do, or if they are unknown."""

    total: float
    spark_start: float | None = None
    """Waiting for Spark jobs: in the queue, for the start of the driver, and for its stop. The sum over all jobs."""
    spark_work: float | None = None
    """Reading, computing and writing, measured by the jobs. The sum over all jobs."""
    orchestration: float | None = None
    """The rest, without waiting for inputs: transitions of the state machine, and functions."""


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
    counts: Sequence[SourceCounts] = ()
    """What the sources with `counts` had sent when the inputs were listed."""
    missing: Sequence[str] = ()
    """What the run had waited for in vain."""
    notes: Sequence[str] = ()
    """What else a person has to know about the day: that it has not ended, has no events, is on hold, or was."""


@dataclass(kw_only=True)
class RunHandle:
    """A run that a client has started. It goes on in the cloud when the client is closed."""

    pipeline: str
    date: str
    execution: str
    """ARN of the Step Functions execution."""
    executions: Executions
    run_table: RunTable
    open_table: Callable[[Run], PublishedTable]
    _view: ExecutionView | None = field(default=None, init=False)
    _result: RunResult | None = field(default=None, init=False)

    def view(self) -> ExecutionView:
        """Return the execution's progress: read now, or its last view when it has ended. Raises `CloudError`."""
        if self._view is None or not self._view.over:
            self._view = self.executions.state_machines.view(self.execution)
        return self._view

    @property
    def state(self) -> RunState:
        """Whether the run is running, has failed, or has published its day (or found it unchanged)."""
        view = self.view()
        if not view.over:
            return RunState.RUNNING
        return RunState.PUBLISHED if view.succeeded else RunState.FAILED

    def wait(self, timeout: float | None = None, *, on_progress: OnProgress = ignore) -> RunResult:
        """Wait for the end of the run, and return its result. `on_progress` gets each view of the execution.

        Raises `RunFailed` with the reason, or `StillRunning`, a `TimeoutError`, after `timeout` seconds.
        """
        if self._view is None or not self._view.over:
            self._view = self.executions.wait(self.execution, timeout=timeout, on_progress=on_progress)
        return self.result

    @property
    def result(self) -> RunResult:
        """The result of a run that has ended. Raises `RunFailed` with the reason, or `StillRunning`."""
        if self._result is None:
            view = self.view()
            if not view.over:
                raise StillRunning(f"{self.pipeline} for {self.date} has not ended: call wait()")
            self._result = run_result(view, self.run_table)
        return self._result

    def table(self) -> PublishedTable:
        """Return the version of the day that this run has published, or has found unchanged.

        Raises `RunFailed` with the reason, or `StillRunning`.
        """
        return self.open_table(self.result.run)


def run_result(view: ExecutionView, table: RunTable) -> RunResult:
    """Return the result of an execution that has ended. Raises `RunFailed` with the error of the run."""
    output = require_success(view)
    run, publication = Run.model_validate(output["run"]), Publication.model_validate(output["publication"])
    seconds = RunSeconds(total=round(view.seconds, 1))
    record = table.run(run.pipeline, run.date, run.attempt)
    # The last run of a day that was published before its end may need no job.
    if output["outcome"] != "unchanged" and any(state.service == _SPARK for state in view.states):
        # A stage that was kept has its manifest under the prefix of the attempt that computed it.
        computed = [
            stage.reference for stage in (record.stages if record else ()) if run.prefix in stage.reference.manifest
        ]
        work = sum(reference.seconds for reference in computed) + publication.seconds
        seconds = run_seconds(view.seconds, view.states, work=work)
    return RunResult(
        outcome=output["outcome"],
        run=run,
        publication=publication,
        seconds=seconds,
        execution=view.arn,
        files_not_taken=record.files_not_taken if record else {},
        counts=record.counts if record else (),
        missing=record.missing if record else (),
        notes=tuple(_notes(run, record, table.day(run.pipeline, run.date), started=view.started, now=utc_now())),
    )


def _notes(run: Run, record: RunRecord | None, day: DayRecord, *, started: datetime, now: datetime) -> Iterator[str]:
    if reads := record and record.reads:
        local_day = f"{run.date} in {reads.timezone}"
        if run.through:
            yield f"{local_day} had not ended: the version is provisional, and is replaced when more events have come"
        elif period_of(run.date, reads.timezone).end > now:
            again = "and a check runs the day again" if not is_hour(run.date) else "which only another run reads"
            yield f"{local_day} has not ended: its later events are late data, {again}"
        if not run.rows:
            counts = (
                f'slackwater query "SELECT date, count(*) FROM raw.{name} GROUP BY date"'  # noqa: S608
                for name in reads.sources
            )
            yield "\n  ".join((f"the inputs have no event of {local_day}. The days that they have (UTC):", *counts))
    if day.hold:
        yield (
            f"the day is on hold ({day.hold.rule}): {day.hold.reason}\n  slackwater late release {run.pipeline} --date "
            f"{run.date} --reason TEXT, or slackwater late keep"
        )
    elif (ended := day.resolution) and ended.action is ResolutionAction.ENDED and ended.at >= started:
        yield f"the day is no longer on hold: {ended.reason}"


def run_seconds(total: float, states: Iterable[StateView], *, work: float | None) -> RunSeconds:
    """Return how long a run took by its states; `work` is how long its Spark jobs worked, None if that is unknown."""
    states = list(states)
    jobs = [state for state in states if state.service == _SPARK]
    waited = sum(state.seconds for state in states if state.name == WAIT_STATE)
    # Step Functions and Spark measure with different clocks: a difference can be slightly negative.
    return RunSeconds(
        total=round(total, 1),
        spark_start=None if work is None else round(max(sum(job.seconds for job in jobs) - work, 0), 1),
        spark_work=None if work is None else round(work, 1),
        orchestration=round(max(total - waited - _busy_seconds(jobs), 0), 1),
    )


def _busy_seconds(jobs: Sequence[StateView]) -> float:
    """Return the seconds in which at least one of the jobs ran; jobs of one layer of stages run in parallel."""
    total, until = 0.0, 0.0
    for start, seconds in sorted((job.entered.timestamp(), job.seconds) for job in jobs):
        total += max(start + seconds - max(start, until), 0)
        until = max(until, start + seconds)
    return total
