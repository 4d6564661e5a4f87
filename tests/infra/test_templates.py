"""The resources in the synthesised templates: functions, buckets, queues, tables, API, jobs, state machines."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Le
from aws_cdk import Duration, Stack
from aws_cdk.assertions import Template
from aws_cdk.aws_s3 import Bucket
from constructs import Construct

from infra.app import ROOT
from infra.constructs.arrivals import Arrivals
from infra.constructs.library_function import Library, LibraryFunction
from infra.constructs.queues import EventBuffer
from infra.lint import definition
from infra.settings import Settings
from lambdas.receive_events import RESPONSE_SECONDS
from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.deployment import OPTIONAL_STACKS, STACKS, Deployment
from slackwater.local.emr.billing import read_workers
from slackwater.pipeline.retries import LAMBDA, SPARK_JOB
from tests.fakes_receiver import FILE_TABLE
from tests.fakes_runs import RUN_TABLE
from tests.function_variables import VARIABLES, WITH_OPENLINEAGE
from tests.infra.assembly import Assembly, submit_parameters
from tests.infra.rights import resource_name, without_hash
from tests.machines import tasks_of
from tests.rights import ROLES, calls

pytestmark = pytest.mark.infra

# By type and the beginning of the logical id: properties by path.
_PROPERTIES: list[tuple[str, str, dict[str, Any]]] = [
    # Partners may not be able to send events again.
    ("AWS::S3::Bucket", "Raw", {"VersioningConfiguration.Status": "Enabled"}),
    # A day's manifests in memory, and a whole vCPU.
    ("AWS::Lambda::Function", "checkdays", {"MemorySize": 1769}),
    ("AWS::Lambda::Function", "compareversions", {"MemorySize": 512}),
    ("AWS::Lambda::Function", "notifychange", {"MemorySize": 512}),
    (
        "AWS::Events::Rule",
        "ArrivalsRule",
        {
            "EventPattern.detail-type": ["Object Created"],
            "EventPattern.detail.object.key": [{"prefix": "raw/source="}],
            "Targets.0.InputTransformer.InputTemplate": '{"id": <id>, "key": <key>, "time": <time>}',
            "Targets.0.InputTransformer.InputPathsMap": {"id": "$.id", "key": "$.detail.object.key", "time": "$.time"},
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
    # Another test has the function that only the setting `openlineage` adds.
    assert (functions.keys(), len(functions) >= 10) == (modules.keys() - {"slackwater-send-lineage"}, True)
    for name, of in functions.items():
        assert of["Handler"] == f"{modules[name]}.handler"
        assert (of["LoggingConfig"]["LogFormat"], len(of["Layers"])) == ("JSON", 1)
        # "Lambda quotas": new accounts have reduced concurrency and memory, 10 functions and 3,008 MB. AWS refuses to
        # reserve any of the 10.
        assert ("ReservedConcurrentExecutions" in of, of["MemorySize"] <= 3008) == (False, True)


def a_function(folder: Path, name: str, *, lambdas: Path = ROOT / "lambdas", **settings: Any) -> LibraryFunction:
    """A function in a stack of its own."""
    library = Library(Stack(), "Library", settings=Settings(**settings), artefact=folder, lambdas=lambdas)
    return LibraryFunction(library, name, description="Any", environment={}, timeout=Duration.minutes(1))


def created(construct: Construct, kind: str) -> dict[str, Any]:
    """The properties of the one resource of this type in the stack of the construct."""
    [resource] = Template.from_stack(Stack.of(construct)).find_resources(kind).values()
    properties: dict[str, Any] = resource["Properties"]
    return properties


def test_a_changed_function_changes_no_other_and_neither_does_bytecode(tmp_path: Path) -> None:
    def assets() -> list[str]:
        functions = [a_function(tmp_path, name, lambdas=lambdas) for name in ("check_days", "record_run")]
        return [created(function, "AWS::Lambda::Function")["Code"]["S3Key"] for function in functions]

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
    function = created(a_function(tmp_path, "record_run", log_level=level), "AWS::Lambda::Function")
    assert function["LoggingConfig"]["ApplicationLogLevel"] == passed


def test_every_function_has_exactly_the_environment_variables_that_it_needs(assembly: Assembly) -> None:
    always = {f"POWERTOOLS_{name}" for name in ("SERVICE_NAME", "LOG_LEVEL", "METRICS_NAMESPACE")}
    assert {name: set(variables) for name, variables in variables_of(assembly).items()} == {
        name: always | variables for name, variables in VARIABLES.items() if name != "send-lineage"
    }
    namespaces = {variables["POWERTOOLS_METRICS_NAMESPACE"] for variables in variables_of(assembly).values()}
    assert namespaces == {"Slackwater/slackwater"}


def test_the_setting_openlineage_adds_a_function_that_those_of_runs_invoke(scheduled: Assembly) -> None:
    always = {f"POWERTOOLS_{name}" for name in ("SERVICE_NAME", "LOG_LEVEL", "METRICS_NAMESPACE")}
    found = variables_of(scheduled)
    for name, variables in {**WITH_OPENLINEAGE, "send-lineage": VARIABLES["send-lineage"]}.items():
        assert set(found[name]) == always | variables
    assert found["record-run"]["LINEAGE_FUNCTION"] == "slackwater-send-lineage"
    assert found["send-lineage"]["OPENLINEAGE_URL"] == "https://lineage.example"
    assert found["send-lineage"]["OPENLINEAGE_NAMESPACE"] == "slackwater"
    repeated = scheduled.one("AWS::Lambda::EventInvokeConfig", "sendlineage")
    assert (repeated["MaximumRetryAttempts"], repeated["MaximumEventAgeInSeconds"]) == (2, 6 * 3600)


def test_stacks_do_not_share_a_layer_by_export(assembly: Assembly) -> None:
    assert sum("AWS::Lambda::LayerVersion" in types for types in assembly.types().values()) == 4
    outputs = [template.get("Outputs", {}) for template in assembly.templates.values()]
    assert not [name for each in outputs for name in each if "Layer" in name]


@pytest.mark.parametrize(
    ("queue", "function", "batch"),
    [
        ("EventBufferQueue", "storeevents", (2_000, 5)),
        ("ArrivalsQueue", "checkarrivals", (10_000, 300)),
        ("StatesQueue", "foldstate", (10_000, 2)),
    ],
)
def test_messages_are_retried_one_by_one_before_they_become_dead_letters(
    assembly: Assembly, queue: str, function: str, batch: tuple[int, int]
) -> None:
    mapping, of = assembly.one("AWS::Lambda::EventSourceMapping", function), assembly.one("AWS::SQS::Queue", queue)
    assert (mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]) == batch
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
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
    stack, settings = Stack(), Settings(collect_minutes=minutes)
    arrivals = Arrivals(stack, "Arrivals", settings=settings, raw=Bucket.from_bucket_name(stack, "Raw", "raw"))
    assert arrivals.window.to_seconds() == window
    assert created(arrivals, "AWS::Events::Rule")["State"] == state


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


@pytest.mark.parametrize(("requests", "functions"), [(1, 2), (149, 2), (250, 5), (100_000, 10)])
def test_an_api_with_a_higher_limit_has_more_functions_that_store_its_events(
    tmp_path: Path, requests: int, functions: int
) -> None:
    function = a_function(tmp_path, "store_events", api_requests_per_second=requests)
    settings = Settings(api_requests_per_second=requests)
    EventBuffer(Stack.of(function), "Buffer", settings=settings, key=None).feed(function)
    mapping = created(function, "AWS::Lambda::EventSourceMapping")
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": functions}


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


@pytest.mark.parametrize(("table", "tested"), [("FileTable", FILE_TABLE), ("RunTable", RUN_TABLE)])
def test_a_table_has_the_indexes_that_its_tests_query(assembly: Assembly, table: str, tested: dict[str, Any]) -> None:
    properties = assembly.one("AWS::DynamoDB::Table", table)
    defined = {item["AttributeName"]: item["AttributeType"] for item in properties["AttributeDefinitions"]}
    assert defined == {item["AttributeName"]: item["AttributeType"] for item in tested["AttributeDefinitions"]}
    # test_stateful.py compares the keys of the tables themselves. cdk-nag checks that they can be restored.
    assert properties["KeySchema"] == tested["KeySchema"]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
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


def test_every_log_group_has_a_retention(assembly: Assembly) -> None:
    groups = assembly.properties("AWS::Logs::LogGroup").values()
    assert (len(groups), {group["RetentionInDays"] for group in groups}) == (26, {30})


def test_jobs_name_only_the_jars_of_the_settings(assembly: Assembly, scheduled: Assembly) -> None:
    """The release has Iceberg on its class path."""
    assert "spark.jars" not in json.dumps(assembly.templates)
    machine = scheduled.one("AWS::StepFunctions::StateMachine", "Pipelinedailydelays")
    jars = "--conf spark.jars=s3://code/iceberg.jar,/usr/lib/first.jar"
    assert jars in submit_parameters(machine, scheduled.folder)


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
    outputs = {name: of for template in assembly.templates.values() for name, of in template.get("Outputs", {}).items()}
    assert {field.alias for field in Deployment.model_fields.values() if field.is_required()} <= outputs.keys()
    scheduler = assembly.one("AWS::EMRServerless::Application", "Spark")["SchedulerConfiguration"]
    assert outputs["ConcurrentRuns"]["Value"] == str(scheduler["MaxConcurrentRuns"])
    # "CloudFormation quotas": an output's value has at most 4,096 characters. A reference becomes a bucket's name.
    assert len(json.dumps(outputs["SparkSubmitParameters"]["Value"])) < 4096


def test_the_stacks_are_those_that_the_library_knows(
    assembly: Assembly, scheduled: Assembly, divided: Assembly
) -> None:
    assert set(assembly.templates) == {f"slackwater-{name}" for name in (*STACKS, "schedule")}
    all_stacks = {f"slackwater-{name}" for name in (*STACKS, *OPTIONAL_STACKS)}
    assert set(scheduled.templates) | set(divided.templates) == all_stacks
