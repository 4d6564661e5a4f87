"""Run Airflow's EMR Serverless operators, and print what each returned as JSON. Runs in Airflow's own Python.

It reads `{"role": ..., "succeeds": URI, "fails": URI, "sleeps": URI}` from standard input: a role, and entry points.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from airflow.exceptions import AirflowException, TaskDeferred
from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
from airflow.providers.amazon.aws.operators.emr import (
    EmrServerlessCreateApplicationOperator,
    EmrServerlessDeleteApplicationOperator,
    EmrServerlessStartJobOperator,
    EmrServerlessStopApplicationOperator,
)
from airflow.sdk.bases.operator import BaseOperator, ExecutorSafeguard
from airflow.utils.module_loading import import_string

# An operator's default connection would be looked up in Airflow's database.
WAITER = {"aws_conn_id": None, "waiter_delay": 1, "waiter_max_attempts": 120}
APPLICATION = {"release_label": "emr-spark-8.1.0", "job_type": "SPARK"}


def executed(operator: BaseOperator) -> Any:
    """Run an operator as a worker does; when it defers, wait with its trigger as the triggerer does."""
    method, event = "execute", {}
    while True:
        try:
            return getattr(operator, method)({}, **event)
        except TaskDeferred as deferred:
            path, arguments = deferred.trigger.serialize()
            event = {"event": asyncio.run(first_event(import_string(path)(**arguments)))}
            method = deferred.method_name


async def first_event(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def main() -> None:
    ExecutorSafeguard.test_mode = True  # operators run here without a task
    request = json.load(sys.stdin)

    def start_job(application: str, program: str, **options: Any) -> Any:
        job = EmrServerlessStartJobOperator(
            task_id="job",
            application_id=application,
            execution_role_arn=request["role"],
            job_driver={"sparkSubmit": {"entryPoint": request[program]}},
            **options,
            **WAITER,
        )
        try:
            return executed(job)
        except AirflowException as error:
            return str(error)

    application = executed(EmrServerlessCreateApplicationOperator(task_id="create", **APPLICATION, **WAITER))
    results = {"application": application, "succeeded": start_job(application, "succeeds")}
    results["failed"] = start_job(application, "fails", deferrable=True)
    running = start_job(application, "sleeps", wait_for_completion=False)
    of_application = {"application_id": application, **WAITER}
    executed(EmrServerlessStopApplicationOperator(task_id="stop", force_stop=True, **of_application))
    run = EmrServerlessHook(aws_conn_id=None).conn.get_job_run(applicationId=application, jobRunId=running)
    results["cancelled"] = run["jobRun"]["state"]
    executed(EmrServerlessDeleteApplicationOperator(task_id="delete", **of_application))

    deferred = executed(
        EmrServerlessCreateApplicationOperator(task_id="create", deferrable=True, **APPLICATION, **WAITER)
    )
    executed(EmrServerlessStopApplicationOperator(task_id="stop", application_id=deferred, deferrable=True, **WAITER))
    sys.__stdout__.write("\n" + json.dumps({**results, "deferred": deferred}) + "\n")


if __name__ == "__main__":
    main()
