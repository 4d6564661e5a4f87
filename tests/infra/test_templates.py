"""The resources in the synthesised templates: functions, buckets, queues, tables, API, jobs, state machines."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Le
from aws_cdk import App, Duration, Stack
from aws_cdk.assertions import Template
from aws_cdk.aws_s3 import Bucket
from pydantic import ValidationError

from infra.app import ROOT
from infra.constructs.arrivals import Arrivals
from infra.constructs.event_buffer import EventBuffer
from infra.constructs.library_function import Library
from infra.constructs.spark_application import SparkApplication
from infra.lint import definition
from infra.settings import Settings, load_settings
from infra.stacks.processing import check_large_files
from infra.stacks.storage import JOB_MINUTES, longest_run_days
from lambdas.receive_events import RESPONSE_SECONDS
from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.deployment import OPTIONAL_STACKS, STACKS, Deployment
from slackwater.errors import DefinitionError
from slackwater.local.emr.billing import read_workers
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.retries import LAMBDA, RETRIES, SPARK_JOB
from slackwater.project.project import Project
from tests.fakes_receiver import FILE_TABLE, a_source
from tests.fakes_runs import RUN_TABLE
from tests.infra.assembly import Assembly, submit_parameters
from tests.infra.rights import resource_name
from tests.machines import tasks_of

pytestmark = pytest.mark.infra

_BUCKETS = {"Raw", "Exchange", "Warehouse"}


def test_only_our_own_functions_run(assembly: Assembly) -> None:
    functions = assembly.resources("AWS::Lambda::Function").values()
    names = {function["Properties"]["FunctionName"] for function in functions}
    assert names == {f"slackwater-{path.stem.replace('_', '-')}" for path in (ROOT / "lambdas").glob("*.py")}
    assert len(names) >= 10
    for function in functions:
        properties = function["Properties"]
        module = properties["FunctionName"].removeprefix("slackwater-").replace("-", "_")
        assert properties["Handler"] == f"{module}.handler"
        assert properties["LoggingConfig"]["LogFormat"] == "JSON"
        assert len(properties["Layers"]) == 1
        variables = properties["Environment"]["Variables"]
        assert {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"} < variables.keys()
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Slackwater/slackwater"


def test_a_changed_function_changes_no_other_and_neither_does_bytecode(tmp_path: Path) -> None:
    def assets() -> list[str]:
        stack = Stack()
        library = Library(stack, "Library", settings=load_settings({}), artefact=tmp_path, lambdas=lambdas)
        for name in ("check_days", "record_run"):
            library.function(name, description="Any", environment={}, timeout=Duration.minutes(1))
        functions = Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
        by_name = {function["Properties"]["Handler"]: function["Properties"]["Code"]["S3Key"] for function in functions}
        return [by_name["check_days.handler"], by_name["record_run.handler"]]

    lambdas = tmp_path / "lambdas"
    shutil.copytree(ROOT / "lambdas", lambdas, ignore=shutil.ignore_patterns("__pycache__"))
    changed, other = assets()
    (lambdas / "__pycache__").mkdir()
    (lambdas / "__pycache__" / "check_days.cpython-311.pyc").write_bytes(b"1")
    assert assets() == [changed, other]
    (lambdas / "check_days.py").write_text("handler = None")
    assert assets()[0] != changed
    assert assets()[1] == other


@pytest.mark.parametrize(("level", "passed"), [("DEBUG", "DEBUG"), ("INFO", "INFO"), ("ERROR", "INFO")])
def test_lambda_passes_what_the_setting_logs_and_never_drops_metrics(tmp_path: Path, level: str, passed: str) -> None:
    """Lambda filters JSON logs, by default below `INFO`. Lines of metrics have no level and count as `INFO`."""
    stack, settings = Stack(), load_settings({"slackwater:log_level": level})
    library = Library(stack, "Library", settings=settings, artefact=tmp_path, lambdas=ROOT / "lambdas")
    library.function("record_run", description="Any", environment={}, timeout=Duration.minutes(1))
    [function] = Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
    assert function["Properties"]["LoggingConfig"]["ApplicationLogLevel"] == passed


def test_no_function_has_more_environment_variables_than_it_needs(assembly: Assembly) -> None:
    environments = {
        function["Properties"]["FunctionName"].removeprefix("slackwater-"): {
            name for name in function["Properties"]["Environment"]["Variables"] if not name.startswith("POWERTOOLS_")
        }
        for function in assembly.resources("AWS::Lambda::Function").values()
    }
    assert environments == {
        "receive-events": {
            *("RAW_BUCKET", "RAW_DATABASE", "TOKEN_TABLE", "FILE_TABLE", "EVENT_QUEUE_URL", "PROJECT_URI"),
        },
        "store-events": {"RAW_BUCKET", "RAW_DATABASE", "PROJECT_URI"},
        "list-files": {"EXCHANGE_BUCKET", "FILE_TABLE", "PROJECT_URI", "OUTBOUND_ALLOW"},
        "fetch-file": {
            *("RAW_BUCKET", "RAW_DATABASE", "FILE_TABLE", "PROJECT_URI", "OUTBOUND_ALLOW", "ARRIVAL_QUEUE_URL"),
        },
        "remove-stale": {"RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "PROJECT_URI"},
        "freeze-inputs": {
            *("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "KEPT_DAYS", "INTERMEDIATE_DAYS"),
        },
        "record-run": {
            *("RUN_TABLE", "INTERMEDIATE_DAYS", "APPLICATION_ID", "ARCHITECTURE", "FUNCTION_MB", "ARRIVAL_QUEUE_URL"),
        },
        "check-days": {
            *("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "PROJECT_URI"),
            *("APPLICATION_ID", "ARCHITECTURE", "FUNCTION_MB", "ARRIVAL_QUEUE_URL", "CHANGE_TOPIC"),
        },
        "check-arrivals": {"RUN_TABLE", "PROJECT_URI", "MONITOR_MACHINE", "QUEUE_URL"},
        "compare-versions": {"EXCHANGE_BUCKET", "RUN_TABLE"},
        "notify-change": {
            *("EXCHANGE_BUCKET", "RUN_TABLE", "CHANGE_TOPIC", "APPLICATION_ID", "ARCHITECTURE", "FUNCTION_MB"),
        },
        "write-ledger": {"EXCHANGE_BUCKET", "RUN_TABLE", "PROJECT_URI", "WAREHOUSE_DATABASE"},
        "start-scheduled": {"STATE_MACHINE_PREFIX"},
    }


def test_functions_have_the_memory_that_their_work_needs(assembly: Assembly) -> None:
    memory = {
        function["Properties"]["FunctionName"].removeprefix("slackwater-"): function["Properties"]["MemorySize"]
        for function in assembly.resources("AWS::Lambda::Function").values()
    }
    assert {name: memory[name] for name in ("check-days", "compare-versions", "notify-change")} == {
        "check-days": 1769,  # two days' manifests in memory, and a whole vCPU
        "compare-versions": 512,
        "notify-change": 512,
    }


def test_stacks_do_not_share_a_layer_by_export(assembly: Assembly) -> None:
    exports = [output for template in assembly.templates.values() for output in template.get("Outputs", {})]
    layers = [name for template in assembly.templates.values() for name in template["Resources"] if "Layer" in name]
    assert len(layers) == 4
    assert not [name for name in exports if "Layer" in name]


def test_objects_of_partitions_are_collected_in_a_queue_of_their_own(assembly: Assembly) -> None:
    rule = assembly.one("AWS::Events::Rule", "Arrivals")
    assert rule["State"] == "ENABLED"
    assert rule["EventPattern"]["detail"]["object"] == {"key": [{"prefix": "raw/source="}]}
    assert rule["EventPattern"]["detail-type"] == ["Object Created"]
    [target] = rule["Targets"]
    assert target["InputTransformer"] == {
        "InputPathsMap": {"id": "$.id", "key": "$.detail.object.key", "time": "$.time"},
        "InputTemplate": '{"id": <id>, "key": <key>, "time": <time>}',
    }
    queues = assembly.resources("AWS::SQS::Queue")
    [queue] = [queue["Properties"] for name, queue in queues.items() if name == target["Arn"]["Fn::GetAtt"][0]]
    mappings = [item["Properties"] for item in assembly.resources("AWS::Lambda::EventSourceMapping").values()]
    [mapping] = [item for item in mappings if item["EventSourceArn"] == target["Arn"]]
    assert mapping["MaximumBatchingWindowInSeconds"] == 300
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    # AWS recommends six times the timeout of the function, two minutes, and the window.
    assert queue["VisibilityTimeout"] >= 6 * 120 + mapping["MaximumBatchingWindowInSeconds"]
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5


def test_events_that_the_queue_of_arrivals_does_not_take_are_kept_in_its_dead_letter_queue(assembly: Assembly) -> None:
    [target] = assembly.one("AWS::Events::Rule", "Arrivals")["Targets"]
    queues = assembly.resources("AWS::SQS::Queue")
    redrive = queues[target["Arn"]["Fn::GetAtt"][0]]["Properties"]["RedrivePolicy"]
    assert target["DeadLetterConfig"] == {"Arn": redrive["deadLetterTargetArn"]}
    [rule_name] = [name for name in assembly.resources("AWS::Events::Rule") if name.startswith("Arrivals")]
    for arn in (target["Arn"], target["DeadLetterConfig"]["Arn"]):
        [allowed] = [
            statement
            for policy in assembly.resources("AWS::SQS::QueuePolicy").values()
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Allow" and statement["Resource"] == arn
        ]
        assert allowed["Principal"] == {"Service": "events.amazonaws.com"}
        assert allowed["Action"] == "sqs:SendMessage"
        assert allowed["Condition"] == {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [rule_name, "Arn"]}}}


@pytest.mark.parametrize(("minutes", "state", "window"), [(0, "DISABLED", 1), (1, "ENABLED", 60), (5, "ENABLED", 300)])
def test_arrivals_are_collected_for_the_minutes_of_the_setting(minutes: int, state: str, window: int) -> None:
    stack, settings = Stack(App(), "stack"), Settings(collect_minutes=minutes)
    arrivals = Arrivals(stack, "Arrivals", settings=settings, raw=Bucket.from_bucket_name(stack, "Raw", "raw"))
    assert arrivals.window.to_seconds() == window
    [rule] = Template.from_stack(stack).find_resources("AWS::Events::Rule").values()
    assert rule["Properties"]["State"] == state


def test_buckets_are_private_encrypted_and_reached_by_tls_only(assembly: Assembly) -> None:
    buckets = assembly.resources("AWS::S3::Bucket")
    assert {name[:-8] for name in buckets} == _BUCKETS
    for bucket in buckets.values():
        properties = bucket["Properties"]
        assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
        assert properties["BucketEncryption"]
    policies = assembly.resources("AWS::S3::BucketPolicy").values()
    assert len(policies) == 3
    for policy in policies:
        [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_event_queue_is_encrypted_and_reached_by_tls_only(assembly: Assembly) -> None:
    queues = {name: queue for name, queue in assembly.resources("AWS::SQS::Queue").items() if "EventBuffer" in name}
    assert len(queues) == 2
    for queue in queues.values():
        assert queue["Properties"]["SqsManagedSseEnabled"]
        assert queue["Properties"]["MessageRetentionPeriod"] == 14 * 86400
    policies = assembly.templates["slackwater-storage"]["Resources"].values()
    statements = [
        statement
        for policy in policies
        if policy["Type"] == "AWS::SQS::QueuePolicy"
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert len(statements) == 2
    for statement in statements:
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("of", ["assembly", "scheduled"])
def test_no_resource_that_outlives_its_stack_has_a_fixed_name(of: str, request: pytest.FixtureRequest) -> None:
    """Otherwise the next deployment after `cdk destroy`, or after a failed one, finds the name taken."""
    synthesised: Assembly = request.getfixturevalue(of)
    kept = {
        name: resource
        for template in synthesised.templates.values()
        for name, resource in template["Resources"].items()
        if resource.get("DeletionPolicy", "Delete") != "Delete"
    }
    assert {resource["Type"] for resource in kept.values()} == {
        "AWS::DynamoDB::Table",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
    }
    for name, resource in kept.items():
        named = [key for key in resource["Properties"] if key in {"Name", "TableName", "BucketName", "QueueName"}]
        assert named == [], name
        # A failed first deployment deletes what it has created. The bucket of the DAGs has files by then.
        policy = "Retain" if name.startswith("Dags") else "RetainExceptOnCreate"
        assert (name, resource["DeletionPolicy"]) == (name, policy)


_FTP = {
    "url": "sftp://files.example/x",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc",
    "credentials": "ssm:/acme/sftp",
}


def _files_of(**pull: Any) -> Project:
    return Project(sources={"things": a_source(pull={"files": "{date}", **pull})}, pipelines={})


@pytest.mark.parametrize("pull", [{"url": "https://files.example/x"}, _FTP, {**_FTP, "max_file_mb": 1025}])
def test_a_source_whose_large_files_no_job_can_reach_is_refused_with_the_remedy(pull: dict[str, Any]) -> None:
    """A job of the local cloud reaches every partner; on AWS it would wait for the connection and fail."""
    with pytest.raises(DefinitionError) as refused:
        check_large_files(_files_of(**pull), Settings())
    assert str(refused.value).startswith("sources/things.yaml: pull.url: without the setting job_subnets")
    assert "set job_subnets to private subnets with a NAT gateway" in str(refused.value)
    assert "set pull.max_file_mb to at most 1024" in str(refused.value)


@pytest.mark.parametrize(
    ("pull", "subnets"),
    [
        ({"url": "https://files.example/x", "max_file_mb": 1024}, ()),
        ({"url": "https://files.example/x"}, ("subnet-1",)),
        ({"url": "s3://exports/acme"}, ()),
        ({"url": "s3://exports/acme", "role": "arn:aws:iam::210987654321:role/exports"}, ()),
    ],
)
def test_a_source_is_deployed_if_functions_or_jobs_can_fetch_all_its_files(
    pull: dict[str, Any], subnets: tuple[str, ...]
) -> None:
    check_large_files(_files_of(**pull), Settings(job_subnets=subnets, job_security_groups=["sg-1"] if subnets else []))


@pytest.mark.parametrize("network", [{"job_subnets": "subnet-1"}, {"job_security_groups": "sg-1"}])
def test_subnets_and_security_groups_are_set_together(network: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="job_subnets and job_security_groups: set both, or neither"):
        Settings.model_validate(network)


def test_the_consumers_of_queues_leave_functions_of_a_new_account_to_the_api_and_to_pulls(assembly: Assembly) -> None:
    mappings = assembly.resources("AWS::Lambda::EventSourceMapping").values()
    limits = [mapping["Properties"]["ScalingConfig"]["MaximumConcurrency"] for mapping in mappings]
    assert limits == [2, 2]  # the least that AWS allows, of the 10 functions of a new account


@pytest.mark.parametrize(("requests", "functions"), [(1, 2), (149, 2), (250, 5), (100_000, 10)])
def test_an_api_with_a_higher_limit_has_more_functions_that_store_its_events(
    tmp_path: Path, requests: int, functions: int
) -> None:
    stack, settings = Stack(), Settings(api_requests_per_second=requests)
    library = Library(stack, "Library", settings=settings, artefact=tmp_path, lambdas=ROOT / "lambdas")
    function = library.function("store_events", description="Any", environment={}, timeout=Duration.minutes(1))
    EventBuffer(stack, "Buffer", settings=settings, key=None).feed(function)
    [mapping] = Template.from_stack(stack).find_resources("AWS::Lambda::EventSourceMapping").values()
    assert mapping["Properties"]["ScalingConfig"] == {"MaximumConcurrency": functions}


def test_messages_are_stored_in_batches_and_retried_before_they_become_dead_letters(assembly: Assembly) -> None:
    mapping = assembly.one("AWS::Lambda::EventSourceMapping", "storeevents")
    assert (mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]) == (1000, 5)
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = assembly.one("AWS::SQS::Queue", "EventBufferQueue")
    function = assembly.one("AWS::Lambda::Function", "storeevents")
    # AWS recommends this minimum, so that no message is delivered again while it is being stored.
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"] + mapping["MaximumBatchingWindowInSeconds"]
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    assert "EventBufferDeadLetters" in resource_name(queue["RedrivePolicy"]["deadLetterTargetArn"])


@pytest.mark.parametrize("name", ["receiveevents", "storeevents", "recordrun", "compareversions", "notifychange"])
def test_a_call_that_aws_never_answers_fails_before_the_timeout_of_its_function(assembly: Assembly, name: str) -> None:
    timeout = assembly.one("AWS::Lambda::Function", name)["Timeout"]
    attempts = SHORT_CONFIG.retries["total_max_attempts"]
    # In the mode `standard`, the pause after attempt n, from 0, takes up to 2**n seconds.
    pauses = sum(2**n for n in range(attempts - 1))
    longest_call = attempts * (SHORT_CONFIG.connect_timeout + SHORT_CONFIG.read_timeout) + pauses
    assert longest_call < timeout - RESPONSE_SECONDS


def test_the_api_does_not_end_a_request_before_its_function_answers(assembly: Assembly) -> None:
    # API Gateway waits 30 seconds for its integration, and a cold start is part of them.
    assert assembly.one("AWS::Lambda::Function", "receiveevents")["Timeout"] + 5 <= 30


def test_every_task_ends_some_time_after_what_it_waits_for_has_to(assembly: Assembly) -> None:
    functions = {
        name: function["Properties"]["Timeout"]
        for name, function in assembly.resources("AWS::Lambda::Function").items()
    }
    longest_queue = next(bound.le for bound in Settings.model_fields["queue_minutes"].metadata if isinstance(bound, Le))
    for machine in assembly.resources("AWS::StepFunctions::StateMachine").values():
        values = machine["Properties"]["DefinitionSubstitutions"]
        for name, task in tasks_of(json.loads(definition(machine["Properties"], folder=assembly.folder))):
            seconds, arguments = task["TimeoutSeconds"], task["Arguments"]
            if task["Resource"] == LAMBDA:
                function = resource_name(values[arguments["FunctionName"][2:-1]])
                [least] = [timeout for id_, timeout in functions.items() if id_ in function]
            elif task["Resource"] == SPARK_JOB:
                least = (longest_queue + arguments["ExecutionTimeoutMinutes"]) * 60
            else:
                least = 0  # an execution ends by the timeouts of its own tasks
            assert seconds >= least, name
            assert seconds <= 2 * 86_400, name


def test_raw_objects_keep_their_versions_and_exchanged_files_expire(assembly: Assembly, scheduled: Assembly) -> None:
    raw, exchange = assembly.one("AWS::S3::Bucket", "Raw"), assembly.one("AWS::S3::Bucket", "Exchange")
    assert raw["VersioningConfiguration"] == {"Status": "Enabled"}
    # Without its receipt, a batch that is sent again could be stored twice.
    assert not [rule for rule in raw["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule]
    assert expirations(exchange) == dict.fromkeys(("arrow/", "pulls/", "logs/", "projects/"), 30)
    # With `intermediate_days: 0`, runs of the next day, which take a day themselves, can keep stages of failed runs.
    assert expirations(scheduled.one("AWS::S3::Bucket", "Exchange"))["arrow/"] == 2
    functions = [a.one("AWS::Lambda::Function", "freezeinputs") for a in (assembly, scheduled)]
    kept = [function["Environment"]["Variables"] for function in functions]
    assert [(each["KEPT_DAYS"], each["INTERMEDIATE_DAYS"]) for each in kept] == [("29", "30"), ("1", "0")]
    assert [rule for rule in exchange["LifecycleConfiguration"]["Rules"] if "AbortIncompleteMultipartUpload" in rule]


def expirations(bucket: dict[str, Any]) -> dict[str, int]:
    rules = bucket["LifecycleConfiguration"]["Rules"]
    return {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "Prefix" in rule}


def test_no_arrow_file_expires_while_its_run_may_read_it() -> None:
    steps = {
        name: {"step": "sql", "depends_on": [read], "with": {"query": "SELECT 1"}, "exchange": True}
        for read, name in pairwise(("s", "a", "b", "c"))
    }
    pipeline = Pipeline.model_validate(
        {"pipeline": "p", "sources": ["s"], "steps": steps, "publish": {"step": "c", "key": ["date"]}}
    )
    project = Project(sources={}, pipelines={"p": pipeline})
    days = {minutes: longest_run_days(project, Settings(queue_minutes=minutes)) for minutes in (15, 330, 331, 720)}
    assert days == {15: 1, 330: 1, 331: 2, 720: 2}


def test_the_longest_stage_includes_its_time_limit_and_all_retries() -> None:
    frame = json.loads((ROOT / "step_functions" / "pipeline.asl.json").read_text(encoding="utf-8"))
    limit = frame["States"]["Run <stage>"]["Arguments"]["ExecutionTimeoutMinutes"]
    pauses = 0.0
    for retry in (RETRIES[SPARK_JOB], RETRIES[LAMBDA]):
        delays = [retry["IntervalSeconds"] * retry["BackoffRate"] ** attempt for attempt in range(retry["MaxAttempts"])]
        pauses += sum(min(delay, retry.get("MaxDelaySeconds", delay)) for delay in delays)
    calls = 60 * (1 + RETRIES[LAMBDA]["MaxAttempts"])
    assert limit + (pauses + calls) / 60 <= JOB_MINUTES


@pytest.mark.parametrize(
    ("table", "keys"),
    [("FileTable", ["source", "path"]), ("RunTable", ["pipeline", "item"]), ("TokenTable", ["token_hash"])],
)
def test_tables_have_their_keys_and_can_be_restored(assembly: Assembly, table: str, keys: list[str]) -> None:
    properties = assembly.one("AWS::DynamoDB::Table", table)
    assert [key["AttributeName"] for key in properties["KeySchema"]] == keys
    assert [key["KeyType"] for key in properties["KeySchema"]] == ["HASH", "RANGE"][: len(keys)]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize(("table", "tested"), [("FileTable", FILE_TABLE), ("RunTable", RUN_TABLE)])
def test_a_table_has_the_indexes_that_its_tests_query(assembly: Assembly, table: str, tested: dict[str, Any]) -> None:
    properties = assembly.one("AWS::DynamoDB::Table", table)
    defined = {item["AttributeName"]: item["AttributeType"] for item in properties["AttributeDefinitions"]}
    assert defined == {item["AttributeName"]: item["AttributeType"] for item in tested["AttributeDefinitions"]}
    assert properties["KeySchema"] == tested["KeySchema"]
    assert properties["GlobalSecondaryIndexes"] == tested["GlobalSecondaryIndexes"]


def test_each_source_has_a_raw_table_of_its_fields(assembly: Assembly) -> None:
    tables = {
        resource["Properties"]["TableInput"]["Name"]: resource["Properties"]["TableInput"]
        for resource in assembly.resources("AWS::Glue::Table").values()
    }
    assert set(tables) == {"flights", "weather"}
    for table in tables.values():
        columns = [column["Name"] for column in table["StorageDescriptor"]["Columns"]]
        keys = [key["Name"] for key in table["PartitionKeys"]]
        assert keys == ["date", "hour"]
        assert {key["Type"] for key in table["PartitionKeys"]} == {"string"}
        assert len({*columns, *keys}) == len(columns) + len(keys), "Athena refuses a table that names a column twice"
        assert columns[-4:] == ["_event_time", "_received_at", "_batch_id", "_extra"]
    types = {column["Name"]: column["Type"] for column in tables["flights"]["StorageDescriptor"]["Columns"]}
    assert (types["carrier"], types["flight"], types["dep_delay"], types["time_hour"]) == (
        "string",
        "bigint",
        "double",
        "timestamp",
    )


def test_the_api_has_one_route_with_a_limit_and_a_log(assembly: Assembly) -> None:
    [method] = assembly.resources("AWS::ApiGateway::Method").values()
    assert method["Properties"]["HttpMethod"] == "POST"
    assert method["Properties"]["Integration"]["Type"] == "AWS_PROXY"
    parts = [part["Properties"]["PathPart"] for part in assembly.resources("AWS::ApiGateway::Resource").values()]
    assert sorted(parts) == ["events", "sources", "v1", "{source}"]
    stage = assembly.one("AWS::ApiGateway::Stage", "RestReceiver")
    [limits] = stage["MethodSettings"]
    assert (limits["HttpMethod"], limits["ResourcePath"]) == ("*", "/*")
    assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (50, 100)
    assert "correlation" not in stage["AccessLogSetting"]["Format"]
    assert json.loads(stage["AccessLogSetting"]["Format"])["status"] == "$context.status"


def test_the_api_passes_every_body_as_bytes_and_accepts_no_tls_before_1_2(assembly: Assembly) -> None:
    api = assembly.one("AWS::ApiGateway::RestApi", "RestReceiver")
    assert api["EndpointConfiguration"] == {"Types": ["REGIONAL"]}
    assert api["BinaryMediaTypes"] == ["*/*"]
    assert "MinimumCompressionSize" not in api
    assert (api["SecurityPolicy"], api["EndpointAccessMode"]) == ("SecurityPolicy_TLS13_1_2_2021_06", "STRICT")
    # One role for the logs of all APIs of the account: a stack of ours would replace that of others.
    assert not assembly.resources("AWS::ApiGateway::Account")


def test_the_function_answers_before_the_api_gives_up(assembly: Assembly) -> None:
    assert assembly.one("AWS::Lambda::Function", "receiveevents")["Timeout"] < 29
    permissions = json.dumps(list(assembly.resources("AWS::Lambda::Permission").values()))
    assert "/POST/v1/sources/*/events" in permissions
    assert "test-invoke-stage" not in permissions


def test_the_url_names_the_stage(assembly: Assembly) -> None:
    outputs = assembly.templates["slackwater-receiver"]["Outputs"]
    [api], [stage] = assembly.resources("AWS::ApiGateway::RestApi"), assembly.resources("AWS::ApiGateway::Stage")
    host = [".execute-api.", {"Ref": "AWS::Region"}, ".", {"Ref": "AWS::URLSuffix"}, "/"]
    assert outputs["ApiUrl"]["Value"] == {"Fn::Join": ["", ["https://", {"Ref": api}, *host, {"Ref": stage}]]}
    assert not [name for name in outputs if "Endpoint" in name]


def test_every_log_group_has_a_retention(assembly: Assembly) -> None:
    groups = assembly.resources("AWS::Logs::LogGroup").values()
    assert len(groups) == 20
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {30}


def test_the_spark_application_has_a_limit_and_stops_by_itself(assembly: Assembly) -> None:
    application = assembly.one("AWS::EMRServerless::Application", "Spark")
    assert application["ReleaseLabel"] == "emr-spark-8.1.0"
    assert application["Type"] == "SPARK"  # as AWS documents it; a change would replace the application
    assert application["MaximumCapacity"] == {"Cpu": "16 vCPU", "Memory": "64 GB", "Disk": "720 GB"}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 15}
    assert application["SchedulerConfiguration"] == {"MaxConcurrentRuns": 3, "QueueTimeoutMinutes": 360}
    assert "InitialCapacity" not in application


def test_no_job_names_a_jar_because_the_release_has_iceberg_on_its_class_path(assembly: Assembly) -> None:
    assert "RuntimeConfiguration" not in assembly.one("AWS::EMRServerless::Application", "Spark")
    assert "spark.jars" not in json.dumps(assembly.templates)


def test_jars_of_the_image_reach_every_job_if_they_are_set() -> None:
    settings = load_settings({"slackwater:spark_jars": "/usr/lib/first.jar, /usr/lib/second.jar"})
    spark = SparkApplication(Stack(), "Spark", settings=settings)
    parameters = spark.submit_parameters(archive="s3://code/a.zip", warehouse="s3://warehouse/", region="eu-west-1")
    assert "--conf spark.jars=/usr/lib/first.jar,/usr/lib/second.jar" in parameters


def test_every_job_is_submitted_with_the_archive_and_the_catalog(assembly: Assembly) -> None:
    machine = assembly.one("AWS::StepFunctions::StateMachine", "Pipelinedailydelays")
    parameters = submit_parameters(machine, assembly.folder)
    for setting in (
        "spark.emr-serverless.driverEnv.PYTHONPATH=./environment",
        "spark.executorEnv.PYTHONPATH=./environment",
        # AWS documents no region in the environment of a job, and clients need one.
        "spark.emr-serverless.driverEnv.AWS_REGION=${Region}",
        "spark.executorEnv.AWS_REGION=${Region}",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON=python3.11",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON=python3.11",
        "spark.executorEnv.PYSPARK_PYTHON=python3.11",
        "spark.sql.catalog.warehouse=org.apache.iceberg.spark.SparkCatalog",
        "spark.driver.memory=3g",
        # Spark starts the larger of the two numbers, and EMR's default is three for both.
        "spark.executor.instances=1",
        "spark.dynamicAllocation.initialExecutors=1",
    ):
        assert setting in parameters
    # Spark unpacks an archive by its name.
    assert "--conf spark.archives=${ArchiveUri}#environment " in parameters
    assert re.search(r"/[0-9a-f]{64}\.zip$", machine["DefinitionSubstitutions"]["ArchiveUri"]["Fn::Sub"])
    workers = read_workers(dict(re.findall(r"--conf (\S+?)=(\S+)", parameters)))
    assert workers == (Settings().driver, Settings().executor, 1)


def test_state_machines_are_logged_and_named_after_pipelines(assembly: Assembly) -> None:
    assert set(assembly.machines()) == {
        "slackwater-pull-source",
        "slackwater-pipeline-daily_delays",
        "slackwater-pipeline-weekly_delays",
        "slackwater-compare-day",
        "slackwater-monitor-days",
        "slackwater-backfill",
    }
    for machine in assembly.resources("AWS::StepFunctions::StateMachine").values():
        assert machine["Properties"]["LoggingConfiguration"]["Level"] == "ALL"


def test_the_outputs_are_those_that_the_library_reads(assembly: Assembly) -> None:
    outputs = {name for template in assembly.templates.values() for name in template.get("Outputs", {})}
    assert {field.alias for field in Deployment.model_fields.values() if field.is_required()} <= outputs


def test_the_workers_of_the_outputs_are_those_of_jobs(assembly: Assembly) -> None:
    output = assembly.templates["slackwater-processing"]["Outputs"]["SparkSizes"]["Value"]
    driver, executor = {"vcpu": 1, "memory_gb": 4}, {"vcpu": 2, "memory_gb": 7}
    assert json.loads(output) == {"driver": driver, "executor": executor, "max_executors": 2}


def test_the_number_of_jobs_in_the_outputs_is_that_of_the_application(assembly: Assembly) -> None:
    (application,) = assembly.resources("AWS::EMRServerless::Application").values()
    output = assembly.templates["slackwater-processing"]["Outputs"]["ConcurrentRuns"]["Value"]
    assert output == str(application["Properties"]["SchedulerConfiguration"]["MaxConcurrentRuns"])


def test_functions_fit_into_a_new_account(assembly: Assembly) -> None:
    # "Lambda quotas": new accounts have reduced concurrency and memory, 10 functions and 3,008 MB. AWS refuses to
    # reserve any of the 10.
    for function in assembly.resources("AWS::Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function["Properties"]
        assert function["Properties"]["MemorySize"] <= 3008


def test_the_parameters_of_jobs_fit_into_an_output(assembly: Assembly) -> None:
    # "CloudFormation quotas": an output's value has at most 4,096 characters. A reference becomes a bucket's name.
    value = assembly.templates["slackwater-processing"]["Outputs"]["SparkSubmitParameters"]["Value"]
    assert len(json.dumps(value)) < 4096


def test_the_stacks_are_those_that_the_library_knows(scheduled: Assembly, divided: Assembly) -> None:
    optional = {f"slackwater-{name}" for name in OPTIONAL_STACKS}
    assert set(scheduled.templates) | set(divided.templates) == {f"slackwater-{name}" for name in STACKS} | optional


def test_a_project_of_the_size_of_the_example_has_five_stacks_and_one_for_its_scheduler(assembly: Assembly) -> None:
    assert set(assembly.templates) == {f"slackwater-{name}" for name in (*STACKS, "schedule")}


def test_stale_objects_are_removed_each_week_whatever_the_scheduler(assembly: Assembly, scheduled: Assembly) -> None:
    for synthesised in (assembly, scheduled):
        rule = synthesised.one("AWS::Events::Rule", "removestale")
        assert rule["ScheduleExpression"] == "rate(7 days)"
        [target] = rule["Targets"]
        permission = synthesised.one("AWS::Lambda::Permission", "removestale")
        assert permission["Principal"] == "events.amazonaws.com"
        assert permission["FunctionName"] == target["Arn"]
