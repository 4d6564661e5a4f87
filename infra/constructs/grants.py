"""Exact permissions, in the words of what is done. Every statement names its actions one by one."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets

from infra.constructs.common import accept_wildcards, states_arn


def read_objects(role: iam.IRole, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` read the objects under the prefixes."""
    _allow_objects(role, bucket, prefixes, ["s3:GetObject"])


def write_objects(role: iam.IRole, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` write objects under the prefixes."""
    _allow_objects(role, bucket, prefixes, ["s3:PutObject"])


def delete_objects(role: iam.IRole, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` delete the objects under the prefixes; of a versioned bucket they can be brought back."""
    _allow_objects(role, bucket, prefixes, ["s3:DeleteObject"])


def replace_objects(role: iam.IRole, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` read, write and delete the objects under the prefixes."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    _allow_objects(role, bucket, prefixes, actions)


def list_objects(role: iam.IRole, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` list what is under the prefixes, and learn that an object there is missing."""
    role.add_to_principal_policy(
        iam.PolicyStatement(
            actions=["s3:ListBucket"],
            resources=[_arn(role, bucket)],
            conditions={"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
        )
    )


def read_asset(role: iam.IRole, asset: assets.Asset) -> None:
    """Let `role` read one deployed file."""
    allow(role, ["s3:GetObject"], [asset.bucket.arn_for_objects(asset.s3_object_key)])


def use_items(role: iam.IRole, table: dynamodb.ITable, *actions: str) -> None:
    """Let `role` do the named things with a table's items: `GetItem`, `PutItem`, `Query`, ..."""
    allow(role, [f"dynamodb:{action}" for action in actions], [table.table_arn])


def use_tables(role: iam.IRole, database: str, *actions: str) -> None:
    """Let `role` do the named things in one Glue database: `GetTable`, `BatchCreatePartition`, ..."""
    stack = Stack.of(role)
    resources = [
        stack.format_arn(service="glue", resource="catalog"),
        stack.format_arn(service="glue", resource="database", resource_name=database),
        stack.format_arn(service="glue", resource="table", resource_name=f"{database}/*"),
    ]
    allow(role, [f"glue:{action}" for action in actions], resources, wildcard="The tables of this one database.")


def see_executions(role: iam.IRole, machines: str) -> None:
    """Let `role` ask about executions of the state machines whose names match `machines`."""
    executions = states_arn(role, "execution", f"{machines}:*")
    allow(role, ["states:DescribeExecution"], [executions], wildcard="Executions are named when they start.")


def _allow_objects(role: iam.IRole, bucket: s3.IBucket, prefixes: Sequence[str], actions: list[str]) -> None:
    resources = [f"{_arn(role, bucket)}/{prefix}*" for prefix in prefixes]
    allow(role, actions, resources, wildcard="Keys under this prefix are made as data comes; no other prefix is open.")


def _arn(role: iam.IRole, bucket: s3.IBucket) -> str:
    """The bucket's ARN as the role's stack sees it: another stack's by an export, whose name a finding can tell."""
    home = Stack.of(bucket)
    return bucket.bucket_arn if home.node.path == Stack.of(role).node.path else home.export_value(bucket.bucket_arn)


def allow(role: iam.IRole, actions: Sequence[str], resources: Sequence[str], *, wildcard: str = "") -> None:
    """Let `role` do exactly these actions on these resources; `wildcard` says why one of them ends in a wildcard."""
    role.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))
    if wildcard:
        accept_wildcards(role, resources, reason=wildcard)
