"""Which role may make which call. All other roles must be denied it.

The calls change nothing when they are allowed: they are reads, or fail after IAM has allowed them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

FUNCTIONS = (
    *("receiveevents", "storeevents", "listfiles", "fetchfile", "removestale"),
    *("freezeinputs", "recordrun", "checkdays", "compareversions", "notifychange", "checkarrivals", "writeledger"),
)
DAILY, WEEKLY, ANY = "PipelinedailydelaysJob", "PipelineweeklydelaysJob", "AnyPipelineJob"
"""Roles of jobs: of two pipelines, and of those that are not deployed. `weekly_delays` reads `daily_delays` only."""
RUNS = {"PipelinedailydelaysMachine": DAILY, "PipelineweeklydelaysMachine": WEEKLY, "AnyPipeline": ANY}
STARTS_JOBS = {**RUNS, "Compare": "CompareJob", "Pull": "PullJob"}
"""By the role of a state machine: the role of its jobs."""
RAW_WRITERS = ("receiveevents", "storeevents", "fetchfile", "PullJob")
ROLES = {*FUNCTIONS, *STARTS_JOBS, *STARTS_JOBS.values(), "Monitor", "Backfill"}
"""Every role of the deployment, by its logical id without `Role` and hash; of pipelines only those of `RUNS`."""

_READS_INPUTS = ("freezeinputs", "checkdays", ANY)
_READS_MANIFESTS = (*_READS_INPUTS, "CompareJob", "writeledger")
_DESCRIBES_RUNS = ("Monitor", "Backfill", "freezeinputs", "checkdays", "checkarrivals")
# By bucket and prefix: which roles read, write, delete and list objects there.
OBJECTS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("RawBucket", "raw/"): {
        "read": _READS_INPUTS,
        "write": RAW_WRITERS,
        "delete": ("removestale",),
        "list": (*_READS_INPUTS, "removestale"),
    },
    ("RawBucket", "raw/source=flights/"): {
        "read": (*_READS_INPUTS, DAILY),
        "write": RAW_WRITERS,
        "delete": ("removestale",),
        "list": (*_READS_INPUTS, DAILY, "removestale"),
    },
    ("RawBucket", "sideline/"): {"write": ("receiveevents", "fetchfile", "PullJob"), "delete": ()},
    ("RawBucket", "landing/"): {"write": ("fetchfile", "PullJob")},
    ("RawBucket", "receipts/"): dict.fromkeys(("read", "write", "list"), ("receiveevents",)),
    ("RawBucket", ""): {},
    ("ExchangeBucket", "projects/"): {"read": ("freezeinputs", ANY)},
    ("ExchangeBucket", "pulls/"): {
        "read": ("fetchfile", "PullJob"),
        "write": ("listfiles", "PullJob"),
        "list": ("fetchfile",),
    },
    ("ExchangeBucket", "stale-objects/"): dict.fromkeys(("read", "write", "list"), ("removestale",)),
    ("ExchangeBucket", "manifests/"): {
        "read": _READS_MANIFESTS,
        "write": ("freezeinputs",),
        "list": _READS_MANIFESTS,
    },
    ("ExchangeBucket", "manifests/weekly_delays/"): {
        "read": (*_READS_MANIFESTS, WEEKLY),
        "write": ("freezeinputs",),
        "list": (*_READS_MANIFESTS, WEEKLY),
    },
    ("ExchangeBucket", "runs/"): {
        "read": ("freezeinputs", "recordrun", ANY),
        "write": ("freezeinputs", ANY),
        "delete": (ANY,),
        "list": ("freezeinputs", "recordrun", ANY),
    },
    ("ExchangeBucket", "runs/daily_delays/"): {
        "read": ("freezeinputs", "recordrun", ANY, DAILY),
        "write": ("freezeinputs", ANY, DAILY),
        "delete": (ANY, DAILY),
        "list": ("freezeinputs", "recordrun", ANY, DAILY),
    },
    ("ExchangeBucket", "arrow/weekly_delays/"): {
        "read": (ANY, WEEKLY),
        "write": (ANY, WEEKLY),
        "delete": ("recordrun",),
        "list": ("freezeinputs", "recordrun", ANY, WEEKLY),
    },
    ("ExchangeBucket", "checks/"): {"read": ("writeledger",), "write": ("checkdays",), "list": ("writeledger",)},
    ("ExchangeBucket", "ledger/"): {
        "read": ("writeledger",),
        "write": ("checkdays",),
        "delete": ("writeledger",),
        "list": ("writeledger",),
    },
    ("ExchangeBucket", "comparisons/"): {
        "read": ("compareversions", "notifychange", "writeledger", "CompareJob"),
        "write": ("compareversions", "notifychange", "CompareJob"),
        "delete": ("CompareJob",),
        "list": ("compareversions", "notifychange", "writeledger", "CompareJob"),
    },
    ("ExchangeBucket", "logs/"): {"write": tuple(STARTS_JOBS.values())},
    ("ExchangeBucket", ""): {},
    ("WarehouseBucket", "slackwater_warehouse/ledger/"): {
        "read": (ANY, "CompareJob", "writeledger"),
        "write": (ANY, "writeledger"),
        "delete": (ANY, "writeledger"),
        "list": (ANY, "CompareJob", "writeledger"),
    },
    ("WarehouseBucket", "slackwater_warehouse/"): {
        "read": (ANY, "CompareJob"),
        "write": (ANY,),
        "delete": (ANY,),
        "list": (ANY, "CompareJob"),
    },
    ("WarehouseBucket", "slackwater_warehouse/daily_delays/"): {
        "read": (ANY, "CompareJob", DAILY, WEEKLY),
        "write": (ANY, DAILY),
        "delete": (ANY, DAILY),
        "list": (ANY, "CompareJob", DAILY, WEEKLY),
    },
    ("WarehouseBucket", "files/"): dict.fromkeys(("read", "write", "delete", "list"), (ANY, DAILY, WEEKLY)),
    ("WarehouseBucket", ""): {},
}


@dataclass(frozen=True)
class Call:
    """A call, and the roles that may make it."""

    service: str
    operation: str
    arguments: dict[str, Any]
    roles: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.service}.{self.operation} {json.dumps(self.arguments, default=str)}"


def object_calls(outputs: dict[str, str]) -> Iterator[Call]:
    """Calls to S3. The keys end with `rights`, which no reader of these prefixes looks for."""
    for (output, prefix), roles in OBJECTS.items():
        bucket = outputs[output]
        there = {"Bucket": bucket, "Key": f"{prefix}rights"}
        yield Call("s3", "get_object", there, roles.get("read", ()))
        yield Call("s3", "put_object", {**there, "Body": b""}, roles.get("write", ()))
        if "delete" in roles or not prefix:
            yield Call("s3", "delete_object", {"Bucket": bucket, "Key": f"{prefix}none"}, roles.get("delete", ()))
        yield Call("s3", "list_objects_v2", {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1}, roles.get("list", ()))
    for output in ("RawBucket", "ExchangeBucket", "WarehouseBucket"):
        yield Call("s3", "delete_bucket", {"Bucket": outputs[output]})
    raw = {"Bucket": outputs["RawBucket"]}
    yield Call("s3", "delete_object", {**raw, "Key": "raw/rights", "VersionId": "null"})
    yield Call("s3", "put_bucket_policy", {**raw, "Policy": "{}"})
    yield Call("s3", "put_bucket_lifecycle_configuration", {**raw, "LifecycleConfiguration": {"Rules": []}})
    yield Call("s3", "list_buckets", {})


def table_calls(outputs: dict[str, str]) -> Iterator[Call]:
    """Calls to DynamoDB and Glue. The condition of each put is false."""
    text, false = {"S": "rights"}, {"ConditionExpression": "attribute_exists(rights)"}
    files, runs, tokens = (outputs[name] for name in ("FileTable", "RunTable", "TokenTable"))
    file, run, token = {"source": text, "path": text}, {"pipeline": text, "item": text}, {"token_hash": text}

    def query(table: str, key: str, index: str | None = None) -> dict[str, Any]:
        condition = {"KeyConditionExpression": "#key = :value", "ExpressionAttributeNames": {"#key": key}}
        values = {"ExpressionAttributeValues": {":value": text}}
        return {"TableName": table, **condition, **values, **({"IndexName": index} if index else {})}

    run_writers = ("freezeinputs", "recordrun", "compareversions", "notifychange", "checkdays")
    for table, key, readers, writers in (
        (files, file, (), ("listfiles", "fetchfile", "PullJob")),
        (runs, run, (*FUNCTIONS[5:-1], DAILY, WEEKLY, ANY), run_writers),
        (tokens, token, ("receiveevents",), ()),
    ):
        yield Call("dynamodb", "get_item", {"TableName": table, "Key": key}, readers)
        yield Call("dynamodb", "put_item", {"TableName": table, "Item": key, **false}, writers)
        # The items of due costs and of late days are removed.
        removers = ("freezeinputs", "recordrun", "checkdays") if key is run else ()
        yield Call("dynamodb", "delete_item", {"TableName": table, "Key": key}, removers)
        yield Call("dynamodb", "scan", {"TableName": table, "Limit": 1})
    yield Call("dynamodb", "update_item", {"TableName": runs, "Key": run, **false}, ("checkdays", "checkarrivals"))
    counters = ("receiveevents", "fetchfile")
    yield Call("dynamodb", "update_item", {"TableName": files, "Key": file, **false}, counters)
    yield Call("dynamodb", "delete_table", {"TableName": runs})
    batch = {"RequestItems": {files: {"Keys": [file]}}}
    readers = ("listfiles", "fetchfile", "removestale", "freezeinputs", "checkdays", "PullJob")
    yield Call("dynamodb", "batch_get_item", batch, readers)
    yield Call("dynamodb", "query", query(files, "source"))
    yield Call("dynamodb", "query", query(files, "open_source", "due"), ("listfiles",))
    yield Call("dynamodb", "query", query(files, "dated", "dated"), ("listfiles", "freezeinputs"))
    queriers = ("checkdays", "compareversions", "notifychange", "writeledger")
    yield Call("dynamodb", "query", query(runs, "pipeline"), queriers)
    yield Call("dynamodb", "query", query(runs, "published_pipeline", "published"), ("checkdays",))
    raw, warehouse = {"DatabaseName": outputs["RawDatabase"]}, {"DatabaseName": outputs["WarehouseDatabase"]}
    partitions = {**raw, "TableName": "rights", "PartitionInputList": []}
    for database, roles in ((raw, RAW_WRITERS), (warehouse, (ANY, "CompareJob"))):
        yield Call("glue", "get_table", {**database, "Name": "rights"}, roles)
        yield Call("glue", "delete_table", {**database, "Name": "rights"})
    yield Call("glue", "batch_create_partition", partitions, RAW_WRITERS)
    yield Call("glue", "get_table", {**warehouse, "Name": "weekly_delays"}, (ANY, "CompareJob", WEEKLY))
    yield Call("glue", "get_table", {**warehouse, "Name": "daily_delays"}, (ANY, "CompareJob", WEEKLY, DAILY))
    writers = (ANY, "CompareJob", WEEKLY, DAILY, "writeledger")
    yield Call("glue", "get_database", {"Name": outputs["WarehouseDatabase"]}, writers)
    yield Call("glue", "get_database", {"Name": outputs["RawDatabase"]})
    yield Call("glue", "get_table", {**warehouse, "Name": "ledger"}, (ANY, "CompareJob", "writeledger"))
    yield Call("glue", "update_table", {**warehouse, "TableInput": {"Name": "rights"}}, (ANY,))
    yield Call("glue", "get_tables", {"DatabaseName": "default"})


def message_calls(outputs: dict[str, str], arn: Callable[[str, str], str]) -> Iterator[Call]:
    """Calls to queues, topics, secrets and logs. Empty messages are refused after IAM has allowed them."""
    queue, dead_letters = outputs["EventQueueUrl"], outputs["EventDeadLetterQueueUrl"]
    receive = {"MaxNumberOfMessages": 1, "VisibilityTimeout": 0}
    yield Call("sqs", "send_message", {"QueueUrl": queue, "MessageBody": ""}, ("receiveevents",))
    yield Call("sqs", "receive_message", {"QueueUrl": queue, **receive}, ("storeevents",))
    yield Call("sqs", "delete_message", {"QueueUrl": queue, "ReceiptHandle": "rights"}, ("storeevents",))
    yield Call("sqs", "purge_queue", {"QueueUrl": queue})
    yield Call("sqs", "receive_message", {"QueueUrl": dead_letters, **receive})
    arrivals, dead_arrivals = outputs["ArrivalQueueUrl"], outputs["ArrivalDeadLetterQueueUrl"]
    senders = ("checkarrivals", "fetchfile", "recordrun", "checkdays")
    yield Call("sqs", "send_message", {"QueueUrl": arrivals, "MessageBody": ""}, senders)
    yield Call("sqs", "send_message_batch", {"QueueUrl": arrivals, "Entries": []}, senders)
    yield Call("sqs", "receive_message", {"QueueUrl": arrivals, **receive}, ("checkarrivals",))
    yield Call("sqs", "delete_message", {"QueueUrl": arrivals, "ReceiptHandle": "rights"}, ("checkarrivals",))
    yield Call("sqs", "receive_message", {"QueueUrl": dead_arrivals, **receive})
    yield Call("sns", "publish", {"TopicArn": outputs["ChangeTopicArn"], "Message": ""}, ("notifychange", "checkdays"))
    yield Call("sns", "publish", {"TopicArn": outputs["AlarmTopicArn"], "Message": ""})
    for name, roles in (("ship", ("listfiles", "fetchfile", "PullJob")), ("other", ())):
        secret = {"SecretId": arn("secretsmanager", f"secret:partners/{name}-AbCdEf")}
        yield Call("secretsmanager", "get_secret_value", secret, roles)
    yield Call("secretsmanager", "list_secrets", {})
    yield Call("ssm", "get_parameter", {"Name": "/partners/ship"})
    group, line = "/aws/lambda/slackwater-receive-events", {"timestamp": 0, "message": "rights"}
    stream = {"logGroupName": group, "logStreamName": "none"}
    yield Call("logs", "put_log_events", {**stream, "logEvents": [line]}, ("receiveevents",))
    yield Call("logs", "delete_log_group", {"logGroupName": group})
    yield Call("cloudwatch", "delete_alarms", {"AlarmNames": ["slackwater-dead-letters"]})


def machine_calls(outputs: dict[str, str], arn: Callable[[str, str], str], arns: dict[str, str]) -> Iterator[Call]:
    """Calls to functions, state machines, jobs and IAM. What is started has input that is refused."""
    invokers = {"freeze-inputs": tuple(RUNS), "record-run": tuple(RUNS), "compare-versions": ("Compare",)}
    invokers |= dict.fromkeys(("list-files", "fetch-file"), ("Pull",))
    invokers |= dict.fromkeys(("check-days", "notify-change", "write-ledger"), ("Monitor",))
    for name in ("receive-events", "store-events", *invokers):
        dry = {"FunctionName": f"slackwater-{name}", "InvocationType": "DryRun"}
        yield Call("lambda", "invoke", dry, tuple(invokers.get(name, ())))
    yield Call("lambda", "delete_function", {"FunctionName": "slackwater-receive-events"})
    yield Call("lambda", "get_function", {"FunctionName": "slackwater-receive-events"})
    for name, starters, readers in (
        ("pipeline-daily_delays", ("Monitor", "Backfill"), _DESCRIBES_RUNS),
        ("compare-day", ("Monitor",), ("Monitor", "compareversions")),
        ("monitor-days", ("checkarrivals",), ("checkdays", "notifychange", "writeledger")),
        ("backfill", (), ()),
        ("pull", (), ()),
    ):
        machine = arn("states", f"stateMachine:slackwater-{name}")
        execution = {"executionArn": arn("states", f"execution:slackwater-{name}:rights")}
        yield Call("stepfunctions", "start_execution", {"stateMachineArn": machine, "input": "no JSON"}, starters)
        yield Call("stepfunctions", "describe_execution", execution, readers)
        # What a run or a comparison has used, for its cost.
        priced = {
            "pipeline-daily_delays": ("recordrun", "checkdays", "notifychange"),
            "compare-day": ("checkdays", "notifychange"),
        }.get(name, ())
        yield Call("stepfunctions", "get_execution_history", execution, priced)
        # A function starts monitorings and does not stop them.
        stoppers = tuple(role for role in starters if role not in FUNCTIONS)
        yield Call("stepfunctions", "stop_execution", execution, stoppers)
    yield Call("stepfunctions", "delete_state_machine", {"stateMachineArn": machine})
    application = {"applicationId": outputs["ApplicationId"]}
    # EMR Serverless refuses the option `--none`.
    submit = {"sparkSubmit": {"entryPoint": "s3://b/k", "sparkSubmitParameters": "--none"}}
    starters_of = {arns[role]: (machine,) for machine, role in STARTS_JOBS.items()}
    for role, starters in {**starters_of, f"{arns[ANY]}-other": ()}.items():
        job = {**application, "executionRoleArn": role, "jobDriver": submit, "clientToken": "rights"}
        yield Call("emr-serverless", "start_job_run", job, starters)
    run = {**application, "jobRunId": "00none0000000000"}
    yield Call("emr-serverless", "get_job_run", run, (*STARTS_JOBS, "recordrun", "checkdays", "notifychange"))
    yield Call("emr-serverless", "cancel_job_run", run, tuple(STARTS_JOBS))
    yield Call("emr-serverless", "list_job_runs", application)
    yield Call("emr-serverless", "delete_application", application)
    yield Call("iam", "put_role_policy", {"RoleName": "other", "PolicyName": "p", "PolicyDocument": "{}"})
    yield Call("iam", "list_roles", {})
    yield Call("sts", "assume_role", {"RoleArn": arns[ANY], "RoleSessionName": "rights"})
