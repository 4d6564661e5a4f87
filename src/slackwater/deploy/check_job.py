"""The one job of the checks: Step Functions starts it as a stage of a run, and it does what a stage needs."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from slackwater.aws.deployment import Deployment
from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.aws.executions.state_machines import ExecutionView, StateMachines
from slackwater.aws.executions.temporary_state_machines import definition_of, started, temporary_machine
from slackwater.aws.objects import S3ObjectStore
from slackwater.deploy.finding import Clients, Finding, failed, ok
from slackwater.errors import SlackwaterError
from slackwater.project.installation import pipeline_frame
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.outcome import failure_message
from slackwater.runs.record import Run

# Stands for the pipeline: the job writes one row of the date to the table of this name. The name of a pipeline begins
# with a letter.
_NAME, _DATE = "_doctor", "2000-01-01"
# A job reports the innermost error, which has not the words of Spark's own: "Cannot find catalog plugin class".
_NO_ICEBERG = ("Cannot find catalog plugin class", "ClassNotFoundException: org.apache.iceberg.")
_DEPLOY_JARS = "run slackwater deploy --set spark_jars="
_AND_AGAIN = "and slackwater doctor --job again (docs/deploy.md, Iceberg on the class path)"
# By a part of the error. The first one that occurs names the remedy.
_REMEDIES = {
    **dict.fromkeys(
        _NO_ICEBERG,
        f"Iceberg is not on the class path of the release: {_DEPLOY_JARS}/usr/share/aws/iceberg/lib/"
        f"iceberg-spark3-runtime.jar {_AND_AGAIN}",
    ),
    "NoSuchFileException": f"the release lacks a jar of spark_jars: {_DEPLOY_JARS} {_AND_AGAIN}",
    "Lake Formation": "grant the role {role} its permissions (docs/deploy/account.md, Lake Formation)",
    **dict.fromkeys(
        ("AccessDenied", "not authorized"),
        "the role {role} lacks this permission: slackwater deploy restores its policies; if it is denied after that, "
        "look for a permissions boundary or a policy of the organisation",
    ),
}


def check_job(
    clients: Clients,
    deployment: Deployment,
    *,
    on_state: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Run the job to its end, in a state machine with the role of runs; `on_state` gets each state of its execution.

    Raises `SlackwaterError` if the machine cannot be created or started.
    """
    state_machines, run = StateMachines(clients("stepfunctions")), _run(deployment)
    stage = run.run_id[:8]
    name = f"{deployment.pipeline_machine_prefix.rpartition(':')[2]}{_NAME}-{stage}"
    definition = definition_of(_machine(stage), deployment, RunStageUri=deployment.check_release_uri)
    role = deployment.any_pipeline_role_arn
    with temporary_machine(state_machines, name, definition=definition, role=role) as machine:

        def start() -> str:
            return state_machines.start(machine, name=run.run_id, payload=run.model_dump(mode="json"))

        with started(state_machines, start, sleep=sleep) as execution:
            for view in state_machines.follow([execution], sleep=sleep):
                on_state(view.status.lower())
    store = S3ObjectStore(clients("s3"))
    logs = JobLogs(
        emr=clients("emr-serverless"), store=store, application=deployment.application_id, prefix=deployment.log_prefix
    )
    # Step Functions and EMR Serverless have clocks of their own.
    jobs = logs.jobs(_NAME, _DATE, since=view.started - timedelta(minutes=1), until=view.started + timedelta(days=1))
    job = next((job for job in jobs if job.stage == stage), None)
    if not view.succeeded:
        return _failure(view, run, job, logs, deployment)
    lines = [json.loads(line) for line in _lines(logs, job, "stdout") if '"release checked"' in line]
    with_versions = "".join(f" with Spark {line['spark']} and Python {line['python']}" for line in lines)
    return ok(
        "did through Step Functions what a stage needs: imports, objects and an item, an Iceberg commit with a "
        f"tag{with_versions}; docs/deploy/account.md lists the permissions that it does not use"
    )


def _run(deployment: Deployment) -> Run:
    run_id = uuid.uuid4().hex
    return Run(
        pipeline=_NAME,
        date=_DATE,
        run_id=run_id,
        attempt=1,
        correlation_id=f"doctor-{run_id[:8]}",
        manifest="",
        prefix=f"s3://{deployment.exchange_bucket}/runs/{_NAME}/{_DATE}/{run_id}/1/",
        files=0,
        rows=0,
        bytes=0,
    )


def _machine(stage: str) -> dict[str, Any]:
    """Return a state machine that runs only the job of this stage, in the state that all pipelines have for it.

    It has no retries: a person waits for the reason.
    """
    kept = {
        key: value for key, value in pipeline_frame()["States"]["Run <stage>"].items() if key not in {"Catch", "Next"}
    }
    variables = {"run": "{% $states.input %}", "restore": "", "spark_parameters": "${SparkSubmitParameters}"}
    states = {
        "Begin": {"Type": "Pass", "Assign": variables, "Next": "Run the job"},
        "Run the job": {**kept, "End": True},
    }
    text = json.dumps({"QueryLanguage": "JSONata", "StartAt": "Begin", "States": states})
    for placeholder, value in {"<pipeline>": _NAME, "<stage>": stage, "<index>": "0"}.items():
        text = text.replace(placeholder, value)
    machine: dict[str, Any] = json.loads(text)
    return machine


def _failure(view: ExecutionView, run: Run, job: Job | None, logs: JobLogs, deployment: Deployment) -> Finding:
    reason = details = failure_message(view.error or view.status, view.cause)
    role, remedy = deployment.any_pipeline_role_arn, "run slackwater deploy, and this check again"
    if job:
        try:
            reason = logs.store.get(failure_uri(run.prefix)).decode()
        except SlackwaterError:  # the job could not write it, or has not begun
            reason = (_lines(logs, job, "stderr") or [job.detail or reason])[-1]
        details, role = f"{reason}\n{job.detail}", deployment.job_role_arn
        log = f"{deployment.log_prefix}applications/{deployment.application_id}/jobs/{job.id}/"
        remedy = f"read its log: {log}"
    known = next((known for text, known in _REMEDIES.items() if text in details), remedy)
    return failed(reason, known.format(role=role))


def _lines(logs: JobLogs, job: Job | None, stream: str) -> list[str]:
    """Return the lines of the driver's log, none if it has no log."""
    try:
        log = logs.driver_log(job, stream) if job else ""
    except SlackwaterError:
        return []
    return [line for line in log.splitlines() if line.strip()]
