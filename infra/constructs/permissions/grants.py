"""Grants least-privilege permissions. Every statement lists its actions individually."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_sqs as sqs
from constructs import IConstruct

from infra.constructs.common import accept_wildcards, states_arn
from infra.constructs.permissions.roles import Grantee
from infra.settings import Settings
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.receiver.connectors.connector import bucket_folder

# What S3 and SQS require of a writer: a multipart upload reads its parts.
_WRITE = ("Decrypt", "GenerateDataKey")
# What the guide of DynamoDB lists for the users of a table with a customer managed key.
_ITEM_READS = {"GetItem", "BatchGetItem", "Query"}
_READ_ITEMS = ("Decrypt", "DescribeKey")
_WRITE_ITEMS = (
    *("Decrypt", "DescribeKey", "Encrypt", "ReEncryptFrom", "ReEncryptTo"),
    *("GenerateDataKey", "GenerateDataKeyWithoutPlaintext"),
)


def read_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` read the objects under the prefixes."""
    _allow_keys(role, _arn(role, bucket), prefixes, ["s3:GetObject"])
    _use_key(role, bucket.encryption_key, "Decrypt")


def find_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` list and read the objects under the prefixes."""
    list_objects(role, bucket, *prefixes)
    read_objects(role, bucket, *prefixes)


def write_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` write objects under the prefixes."""
    _allow_keys(role, _arn(role, bucket), prefixes, ["s3:PutObject"])
    _use_key(role, bucket.encryption_key, *_WRITE)


def decrypt_sources(role: Grantee, keys: Mapping[str, str], sources: Iterable[str] | None = None) -> None:
    """Let `role` read the objects of these sources, or of all, with their KMS keys: ARNs by source."""
    wanted = keys if sources is None else sources
    _use_source_keys(role, (keys[source] for source in wanted if source in keys), "Decrypt")


def encrypt_sources(role: Grantee, keys: Mapping[str, str], sources: Iterable[str] | None = None) -> None:
    """Let `role` write and read the objects of these sources, or of all, with their KMS keys: ARNs by source."""
    wanted = keys if sources is None else sources
    _use_source_keys(role, (keys[source] for source in wanted if source in keys), *_WRITE)


def delete_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` delete the objects under the prefixes. In a versioned bucket they can be restored."""
    _allow_keys(role, _arn(role, bucket), prefixes, ["s3:DeleteObject"])


def replace_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` read, write and delete the objects under the prefixes."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    _allow_keys(role, _arn(role, bucket), prefixes, actions)
    _use_key(role, bucket.encryption_key, *_WRITE)


def list_objects(role: Grantee, bucket: s3.IBucket, *prefixes: str) -> None:
    """Let `role` list the objects under the prefixes. This also makes S3 answer 404 for a missing object, not 403."""
    _allow_listing(role, _arn(role, bucket), prefixes)


def read_asset(role: Grantee, asset: assets.Asset, *, settings: Settings) -> None:
    """Let `role` read one deployed file."""
    allow(role, ["s3:GetObject"], [asset.bucket.arn_for_objects(asset.s3_object_key)])
    if settings.bootstrap_kms_key:
        allow(role, ["kms:Decrypt"], [settings.bootstrap_kms_key])


def read_earlier_assets(role: Grantee, asset: assets.Asset, *, settings: Settings) -> None:
    """Let `role` read the files of earlier deployments as well: CloudFormation does not remove them.

    `asset` is any file in the bucket of the bootstrap.
    """
    files = [asset.bucket.arn_for_objects(f"*{ending}") for ending in (".json", ".zip", ".py")]
    allow(role, ["s3:GetObject"], files, wildcard="Earlier versions of the project, the archive and the job's program.")
    if settings.bootstrap_kms_key:
        allow(role, ["kms:Decrypt"], [settings.bootstrap_kms_key])


def read_jars(role: Grantee, jars: Iterable[str]) -> None:
    """Let `role` read those of the jars that are `s3://` URIs."""
    keys = [jar.removeprefix("s3://") for jar in jars if jar.startswith("s3://")]
    if keys:
        stack = Stack.of(role)
        allow(
            role,
            ["s3:GetObject"],
            [stack.format_arn(service="s3", region="", account="", resource=key) for key in keys],
        )


def use_items(role: Grantee, table: dynamodb.ITable, *actions: str) -> None:
    """Let `role` call these DynamoDB actions on a table: `GetItem`, `PutItem`, `Query`, ...

    `PutItem` also allows the puts of a transaction.
    """
    allow(role, [f"dynamodb:{action}" for action in actions], [table.table_arn])
    _use_key(role, table.encryption_key, *(_READ_ITEMS if _ITEM_READS.issuperset(actions) else _WRITE_ITEMS))


def query_indexes(role: Grantee, table: dynamodb.ITable, *indexes: str) -> None:
    """Let `role` query these indexes of a table."""
    allow(role, ["dynamodb:Query"], [f"{table.table_arn}/index/{index}" for index in indexes])
    _use_key(role, table.encryption_key, *_READ_ITEMS)


def use_queue(role: Grantee, queue: sqs.IQueue, *actions: str) -> None:
    """Let `role` call these SQS actions on a queue: `SendMessage`, `ReceiveMessage`, ..."""
    allow(role, [f"sqs:{action}" for action in actions], [queue.queue_arn])
    _use_key(role, queue.encryption_master_key, *(_WRITE if "SendMessage" in actions else ("Decrypt",)))


def use_tables(role: Grantee, database: str, *actions: str) -> None:
    """Let `role` call these Glue actions on the tables of one database: `GetTable`, `BatchCreatePartition`, ..."""
    use_table(role, database, "*", *actions)


def use_database(role: Grantee, database: str, *actions: str) -> None:
    """Let `role` call these Glue actions on one database, but not on its tables: Glue checks them for both."""
    allow(role, [f"glue:{action}" for action in actions], _database_arns(role, database))


def use_table(role: Grantee, database: str, table: str, *actions: str) -> None:
    """Let `role` call these Glue actions on one table, which may not exist yet."""
    resources = [*_database_arns(role, database), table_arn(role, database, table)]
    allow(role, [f"glue:{action}" for action in actions], resources, wildcard="The tables of this one database.")


def table_arn(scope: IConstruct, database: str, table: str) -> str:
    """Return the ARN of a table in Glue's catalog."""
    return Stack.of(scope).format_arn(service="glue", resource="table", resource_name=f"{database}/{table}")


def _database_arns(scope: IConstruct, database: str) -> list[str]:
    stack = Stack.of(scope)
    return [
        stack.format_arn(service="glue", resource="catalog"),
        stack.format_arn(service="glue", resource="database", resource_name=database),
    ]


def describe_executions(role: Grantee, machines: str) -> None:
    """Let `role` describe executions of the state machines whose full names match `machines`."""
    executions = states_arn(role, "execution", f"{machines}:*")
    allow(role, ["states:DescribeExecution"], [executions], wildcard="Executions are named when they start.")


def stop_executions(role: Grantee, machines: str) -> None:
    """Let `role` stop executions of the state machines whose full names match `machines`."""
    executions = states_arn(role, "execution", f"{machines}:*")
    allow(role, ["states:StopExecution"], [executions], wildcard="Executions are named when they start.")


def read_histories(role: Grantee, machines: str) -> None:
    """Let `role` read the histories of executions of the state machines whose full names match `machines`."""
    executions = states_arn(role, "execution", f"{machines}:*")
    allow(role, ["states:GetExecutionHistory"], [executions], wildcard="Executions are named when they start.")


def allow_partners(role: Grantee, project: Project) -> None:
    """Let `role` access the partners of all sources that are pulled.

    The role may read the credentials that the sources name, assume the partners' roles, and read the partners' S3
    prefixes that need no role. An ARN refers to exactly that secret or parameter; a name refers to one of this account
    and region.
    """
    pulls = [source.pull for source in project.sources.values() if source.pull]
    _allow_credentials(role, {pull.credentials for pull in pulls if pull.credentials})
    if roles := sorted({pull.role for pull in pulls if pull.role}):
        allow(role, ["sts:AssumeRole"], roles)
    _allow_folders(role, [pull.url for pull in pulls if pull.scheme == "s3" and not pull.role])


def allow_foreign_tables(role: Grantee, pipelines: Iterable[Pipeline]) -> None:
    """Let `role` read the Iceberg tables of other systems that these pipelines read: from Glue, and in S3."""
    inputs = [item for pipeline in pipelines for item in pipeline.foreign_tables.values()]
    if not inputs:
        return
    stack, names = Stack.of(role), sorted({item.name for item in inputs})
    databases = sorted({database for database, _ in names})
    resources = [
        stack.format_arn(service="glue", resource="catalog"),
        *(stack.format_arn(service="glue", resource="database", resource_name=name) for name in databases),
        *(stack.format_arn(service="glue", resource="table", resource_name="/".join(name)) for name in names),
    ]
    allow(role, ["glue:GetTable"], resources)
    _allow_folders(role, [item.location for item in inputs])


def allow_steps(role: Grantee, pipelines: Iterable[Pipeline]) -> None:
    """Let `role` read the credentials that the steps of these pipelines name."""
    _allow_credentials(role, {reference for _, _, reference in step_values(pipelines, "credentials")})


def step_values(pipelines: Iterable[Pipeline], key: str) -> Iterator[tuple[str, str, str]]:
    """Yield the pipeline, the place and the string of each parameter of a step that has the name `key`.

    It may be part of another parameter. The place is such as `steps.rates.with.url`.
    """

    def values(place: str, value: Any) -> Iterator[tuple[str, str]]:
        match value:
            case dict():
                for name, inner in value.items():
                    if name == key and isinstance(inner, str):
                        yield f"{place}.{name}", inner
                    yield from values(f"{place}.{name}", inner)
            case list() | tuple():
                for index, inner in enumerate(value):
                    yield from values(f"{place}.{index}", inner)

    for pipeline in sorted(pipelines, key=lambda one: one.pipeline):
        for section, uses in (("steps", pipeline.steps), ("load", pipeline.load)):
            for step, use in uses.items():
                for place, value in values(f"{section}.{step}.with", use.parameters):
                    yield pipeline.pipeline, place, value


def _use_key(role: Grantee, key: kms.IKey | None, *actions: str) -> None:
    """Let `role` call these KMS actions with the key of a bucket, table or queue, if it has one."""
    if key:
        allow(role, [f"kms:{action}" for action in actions], [key.key_arn])


def _use_source_keys(role: Grantee, arns: Iterable[str], *actions: str) -> None:
    if keys := sorted(set(arns)):
        allow(role, [f"kms:{action}" for action in actions], keys)


def _allow_folders(role: Grantee, urls: Sequence[str]) -> None:
    """Let `role` list and read the objects below `s3://bucket/prefix` URLs."""
    folders: dict[str, set[str]] = {}
    for bucket, folder in map(bucket_folder, urls):
        folders.setdefault(bucket, set()).add(folder)
    for bucket, prefixes in sorted(folders.items()):
        arn = Stack.of(role).format_arn(service="s3", region="", account="", resource=bucket)
        _allow_listing(role, arn, sorted(prefixes))
        _allow_keys(role, arn, sorted(prefixes), ["s3:GetObject"])


def read_credentials(role: Grantee, reference: str) -> None:
    """Let `role` read the credentials of a reference, `secretsmanager:<name>` or `ssm:<name>`."""
    _allow_credentials(role, {reference})


def _allow_credentials(role: Grantee, references: set[str]) -> None:
    """Let `role` read the secrets and parameters of these references."""
    for store, action in (("secretsmanager", "GetSecretValue"), ("ssm", "GetParameter")):
        arns = [_credentials_arn(role, name) for name in sorted(references) if name.startswith(f"{store}:")]
        if arns:
            allow(role, [f"{store}:{action}"], arns)


def _credentials_arn(role: Grantee, reference: str) -> str:
    """Return the ARN of the secret or parameter that `secretsmanager:<name>` or `ssm:<name>` refers to."""
    store, _, name = reference.partition(":")
    if name.startswith("arn:"):
        return name
    if store == "ssm":
        return Stack.of(role).format_arn(service="ssm", resource="parameter", resource_name=name.lstrip("/"))
    # Secrets Manager appends a dash and six random characters to the name in a secret's ARN.
    return Stack.of(role).format_arn(
        service="secretsmanager",
        resource="secret",
        resource_name=f"{name}-??????",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def _allow_keys(role: Grantee, bucket: str, prefixes: Sequence[str], actions: list[str]) -> None:
    resources = [f"{bucket}/{prefix}*" for prefix in prefixes]
    allow(role, actions, resources, wildcard="Object keys under this one prefix are created as data arrives.")


def _allow_listing(role: Grantee, bucket: str, prefixes: Sequence[str]) -> None:
    # A listing is a request to the bucket, so its prefix can only be restricted by a condition.
    role.add_to_principal_policy(
        iam.PolicyStatement(
            actions=["s3:ListBucket"],
            resources=[bucket],
            conditions={"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
        )
    )


def _arn(role: Grantee, bucket: s3.IBucket) -> str:
    """Return the bucket's ARN for use in the role's stack: an export, if the bucket is in another stack."""
    # An export has a fixed name, which an accepted cdk-nag finding can state.
    owner = Stack.of(bucket)
    return bucket.bucket_arn if owner.node.path == Stack.of(role).node.path else owner.export_value(bucket.bucket_arn)


def allow(role: Grantee, actions: Sequence[str], resources: Sequence[str], *, wildcard: str = "") -> None:
    """Let `role` call exactly these actions on these resources. `wildcard` is the reason for a wildcard in them."""
    role.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))
    if wildcard:
        accept_wildcards(role, resources, reason=wildcard)
