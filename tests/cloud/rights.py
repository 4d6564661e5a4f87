"""Attempts at the calls of `tests/rights.py`, and at calls that no role may make.

They change nothing when they are allowed: they are reads, or fail after IAM has allowed them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tests.rights import JOBS, LINEAGE, REMOVING_ARROW_FILES, ROLES, SENDING_LINEAGE, calls, may

BUCKETS = {"Raw": "RawBucket", "Exchange": "ExchangeBucket", "Warehouse": "WarehouseBucket"}
_KEYS = {
    "FileTable": ("source", "path"),
    "RunTable": ("pipeline", "item"),
    "TokenTable": ("token_hash",),
    "StateTable": ("pk", "sk"),
}
_INDEXED = {"due": "open_source", "dated": "dated", "not-taken": "not_taken_source"} | {
    name: f"{name.replace('-', '_')}_pipeline" for name in ("published", "notification-due", "held")
}
_MACHINES = ("pipeline-daily_delays", "compare-day", "monitor-days", "backfill", "pull")
# What the tests' deployment adds: one partner has credentials, Arrow files are removed after a publication, and events
# of OpenLineage are sent.
_MORE = (
    *dict.fromkeys(
        ("listfiles", "fetchfile", "PullJob"), ("secretsmanager:GetSecretValue secret:partners/ship-*",)
    ).items(),
    *REMOVING_ARROW_FILES.items(),
    *SENDING_LINEAGE.items(),
)
HERE = {
    role: (*rows, *(row for name, more in _MORE if name == role for row in more))
    for role, rows in (ROLES | LINEAGE).items()
}
"""The calls of each role of the tests' deployment."""


@dataclass(frozen=True)
class Attempt:
    """A call, as action and resource of `tests/rights.py` and as an operation of a client; nobody may make others."""

    service: str
    operation: str
    arguments: dict[str, Any]
    action: str = ""
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.service}.{self.operation} {json.dumps(self.arguments, default=str)}"

    def is_allowed(self, role: str) -> bool:
        return may(role, self.action, self.resource, roles=HERE)


def listed(service: str) -> list[tuple[str, str]]:
    """All calls of the list to a service, once each."""
    everything = {call for rows in ROLES.values() for call in calls(rows)}
    return sorted(call for call in everything if call[0].startswith(f"{service}:"))


def prefixes() -> list[tuple[str, str]]:
    """The buckets, each with the prefixes that roles use, and with none."""
    used = {resource.removesuffix("*").partition("/") for _, resource in listed("s3")}
    return sorted({(bucket, prefix) for bucket, _, prefix in used if bucket in BUCKETS} | {(b, "") for b in BUCKETS})


def object_attempts(outputs: dict[str, str]) -> Iterator[Attempt]:
    """Calls to S3. The keys end with `rights`, which no reader of these prefixes looks for."""
    for name, prefix in prefixes():
        bucket, there = {"Bucket": outputs[BUCKETS[name]]}, f"{name}/{prefix}"
        key = {**bucket, "Key": f"{prefix}rights"}
        yield Attempt("s3", "get_object", key, "s3:GetObject", f"{there}rights")
        yield Attempt("s3", "put_object", {**key, "Body": b""}, "s3:PutObject", f"{there}rights")
        none = {**bucket, "Key": f"{prefix}none"}
        yield Attempt("s3", "delete_object", none, "s3:DeleteObject", f"{there}none")
        yield Attempt("s3", "list_objects_v2", {**bucket, "Prefix": prefix, "MaxKeys": 1}, "s3:ListBucket", there)
        if not prefix:
            yield Attempt("s3", "delete_bucket", bucket)
    raw = {"Bucket": outputs["RawBucket"]}
    yield Attempt("s3", "delete_object", {**raw, "Key": "raw/rights", "VersionId": "null"})
    yield Attempt("s3", "put_bucket_policy", {**raw, "Policy": "{}"})
    yield Attempt("s3", "put_bucket_lifecycle_configuration", {**raw, "LifecycleConfiguration": {"Rules": []}})
    yield Attempt("s3", "list_buckets", {})


def table_attempts(outputs: dict[str, str]) -> Iterator[Attempt]:
    """Calls to DynamoDB and Glue. The condition of each put is false."""
    text, false = {"S": "rights"}, {"ConditionExpression": "attribute_exists(rights)"}

    def query(key: str) -> dict[str, Any]:
        condition = {"KeyConditionExpression": "#key = :value", "ExpressionAttributeNames": {"#key": key}}
        return {**condition, "ExpressionAttributeValues": {":value": text}}

    for name, keys in _KEYS.items():
        table, key = {"TableName": outputs[name]}, dict.fromkeys(keys, text)
        for operation, arguments in {
            "get_item": {**table, "Key": key},
            "put_item": {**table, "Item": key, **false},
            "update_item": {**table, "Key": key, **false},
            "delete_item": {**table, "Key": key},
            "query": {**table, **query(keys[0])},
            "batch_get_item": {"RequestItems": {outputs[name]: {"Keys": [key]}}},
            # The item expires in 1970.
            "batch_write_item": {
                "RequestItems": {outputs[name]: [{"PutRequest": {"Item": {**key, "expires": {"N": "1"}}}}]}
            },
        }.items():
            action = f"dynamodb:{operation.title().replace('_', '')}"
            yield Attempt("dynamodb", operation, arguments, action, name)
        yield Attempt("dynamodb", "scan", {**table, "Limit": 1})
    for action, resource in listed("dynamodb"):
        name, _, index = resource.partition("/index/")
        if index:
            arguments = {"TableName": outputs[name], "IndexName": index, **query(_INDEXED[index])}
            yield Attempt("dynamodb", "query", arguments, action, resource)
    yield Attempt("dynamodb", "delete_table", {"TableName": outputs["RunTable"]})
    for action, resource in listed("glue"):
        kind, database, table = [*resource.split("/"), "", ""][:3]
        of, own = {"DatabaseName": database}, resource.replace("*", "rights")
        match action, kind:
            case "glue:GetTable", "table":
                yield Attempt("glue", "get_table", {**of, "Name": table.replace("*", "rights")}, action, own)
            case "glue:UpdateTable", "table" if table == "*":
                yield Attempt("glue", "update_table", {**of, "TableInput": {"Name": "rights"}}, action, own)
            case "glue:GetDatabase", "database":
                yield Attempt("glue", "get_database", {"Name": database}, action, resource)
    for database in (outputs["RawDatabase"], outputs["WarehouseDatabase"]):
        yield Attempt("glue", "delete_table", {"DatabaseName": database, "Name": "rights"})
    yield Attempt("glue", "get_tables", {"DatabaseName": "default"})


def message_attempts(outputs: dict[str, str], arn: Callable[[str, str], str]) -> Iterator[Attempt]:
    """Calls to queues, topics, secrets and logs. Empty messages are refused after IAM has allowed them."""
    receive = {"MaxNumberOfMessages": 1, "VisibilityTimeout": 0}
    for name, output in (("EventBufferQueue", "Event"), ("ArrivalsQueue", "Arrival"), ("StatesQueue", "State")):
        queue = {"QueueUrl": outputs[f"{output}QueueUrl"]}
        yield Attempt("sqs", "send_message", {**queue, "MessageBody": ""}, "sqs:SendMessage", name)
        yield Attempt("sqs", "send_message_batch", {**queue, "Entries": []}, "sqs:SendMessage", name)
        yield Attempt("sqs", "receive_message", {**queue, **receive}, "sqs:ReceiveMessage", name)
        yield Attempt("sqs", "delete_message", {**queue, "ReceiptHandle": "rights"}, "sqs:DeleteMessage", name)
        yield Attempt("sqs", "purge_queue", queue)
        yield Attempt("sqs", "receive_message", {"QueueUrl": outputs[f"{output}DeadLetterQueueUrl"], **receive})
    changes = {"TopicArn": outputs["ChangeTopicArn"], "Message": ""}
    yield Attempt("sns", "publish", changes, "sns:Publish", "Changes")
    yield Attempt("sns", "publish", {"TopicArn": outputs["AlarmTopicArn"], "Message": ""})
    for name in ("ship", "other"):
        secret = f"secret:partners/{name}-AbCdEf"
        arguments = {"SecretId": arn("secretsmanager", secret)}
        yield Attempt("secretsmanager", "get_secret_value", arguments, "secretsmanager:GetSecretValue", secret)
    yield Attempt("secretsmanager", "list_secrets", {})
    yield Attempt("ssm", "get_parameter", {"Name": "/partners/ship"})
    group, line = "/aws/lambda/slackwater-receive-events", {"timestamp": 0, "message": "rights"}
    put = {"logGroupName": group, "logStreamName": "none", "logEvents": [line]}
    yield Attempt("logs", "put_log_events", put, "logs:PutLogEvents", "receiveeventsLogs")
    yield Attempt("logs", "delete_log_group", {"logGroupName": group})
    yield Attempt("cloudwatch", "delete_alarms", {"AlarmNames": ["slackwater-dead-letters"]})


def machine_attempts(
    outputs: dict[str, str], arn: Callable[[str, str], str], arns: dict[str, str]
) -> Iterator[Attempt]:
    """Calls to functions, state machines, jobs and IAM. What is started has input that is refused."""
    for name in sorted(path.stem for path in Path("lambdas").glob("*.py") if path.stem != "start_scheduled"):
        dry = {"FunctionName": f"slackwater-{name.replace('_', '-')}", "InvocationType": "DryRun"}
        yield Attempt("lambda", "invoke", dry, "lambda:InvokeFunction", f"{name.replace('_', '')}Function")
    yield Attempt("lambda", "delete_function", {"FunctionName": "slackwater-receive-events"})
    yield Attempt("lambda", "get_function", {"FunctionName": "slackwater-receive-events"})
    for name in _MACHINES:
        machine, execution = f"stateMachine:slackwater-{name}", f"execution:slackwater-{name}:rights"
        start = {"stateMachineArn": arn("states", machine), "input": "no JSON"}
        yield Attempt("stepfunctions", "start_execution", start, "states:StartExecution", machine)
        for verb in ("describe_execution", "get_execution_history", "stop_execution"):
            arguments = {"executionArn": arn("states", execution)}
            yield Attempt("stepfunctions", verb, arguments, f"states:{verb.title().replace('_', '')}", execution)
    version = {"Name": "local", "Method": "GET", "Path": "/version"}
    yield Attempt("mwaa", "invoke_rest_api", version, "airflow:InvokeRestApi", "role/local/User")
    yield Attempt("stepfunctions", "delete_state_machine", {"stateMachineArn": arn("states", machine)})
    application = {"applicationId": outputs["ApplicationId"]}
    # EMR Serverless refuses the option `--none`.
    submit = {"sparkSubmit": {"entryPoint": "s3://b/k", "sparkSubmitParameters": "--none"}}
    for role, other in product(JOBS, ("", "-other")):
        # All that may pass a job's role may start jobs.
        job = {**application, "executionRoleArn": f"{arns[role]}{other}", "jobDriver": submit, "clientToken": "rights"}
        yield Attempt("emr-serverless", "start_job_run", job, "iam:PassRole", f"{role}Role{other}")
    for verb in ("get_job_run", "cancel_job_run"):
        run = {**application, "jobRunId": "00none0000000000"}
        action = f"emr-serverless:{verb.title().replace('_', '')}"
        yield Attempt("emr-serverless", verb, run, action, "SparkApplication/jobruns/any")
    yield Attempt("emr-serverless", "list_job_runs", application)
    yield Attempt("emr-serverless", "delete_application", application)
    yield Attempt("iam", "put_role_policy", {"RoleName": "other", "PolicyName": "p", "PolicyDocument": "{}"})
    yield Attempt("iam", "list_roles", {})
    yield Attempt("sts", "assume_role", {"RoleArn": arns["AnyPipelineJob"], "RoleSessionName": "rights"})
