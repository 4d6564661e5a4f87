"""Step Functions' integration `arn:aws:states:::emr-serverless:startJobRun`, with and without `.sync`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from slackwater.local import emulator
from slackwater.local.emr.api import EmrServerlessApi, authorize
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.store import EmrStore
from slackwater.local.service_model import (
    EmrAccessDenied,
    EmrError,
    EmrValidationError,
    camel_case,
    input_shape,
    pascal_case,
    rename_members,
    service_model,
)
from slackwater.local.services import state_machines

_POLL_SECONDS = 0.25
_TIMES = ("CreatedAt", "UpdatedAt", "AttemptCreatedAt", "AttemptUpdatedAt", "StartedAt", "EndedAt")


def register(api: EmrServerlessApi, store: EmrStore, job_runs: JobRuns) -> None:
    """Register the integration with the emulator's state machines.

    A state fails with `EMRServerless.<code>` when the API refuses the request, and with `States.TaskFailed` when the
    job run does not succeed.
    """

    def start(resource: str, arguments: Any, task: state_machines.TaskHandle) -> dict[str, Any]:
        """Start a job run and, for `.sync`, wait for its end. Return the state's result."""
        try:
            request = rename_members(input_shape("StartJobRun"), arguments, camel_case)
            authorize(task.role, "StartJobRun", request)
            started = api.call("StartJobRun", request)
            if resource.endswith(".sync"):
                authorize(task.role, "GetJobRun", started)
        except EmrError as error:
            state_machines.fail_state(f"EMRServerless.{error.code}", str(error))
        if not resource.endswith(".sync"):
            return {pascal_case(key): value for key, value in started.items()}
        task.submitted(resource, {pascal_case(key): value for key, value in started.items()})
        run = store.job_run(emulator.request_scope(), started["applicationId"], started["jobRunId"])
        while not job_runs.wait(run, _POLL_SECONDS):
            if task.abandoned:
                with suppress(EmrAccessDenied, EmrValidationError):  # the job run has ended in the meantime
                    authorize(task.role, "CancelJobRun", started)
                    job_runs.cancel(run)
                raise state_machines.TaskAbandoned
        result: dict[str, Any] = rename_members(service_model().shape_for("JobRun"), run.show("JobRun"), pascal_case)
        # The integration returns times in milliseconds, GetJobRun in seconds.
        result |= {key: round(result[key] * 1000) for key in _TIMES if key in result}
        if run.state != "SUCCESS":
            state_machines.fail_state("States.TaskFailed", json.dumps(result))
        return result

    state_machines.register_integration("arn:aws:states:::emr-serverless:startJobRun", start)
