"""Executes job runs: the queue of an application, the slots of this machine, time limits, cancellation."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Protocol

from slackwater.local.emr import billing
from slackwater.local.emr.runner import AttemptResult
from slackwater.local.emr.store import Application, EmrStore, JobRun, new_id
from slackwater.local.emr.submit import Submission, read_submission
from slackwater.local.emulator import Scope
from slackwater.local.service_model import EmrConflict, EmrValidationError

# States that count for maxConcurrentRuns.
_OCCUPYING = ("PENDING", "SCHEDULED", "RUNNING", "CANCELLING")
# The defaults of the scheduler configuration, which every release since 7.3.0 has.
_CONCURRENT_RUNS, _QUEUE_MINUTES = 15, 360
# After this time without an executor, a driver gives up. Seen in drivers' logs; AWS does not document it.
_EXECUTOR_MINUTES = 20
# "Troubleshooting errors in EMR Serverless".
_ACCOUNT_FULL = "Job failed as account has reached the service limit on the maximum vCPU it can use concurrently"
_APPLICATION_FULL = "Job failed as application has exceeded maximumCapacity settings"
_NO_EXECUTOR = "Worker could not be allocated as the application has exceeded maximumCapacity settings"


class AttemptRunner(Protocol):
    """Runs one attempt of a job run."""

    def run(
        self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: threading.Event
    ) -> AttemptResult:
        """Run the attempt until it ends or `stop` is set."""


class JobRuns:
    """Starts and cancels job runs; each runs in a thread of its own."""

    def __init__(
        self, store: EmrStore, runner: AttemptRunner, *, slots: int | None = None, seconds_per_minute: float = 60
    ) -> None:
        """`slots` is the number of drivers that this machine runs at the same time, by default one per core."""
        self._store, self._runner, self._minute = store, runner, seconds_per_minute
        self._free_slots = slots or os.cpu_count() or 1
        self._stops: dict[str, threading.Event] = {}
        # The workers of each job run that holds any, by its id.
        self._held: dict[str, tuple[Application, list[billing.Worker]]] = {}

    def start(self, scope: Scope, request: dict[str, Any]) -> JobRun:
        """Submit a job run, or return the one that this client token submitted.

        Raises `EmrResourceNotFound` for the application, `EmrValidationError` for a job that cannot run, `EmrConflict`
        when the token was used for another request.
        """
        with self._store.changed:
            application = self._store.application(scope, request["applicationId"])
            for known in self._store.application_runs(application.id):
                if known.request["clientToken"] == request["clientToken"]:
                    if known.request == request:
                        return known
                    raise EmrConflict("The client token was used with different parameters")
            if request.get("mode") == "STREAMING" or request.get("retryPolicy", {}).get("maxAttempts", 1) > 1:
                raise EmrValidationError("mode, retryPolicy: the local cloud runs batch jobs, with one attempt")
            submission = read_submission(request, application.settings.get("runtimeConfiguration", []))
            workers = billing.read_workers(submission.conf)
            if application.state != "STARTED":
                if not application.settings["autoStartConfiguration"].get("enabled", True):
                    raise EmrValidationError(
                        f"Application {application.id} is in state {application.state} and autoStartConfiguration is "
                        "disabled: start the application"
                    )
                application.change_state("STARTED")
            label, tags = application.settings["releaseLabel"], dict(request.get("tags", {}))
            run = JobRun(new_id(), application.id, application.arn, scope.account, request, label, tags)
            self._store.job_runs[run.id], self._stops[run.id] = run, threading.Event()
            arguments = (run, submission, workers)
            threading.Thread(target=self._execute, args=arguments, name=f"job-{run.id}", daemon=True).start()
            return run

    def cancel(self, run: JobRun, details: str = "The job run was cancelled") -> None:
        """Cancel a job run. Raises `EmrValidationError` when it has ended."""
        with self._store.changed:
            if run.final:
                raise EmrValidationError(f"Job run {run.id} is in state {run.state} and cannot be cancelled")
            self._change_state(run, "CANCELLING", details)
            self._stops[run.id].set()

    def wait(self, run: JobRun, seconds: float) -> bool:
        """Wait until a job run has ended, at most `seconds`. Return whether it has ended."""
        with self._store.changed:
            return self._store.changed.wait_for(lambda: run.final, seconds)

    def running(self) -> bool:
        """Return whether any job run has not ended."""
        with self._store.changed:
            return any(not run.final for run in self._store.job_runs.values())

    def stop_all(self, seconds: float = 0) -> None:
        """Stop every job run, and wait until all of them have ended, at most `seconds`."""
        with self._store.changed:
            for run in self._store.job_runs.values():
                if not run.final:
                    self._stops[run.id].set()
            self._store.changed.notify_all()
            self._store.changed.wait_for(lambda: not self.running(), seconds)

    def _execute(self, run: JobRun, submission: Submission, workers: billing.Workers) -> None:
        """Run a job run from SUBMITTED to its final state: queue, slot, driver."""
        if self._wait_for_slot(run, workers.driver):
            self._run_driver(run, submission, workers)

    def _wait_for_slot(self, run: JobRun, driver: billing.Worker) -> bool:
        """Wait for the application's queue and for a free slot of this machine. Return whether the run has the slot.

        When the queue lets the run start, its driver takes its part of the capacity. The run fails if there is none.
        """
        with self._store.changed:
            scheduler = self._store.applications[run.application].settings.get("schedulerConfiguration", {})
            limit = scheduler.get("maxConcurrentRuns", _CONCURRENT_RUNS)
            deadline = time.monotonic() + scheduler.get("queueTimeoutMinutes", _QUEUE_MINUTES) * self._minute
            if self._may_occupy(run, limit):
                self._change_state(run, "PENDING", "The job run is pending")
            else:
                self._change_state(run, "QUEUED", "The application runs as many job runs as maxConcurrentRuns allows")
            while not run.final and not self._stops[run.id].is_set():
                if self._may_occupy(run, limit):
                    # AWS starts it now. Here it may wait for a slot of this machine as well, in the same state.
                    if run.state != "SCHEDULED":
                        if refusal := self._take(run, driver):
                            self._change_state(run, "FAILED", refusal)
                            return False
                        self._change_state(run, "SCHEDULED", "The job run is scheduled and waits for resources")
                    if self._free_slots:
                        self._free_slots -= 1
                        return True
                elif time.monotonic() > deadline:
                    self._change_state(run, "FAILED", "The job run was queued for longer than queueTimeoutMinutes")
                    return False
                self._store.changed.wait(0.5)  # every change of state notifies; the limit is for the deadline
            if not run.final:
                self._change_state(run, "CANCELLED", run.state_details)
            return False

    def _take(self, run: JobRun, worker: billing.Worker) -> str:
        """Give a run a worker, if the account and the application have capacity for it. Return why not, or nothing."""
        application = self._store.applications[run.application]
        in_application, in_account = [worker], [worker]
        for other, held in self._held.values():
            if (other.account, other.region) == (application.account, application.region):
                in_account += held
            if other.id == application.id:
                in_application += held
        maximum = application.settings.get("maximumCapacity")
        if maximum and not billing.fits(in_application, maximum):
            return _APPLICATION_FULL
        if sum(item.cpu for item in in_account) > billing.ACCOUNT_VCPU:
            return _ACCOUNT_FULL
        self._held.setdefault(run.id, (application, []))[1].append(worker)
        return ""

    def _wait_for_executors(self, run: JobRun, workers: billing.Workers) -> int:
        """Take the executors of a run, and wait until it has one, if it needs any. Return how many it has."""
        deadline = time.monotonic() + _EXECUTOR_MINUTES * self._minute
        while (executors := len(self._held[run.id][1]) - 1) < workers.executors:
            if not self._take(run, workers.executor):
                continue
            if executors or self._stops[run.id].is_set() or time.monotonic() > deadline:
                break
            self._store.changed.wait(0.5)  # every change of state notifies; the limit is for the deadline
        return executors

    def _may_occupy(self, run: JobRun, limit: int) -> bool:
        """Return whether maxConcurrentRuns has room for a run and for those that were submitted before it."""
        if run.state in _OCCUPYING:
            return True
        runs = self._store.application_runs(run.application)
        ahead = [other for other in runs[: runs.index(run)] if other.state in ("SUBMITTED", "QUEUED")]
        return sum(other.state in _OCCUPYING for other in runs) + len(ahead) < limit

    def _run_driver(self, run: JobRun, submission: Submission, workers: billing.Workers) -> None:
        stop, started = self._stops[run.id], time.monotonic()
        timer = threading.Timer(run.timeout_minutes * self._minute, self._time_out, args=(run,))
        timer.daemon = True  # it must not keep the process alive
        with self._store.changed:
            self._change_state(run, "RUNNING", "The job run is running")
            if run.timeout_minutes:
                timer.start()
            executors = self._wait_for_executors(run, workers)
        if stop.is_set():
            result = AttemptResult(-1, "", stopped=True)
        elif executors or not workers.executors:
            try:
                result = self._runner.run(run.id, submission, log_prefix=run.log_prefix, stop=stop)
            except Exception as error:  # noqa: BLE001 - without a final state, the run would keep its slot for ever
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))
                result = AttemptResult(-1, f"{type(error).__name__}: {error}")
        else:
            result = AttemptResult(1, _NO_EXECUTOR)
        timer.cancel()
        workers = workers._replace(executors=executors)
        with self._store.changed:
            run.run_seconds = time.monotonic() - started
            self._free_slots += 1
            run.used, run.billed = billing.used(workers, run.run_seconds), billing.billed(workers, run.run_seconds)
            self._store.applications[run.application].idle_since = time.time()
            self._change_state(run, *_final_state(run, result))

    def _time_out(self, run: JobRun) -> None:
        with self._store.changed:
            if not run.final:
                self.cancel(run, f"The job run timed out after {run.timeout_minutes} minutes")

    def _change_state(self, run: JobRun, state: str, details: str) -> None:
        run.change_state(state, details)
        if run.final:
            self._held.pop(run.id, None)
            if run.billed is None:  # it has never run
                run.used = run.billed = dict.fromkeys(("vCPUHour", "memoryGBHour", "storageGBHour"), 0.0)
        self._store.changed.notify_all()


def _final_state(run: JobRun, result: AttemptResult) -> tuple[str, str]:
    """Return state and details; the details of a failed driver have the wording of EMR Serverless."""
    if result.stopped:
        return "CANCELLED", run.state_details
    if result.exit_code == 0:
        return "SUCCESS", "The job run ended"
    if result.exit_code < 0:
        return "FAILED", f"Job failed: {result.error}"
    return "FAILED", (
        "Job failed, please check complete logs in configured logging destination. "
        f"ExitCode: {result.exit_code}. Last few exceptions: {result.error}"
    )
