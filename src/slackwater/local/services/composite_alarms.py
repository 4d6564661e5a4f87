"""The CloudFormation resource type `AWS::CloudWatch::CompositeAlarm`.

The emulator has composite alarms and evaluates their rules, but has no such resource type. `monitoring` evaluates them
again whenever the state of an alarm in their rule changes.
"""

from __future__ import annotations

import json
from typing import Any

from slackwater.local import emulator
from slackwater.local.emulator import ProvisionedResource, Response, module

_TYPE = "AWS::CloudWatch::CompositeAlarm"
# The emulator ignores them, and would notify although the suppressor is in ALARM.
_UNSUPPORTED = ("ActionsSuppressor", "ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")


def register() -> None:
    """Register the resource type with the emulator's CloudFormation."""
    emulator.register_resource(_TYPE, create=create, delete=lambda name, _: _call("delete", {"AlarmNames": [name]}))


def create(properties: dict[str, Any]) -> ProvisionedResource:
    """Create a composite alarm, or change the one of this name. Raises `ValueError` with CloudWatch's message."""
    name = properties.get("AlarmName")
    # CloudFormation would generate a name. A rule, a policy or a dashboard that names the alarm would not find it.
    if not name:
        raise ValueError(f"{_TYPE}: AlarmName is missing: the local cloud generates no names of alarms")
    if unsupported := [key for key in _UNSUPPORTED if key in properties]:
        raise ValueError(f"{_TYPE} {name}: {unsupported[0]} is not emulated: express it in AlarmRule")
    _call("put", {key: _parse_boolean(value) for key, value in properties.items()})
    scope = emulator.request_scope()
    return name, {"Arn": f"arn:aws:cloudwatch:{scope.region}:{scope.account}:alarm:{name}"}


def _call(operation: str, request: dict[str, Any]) -> None:
    """Call one of the emulator's two operations with the members of the API's JSON."""
    metrics = module("services.cloudwatch")
    function = {"put": metrics._put_composite_alarm, "delete": metrics._delete_alarms}[operation]
    response: Response = function({}, request, False, is_json=True)
    if response[0] != 200:  # noqa: PLR2004 - HTTP's OK
        raise ValueError(json.loads(response[2])["message"])


def _parse_boolean(value: Any) -> Any:
    """Return a boolean that a template gives as a string."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
