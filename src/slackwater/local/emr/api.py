"""The EMR Serverless API as a service of the emulator: applications, job runs and tags."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from botocore import xform_name

from slackwater.errors import AccessDenied
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.store import APPLICATION_IDLE, TERMINATED, Application, EmrStore, JobRun, new_id
from slackwater.local.emulator import Response, Scope, request_scope
from slackwater.local.service_model import (
    EmrAccessDenied,
    EmrConflict,
    EmrError,
    EmrThrottled,
    EmrValidationError,
    check,
    input_shape,
    read_request,
)
from slackwater.local.services.permissions import Principal, caller

_PAGE_SIZE = 50  # the API's maximum
# Parameters that are not shown as settings of an application.
_NOT_SETTINGS = ("clientToken", "tags", "applicationId")
# The service's defaults for members that a request leaves out.
_DEFAULTS: dict[str, Any] = {
    "architecture": "X86_64",
    "autoStartConfiguration": {"enabled": True},
    "autoStopConfiguration": {"enabled": True, "idleTimeoutMinutes": 15},
}
_SERVICE = "emr-serverless.amazonaws.com"
_STARTS_PER_SECOND, _STARTS_AT_ONCE = 1.0, 25.0


class EmrServerlessApi:
    """Carries out operations; each has a method with its name in snake case, its parameters and its response.

    Operations raise `EmrValidationError`, `EmrConflict`, `EmrResourceNotFound` or `EmrThrottled` for requests that AWS
    refuses.
    """

    def __init__(self, store: EmrStore, job_runs: JobRuns, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._job_runs = store, job_runs
        self._starts = StartLimit(clock)

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Response:
        """Answer one HTTP request; an `EmrError` becomes its error response."""
        response_headers = {"Content-Type": "application/json"}
        try:
            operation, parameters = read_request(method, path, query_params, body)
            authorize(caller(headers), operation, parameters)
            status, document = 200, self._call(operation, parameters)
        except EmrError as error:
            status, document = error.status, {"message": str(error)}
            response_headers["x-amzn-ErrorType"] = error.code
        return status, response_headers, json.dumps(document).encode()

    def call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation for another service, with a client token where one is missing. Raises `EmrError`."""
        shape = input_shape(operation)
        if "clientToken" in shape.members:
            parameters = {"clientToken": str(uuid.uuid4()), **parameters}
        check(shape, parameters)
        return self._call(operation, parameters)

    def _call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, xform_name(operation), None)
        if method is None:
            raise EmrValidationError(f"{operation} is not supported: the local cloud runs batch jobs only")
        with self._store.changed:
            response: dict[str, Any] = method(request_scope(), parameters)
            return response

    def get_state(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return self._store.to_json()

    def load_persisted_state(self, data: dict[str, Any]) -> None:
        """Load the state that an earlier process saved."""
        self._store.load_json(data)

    def reset(self) -> None:
        """Stop every job run and delete everything."""
        self._job_runs.stop_all()
        self._store.load_json({"applications": [], "job_runs": []})

    def create_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Create an application, or return the one that this client token created."""
        settings = {key: value for key, value in request.items() if key not in _NOT_SETTINGS}
        settings = {**_DEFAULTS, **settings}
        if settings["type"] != "SPARK":
            raise EmrValidationError(
                f"Application type {settings['type']} is not supported: the local cloud runs SPARK, in capital letters "
                "as AWS documents it"
            )
        token, tags = request["clientToken"], dict(request.get("tags", {}))
        applications = self._store.applications
        known = [
            item
            for item in applications.values()
            if (item.account, item.region, item.client_token) == (*scope, token) and item.state != TERMINATED
        ]
        if known and known[0].settings != settings:
            raise EmrConflict("The client token was used with different parameters")
        application = known[0] if known else Application(new_id(), *scope, settings, tags, token)
        applications[application.id] = application
        name = {"name": settings["name"]} if "name" in settings else {}
        return {"applicationId": application.id, "arn": application.arn, **name}

    def get_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Return an application, also a deleted one: its state is `TERMINATED`."""
        application = self._store.application(scope, request["applicationId"], terminated=True)
        self._store.stop_if_idle(application)
        return {"application": application.show("Application")}

    def list_applications(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Return the applications in any of the states asked for, the oldest first.

        A deleted application "doesn't appear on your application list" (Application states), unless a request asks for
        the state `TERMINATED`.
        """
        states, applications = request.get("states"), []
        for application in self._store.applications.values():
            if (application.account, application.region) == scope:
                self._store.stop_if_idle(application)
                if application.state in states if states else application.state != TERMINATED:
                    applications.append(application.show("ApplicationSummary"))
        return _page("applications", applications, request)

    def update_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Change settings of an application that is not started.

        AWS also changes the maximum capacity, the image and maxConcurrentRuns of a started one, if a request has
        nothing else ("Updating running applications"). Nothing of ours sends such a request.
        """
        application = self._application(scope, request, required_states=APPLICATION_IDLE)
        application.settings.update({key: value for key, value in request.items() if key not in _NOT_SETTINGS})
        application.change_state(application.state)
        return {"application": application.show("Application")}

    def start_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Start an application, unless it is started."""
        application = self._application(scope, request)
        if application.state != "STARTED":
            application.idle_since = time.time()
            application.change_state("STARTED")
        return {}

    def stop_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Stop an application whose job runs have all ended."""
        application = self._application(scope, request)
        if self._store.active(application):
            raise EmrValidationError(f"Application {application.id} has active job runs: cancel them, or wait")
        if application.state == "STARTED":
            application.change_state("STOPPED")
        return {}

    def delete_application(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Delete an application that is not started, with its job runs."""
        self._store.delete_application(self._application(scope, request, required_states=APPLICATION_IDLE))
        return {}

    def start_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Submit a job run, or return the one that this client token submitted."""
        if not self._starts.take(scope):
            raise EmrThrottled("Rate exceeded")
        run = self._job_runs.start(scope, request)
        return {"applicationId": run.application, "jobRunId": run.id, "arn": run.arn}

    def get_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Return a job run."""
        return {"jobRun": self._job_run(scope, request).show("JobRun")}

    def list_job_runs(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Return the job runs with the states and time of creation asked for, the newest first."""
        application = self._store.application(scope, request["applicationId"])
        states = request.get("states")
        after, before = request.get("createdAtAfter", 0.0), request.get("createdAtBefore", float("inf"))
        runs = [
            run.show("JobRunSummary")
            for run in reversed(self._store.application_runs(application.id))
            if (not states or run.state in states) and after <= run.created_at <= before
        ]
        return _page("jobRuns", runs, request)

    def cancel_job_run(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Cancel a job run that has not ended."""
        run = self._job_run(scope, request)
        self._job_runs.cancel(run)
        return {"applicationId": run.application, "jobRunId": run.id}

    def tag_resource(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Add tags to an application or job run."""
        self._store.tags(scope, request["resourceArn"]).update(request["tags"])
        return {}

    def untag_resource(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Remove tags from an application or job run."""
        tags = self._store.tags(scope, request["resourceArn"])
        for key in request["tagKeys"]:
            tags.pop(key, None)
        return {}

    def list_tags_for_resource(self, scope: Scope, request: dict[str, Any]) -> dict[str, Any]:
        """Return the tags of an application or job run."""
        return {"tags": self._store.tags(scope, request["resourceArn"])}

    def _application(
        self, scope: Scope, request: dict[str, Any], *, required_states: tuple[str, ...] = ()
    ) -> Application:
        """Return the application of a request, after its idle stop if that is due.

        Raises `EmrResourceNotFound`, or `EmrValidationError` when it is in none of the `required_states`.
        """
        application = self._store.application(scope, request["applicationId"])
        self._store.stop_if_idle(application)
        if required_states and application.state not in required_states:
            allowed = " or ".join(required_states)
            raise EmrValidationError(f"Application {application.id} is in state {application.state}, not {allowed}")
        return application

    def _job_run(self, scope: Scope, request: dict[str, Any]) -> JobRun:
        return self._store.job_run(scope, request["applicationId"], request["jobRunId"])


def _page(member: str, items: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    """Return the page that a request asks for; its token is the position of the next page."""
    start, size = 0, request.get("maxResults", _PAGE_SIZE)
    if "nextToken" in request:
        try:
            start = int(base64.urlsafe_b64decode(request["nextToken"]))
        except ValueError as error:
            raise EmrValidationError("nextToken is not one that this operation returned") from error
    response: dict[str, Any] = {member: items[start : start + size]}
    if start + size < len(items):
        response["nextToken"] = base64.urlsafe_b64encode(str(start + size).encode()).decode()
    return response


class StartLimit:
    """The limit of StartJobRun for each account and region, by "API limits" in the user guide."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # How many calls an account may make, and when that was counted.
        self._tokens: dict[Scope, tuple[float, float]] = {}

    def take(self, scope: Scope) -> bool:
        """Count a call, unless the account makes too many. Return whether it is allowed."""
        now = self._clock()
        tokens, counted = self._tokens.get(scope, (_STARTS_AT_ONCE, now))
        tokens = min(_STARTS_AT_ONCE, tokens + (now - counted) * _STARTS_PER_SECOND)
        if tokens < 1:
            return False
        self._tokens[scope] = tokens - 1, now
        return True


def authorize(principal: Principal, operation: str, request: Mapping[str, Any]) -> None:
    """Raise `EmrAccessDenied` unless a caller has the permissions of an operation with these parameters.

    StartJobRun also passes the job's role. Tags need TagResource; AWS does not document whether on the application or
    on the job run, so this asks for both.
    """
    scope = request_scope()
    resource = request.get("resourceArn") or f"arn:aws:emr-serverless:{scope.region}:{scope.account}:/"
    if "applicationId" in request:
        resource += f"applications/{request['applicationId']}"
    if "jobRunId" in request:
        resource += f"/jobruns/{request['jobRunId']}"
    try:
        principal.require(f"emr-serverless:{operation}", resource)
        if operation == "StartJobRun":
            principal.require("iam:PassRole", request["executionRoleArn"], {"iam:PassedToService": _SERVICE})
            for tagged in (resource, f"{resource}/jobruns/new") if request.get("tags") else ():
                principal.require("emr-serverless:TagResource", tagged)
    except AccessDenied as error:
        raise EmrAccessDenied(str(error)) from error
