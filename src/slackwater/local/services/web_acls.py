"""The CloudFormation resource types of AWS WAF that the emulator lacks. No request is filtered or logged.

AWS WAF associates a web ACL with a stage that exists. The emulator accepts every ARN.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from slackwater.local import emulator
from slackwater.local.emulator import ProvisionedResource, Response, module, replaces

_ASSOCIATION = "AWS::WAFv2::WebACLAssociation"
_LOGGING = "AWS::WAFv2::LoggingConfiguration"
# Of the resources that AWS WAF protects, our templates have only these.
_STAGE = re.compile(r"arn:[\w-]+:apigateway:[\w-]+::/restapis/(\w+)/stages/([\w-]+)")
_GROUP = re.compile(r"arn:[\w-]+:logs:[\w-]+:\d+:log-group:aws-waf-logs-[\w./#-]+")


def register() -> None:
    """Register the resource types with the emulator's CloudFormation, and check what web ACLs are associated with."""

    @replaces(module("services.waf"), "_associate_web_acl")
    def associate_web_acl(associate: Any, request: dict[str, Any]) -> Any:
        return _refusal(str(request.get("ResourceArn", ""))) or associate(request)

    emulator.register_resource(_ASSOCIATION, create=create_association, delete=delete_association)
    # The emulator keeps nothing of the configuration of a log.
    emulator.register_resource(_LOGGING, create=create_logging, delete=lambda *_: None)


def create_association(properties: dict[str, Any]) -> ProvisionedResource:
    """Associate a web ACL with a stage. Raises `ValueError` with the message of AWS WAF."""
    status, _, body = module("services.waf")._associate_web_acl(properties)
    if status != HTTPStatus.OK:
        raise ValueError(f"{_ASSOCIATION}: {json.loads(body)['message']}")
    return f"{properties['WebACLArn']}|{properties['ResourceArn']}", {}


def delete_association(physical_id: str, properties: dict[str, Any]) -> None:
    """Remove the web ACL from its stage, unless the stage has another one by now."""
    waf, resource = module("services.waf"), properties["ResourceArn"]
    if physical_id == f"{waf._associations.get(resource)}|{resource}":
        waf._disassociate_web_acl(properties)


def create_logging(properties: dict[str, Any]) -> ProvisionedResource:
    """Accept the configuration of a web ACL's log. Raises `ValueError` unless its destination is a log group of WAF."""
    for destination in properties["LogDestinationConfigs"]:
        if not _GROUP.fullmatch(destination):
            raise ValueError(
                f"{_LOGGING}: LogDestinationConfigs: {destination}: the name of a log group begins with aws-waf-logs-, "
                "and its ARN does not end with :*"
            )
    return str(properties["ResourceArn"]), {}


def _refusal(resource: str) -> Response | None:
    """Return AWS WAF's answer for a resource that it does not protect or that does not exist."""
    waf, match = module("services.waf"), _STAGE.fullmatch(resource)
    refused: Response
    if match is None:
        message = f"Error reason: The ARN isn't valid., field: RESOURCE_ARN, parameter: {resource}"
        refused = waf._waf_err("WAFInvalidParameterException", message)
        return refused
    api, stage = match.groups()
    if stage not in module("services.apigateway_v1").stages_for_api(api):
        refused = waf._waf_err("WAFNonexistentItemException", f"there is no stage {resource}")
        return refused
    return None
