"""Stop a run: its execution and its Spark jobs, or one that waits for its inputs. The day is then free to run again."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.client.days.attempts import Attempt
from slackwater.errors import DayChanged, InputError
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import STOPPED, Run, RunState
from slackwater.runs.table import MAX_WRITES, RunTable, is_alive
from slackwater.state.waits import DayKey, WaitTable

_CAUSE = "it was stopped with slackwater stop"
# Seconds that Step Functions has for cancelling the jobs itself, which it does by best effort (`.sync` integrations).
_CANCEL_SECONDS, _POLL_SECONDS = 20, 0.5


@dataclass(frozen=True, kw_only=True)
class StoppedRun:
    """Result of stopping a run."""

    run: Run
    state: RunState
    """The state that is recorded now: `failed`, or `published` if the run has published before it was stopped."""
    error: str
    """Why the run has failed, as it is recorded; empty if it was published."""
    cancelled: tuple[Job, ...]
    """The Spark jobs that were cancelled."""
    published_attempt: int
    """The published version of the day, which stays; 0 without one."""
    may_have_published: bool
    """Whether the run may have replaced the day's rows before it was stopped: the next run of the day replaces them."""


@dataclass(frozen=True, kw_only=True)
class StoppedWait:
    """Result of stopping the runs of a day that waited for their inputs: they have begun no attempt."""

    pipeline: str
    date: str
    executions: tuple[str, ...]
    """The ARNs of their executions."""
    error: str
    """Why the executions have ended."""
    published_attempt: int
    """The published version of the day, which stays; 0 without one."""


@dataclass(frozen=True, kw_only=True)
class WaitStopper:
    """Stops runs that wait for their inputs."""

    state_machines: StateMachines
    table: RunTable
    waits: WaitTable

    def stop(self, key: DayKey) -> StoppedWait | None:
        """Stop the executions of a day that wait; return None if there is none, or an attempt of the day runs.

        A run that goes on meanwhile is an attempt that runs. The call can be repeated after an error. Raises
        `AccessDenied` and `CloudError`.
        """
        if self._is_running(key):
            return None
        now = datetime.now(UTC)
        waiting = [
            run
            for run in self.waits.waits(key)
            if is_alive(self.state_machines, run.execution, since=run.since, now=now)
        ]
        for run in waiting:
            self.state_machines.stop(run.execution, cause=_CAUSE)
            self.waits.remove_wait(run)
        if not waiting or self._is_running(key):
            return None
        published = self.table.day(*key).published
        return StoppedWait(
            pipeline=key.pipeline,
            date=key.date,
            executions=tuple(run.execution for run in waiting),
            error=f"{STOPPED}: {_CAUSE}",
            published_attempt=published.run.attempt if published else 0,
        )

    def _is_running(self, key: DayKey) -> bool:
        return any(record.state is RunState.RUNNING for record in self.table.runs(*key))


@dataclass(frozen=True, kw_only=True)
class RunStopper:
    """Stops runs, and records that they were stopped."""

    state_machines: StateMachines
    recorder: RunRecorder
    logs: JobLogs

    def stop(self, attempt: Attempt) -> StoppedRun:
        """Stop the execution and the Spark jobs of an attempt, and record it as failed.

        The call can be repeated after an error. Raises `InputError` for an attempt that has ended, `DayChanged`,
        `AccessDenied` and `CloudError`.
        """
        record, run = attempt.record, attempt.record.run
        if record.state is not RunState.RUNNING:
            raise InputError(
                f"attempt {run.attempt} of {run.pipeline} for {run.date} has ended: {record.state.value}"
                + (f" ({record.error})" if record.error else "")
            )
        self.state_machines.stop(record.execution, cause=_CAUSE)
        # Before the record: a job that has ended meanwhile has finished its stage.
        cancelled = self._end_jobs(attempt)
        self._record(run)
        table = self.recorder.table
        day, ended = table.day(run.pipeline, run.date), table.run(run.pipeline, run.date, run.attempt) or record
        return StoppedRun(
            run=run,
            state=ended.state,
            error=ended.error or "",
            cancelled=cancelled,
            published_attempt=day.published.run.attempt if day.published else 0,
            may_have_published=day.outcome_unknown,
        )

    def _end_jobs(self, attempt: Attempt) -> tuple[Job, ...]:
        """Wait for the end of the jobs, cancel those that still run, and return the cancelled ones."""
        jobs, waited = attempt.jobs(self.logs), 0.0
        while any(job.is_running for job in jobs) and waited < _CANCEL_SECONDS:
            time.sleep(_POLL_SECONDS)
            jobs, waited = attempt.jobs(self.logs), waited + _POLL_SECONDS
        if running := [job for job in jobs if job.is_running]:
            for job in running:
                self.logs.cancel(job)
            jobs = attempt.jobs(self.logs)
        return tuple(job for job in jobs if job.is_cancelled)

    def _record(self, run: Run) -> None:
        for _ in range(MAX_WRITES):
            try:
                self.recorder.record_failure(run, error=STOPPED, cause=_CAUSE)
            except DayChanged:
                # A function of the execution may still work: the first of the two writes counts.
                continue
            return
        raise DayChanged(f"{run.pipeline}: {run.date} kept changing while its run was stopped: stop it again")


def log_warning(message: str, **fields: object) -> None:
    """Log a warning in the program that stops the run: on standard error, unless it says otherwise."""
    logging.getLogger(__name__).warning("%s: %s", message, ", ".join(map(str, fields.values())))
