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

from infra.app import ROOT
from infra.constructs.arrivals import Arrivals
from infra.constructs.library_function import Library, LibraryFunction
from infra.constructs.queues import EventBuffer
from infra.constructs.spark_application import SparkApplication
from infra.lint import definition
from infra.project_checks import check_project
from infra.settings import Settings
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
from tests.function_variables import VARIABLES
from tests.infra.assembly import Assembly, settings_of, submit_parameters
from tests.infra.rights import resource_name, without_hash
from tests.machines import tasks_of
from tests.rights import ROLES, calls

pytestmark = pytest.mark.infra

# By type and the beginning of the logical id: properties by path.
_PROPERTIES: list[tuple[str, str, dict[str, Any]]] = [
    # Partners may not be able to send events again.
    ("AWS::S3::Bucket", "Raw", {"VersioningConfiguration.Status": "Enabled"}),
    (
        "AWS::Lambda::EventSourceMapping",
        "storeevents",
        {"BatchSize": 1000, "MaximumBatchingWindowInSeconds": 5, "FunctionResponseTypes": ["ReportBatchItemFailures"]},
    ),
    (
        "AWS::Lambda::EventSourceMapping",
        "checkarrivals",
        {"MaximumBatchingWindowInSeconds": 300, "FunctionResponseTypes": ["ReportBatchItemFailures"]},
    ),
    # A day's manifests in memory, and a whole vCPU.
    ("AWS::Lambda::Function", "checkdays", {"MemorySize": 1769}),
    ("AWS::Lambda::Function", "compareversions", {"MemorySize": 512}),
    ("AWS::Lambda::Function", "notifychange", {"MemorySize": 512}),
    (
        "AWS::Events::Rule",
        "ArrivalsRule",
        {
            "State": "ENABLED",
            "EventPattern.detail.object": {"key": [{"prefix": "raw/source="}]},
            "EventPattern.detail-type": ["Object Created"],
            "Targets.0.InputTransformer.InputPathsMap": {
                "id": "$.id",
                "key": "$.detail.object.key",
                "time": "$.time",
            },
            "Targets.0.InputTransformer.InputTemplate": '{"id": <id>, "key": <key>, "time": <time>}',
        },
    ),
    *(
        (
            "AWS::DynamoDB::Table",
            table,
            {
                "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
                "BillingMode": "PAY_PER_REQUEST",
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            },
        )
        for table, keys in (
            ("FileTable", {"source": "HASH", "path": "RANGE"}),
            ("RunTable", {"pipeline": "HASH", "item": "RANGE"}),
            ("TokenTable", {"token_hash": "HASH"}),
        )
    ),
    ("AWS::ApiGateway::Method", "RestReceiver", {"HttpMethod": "POST", "Integration.Type": "AWS_PROXY"}),
    (
        "AWS::ApiGateway::Stage",
        "RestReceiver",
        {
            "MethodSettings.0.HttpMethod": "*",
            "MethodSettings.0.ResourcePath": "/*",
            "MethodSettings.0.ThrottlingRateLimit": 50,
            "MethodSettings.0.ThrottlingBurstLimit": 100,
        },
    ),
    (
        "AWS::ApiGateway::RestApi",
        "RestReceiver",
        {
            "EndpointConfiguration.Types": ["REGIONAL"],
            "BinaryMediaTypes": ["*/*"],  # every body is passed as bytes
            "MinimumCompressionSize": None,
            "SecurityPolicy": "SecurityPolicy_TLS13_1_2_2021_06",
            "EndpointAccessMode": "STRICT",
        },
    ),
    (
        "AWS::EMRServerless::Application",
        "Spark",
        {
            "ReleaseLabel": "emr-spark-8.1.0",
            "Type": "SPARK",  # as AWS documents it; a change would replace the application
            "MaximumCapacity": {"Cpu": "16 vCPU", "Memory": "64 GB", "Disk": "720 GB"},
            "AutoStopConfiguration": {"Enabled": True, "IdleTimeoutMinutes": 15},
            "SchedulerConfiguration": {"MaxConcurrentRuns": 3, "QueueTimeoutMinutes": 360},
            "InitialCapacity": None,
            "RuntimeConfiguration": None,
        },
    ),
]


@pytest.mark.parametrize(("kind", "start", "expected"), _PROPERTIES)
def test_a_resource_has_these_properties(assembly: Assembly, kind: str, start: str, expected: dict[str, Any]) -> None:
    properties = assembly.one(kind, start)
    assert {path: at(properties, path) for path in expected} == expected


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value.get(key)
    return value


def variables_of(synthesised: Assembly) -> dict[str, dict[str, Any]]:
    """The environment of each function, by its name without prefix."""
    functions = synthesised.properties("AWS::Lambda::Function", "FunctionName")
    return {name.removeprefix("slackwater-"): of["Environment"]["Variables"] for name, of in functions.items()}


def test_only_our_own_functions_run(assembly: Assembly) -> None:
    functions = assembly.properties("AWS::Lambda::Function", "FunctionName")
    modules = {f"slackwater-{path.stem.replace('_', '-')}": path.stem for path in (ROOT / "lambdas").glob("*.py")}
    assert (functions.keys(), len(functions) >= 10) == (modules.keys(), True)
    for name, of in functions.items():
        assert of["Handler"] == f"{modules[name]}.handler"
        assert (of["LoggingConfig"]["LogFormat"], len(of["Layers"])) == ("JSON", 1)
        # "Lambda quotas": new accounts have reduced concurrency and memory, 10 functions and 3,008 MB. AWS refuses to
        # reserve any of the 10.
        assert ("ReservedConcurrentExecutions" in of, of["MemorySize"] <= 3008) == (False, True)


def test_a_changed_function_changes_no_other_and_neither_does_bytecode(tmp_path: Path) -> None:
    def assets() -> list[str]:
        stack = Stack()
        library = Library(stack, "Library", settings=Settings(), artefact=tmp_path, lambdas=lambdas)
        for name in ("check_days", "record_run"):
            LibraryFunction(library, name, description="Any", environment={}, timeout=Duration.minutes(1))
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
def test_lambda_passes_what_the_setting_logs_and_never_drops_metrics(tmp_path: Path, level: Any, passed: str) -> None:
    """Lambda filters JSON logs, by default below `INFO`. Lines of metrics have no level and count as `INFO`."""
    stack = Stack()
    library = Library(stack, "Library", settings=Settings(log_level=level), artefact=tmp_path, lambdas=ROOT / "lambdas")
    LibraryFunction(library, "record_run", description="Any", environment={}, timeout=Duration.minutes(1))
    [function] = Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
    assert function["Properties"]["LoggingConfig"]["ApplicationLogLevel"] == passed


def test_every_function_has_exactly_the_environment_variables_that_it_needs(assembly: Assembly) -> None:
    always = {f"POWERTOOLS_{name}" for name in ("SERVICE_NAME", "LOG_LEVEL", "METRICS_NAMESPACE")}
    assert {name: set(variables) for name, variables in variables_of(assembly).items()} == {
        name: always | variables for name, variables in VARIABLES.items()
    }
    namespaces = {variables["POWERTOOLS_METRICS_NAMESPACE"] for variables in variables_of(assembly).values()}
    assert namespaces == {"Slackwater/slackwater"}


def test_stacks_do_not_share_a_layer_by_export(assembly: Assembly) -> None:
    assert sum("AWS::Lambda::LayerVersion" in types for types in assembly.types().values()) == 4
    outputs = [template.get("Outputs", {}) for template in assembly.templates.values()]
    assert not [name for each in outputs for name in each if "Layer" in name]


@pytest.mark.parametrize(
    ("queue", "function"), [("EventBufferQueue", "storeevents"), ("ArrivalsQueue", "checkarrivals")]
)
def test_messages_are_retried_before_they_become_dead_letters(assembly: Assembly, queue: str, function: str) -> None:
    mapping, of = assembly.one("AWS::Lambda::EventSourceMapping", function), assembly.one("AWS::SQS::Queue", queue)
    # AWS recommends this minimum, so that no message is delivered again while it is being handled.
    timeout = assembly.one("AWS::Lambda::Function", function)["Timeout"]
    assert of["VisibilityTimeout"] >= 6 * timeout + mapping["MaximumBatchingWindowInSeconds"]
    assert of["RedrivePolicy"]["maxReceiveCount"] == 5
    assert f"{queue.removesuffix('Queue')}DeadLetters" in resource_name(of["RedrivePolicy"]["deadLetterTargetArn"])
    # The least that AWS allows, of the 10 functions of a new account.
    assert mapping["ScalingConfig"]["MaximumConcurrency"] == 2


def test_events_that_the_queue_of_arrivals_does_not_take_are_kept_in_its_dead_letter_queue(assembly: Assembly) -> None:
    rules = assembly.properties("AWS::Events::Rule")
    [[rule_name, rule]] = [(name, rule) for name, rule in rules.items() if name.startswith("ArrivalsRule")]
    [target] = rule["Targets"]
    redrive = assembly.one("AWS::SQS::Queue", target["Arn"]["Fn::GetAtt"][0])["RedrivePolicy"]
    assert target["DeadLetterConfig"] == {"Arn": redrive["deadLetterTargetArn"]}
    for arn in (target["Arn"], target["DeadLetterConfig"]["Arn"]):
        [allowed] = [
            statement
            for policy in assembly.properties("AWS::SQS::QueuePolicy").values()
            for statement in policy["PolicyDocument"]["Statement"]
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


def test_buckets_are_private_and_encrypted_and_the_queue_of_events_too(assembly: Assembly) -> None:
    buckets = assembly.properties("AWS::S3::Bucket")
    assert {without_hash(name) for name in buckets} == {"Raw", "Exchange", "Warehouse"}
    for properties in buckets.values():
        assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
        assert properties["BucketEncryption"]
    for queue in ("EventBufferQueue", "EventBufferDeadLetters"):
        properties = assembly.one("AWS::SQS::Queue", queue)
        assert (properties["SqsManagedSseEnabled"], properties["MessageRetentionPeriod"]) == (True, 14 * 86400)


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
        check_project(_files_of(**pull), Settings())
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
    check_project(_files_of(**pull), Settings(job_subnets=subnets, job_security_groups=["sg-1"] if subnets else []))


@pytest.mark.parametrize(("requests", "functions"), [(1, 2), (149, 2), (250, 5), (100_000, 10)])
def test_an_api_with_a_higher_limit_has_more_functions_that_store_its_events(
    tmp_path: Path, requests: int, functions: int
) -> None:
    stack, settings = Stack(), Settings(api_requests_per_second=requests)
    library = Library(stack, "Library", settings=settings, artefact=tmp_path, lambdas=ROOT / "lambdas")
    function = LibraryFunction(library, "store_events", description="Any", environment={}, timeout=Duration.minutes(1))
    EventBuffer(stack, "Buffer", settings=settings, key=None).feed(function)
    [mapping] = Template.from_stack(stack).find_resources("AWS::Lambda::EventSourceMapping").values()
    assert mapping["Properties"]["ScalingConfig"] == {"MaximumConcurrency": functions}


@pytest.mark.parametrize("name", ["receiveevents", "storeevents", "recordrun", "compareversions", "notifychange"])
def test_a_call_that_aws_never_answers_fails_before_the_timeout_of_its_function(assembly: Assembly, name: str) -> None:
    timeout = assembly.one("AWS::Lambda::Function", name)["Timeout"]
    attempts = SHORT_CONFIG.retries["total_max_attempts"]
    # In the mode `standard`, the pause after attempt n, from 0, takes up to 2**n seconds.
    pauses = sum(2**n for n in range(attempts - 1))
    longest_call = attempts * (SHORT_CONFIG.connect_timeout + SHORT_CONFIG.read_timeout) + pauses
    assert longest_call < timeout - RESPONSE_SECONDS


def test_every_task_ends_some_time_after_what_it_waits_for_has_to(assembly: Assembly) -> None:
    functions = {name: function["Timeout"] for name, function in assembly.properties("AWS::Lambda::Function").items()}
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
    # Without its receipt, a batch that is sent again could be stored twice.
    assert not [rule for rule in raw["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule]
    assert expirations(exchange) == dict.fromkeys(("arrow/", "pulls/", "logs/", "projects/"), 30)
    # With `intermediate_days: 0`, runs of the next day, which take a day themselves, can keep stages of failed runs.
    assert expirations(scheduled.one("AWS::S3::Bucket", "Exchange"))["arrow/"] == 2
    kept = [variables_of(each)["freeze-inputs"] for each in (assembly, scheduled)]
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


@pytest.mark.parametrize(("table", "tested"), [("FileTable", FILE_TABLE), ("RunTable", RUN_TABLE)])
def test_a_table_has_the_indexes_that_its_tests_query(assembly: Assembly, table: str, tested: dict[str, Any]) -> None:
    properties = assembly.one("AWS::DynamoDB::Table", table)
    defined = {item["AttributeName"]: item["AttributeType"] for item in properties["AttributeDefinitions"]}
    assert defined == {item["AttributeName"]: item["AttributeType"] for item in tested["AttributeDefinitions"]}
    assert properties["KeySchema"] == tested["KeySchema"]
    assert properties["GlobalSecondaryIndexes"] == tested["GlobalSecondaryIndexes"]


def test_only_a_tagged_role_may_delete_raw_objects_and_one_role_has_the_tag(assembly: Assembly) -> None:
    [policy] = [
        item for item in assembly.resources("AWS::S3::BucketPolicy").values() if "aws:PrincipalTag" in json.dumps(item)
    ]
    [denial] = [
        item
        for item in policy["Properties"]["PolicyDocument"]["Statement"]
        if "StringNotEquals" in item.get("Condition", {})
    ]
    assert denial["Effect"] == "Deny"
    assert denial["Principal"] == {"AWS": "*"}
    assert set(denial["Action"]) == {"s3:DeleteObject", "s3:DeleteObjectVersion"}
    assert json.dumps(denial["Resource"]).endswith('"/raw/*"]]}')
    [tag] = denial["Condition"]["StringNotEquals"].items()
    assert tag == ("aws:PrincipalTag/slackwater-deletes-raw", "true")
    tagged = {
        name.partition("Role")[0]
        for name, role in assembly.resources("AWS::IAM::Role").items()
        if {"Key": "slackwater-deletes-raw", "Value": "true"} in role["Properties"].get("Tags", [])
    }
    assert tagged == {
        role for role, rows in ROLES.items() if any(call == ("s3:DeleteObject", "Raw/raw/*") for call in calls(rows))
    }


def test_the_api_has_one_route_and_a_log(assembly: Assembly) -> None:
    assert set(assembly.properties("AWS::ApiGateway::Resource", "PathPart")) == {"events", "sources", "v1", "{source}"}
    log = assembly.one("AWS::ApiGateway::Stage", "RestReceiver")["AccessLogSetting"]["Format"]
    assert json.loads(log)["status"] == "$context.status"
    # One role for the logs of all APIs of the account: a stack of ours would replace that of others.
    assert not assembly.resources("AWS::ApiGateway::Account")


def test_the_function_answers_before_the_api_gives_up(assembly: Assembly) -> None:
    # API Gateway waits 30 seconds for its integration, and a cold start is part of them.
    assert assembly.one("AWS::Lambda::Function", "receiveevents")["Timeout"] + 5 <= 30
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
    groups = assembly.properties("AWS::Logs::LogGroup").values()
    assert (len(groups), {group["RetentionInDays"] for group in groups}) == (21, {30})


def test_no_job_names_a_jar_because_the_release_has_iceberg_on_its_class_path(assembly: Assembly) -> None:
    assert "spark.jars" not in json.dumps(assembly.templates)


def test_jars_of_the_image_reach_every_job_if_they_are_set() -> None:
    settings = settings_of(spark_jars="/usr/lib/first.jar, /usr/lib/second.jar")
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
    for machine in assembly.properties("AWS::StepFunctions::StateMachine").values():
        assert machine["LoggingConfiguration"]["Level"] == "ALL"


def test_the_outputs_are_those_that_the_library_reads(assembly: Assembly) -> None:
    outputs = {name for template in assembly.templates.values() for name in template.get("Outputs", {})}
    assert {field.alias for field in Deployment.model_fields.values() if field.is_required()} <= outputs


def test_the_number_of_jobs_in_the_outputs_is_that_of_the_application(assembly: Assembly) -> None:
    outputs = assembly.templates["slackwater-processing"]["Outputs"]
    scheduler = assembly.one("AWS::EMRServerless::Application", "Spark")["SchedulerConfiguration"]
    assert outputs["ConcurrentRuns"]["Value"] == str(scheduler["MaxConcurrentRuns"])


def test_the_parameters_of_jobs_fit_into_an_output(assembly: Assembly) -> None:
    # "CloudFormation quotas": an output's value has at most 4,096 characters. A reference becomes a bucket's name.
    value = assembly.templates["slackwater-processing"]["Outputs"]["SparkSubmitParameters"]["Value"]
    assert len(json.dumps(value)) < 4096


def test_the_stacks_are_those_that_the_library_knows(scheduled: Assembly, divided: Assembly) -> None:
    optional = {f"slackwater-{name}" for name in OPTIONAL_STACKS}
    assert set(scheduled.templates) | set(divided.templates) == {f"slackwater-{name}" for name in STACKS} | optional


def test_a_project_of_the_size_of_the_example_has_five_stacks_and_one_for_its_scheduler(assembly: Assembly) -> None:
    assert set(assembly.templates) == {f"slackwater-{name}" for name in (*STACKS, "schedule")}
