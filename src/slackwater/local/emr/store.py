"""EMR Serverless' applications and job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from slackwater.local.emr.errors import NotFound
from slackwater.local.emr.records import Application, JobRun


class Scope(NamedTuple):
    """Whose resources a request sees."""

    account: str
    region: str


class Store:
    """The records, with the lock that guards them. `changed` is notified whenever one of them changes."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.applications: dict[str, Application] = {}
        self.job_runs: dict[str, JobRun] = {}

    def application(self, scope: Scope, identifier: str) -> Application:
        """Return an application of `scope`. Raises `NotFound`."""
        found = self.applications.get(identifier)
        if found is None or (found.account, found.region) != scope:
            raise NotFound(f"Application {identifier} does not exist")
        return found

    def job_run(self, scope: Scope, application: str, identifier: str) -> JobRun:
        """Return a job run of an application of `scope`. Raises `NotFound`."""
        self.application(scope, application)
        found = self.job_runs.get(identifier)
        if found is None or found.application != application:
            raise NotFound(f"Job run {identifier} does not exist in application {application}")
        return found

    def of(self, application: str) -> list[JobRun]:
        """Return the job runs of an application, the oldest first."""
        return [run for run in self.job_runs.values() if run.application == application]

    def saved(self) -> dict[str, Any]:
        """Return everything as JSON."""
        with self.changed:
            return {
                "applications": [vars(item) | {} for item in self.applications.values()],
                "job_runs": [item.saved() for item in self.job_runs.values()],
            }

    def restore(self, data: dict[str, Any]) -> None:
        """Take back what `saved` gave; job runs that had not ended have failed with the process that ran them."""
        with self.changed:
            self.applications = {item["id"]: Application(**item) for item in data["applications"]}
            self.job_runs = {item["id"]: JobRun(**item) for item in data["job_runs"]}
            for run in self.job_runs.values():
                if not run.final:
                    run.to("FAILED", "Job failed: the local cloud stopped while it ran")

    def clear(self) -> None:
        """Forget everything."""
        with self.changed:
            self.applications.clear()
            self.job_runs.clear()

    def tagged(self, scope: Scope, arn: str) -> dict[str, str]:
        """Return the tags of the resource that an ARN names, to read or to change. Raises `NotFound`."""
        resources: Iterable[Application | JobRun] = [*self.applications.values(), *self.job_runs.values()]
        for resource in resources:
            if resource.arn == arn and resource.account == scope.account:
                return resource.tags
        raise NotFound(f"Resource {arn} does not exist")
