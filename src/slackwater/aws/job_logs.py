"""Spark jobs of a pipeline's days, and what their drivers wrote."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import CloudError, ObjectMissing
from slackwater.storage import ObjectStore

_FAILED = frozenset({"FAILED", "CANCELLED"})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One Spark job of a run."""

    id: str
    name: str
    """`pipeline date stage`, as its state machine names it."""
    state: str
    created: datetime
    detail: str
    """What EMR says of its state: for a failed job, the driver's error."""

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""
        return self.state in _FAILED


@dataclass(frozen=True, kw_only=True)
class JobLogs:
    """Jobs over an EMR Serverless client, their logs over the object store."""

    emr: Any
    store: ObjectStore
    application: str
    prefix: str
    """The s3 address that EMR writes its logs under."""

    def jobs(self, pipeline: str, date: str) -> list[Job]:
        """Return the day's jobs of all attempts, oldest first."""
        wanted = f"{pipeline} {date} "
        with translated(f"list the Spark jobs of {pipeline}"):
            pages = self.emr.get_paginator("list_job_runs").paginate(applicationId=self.application)
            found = [item for page in pages for item in page["jobRuns"]]
        jobs = [
            Job(
                id=item["id"],
                name=item["name"],
                state=item["state"],
                created=item["createdAt"],
                detail=item.get("stateDetails", ""),
            )
            for item in found
            if item.get("name", "").startswith(wanted)
        ]
        return sorted(jobs, key=lambda job: job.created)

    def driver_log(self, job: Job, stream: str = "stderr") -> str:
        """Return what the job's driver wrote to `stream`. Raises `CloudError` when there is no log (yet)."""
        address = f"{self.prefix.rstrip('/')}/applications/{self.application}/jobs/{job.id}/SPARK_DRIVER/{stream}.gz"
        try:
            return gzip.decompress(self.store.get(address)).decode(errors="replace")
        except ObjectMissing as error:
            raise CloudError(f"job {job.id} ({job.name}, {job.state.lower()}) has no log at {address} yet") from error
