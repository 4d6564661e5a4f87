"""Keeps EMR Serverless' applications and job runs, and shows them as the API does."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from slackwater.local.emulator import Scope
from slackwater.local.service_model import EmrResourceNotFound, service_model
from slackwater.local.services.permissions import assume_role

APPLICATION_IDLE = ("CREATED", "STOPPED")
TERMINATED = "TERMINATED"
JOB_FINAL = ("SUCCESS", "FAILED", "CANCELLED")
# Characters, by the API's model.
_STATE_DETAILS_LIMIT = 256
# How many deleted applications are kept. AWS does not document how long it shows them.
_TERMINATED_KEPT = 100


def new_id() -> str:
    """Return an identifier as the API writes them: `00` and fourteen lower-case letters and digits."""
    return "00" + "".join(secrets.choice("0123456789abcdefghijklmnopqrstuvwxyz") for _ in range(14))


@dataclass
class Application:
    """An application; `settings` holds the parameters of CreateApplication and UpdateApplication."""

    id: str
    account: str
    region: str
    settings: dict[str, Any]
    tags: dict[str, str]
    client_token: str
    state: str = "CREATED"
    state_details: str = ""
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    idle_since: float = field(default_factory=time.time)

    @property
    def arn(self) -> str:
        """The Amazon resource name."""
        return f"arn:aws:emr-serverless:{self.region}:{self.account}:/applications/{self.id}"

    def change_state(self, state: str, details: str = "") -> None:
        """Set the state and the time of the change."""
        self.state, self.state_details, self.updated_at = state, details, time.time()

    def show(self, shape: str) -> dict[str, Any]:
        """Return the application as the API's `Application` or `ApplicationSummary`."""
        values = {
            **self.settings,
            "id": self.id,
            "applicationId": self.id,
            "arn": self.arn,
            "state": self.state,
            "stateDetails": self.state_details or None,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "tags": self.tags,
        }
        return _members(shape, values)


@dataclass
class JobRun:
    """A job run; `request` holds the parameters of StartJobRun."""

    id: str
    application: str
    application_arn: str
    account: str
    request: dict[str, Any]
    release_label: str
    tags: dict[str, str]
    state: str = "SUBMITTED"
    state_details: str = "The job run was submitted"
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    started_at: float | None = None
    ended_at: float | None = None
    queued_at: float | None = None
    queued_seconds: float = 0.0
    run_seconds: float = 0.0
    used: dict[str, float] | None = None
    billed: dict[str, float] | None = None

    @property
    def arn(self) -> str:
        """The Amazon resource name."""
        return f"{self.application_arn}/jobruns/{self.id}"

    @property
    def final(self) -> bool:
        """Whether the job run has ended."""
        return self.state in JOB_FINAL

    @property
    def timeout_minutes(self) -> int:
        """The minutes that the job run may take; 0 means no limit."""
        minutes: int = self.request.get("executionTimeoutMinutes", 720)
        return minutes

    @property
    def log_prefix(self) -> str | None:
        """The URI below which the logs are stored, None when the configuration names none."""
        monitoring = self.request.get("configurationOverrides", {}).get("monitoringConfiguration", {})
        uri = monitoring.get("s3MonitoringConfiguration", {}).get("logUri")
        return f"{uri.rstrip('/')}/applications/{self.application}/jobs/{self.id}" if uri else None

    def change_state(self, state: str, details: str) -> None:
        """Set the state and the times that belong to it."""
        now = time.time()
        if self.state == "QUEUED" and self.queued_at is not None:
            self.queued_seconds += now - self.queued_at
        if state == "QUEUED":
            self.queued_at = now
        if state == "RUNNING" and self.started_at is None:
            self.started_at = now
        if state in JOB_FINAL:
            self.ended_at = now
        if len(details) > _STATE_DETAILS_LIMIT:
            details = details[: _STATE_DETAILS_LIMIT - 3] + "..."
        self.state, self.state_details, self.updated_at = state, details, now

    def show(self, shape: str) -> dict[str, Any]:
        """Return the job run as the API's `JobRun`, `JobRunSummary` or `JobRunAttemptSummary`."""
        values = {
            **self.request,
            "applicationId": self.application,
            "id": self.id,
            "jobRunId": self.id,
            "arn": self.arn,
            "type": "SPARK",
            "mode": "BATCH",
            "createdBy": f"arn:aws:iam::{self.account}:user/local",
            "createdAt": self.created_at,
            "jobCreatedAt": self.created_at,
            "updatedAt": self.updated_at,
            "attempt": 1,
            "attemptCreatedAt": self.created_at,
            "attemptUpdatedAt": self.updated_at,
            "executionRole": self.request["executionRoleArn"],
            "executionTimeoutMinutes": self.timeout_minutes,
            "state": self.state,
            "stateDetails": self.state_details,
            "releaseLabel": self.release_label,
            "tags": self.tags,
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "totalExecutionDurationSeconds": round(self.run_seconds),
            "queuedDurationMilliseconds": round(self.queued_seconds * 1000),
            "totalResourceUtilization": self.used,
            "billedResourceUtilization": self.billed,
        }
        return _members(shape, values)


def _members(shape: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of those members that a shape of the API's model has."""
    return {name: values[name] for name in service_model().shape_for(shape).members if values.get(name) is not None}


class EmrStore:
    """The applications and job runs, with their lock: hold `changed` to use them, and notify it of a changed state."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.applications: dict[str, Application] = {}
        self.job_runs: dict[str, JobRun] = {}

    def application(self, scope: Scope, application_id: str, *, terminated: bool = False) -> Application:
        """Return an application of `scope`; a deleted one only if `terminated` is set. Raises `EmrResourceNotFound`."""
        application = self.applications.get(application_id)
        if (
            application is None
            or (application.account, application.region) != scope
            or (application.state == TERMINATED and not terminated)
        ):
            raise EmrResourceNotFound(f"Application {application_id} does not exist")
        return application

    def delete_application(self, application: Application) -> None:
        """Delete the job runs of an application and mark it as deleted. The oldest deleted applications are dropped."""
        self.job_runs = {id_: run for id_, run in self.job_runs.items() if run.application != application.id}
        application.change_state(TERMINATED)
        terminated = [item for item in self.applications.values() if item.state == TERMINATED]
        for item in sorted(terminated, key=lambda item: item.updated_at)[:-_TERMINATED_KEPT]:
            del self.applications[item.id]

    def job_run(self, scope: Scope, application_id: str, job_run_id: str) -> JobRun:
        """Return a job run of an application of `scope`. Raises `EmrResourceNotFound`."""
        self.application(scope, application_id)
        run = self.job_runs.get(job_run_id)
        if run is None or run.application != application_id:
            raise EmrResourceNotFound(f"Job run {job_run_id} does not exist in application {application_id}")
        return run

    def job_credentials(self, job_run_id: str) -> dict[str, str]:
        """Return the variables with the credentials of a job run's role. Raises `AccessDenied`."""
        run = self.job_runs[job_run_id]
        service, source = "emr-serverless.amazonaws.com", run.application_arn
        role = run.request["executionRoleArn"]
        return assume_role(role, service=service, source=source, session=run.id).environment()

    def application_runs(self, application_id: str) -> list[JobRun]:
        """Return the job runs of an application, the oldest first."""
        return [run for run in self.job_runs.values() if run.application == application_id]

    def active(self, application: Application) -> bool:
        """Return whether a job run of the application has not ended."""
        return any(not run.final for run in self.application_runs(application.id))

    def stop_if_idle(self, application: Application) -> None:
        """Stop a started application if it has been idle for as long as its settings allow."""
        settings = application.settings["autoStopConfiguration"]
        if application.state != "STARTED" or not settings.get("enabled", True) or self.active(application):
            return
        if time.time() - application.idle_since >= settings.get("idleTimeoutMinutes", 15) * 60:
            application.change_state("STOPPED", "Idle for as long as autoStopConfiguration allows")

    def tags(self, scope: Scope, arn: str) -> dict[str, str]:
        """Return the tags of an application or job run; the caller may change them. Raises `EmrResourceNotFound`."""
        resources: list[Application | JobRun] = [*self.applications.values(), *self.job_runs.values()]
        for resource in resources:
            if resource.arn == arn and resource.account == scope.account and resource.state != TERMINATED:
                return resource.tags
        raise EmrResourceNotFound(f"Resource {arn} does not exist")

    def to_json(self) -> dict[str, Any]:
        """Return applications and job runs as a JSON document."""
        with self.changed:
            return {
                "applications": [asdict(application) for application in self.applications.values()],
                "job_runs": [asdict(run) for run in self.job_runs.values()],
            }

    def load_json(self, document: dict[str, Any]) -> None:
        """Load what `to_json` returned. Job runs that had not ended fail, because their processes no longer exist."""
        with self.changed:
            self.applications = {item["id"]: Application(**item) for item in document["applications"]}
            known = {member.name for member in fields(JobRun)}  # an earlier version may have saved others
            runs = [JobRun(**{name: item[name] for name in known & set(item)}) for item in document["job_runs"]]
            self.job_runs = {run.id: run for run in runs}
            for run in self.job_runs.values():
                if not run.final:
                    run.change_state("FAILED", "Job failed: the local cloud stopped while it ran")
