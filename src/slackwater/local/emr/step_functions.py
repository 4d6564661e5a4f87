"""Step Functions' integration: `arn:aws:states:::emr-serverless:startJobRun`, with and without `.sync`."""

from __future__ import annotations

import json
import uuid
from typing import Any, NoReturn

from slackwater.local import emulator
from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.errors import EmrError, Invalid
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.model import capitalised, check, renamed, service_model, uncapitalised
from slackwater.local.emr.records import JobRun
from slackwater.local.emr.store import Scope

_PREFIX = "arn:aws:states:::emr-serverless:"
_SERVICE = "EMRServerless"
_POLL_SECONDS = 0.25
_TIMES = ("CreatedAt", "UpdatedAt", "AttemptCreatedAt", "AttemptUpdatedAt", "StartedAt", "EndedAt")


class Integration:
    """Runs states that start, or cancel, job runs."""

    def __init__(self, api: EmrServerlessApi, job_runs: JobRuns) -> None:
        self._api, self._job_runs = api, job_runs

    def register(self) -> None:
        """Enter the integration in the emulator's state machines."""
        emulator.follow_tasks()
        emulator.register_integration(f"{_PREFIX}startJobRun", self._start)
        emulator.register_integration(f"{_PREFIX}cancelJobRun", self._cancel)

    def _start(self, resource: str, arguments: Any, task: emulator.TaskHandle) -> dict[str, Any]:
        answer = self._call("StartJobRun", arguments)
        if not resource.endswith(".sync"):
            return {capitalised(key): value for key, value in answer.items()}
        return self._follow(answer["applicationId"], answer["jobRunId"], task)

    def _cancel(self, resource: str, arguments: Any, task: emulator.TaskHandle) -> dict[str, Any]:
        answer = self._call("CancelJobRun", arguments)
        if resource.endswith(".sync"):
            return self._follow(answer["applicationId"], answer["jobRunId"], task, wanted="CANCELLED")
        return {capitalised(key): value for key, value in answer.items()}

    def _follow(
        self, application: str, identifier: str, task: emulator.TaskHandle, *, wanted: str = "SUCCESS"
    ) -> dict[str, Any]:
        """Wait for a job run; cancel it when nobody waits for it any longer."""
        scope = Scope(*emulator.request_scope())
        run = self._job_runs.get(scope, application, identifier)
        while not self._job_runs.wait(run, _POLL_SECONDS):
            if task.abandoned:
                self._cancel_quietly(scope, run)
                raise emulator.Abandoned
        document = _shown(run)
        if run.state != wanted:
            emulator.fail_state("States.TaskFailed", json.dumps(document))
        return document

    def _cancel_quietly(self, scope: Scope, run: JobRun) -> None:
        try:
            self._job_runs.cancel(scope, run.application, run.id)
        except Invalid:
            return  # it has ended in this moment

    def _call(self, operation: str, arguments: Any) -> dict[str, Any]:
        shape = service_model().operation_model(operation).input_shape
        request = renamed(shape, arguments, uncapitalised)
        request.setdefault("clientToken", str(uuid.uuid4()))
        try:
            check(shape, request)
            return self._api.call(operation, request)
        except EmrError as error:
            _refuse(error)


def _refuse(error: EmrError) -> NoReturn:
    emulator.fail_state(f"{_SERVICE}.{error.code}", str(error))


def _shown(run: JobRun) -> dict[str, Any]:
    """Return a job run as the integration's result shows it: GetJobRun's answer, capitalised, times in milliseconds."""
    shape = service_model().shape_for("JobRun")
    shown: dict[str, Any] = renamed(shape, run.document(), capitalised)
    return shown | {key: round(shown[key] * 1000) for key in _TIMES if key in shown}
