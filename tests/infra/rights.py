"""The permissions in the policies of a synthesised app, with short names of resources that tests can compare."""

from __future__ import annotations

import re
from typing import Any

from tests.infra.assembly import Assembly, policies


def resource_name(resource: Any) -> str:
    """A resource of a policy, with the names of what it refers to."""
    match resource:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(resource_name(part) for part in parts)
        case {"Fn::GetAtt": [name, _]} | {"Ref": name}:
            return str(name)
        case {"Fn::ImportValue": name} | {"Fn::GetStackOutput": {"OutputName": name}}:
            return str(name)
        case _:
            return str(resource)


def short(resource: Any) -> str:
    """`raw/*` of the raw bucket as `Raw/raw/*`, an asset as `asset.py`; other addresses without account and region."""
    name = resource_name(resource)
    if match := re.search(
        r"(?:FnGetAtt)(Raw|Exchange|Warehouse|FileTable|RunTable|TokenTable|EventBufferQueue)\w{8}Arn\w{8}(.*)$", name
    ):
        return match[1] + match[2]
    if "cdk-" in name and (match := re.search(r"[0-9a-f]{64}(\..+)$", name)):
        return f"asset{match[1]}"
    return re.sub(r"^.*AWS::AccountId:", "", name)


def granted(assembly: Assembly, role: str) -> dict[str, set[str]]:
    """What a role's policies allow: resources by action. Policies that roles share are included."""
    permissions: dict[str, set[str]] = {}
    documents = policies(assembly.templates)
    [document] = [document for name, document in documents.items() if name.startswith(role)]
    roles = [properties for name, properties in assembly.resources("AWS::IAM::Role").items() if name.startswith(role)]
    shared = [arn["Ref"] for properties in roles for arn in properties["Properties"].get("ManagedPolicyArns", [])]
    for statement in [*document["Statement"], *(part for name in shared for part in documents[name]["Statement"])]:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                permissions.setdefault(action, set()).add(short(resource))
    return permissions


def without_logs(permissions: dict[str, set[str]]) -> dict[str, set[str]]:
    return {action: resources for action, resources in permissions.items() if not action.startswith("logs:")}
