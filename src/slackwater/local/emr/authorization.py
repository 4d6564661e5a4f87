"""The permissions that operations of EMR Serverless need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.errors import AccessDenied
from slackwater.local.emulator import request_scope
from slackwater.local.service_model import EmrAccessDenied
from slackwater.local.services.permissions import Principal

_SERVICE = "emr-serverless.amazonaws.com"


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
