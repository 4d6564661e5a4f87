"""The CloudFormation resource type `AWS::EMRServerless::Application`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.model import Shape

from slackwater.local import emulator
from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emulator import ProvisionedResource
from slackwater.local.service_model import camel_case, input_shape, rename_members

_TYPE = "AWS::EMRServerless::Application"
# The type's schema has these as `createOnlyProperties`: a change of one creates a new application ("Update requires:
# Replacement"). All others change in place ("Some interruptions").
_REPLACED_BY = ("Name", "Type")


def register(api: EmrServerlessApi) -> None:
    """Register the resource type with the emulator's CloudFormation.

    It creates, updates and deletes applications of `api`. An `EmrError` fails the resource with its message.
    """

    def create(properties: dict[str, Any]) -> ProvisionedResource:
        created = api.call("CreateApplication", _request("CreateApplication", properties))
        return created["applicationId"], {"ApplicationId": created["applicationId"], "Arn": created["arn"]}

    def update(physical_id: str, old: dict[str, Any], new: dict[str, Any]) -> ProvisionedResource:
        if any(old.get(name) != new.get(name) for name in _REPLACED_BY):
            return create(new)
        # Also for tags only: CloudFormation sends all properties with every change (its coverage roadmap, issue 2370).
        # Of these, AWS changes very few while an application is started, and refuses the call.
        request = _request("UpdateApplication", new) | {"applicationId": physical_id}
        arn = api.call("UpdateApplication", request)["application"]["arn"]
        old_tags, new_tags = _to_map(old.get("Tags", [])), _to_map(new.get("Tags", []))
        if removed := [key for key in old_tags if key not in new_tags]:
            api.call("UntagResource", {"resourceArn": arn, "tagKeys": removed})
        if new_tags != old_tags:
            api.call("TagResource", {"resourceArn": arn, "tags": new_tags})
        return physical_id, {"ApplicationId": physical_id, "Arn": arn}

    def delete(physical_id: str, _properties: dict[str, Any]) -> None:
        # The type's delete handler calls DeleteApplication only, so the deletion of a started application fails.
        api.call("DeleteApplication", {"applicationId": physical_id})

    emulator.register_resource(_TYPE, create=create, update=update, delete=delete)


def _request(operation: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a template as parameters of an operation, without those that the operation lacks."""
    shape, properties = input_shape(operation), dict(properties)
    # The API has maps where CloudFormation has lists of Key and Value.
    for name in ("InitialCapacity", "WorkerTypeSpecifications", "Tags"):
        if isinstance(properties.get(name), list):
            properties[name] = _to_map(properties[name])
    request: dict[str, Any] = rename_members(shape, properties, camel_case, _parse_scalar)
    return {key: value for key, value in request.items() if key in shape.members}


def _to_map(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["Key"]: pair["Value"] for pair in pairs}


def _parse_scalar(shape: Shape | None, value: Any) -> Any:
    """Return a boolean or whole number that a template's parameter or YAML gives as a string."""
    if isinstance(value, str) and shape is not None:
        if shape.type_name == "boolean":
            return {"true": True, "false": False}.get(value.lower(), value)
        if shape.type_name in {"integer", "long"} and value.isdecimal():
            return int(value)
    return value
