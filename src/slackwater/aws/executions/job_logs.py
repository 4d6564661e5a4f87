"""Spark jobs of a pipeline's days, their cancellation, and the logs of their drivers."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import CloudError, ObjectMissing
from slackwater.storage import ObjectStore

_CANCELLED = frozenset({"CANCELLING", "CANCELLED"})
_FAILED = frozenset({"FAILED", "CANCELLED"})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One Spark job of a run."""

    id: str
    name: str
    """`<pipeline> <date> <stage>`, set by the state machine."""
    state: str
    created: datetime
    detail: str
    """EMR's details of the state: for a failed job, the driver's error."""
    started: datetime | None = None
    """When the job left the queue and its driver began to start. Only `JobLogs.timed` reads it."""
    ended: datetime | None = None

    @property
    def stage(self) -> str:
        """The stage that it runs."""
        return self.name.rpartition(" ")[2]

    @property
    def failed(self) -> bool:
        """Whether it failed or was cancelled."""
        return self.state in _FAILED

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled; it may need some seconds to end."""
        return self.state in _CANCELLED

    @property
    def is_running(self) -> bool:
        """Whether it runs, or waits to run, and is not being cancelled."""
        return self.state not in {"SUCCESS", *_FAILED, *_CANCELLED}


@dataclass(frozen=True, kw_only=True)
class JobLogs:
    """Lists and cancels jobs with an EMR Serverless client, and reads their logs from the object store."""

    emr: Any
    store: ObjectStore
    application: str
    """The id of the EMR Serverless application."""
    prefix: str
    """URI prefix of EMR's logs."""

    def jobs(self, pipeline: str, date: str, *, since: datetime, until: datetime) -> list[Job]:
        """Return the jobs of the day that were created in an interval, oldest first. Raises `CloudError`."""
        # ListJobRuns cannot filter by name, so all job runs of the interval are listed.
        name_prefix = f"{pipeline} {date} "
        with translated(f"list the Spark jobs of {pipeline}"):
            pages = self.emr.get_paginator("list_job_runs").paginate(
                applicationId=self.application, createdAtAfter=since, createdAtBefore=until
            )
            job_runs = [item for page in pages for item in page["jobRuns"]]
        jobs = [
            Job(
                id=item["id"],
                name=item["name"],
                state=item["state"],
                created=item["createdAt"],
                detail=item.get("stateDetails", ""),
            )
            for item in job_runs
            if item.get("name", "").startswith(name_prefix)
        ]
        return sorted(jobs, key=lambda job: job.created)

    def timed(self, job: Job) -> Job:
        """Return the job with its state now, and with the times of its start and its end. Raises `CloudError`."""
        with translated(f"read job {job.id}"):
            item = self.emr.get_job_run(applicationId=self.application, jobRunId=job.id)["jobRun"]
        return replace(job, state=item["state"], started=item.get("startedAt"), ended=item.get("endedAt"))

    def cancel(self, job: Job) -> None:
        """Cancel the job, unless it has ended. Raises `AccessDenied`, `CloudError`."""
        with translated(f"cancel job {job.id}"):
            request = {"applicationId": self.application, "jobRunId": job.id}
            unless_refused("ValidationException", lambda: self.emr.cancel_job_run(**request))

    def driver_log(self, job: Job, stream: str = "stderr") -> str:
        """Return the driver's log of one stream, `stderr` or `stdout`. Raises `CloudError` when it is missing."""
        uri = f"{self.prefix.rstrip('/')}/applications/{self.application}/jobs/{job.id}/SPARK_DRIVER/{stream}.gz"
        try:
            return gzip.decompress(self.store.get(uri)).decode(errors="replace")
        except ObjectMissing as error:
            raise CloudError(f"job {job.id} ({job.name}, {job.state.lower()}) has no log at {uri} yet") from error
