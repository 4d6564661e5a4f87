"""The API over HTTP, as an emulator service."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from slackwater.local.emr.applications import Applications
from slackwater.local.emr.errors import EmrError, Invalid
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.model import read_request
from slackwater.local.emr.store import Scope, Store

Response = tuple[int, dict[str, str], bytes]
_PAGE = 50


class EmrServerlessApi:
    """Answers requests; `scope` says whose request is being answered."""

    def __init__(
        self, store: Store, applications: Applications, job_runs: JobRuns, *, scope: Callable[[], tuple[str, str]]
    ) -> None:
        self._store, self._applications, self._job_runs, self._scope = store, applications, job_runs, scope

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Response:
        """Answer one request, errors included."""
        del headers
        try:
            operation, parameters = read_request(method, path, query_params, body)
            return _response(200, self.call(operation, parameters))
        except EmrError as error:
            return _response(error.status, {"message": str(error)}, error=error.code)

    def call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Carry out one operation with parameters that the model allows. Raises `EmrError`."""
        answer = _OPERATIONS.get(operation)
        if answer is None:
            raise Invalid(f"{operation} is not part of this cloud: it runs batch jobs")
        with self._store.changed:
            return answer(self, Scope(*self._scope()), parameters)

    def get_state(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return self._store.saved()

    def load_persisted_state(self, data: dict[str, Any]) -> None:
        """Take back what a process before this one knew."""
        self._store.restore(data)

    def reset(self) -> None:
        """End every job run, and forget everything."""
        self._job_runs.stop_all()
        self._store.clear()

    def _create_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        application = self._applications.create(scope, request)
        name = {"name": application.settings["name"]} if "name" in application.settings else {}
        return {"applicationId": application.id, "arn": application.arn, **name}

    def _get_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        return {"application": self._applications.get(scope, request["applicationId"]).document()}

    def _list_applications(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        found = self._applications.list(scope, request.get("states"))
        return _page("applications", [item.summary() for item in found], request)

    def _update_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        return {"application": self._applications.update(scope, request).document()}

    def _start_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        self._applications.start(scope, request["applicationId"])
        return {}

    def _stop_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        self._applications.stop(scope, request["applicationId"])
        return {}

    def _delete_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        self._applications.delete(scope, request["applicationId"])
        return {}

    def _start_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        run = self._job_runs.start(scope, request)
        return {"applicationId": run.application, "jobRunId": run.id, "arn": run.arn}

    def _get_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        return {"jobRun": self._job_runs.get(scope, request["applicationId"], request["jobRunId"]).document()}

    def _list_job_runs(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        return _page("jobRuns", [run.summary() for run in self._job_runs.list(scope, request)], request)

    def _list_job_run_attempts(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        run = self._job_runs.get(scope, request["applicationId"], request["jobRunId"])
        return _page("jobRunAttempts", [*run.attempts, run.attempt_summary()], request)

    def _cancel_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        run = self._job_runs.cancel(scope, request["applicationId"], request["jobRunId"])
        return {"applicationId": run.application, "jobRunId": run.id}

    def _get_dashboard(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        run = self._job_runs.get(scope, request["applicationId"], request["jobRunId"])
        return {"url": self._job_runs.log_folder(run).as_uri()}

    def _tag(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        self._store.tagged(scope, request["resourceArn"]).update(request["tags"])
        return {}

    def _untag(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        tags = self._store.tagged(scope, request["resourceArn"])
        for key in request["tagKeys"]:
            tags.pop(key, None)
        return {}

    def _list_tags(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        return {"tags": self._store.tagged(scope, request["resourceArn"])}


_OPERATIONS: dict[str, Callable[[EmrServerlessApi, Scope, dict[str, Any]], dict[str, Any]]] = {
    "CreateApplication": EmrServerlessApi._create_application,
    "GetApplication": EmrServerlessApi._get_application,
    "ListApplications": EmrServerlessApi._list_applications,
    "UpdateApplication": EmrServerlessApi._update_application,
    "StartApplication": EmrServerlessApi._start_application,
    "StopApplication": EmrServerlessApi._stop_application,
    "DeleteApplication": EmrServerlessApi._delete_application,
    "StartJobRun": EmrServerlessApi._start_job_run,
    "GetJobRun": EmrServerlessApi._get_job_run,
    "ListJobRuns": EmrServerlessApi._list_job_runs,
    "ListJobRunAttempts": EmrServerlessApi._list_job_run_attempts,
    "CancelJobRun": EmrServerlessApi._cancel_job_run,
    "GetDashboardForJobRun": EmrServerlessApi._get_dashboard,
    "TagResource": EmrServerlessApi._tag,
    "UntagResource": EmrServerlessApi._untag,
    "ListTagsForResource": EmrServerlessApi._list_tags,
}


def _response(status: int, document: dict[str, Any], *, error: str | None = None) -> Response:
    headers = {"Content-Type": "application/json"}
    if error:
        headers["x-amzn-ErrorType"] = error
    return status, headers, json.dumps(document).encode()


def _page(member: str, items: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    """Return the page of `items` that a request asks for; its token is the position of the next one."""
    start, size = 0, request.get("maxResults", _PAGE)
    if "nextToken" in request:
        try:
            start = int(base64.urlsafe_b64decode(request["nextToken"]))
        except (ValueError, binascii.Error) as error:
            raise Invalid("nextToken is not one that this operation gave") from error
    answer: dict[str, Any] = {member: items[start : start + size]}
    if start + size < len(items):
        answer["nextToken"] = base64.urlsafe_b64encode(str(start + size).encode()).decode()
    return answer
