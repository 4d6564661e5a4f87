"""The one job of the checks: it imports everything that jobs use, and writes and reads an Iceberg table."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.stacks.deployment import Deployment
from slackwater.doctor.finding import Clients, Finding, failed, ok
from slackwater.errors import CloudError

# The job replaces this table of the warehouse. The name of a pipeline's table begins with a letter.
_TABLE = "_check_release"
_FINAL = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
# Seconds between two looks at the job.
_PAUSE = 2


def check_job(
    clients: Clients,
    deployment: Deployment,
    *,
    on_state: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Run the job to its end; `on_state` gets each state. Raises `SlackwaterError` if it cannot be started."""
    emr, application = clients("emr-serverless"), deployment.application_id
    with translated("start the job"):
        table = f"warehouse.{deployment.warehouse_database}.{_TABLE}"
        job_run = emr.start_job_run(
            applicationId=application,
            clientToken=str(uuid.uuid4()),
            executionRoleArn=deployment.job_role_arn,
            name="slackwater doctor",
            executionTimeoutMinutes=15,
            jobDriver={
                "sparkSubmit": {
                    "entryPoint": deployment.check_release_uri,
                    "entryPointArguments": ["--catalog-table", table],
                    "sparkSubmitParameters": deployment.spark_submit_parameters,
                }
            },
            configurationOverrides={
                "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": deployment.log_prefix}}
            },
        )["jobRunId"]
    while True:
        with translated(f"follow job {job_run}"):
            state = emr.get_job_run(applicationId=application, jobRunId=job_run)["jobRun"]
        on_state(state["state"].lower())
        if state["state"] in _FINAL:
            break
        sleep(_PAUSE)
    logs = JobLogs(emr=emr, store=S3ObjectStore(clients("s3")), application=application, prefix=deployment.log_prefix)
    job = Job(
        id=job_run,
        name="slackwater doctor",
        state=state["state"],
        created=datetime.now(UTC),
        detail=state["stateDetails"],
    )
    if job.failed:
        reason = _lines(logs, job, "stderr")[-1:] or [job.detail]
        return failed(reason[0], f"read its log: {deployment.log_prefix}applications/{application}/jobs/{job_run}/")
    versions = [json.loads(line) for line in _lines(logs, job, "stdout") if '"release checked"' in line]
    with_versions = "".join(f" with Spark {line['spark']} and Python {line['python']}" for line in versions)
    return ok(f"imported everything that jobs use, wrote and read an Iceberg table{with_versions}")


def _lines(logs: JobLogs, job: Job, stream: str) -> list[str]:
    """Return the lines of the driver's log, none if it has no log."""
    try:
        return [line for line in logs.driver_log(job, stream).splitlines() if line.strip()]
    except CloudError:
        return []
