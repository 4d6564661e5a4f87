"""Helpers that several constructs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from aws_cdk import Acknowledgment, ArnFormat, CfnOutput, RemovalPolicy, Stack, Validations
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from infra.settings import Settings


def removal(settings: Settings) -> RemovalPolicy:
    """Return the removal policy of a resource with data: with the setting `retain`, it outlives its stack.

    If the deployment that creates it fails, CloudFormation deletes it, because nothing uses it yet. Such a resource
    must have no fixed name: the next deployment could not create it again.
    """
    return RemovalPolicy.DESTROY if settings.removal_policy == "destroy" else RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE


def log_group(scope: Construct, *, settings: Settings, name: str) -> logs.LogGroup:
    """Create a log group with the retention of the settings. It is deleted with its stack."""
    group = logs.LogGroup(
        scope,
        "Logs",
        log_group_name=name,
        removal_policy=RemovalPolicy.DESTROY,  # it has a fixed name
    )
    cast("logs.CfnLogGroup", group.node.default_child).retention_in_days = settings.log_retention_days
    return group


def states_arn(scope: IConstruct, resource: str, name: str) -> str:
    """Return an ARN of Step Functions. `resource` is `stateMachine` or `execution`; `name` is the full name."""
    return Stack.of(scope).format_arn(
        service="states", resource=resource, resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
    )


def accept(construct: IConstruct, findings: Mapping[str, str]) -> None:
    """Accept cdk-nag findings on one construct: a reason for each rule."""
    for rule, reason in findings.items():
        Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def accept_wildcards(role: IConstruct, resources: Iterable[str], *, reason: str) -> None:
    """Accept wildcards in exactly these resources of a role's policy."""
    for resource in resources:
        name = _nag_name(Stack.of(role).resolve(resource))
        if "*" in name:
            accept(role, {f"AwsSolutions-IAM5[Resource::{name}]": reason})


def _nag_name(reference: Any) -> str:
    """Return the name that cdk-nag uses for a resource in a finding.

    An accepted finding must state that name exactly. `reference` is a string or a CloudFormation function. Raises
    `ValueError` for a function that is not supported.
    """
    match reference:
        case str():
            return reference
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(_nag_name(part) for part in parts)
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Fn::ImportValue": name}:
            return _nag_name(name)
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::Sub": str(template)}:
            return template.replace("${", "<").replace("}", ">")
        case _:
            raise ValueError(f"cannot name the resource {reference!r} as cdk-nag does; extend infra.constructs.common")


def outputs(stack: Stack, values: Mapping[str, str]) -> None:
    """Add stack outputs with exactly these keys. `slackwater.aws.deployment` reads them."""
    scope = Construct(stack, "Outputs")
    for key, value in values.items():
        CfnOutput(scope, key, value=value).override_logical_id(key)
