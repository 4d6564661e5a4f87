"""The role with which API Gateway writes access logs: one for all APIs of an account and region."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated, unless_refused
from slackwater.errors import CloudError

_NAME = "api-gateway-logs"
_POLICY = "service-role/AmazonAPIGatewayPushToCloudWatchLogs"
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "apigateway.amazonaws.com"}}
    ],
}
_ATTEMPTS = 12
_PAUSE = 5.0  # seconds


def ensure_log_role(apigateway: Any, iam: Any, *, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Give API Gateway a role for its logs if it has none in this account and region. Return the ARN of the new role.

    A stack cannot do this: it would replace the role that the APIs of others use. Raises `CloudError`.
    """
    with translated("read the settings of API Gateway"):
        if apigateway.get_account().get("cloudwatchRoleArn"):
            return None
    with translated(f"create the role {_NAME} for the logs of API Gateway"):
        role: str = _create_role(iam)["Arn"]
    partition = role.split(":")[1]
    change = {"op": "replace", "path": "/cloudwatchRoleArn", "value": role}
    with translated("set the role for the logs of API Gateway"):
        iam.attach_role_policy(RoleName=_NAME, PolicyArn=f"arn:{partition}:iam::aws:policy/{_POLICY}")
        for _ in range(_ATTEMPTS):
            try:
                apigateway.update_account(patchOperations=[change])
            except ClientError as error:
                # API Gateway does not see a new role at once.
                if code_of(error) != "BadRequestException":
                    raise
                reason = error
                sleep(_PAUSE)
            else:
                return role
    raise CloudError(f"API Gateway does not accept the role {role} for its logs: {reason}")


def _create_role(iam: Any) -> dict[str, Any]:
    """Return the new role, or the one that exists, because another region needed it before."""
    create = partial(iam.create_role, RoleName=_NAME, AssumeRolePolicyDocument=json.dumps(_TRUST))
    role: dict[str, Any] = (unless_refused("EntityAlreadyExists", create) or iam.get_role(RoleName=_NAME))["Role"]
    return role
