"""The resource type `AWS::EMRServerless::Application`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from slackwater.local import emulator
from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.model import check, renamed, service_model, uncapitalised

_TYPE = "AWS::EMRServerless::Application"
_REPLACED_BY = ("Name", "Type", "Architecture")
"""Properties that a new application is made for."""

Provisioned = tuple[str, dict[str, str]]
"""Physical id, and the attributes that Fn::GetAtt gives."""


class ApplicationResource:
    """Creates, updates and deletes applications for stacks."""

    def __init__(self, api: EmrServerlessApi) -> None:
        self._api = api

    def register(self) -> None:
        """Enter the resource type in the emulator's CloudFormation."""
        emulator.register_resource(_TYPE, {"create": self.create, "update": self.update, "delete": self.delete})

    def create(self, logical_id: str, properties: dict[str, Any], stack: str) -> Provisioned:
        """Create an application. Raises `EmrError`, which fails the resource with its message."""
        del logical_id, stack
        answer = self._call("CreateApplication", _request("CreateApplication", properties))
        return answer["applicationId"], {"ApplicationId": answer["applicationId"], "Arn": answer["arn"]}

    def update(self, identifier: str, old: dict[str, Any], new: dict[str, Any], stack: str) -> Provisioned:
        """Change an application, or replace it where a property cannot change. Raises `EmrError`."""
        if any(old.get(name) != new.get(name) for name in _REPLACED_BY):
            created = self.create("", new, stack)
            self.delete(identifier, old)
            return created
        request = _request("UpdateApplication", new) | {"applicationId": identifier}
        application = self._call("UpdateApplication", request)["application"]
        before, after = _map(old.get("Tags")), _map(new.get("Tags"))
        if gone := [key for key in before if key not in after]:
            self._call("UntagResource", {"resourceArn": application["arn"], "tagKeys": gone})
        if after != before:
            self._call("TagResource", {"resourceArn": application["arn"], "tags": after})
        return identifier, {"ApplicationId": identifier, "Arn": application["arn"]}

    def delete(self, identifier: str, properties: dict[str, Any]) -> None:
        """Stop and delete an application. Raises `EmrError`."""
        del properties
        self._call("StopApplication", {"applicationId": identifier})
        self._call("DeleteApplication", {"applicationId": identifier})

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        shape = service_model().operation_model(operation).input_shape
        if "clientToken" in shape.members:
            request = request | {"clientToken": str(uuid.uuid4())}
        check(shape, request)
        return self._api.call(operation, request)


def _request(operation: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template's properties as a request: names as the API writes them, key-value lists as maps."""
    shape = service_model().operation_model(operation).input_shape
    shown = dict(properties)
    for name in ("InitialCapacity", "WorkerTypeSpecifications", "Tags"):
        if isinstance(shown.get(name), list):
            shown[name] = _map(shown[name])
    request: dict[str, Any] = _typed(shape, renamed(shape, shown, uncapitalised))
    return {key: value for key, value in request.items() if key in shape.members}


def _map(pairs: Any) -> dict[str, Any]:
    return {pair["Key"]: pair["Value"] for pair in pairs or []}


def _typed(shape: Shape | None, value: Any) -> Any:
    """Return a template's value with booleans and whole numbers, which parameters and YAML give as text."""
    if isinstance(value, Mapping):
        members = shape.members if isinstance(shape, StructureShape) else {}
        inner = shape.value if isinstance(shape, MapShape) else None
        return {key: _typed(members.get(key, inner), item) for key, item in value.items()}
    if isinstance(value, list) and isinstance(shape, ListShape):
        return [_typed(shape.member, item) for item in value]
    if isinstance(value, str) and shape is not None:
        if shape.type_name == "boolean":
            return {"true": True, "false": False}.get(value.lower(), value)
        if shape.type_name in {"integer", "long"} and value.isdecimal():
            return int(value)
    return value
