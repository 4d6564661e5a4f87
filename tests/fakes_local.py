"""EMR Serverless with a runner of attempts that starts no process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import AttemptResult
from slackwater.local.emr.store import EmrStore
from slackwater.local.emr.submit import Submission
from slackwater.local.emulator import Scope
from slackwater.local.fork_server import ForkServers

SCOPE = Scope("000000000000", "us-east-1")
ELSEWHERE = Scope("000000000000", "eu-west-1")


def workers(driver: int = 1, executor: int = 1, executors: int = 1) -> str:
    """Return the parameters of a job with so many vCPU. A job without parameters takes the whole quota of an account.

    A worker of 1 vCPU has 3 GB, any other the least that EMR Serverless offers.
    """
    conf = {
        "driver.cores": driver,
        "driver.memory": "2g",
        "executor.cores": executor,
        "executor.memory": "2g",
        "executor.instances": executors,
        "dynamicAllocation.initialExecutors": executors,
    }
    return " ".join(f"--conf spark.{key}={value}" for key, value in conf.items())


def role_with_all_permissions(*services: str) -> dict[str, Any]:
    """Return a role as the emulator keeps it, which these services may assume: `states`."""
    principals = [f"{service}.amazonaws.com" for service in services]
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": principals}}
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    return {
        "RoleId": "AROA1",
        "AssumeRolePolicyDocument": json.dumps({"Statement": [trust]}),
        "InlinePolicies": {"all": json.dumps({"Statement": [everything]})},
    }


def end_fork_servers(servers: ForkServers) -> None:
    """End fork servers whose programs have ended. Those of a cloud end in the same way, with its process."""
    for server in (*servers._servers.values(), *servers._closed):
        server.close()
        server.process.wait(10)


class FakeAttemptRunner:
    """Ends each attempt with the next of `results`, success by default, unless it is held or stopped."""

    def __init__(self, *results: AttemptResult) -> None:
        self._results: Iterator[AttemptResult] = iter(results)
        self._released = threading.Event()
        self._released.set()
        self.submitted: list[Submission] = []
        self.log_prefixes: list[str | None] = []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep the attempts that start in this block running until it ends, unless they are stopped."""
        self._released.clear()
        try:
            yield
        finally:
            self._released.set()

    def run(
        self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: threading.Event
    ) -> AttemptResult:
        self.submitted.append(submission)
        self.log_prefixes.append(log_prefix)
        while not self._released.wait(0.005):
            if stop.is_set():
                return AttemptResult(137, "", stopped=True)
        return next(self._results, AttemptResult(0, ""))


class Emr:
    """The service with one application and a fake runner."""

    def __init__(
        self,
        runner: FakeAttemptRunner | None = None,
        *,
        slots: int = 8,
        minute: float = 60,
        clock: Callable[[], float] = time.monotonic,
        **settings,
    ) -> None:
        self.store = EmrStore()
        self.runner = runner or FakeAttemptRunner()
        self.jobs = JobRuns(self.store, self.runner, slots=slots, seconds_per_minute=minute)
        self.api = EmrServerlessApi(self.store, self.jobs, clock=clock)
        self.application = self.create("app", **settings)
        self.id = {"applicationId": self.application.id}

    def create(self, token: str, *, scope: Scope = SCOPE, **settings):
        request = {"releaseLabel": "emr-spark-8.1.0", "type": "SPARK", "clientToken": token, **settings}
        return self.store.applications[self.api.create_application(scope, request)["applicationId"]]

    @property
    def state(self) -> str:
        return self.api.get_application(SCOPE, self.id)["application"]["state"]

    def start(self, token: str = "one", **request):  # noqa: S107
        return self.jobs.start(SCOPE, self.request(token, **request))

    def request(self, token: str, *, parameters: str = workers(), **more):
        driver = {"entryPoint": "s3://code/job.py"} | ({"sparkSubmitParameters": parameters} if parameters else {})
        return {
            "applicationId": self.application.id,
            "clientToken": token,
            "executionRoleArn": "arn:aws:iam::000000000000:role/job",
            "jobDriver": {"sparkSubmit": driver},
            **more,
        }

    def ended(self, run):
        assert self.jobs.wait(run, 10), f"still {run.state}"
        return run

    def until(self, run, state):
        with self.store.changed:
            assert self.store.changed.wait_for(lambda: run.state == state, 10), f"{run.state}, not {state}"
