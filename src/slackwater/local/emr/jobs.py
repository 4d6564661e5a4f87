"""Job runs: submitted, queued, run, timed out, cancelled."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from slackwater.local.emr import billing
from slackwater.local.emr.errors import Conflict, Invalid
from slackwater.local.emr.records import Application, JobRun, new_id
from slackwater.local.emr.runner import Outcome, Stop
from slackwater.local.emr.store import Scope, Store
from slackwater.local.emr.submit import Submission, read_submission

_OCCUPYING = ("PENDING", "SCHEDULED", "RUNNING", "CANCELLING")
_QUEUE_MINUTES = 360


class Runner(Protocol):
    """Runs one attempt of a job run."""

    def run(self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: Stop) -> Outcome:
        """Run it to its end, or until `stop`."""

    def folder(self, job_run: str) -> Path:
        """Return where the driver's `stdout` and `stderr` are kept."""


class JobRuns:
    """The operations on job runs, and the threads that carry them out."""

    def __init__(
        self, store: Store, runner: Runner, *, slots: int | None = None, seconds_per_minute: float = 60
    ) -> None:
        """`slots` is how many drivers this machine runs at a time, by default one per core."""
        self._store, self._runner, self._minute = store, runner, seconds_per_minute
        self._free = slots or os.cpu_count() or 1
        self._stops: dict[str, Stop] = {}

    def start(self, scope: Scope, request: dict[str, Any]) -> JobRun:
        """Submit a job run, or return the one that this client token submitted.

        Raises `NotFound` for the application, `Invalid` for what cannot run, `Conflict` for a token used otherwise.
        """
        with self._store.changed:
            application = self._store.application(scope, request["applicationId"])
            for known in self._store.of(application.id):
                if known.request["clientToken"] == request["clientToken"]:
                    if known.request == request:
                        return known
                    raise Conflict("The client token was used with different parameters")
            submission = read_submission(request, application.settings.get("runtimeConfiguration", []))
            size = billing.workers(submission.conf)
            self._start_application(application)
            label = application.settings["releaseLabel"]
            tags = dict(request.get("tags", {}))
            run = JobRun(new_id(), application.id, application.arn, scope.account, request, label, tags)
            self._store.job_runs[run.id], self._stops[run.id] = run, Stop()
            threading.Thread(target=self._live, args=(run, submission, size), name=f"job-{run.id}", daemon=True).start()
            return run

    def get(self, scope: Scope, application: str, identifier: str) -> JobRun:
        """Return a job run. Raises `NotFound`."""
        with self._store.changed:
            return self._store.job_run(scope, application, identifier)

    def list(self, scope: Scope, request: dict[str, Any]) -> list[JobRun]:
        """Return the job runs that a ListJobRuns request asks for, the newest first."""
        with self._store.changed:
            self._store.application(scope, request["applicationId"])
            runs = reversed(self._store.of(request["applicationId"]))
            states, mode = request.get("states"), request.get("mode")
            after, before = request.get("createdAtAfter", 0.0), request.get("createdAtBefore", float("inf"))
            return [
                run
                for run in runs
                if (not states or run.state in states)
                and (mode is None or run.mode == mode)
                and after <= run.created_at <= before
            ]

    def cancel(self, scope: Scope, application: str, identifier: str) -> JobRun:
        """Cancel a job run. Raises `Invalid` for one that has ended."""
        with self._store.changed:
            run = self._store.job_run(scope, application, identifier)
            if run.final:
                raise Invalid(f"Job run {identifier} is in state {run.state}, and cannot be cancelled")
            self._end(run, "The job run was cancelled")
            return run

    def log_folder(self, run: JobRun) -> Path:
        """Return where the driver's `stdout` and `stderr` are kept on this machine."""
        return self._runner.folder(run.id)

    def wait(self, run: JobRun, seconds: float) -> bool:
        """Wait until a job run has ended, `seconds` at most; say whether it has."""
        with self._store.changed:
            return self._store.changed.wait_for(lambda: run.final, seconds)

    def running(self) -> bool:
        """Whether any job run has not ended."""
        with self._store.changed:
            return any(not run.final for run in self._store.job_runs.values())

    def stop_all(self) -> None:
        """End every job run that has not ended: the process is going down."""
        with self._store.changed:
            for run in self._store.job_runs.values():
                if not run.final:
                    self._stops[run.id].ask()

    def _start_application(self, application: Application) -> None:
        if application.state == "STARTED":
            return
        if not application.settings["autoStartConfiguration"].get("enabled", True):
            raise Invalid(f"Application {application.id} is in state {application.state}, and does not start by itself")
        application.to("STARTED")

    def _live(self, run: JobRun, submission: Submission, size: billing.Workers) -> None:
        """Take a job run from SUBMITTED to its end."""
        if not self._admitted(run):
            return
        if not self._fits(run, size):
            return
        while self._attempt(run, submission, size):
            pass

    def _admitted(self, run: JobRun) -> bool:
        """Wait for the application's turn and for a free slot of this machine; say whether the run may start."""
        with self._store.changed:
            deadline = self._queued(run)
            while not run.final and not self._stops[run.id].asked:
                if self._turn(run):
                    if run.state != "SCHEDULED":
                        self._move(run, "SCHEDULED", "The job run is scheduled, and waits for resources")
                    if self._free:
                        self._free -= 1
                        return True
                elif time.monotonic() > deadline:
                    self._move(run, "FAILED", "The job run was in the queue for as long as queueTimeoutMinutes allows")
                    return False
                self._store.changed.wait(0.5)
            if not run.final:
                self._move(run, "CANCELLED", run.state_details)
            return False

    def _queued(self, run: JobRun) -> float:
        """Move a run to PENDING, or to QUEUED when its application is busy; return when it leaves the queue."""
        application = self._store.applications[run.application]
        scheduler = application.settings.get("schedulerConfiguration", {})
        minutes: int = scheduler.get("queueTimeoutMinutes", _QUEUE_MINUTES)
        if self._turn(run):
            self._move(run, "PENDING", "The job run is pending")
        else:
            self._move(run, "QUEUED", "The application runs as many job runs as maxConcurrentRuns allows")
        return time.monotonic() + minutes * self._minute

    def _turn(self, run: JobRun) -> bool:
        if run.state in _OCCUPYING:
            return True
        application = self._store.applications[run.application]
        limit = application.settings.get("schedulerConfiguration", {}).get("maxConcurrentRuns")
        runs = self._store.of(run.application)
        ahead = [other for other in runs[: runs.index(run)] if other.state in ("SUBMITTED", "QUEUED")]
        return limit is None or sum(other.state in _OCCUPYING for other in runs) + len(ahead) < limit

    def _fits(self, run: JobRun, size: billing.Workers) -> bool:
        """Fail a run whose driver is larger than all that the application may use."""
        maximum = self._store.applications[run.application].settings.get("maximumCapacity")
        if maximum is None:
            return True
        cpu, memory = int(maximum["cpu"].lower().split("v")[0]), billing.gigabytes(maximum["memory"])
        if size.driver.cpu <= cpu and size.driver.memory_gb <= memory:
            return True
        with self._store.changed:
            self._free += 1
            self._move(run, "FAILED", "The driver is larger than the application's maximumCapacity allows")
        return False

    def _attempt(self, run: JobRun, submission: Submission, size: billing.Workers) -> bool:
        """Run one attempt; say whether another one follows."""
        stop = self._stops[run.id]
        began = time.monotonic()
        with self._store.changed:
            self._move(run, "RUNNING", "The job run is running")
        timer = threading.Timer(run.timeout_minutes * self._minute, self._time_out, args=(run,))
        timer.daemon = True
        if run.timeout_minutes:
            timer.start()
        outcome = self._runner.run(run.id, submission, log_prefix=log_prefix(run), stop=stop)
        timer.cancel()
        with self._store.changed:
            run.run_seconds += time.monotonic() - began
            again = bool(outcome.exit_code) and not stop.asked and run.attempt < _attempts(run)
            if again:
                run.next_attempt()
            else:
                self._free += 1
                run.used, run.billed = billing.used(size, run.run_seconds), billing.billed(size, run.run_seconds)
                self._store.applications[run.application].idle_since = time.time()
                self._move(run, *_ending(run, outcome))
            return again

    def _time_out(self, run: JobRun) -> None:
        with self._store.changed:
            if not run.final:
                self._end(run, f"The job run timed out after {run.timeout_minutes} minutes")

    def _end(self, run: JobRun, why: str) -> None:
        self._move(run, "CANCELLING", why)
        self._stops[run.id].ask()

    def _move(self, run: JobRun, state: str, details: str) -> None:
        run.to(state, details)
        self._store.changed.notify_all()


def log_prefix(run: JobRun) -> str | None:
    """Return the address below which a job run's logs are kept, if its configuration names one."""
    monitoring = run.request.get("configurationOverrides", {}).get("monitoringConfiguration", {})
    uri = monitoring.get("s3MonitoringConfiguration", {}).get("logUri")
    return f"{uri.rstrip('/')}/applications/{run.application}/jobs/{run.id}" if uri else None


def _attempts(run: JobRun) -> int:
    attempts: int = run.request.get("retryPolicy", {}).get("maxAttempts", 1)
    return attempts


def _ending(run: JobRun, outcome: Outcome) -> tuple[str, str]:
    if outcome.stopped:
        return "CANCELLED", run.state_details
    if outcome.exit_code == 0:
        return "SUCCESS", "The job run ended"
    if outcome.exit_code < 0:
        return "FAILED", f"Job failed: {outcome.error}"
    return "FAILED", (
        "Job failed, please check complete logs in configured logging destination. "
        f"ExitCode: {outcome.exit_code}. Last few exceptions: {outcome.error}"
    )
