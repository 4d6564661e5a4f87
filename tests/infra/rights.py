"""The permissions of the roles of a synthesised app, with short names of resources that tests can compare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.infra.assembly import Assembly


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


def without_hash(logical_id: str) -> str:
    return re.sub(r"[0-9A-F]{8}$", "", logical_id)


def short(resource: Any) -> str:
    """`raw/*` of the raw bucket as `Raw/raw/*`, an asset as `asset.py`; other addresses without account and region."""
    name = resource_name(resource)
    if match := re.search(r"FnGetAtt(\w+?)[0-9A-F]{8}Arn[0-9A-F]{8}(.*)$", name):
        return match[1] + match[2]
    if "cdk-" in name and (match := re.search(r"[0-9a-f]{64}(\..+)$", name)):
        return f"asset{match[1]}"
    if "cdk-" in name and (match := re.search(r"/(\*\..+)$", name)):
        return f"assets/{match[1]}"
    logical_id, slash, key = name.partition("/")
    name = re.sub(r"^arn:AWS::Partition:(s3:::)?|AWS::Region:", "", f"{without_hash(logical_id)}{slash}{key}")
    # Some stacks refer to this queue and to this function by name.
    name = re.sub(r"^.*AWS::AccountId:", "", name).replace("slackwater-arrivals", "ArrivalsQueue")
    name = name.replace("slackwater-states", "StatesQueue")
    for function in ("update-raw-tables", "await-inputs", "send-lineage"):  # invoked by their names from other stacks
        name = name.replace(f"function:slackwater-{function}", f"{function.replace('-', '')}Function")
    return name


def granted(assembly: Assembly) -> dict[str, set[tuple[str, str]]]:
    """What each role may do, by its logical id without `Role` and hash: actions with resources.

    The resource of a listing has the prefix that its condition allows. Policies that roles share are included.
    """
    documents: dict[str, list[Any]] = {}
    policies, shared = assembly.resources("AWS::IAM::Policy"), assembly.resources("AWS::IAM::ManagedPolicy")
    for name, role in assembly.resources("AWS::IAM::Role").items():
        inline = [policy["PolicyDocument"] for policy in role["Properties"].get("Policies", [])]
        # A policy of AWS has no reference.
        arns = [arn["Ref"] for arn in role["Properties"].get("ManagedPolicyArns", [])]
        own = [item["Properties"] for item in policies.values() if {"Ref": name} in item["Properties"]["Roles"]]
        own += [shared[arn]["Properties"] for arn in arns]
        documents[name] = [*inline, *(properties["PolicyDocument"] for properties in own)]
    return {
        re.sub(r"Role$", "", without_hash(name)): {pair for document in of for pair in _pairs(document["Statement"])}
        for name, of in documents.items()
    }


def _pairs(statements: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement.get("Resource", statement.get("NotResource"))
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                name = short(resource) if "Resource" in statement else f"not:{short(resource)}"
                prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", [""])
                yield from ((action, f"{name}/{prefix}" if prefix else name) for prefix in prefixes)
