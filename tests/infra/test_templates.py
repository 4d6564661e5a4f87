from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.lint import definitions
from slackwater.aws.deployment import Deployment
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra

_BUCKETS = {"Raw", "Exchange", "Warehouse"}


def words(resource: Any) -> str:
    """A resource of a policy, with the names of what it refers to."""
    match resource:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(words(part) for part in parts)
        case {"Fn::GetAtt": [name, _]} | {"Ref": name}:
            return str(name)
        case {"Fn::ImportValue": name} | {"Fn::GetStackOutput": {"OutputName": name}}:
            return str(name)
        case _:
            return str(resource)


def short(resource: Any) -> str:
    """`raw/*` of the raw bucket as `Raw/raw/*`, an asset as `asset.py`; other addresses without account and region."""
    text = words(resource)
    if found := re.search(
        r"(?:FnGetAtt)(Raw|Exchange|Warehouse|FileTable|RunTable|TokenTable)\w{8}Arn\w{8}(.*)$", text
    ):
        return found[1] + found[2]
    if "cdk-" in text and (found := re.search(r"[0-9a-f]{64}(?:\.tar)?(\..+)$", text)):
        return f"asset{found[1]}"
    return re.sub(r"^.*AWS::AccountId:", "", text)


def granted(assembly: Assembly, role: str) -> dict[str, set[str]]:
    """What a role's policy allows: resources by action."""
    found: dict[str, set[str]] = {}
    for statement in assembly.one("AWS::IAM::Policy", role)["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                found.setdefault(action, set()).add(short(resource))
    return found


def without_logs(permissions: dict[str, set[str]]) -> dict[str, set[str]]:
    return {action: resources for action, resources in permissions.items() if not action.startswith("logs:")}


_RAW_TABLES = {"catalog", "database/slackwater_raw", "table/slackwater_raw/*"}
_REGISTER = {"glue:GetTable": _RAW_TABLES, "glue:BatchCreatePartition": _RAW_TABLES}


def test_receive_events_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "receiveevents")) == {
        "s3:GetObject": {"asset.json"},
        "s3:PutObject": {"Raw/raw/*", "Raw/sideline/*"},
        "dynamodb:GetItem": {"TokenTable"},
        **_REGISTER,
    }


def test_list_files_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "listfiles")) == {
        "s3:GetObject": {"asset.json"},
        "s3:PutObject": {"Exchange/pulls/*"},
        "dynamodb:Query": {"FileTable"},
    }


def test_fetch_file_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "fetchfile")) == {
        "s3:GetObject": {"asset.json", "Exchange/pulls/*"},
        "s3:PutObject": {"Raw/raw/*", "Raw/sideline/*", "Raw/landing/*"},
        "s3:DeleteObject": {"Raw/raw/*"},
        "dynamodb:GetItem": {"FileTable"},
        "dynamodb:PutItem": {"FileTable"},
        "dynamodb:Query": {"FileTable"},
        **_REGISTER,
    }


def test_freeze_inputs_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "freezeinputs")) == {
        "s3:GetObject": {"asset.json", "Raw/raw/*", "Exchange/manifests/*"},
        "s3:PutObject": {"Exchange/manifests/*"},
        "s3:ListBucket": {"Raw", "Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:Query": {"FileTable"},
        "states:DescribeExecution": {"execution:slackwater-pipeline-*:*"},
    }


def test_record_run_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "recordrun")) == {
        "s3:GetObject": {"Exchange/runs/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
    }


def test_spark_jobs_may_do_exactly_this(assembly: Assembly) -> None:
    tables = {"catalog", "database/slackwater_warehouse", "table/slackwater_warehouse/*"}
    replaced = {"Exchange/runs/*", "Warehouse/slackwater_warehouse/*"}
    assets = {"asset.json", "asset.gz", "asset.py"}
    assert granted(assembly, "SparkJobRole") == {
        "s3:GetObject": {*assets, "Raw/raw/*", "Exchange/manifests/*", *replaced},
        "s3:PutObject": {"Exchange/logs/*", *replaced},
        "s3:DeleteObject": replaced,
        "s3:AbortMultipartUpload": replaced,
        "s3:ListBucket": _BUCKETS,
        **{f"glue:{verb}": tables for verb in ("GetDatabase", "GetTable", "GetTables", "CreateTable", "UpdateTable")},
    }


def test_a_pipeline_starts_watches_and_cancels_jobs_and_calls_its_two_functions(assembly: Assembly) -> None:
    found = without_logs(granted(assembly, "Pipelinedailydelays"))
    application = next(iter(found["emr-serverless:StartJobRun"]))
    rule = {"rule/StepFunctionsGetEventsForEMRServerlessJobRule"}
    jobs = {f"{application}/jobruns/*"}
    assert application.startswith("SparkApplication")
    assert {re.sub(r"\w{8}$", "", name) for name in found.pop("lambda:InvokeFunction")} == {
        "freezeinputsFunction",
        "recordrunFunction",
    }
    assert {re.sub(r"\w{8}$", "", name) for name in found.pop("iam:PassRole")} == {"SparkJobRole"}
    assert found == {
        "emr-serverless:StartJobRun": {application},
        "emr-serverless:GetJobRun": jobs,
        "emr-serverless:CancelJobRun": jobs,
        "emr-serverless:TagResource": jobs,
        "events:PutRule": rule,
        "events:PutTargets": rule,
        "events:DescribeRule": rule,
    }


def test_a_job_role_is_passed_to_emr_serverless_only(assembly: Assembly) -> None:
    statements = assembly.one("AWS::IAM::Policy", "Pipelinedailydelays")["PolicyDocument"]["Statement"]
    [passing] = [statement for statement in statements if statement["Action"] == "iam:PassRole"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}


def test_the_pull_machine_calls_its_two_functions_and_nothing_else(assembly: Assembly) -> None:
    found = without_logs(granted(assembly, "Pull"))
    assert set(found) == {"lambda:InvokeFunction"}
    assert len(found["lambda:InvokeFunction"]) == 2


def test_no_policy_has_a_wildcard_among_its_actions(assembly: Assembly) -> None:
    policies = assembly.resources("AWS::IAM::Policy")
    assert len(policies) == 8
    for policy in policies.values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            assert "*" not in json.dumps(statement["Action"])


def test_listing_is_bound_to_prefixes(assembly: Assembly) -> None:
    for policy in assembly.resources("AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            if "s3:ListBucket" in statement["Action"]:
                assert statement["Condition"]["StringLike"]["s3:prefix"]


def test_no_role_has_a_managed_policy(assembly: Assembly) -> None:
    assert not [
        role for role in assembly.resources("AWS::IAM::Role").values() if "ManagedPolicyArns" in role["Properties"]
    ]


def test_nothing_runs_but_our_five_functions(assembly: Assembly) -> None:
    functions = assembly.resources("AWS::Lambda::Function").values()
    names = {function["Properties"]["FunctionName"] for function in functions}
    assert names == {
        f"slackwater-{name}" for name in ("receive-events", "list-files", "fetch-file", "freeze-inputs", "record-run")
    }
    for function in functions:
        properties = function["Properties"]
        assert properties["Handler"] == "handler.handler"
        assert properties["LoggingConfig"]["LogFormat"] == "JSON"
        assert len(properties["Layers"]) == 1
        assert {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"} < properties["Environment"]["Variables"].keys()


def test_no_function_is_told_more_than_it_needs(assembly: Assembly) -> None:
    told = {
        function["Properties"]["FunctionName"].removeprefix("slackwater-"): {
            name for name in function["Properties"]["Environment"]["Variables"] if not name.startswith("POWERTOOLS_")
        }
        for function in assembly.resources("AWS::Lambda::Function").values()
    }
    assert told == {
        "receive-events": {"RAW_BUCKET", "RAW_DATABASE", "TOKEN_TABLE", "PROJECT_URI"},
        "list-files": {"EXCHANGE_BUCKET", "FILE_TABLE", "PROJECT_URI"},
        "fetch-file": {"RAW_BUCKET", "RAW_DATABASE", "FILE_TABLE", "PROJECT_URI"},
        "freeze-inputs": {"RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "PROJECT_URI"},
        "record-run": {"RUN_TABLE"},
    }


def test_a_stack_does_not_bind_another_by_its_layer(assembly: Assembly) -> None:
    exports = [output for template in assembly.templates.values() for output in template["Outputs"]]
    layers = [name for template in assembly.templates.values() for name in template["Resources"] if "Layer" in name]
    assert len(layers) == 2
    assert not [name for name in exports if "Layer" in name]


def test_buckets_are_private_encrypted_and_reached_by_tls_only(assembly: Assembly) -> None:
    buckets = assembly.resources("AWS::S3::Bucket")
    assert {name[:-8] for name in buckets} == _BUCKETS
    for bucket in buckets.values():
        properties = bucket["Properties"]
        assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
        assert properties["BucketEncryption"]
        assert bucket["DeletionPolicy"] == "Retain"
    policies = assembly.resources("AWS::S3::BucketPolicy").values()
    assert len(policies) == 3
    for policy in policies:
        [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_raw_objects_keep_their_versions_and_exchanged_files_expire(assembly: Assembly) -> None:
    raw, exchange = assembly.one("AWS::S3::Bucket", "Raw"), assembly.one("AWS::S3::Bucket", "Exchange")
    assert raw["VersioningConfiguration"] == {"Status": "Enabled"}
    assert not [rule for rule in raw["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule]
    rules = exchange["LifecycleConfiguration"]["Rules"]
    assert {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "Prefix" in rule} == {
        "runs/": 30,
        "pulls/": 30,
        "logs/": 30,
    }
    assert [rule for rule in rules if "AbortIncompleteMultipartUpload" in rule]


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
    [route] = assembly.resources("AWS::ApiGatewayV2::Route").values()
    assert route["Properties"]["RouteKey"] == "POST /v1/sources/{source}/events"
    [stage] = assembly.resources("AWS::ApiGatewayV2::Stage").values()
    assert stage["Properties"]["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 100, "ThrottlingRateLimit": 50}
    assert "correlation" not in stage["Properties"]["AccessLogSettings"]["Format"]
    assert json.loads(stage["Properties"]["AccessLogSettings"]["Format"])["status"] == "$context.status"


def test_every_log_group_forgets(assembly: Assembly) -> None:
    groups = assembly.resources("AWS::Logs::LogGroup").values()
    assert len(groups) == 8
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {30}


def test_the_spark_application_has_a_limit_and_stops_by_itself(assembly: Assembly) -> None:
    application = assembly.one("AWS::EMRServerless::Application", "Spark")
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"
    assert application["MaximumCapacity"] == {"Cpu": "32 vCPU", "Memory": "128 GB", "Disk": "1000 GB"}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 15}
    assert application["SchedulerConfiguration"] == {"MaxConcurrentRuns": 15, "QueueTimeoutMinutes": 60}
    assert "InitialCapacity" not in application


def test_every_job_is_submitted_with_the_archive_and_the_catalog(assembly: Assembly) -> None:
    machine = assembly.one("AWS::StepFunctions::StateMachine", "Pipelinedailydelays")
    parameters = words(machine["DefinitionSubstitutions"]["SparkSubmitParameters"])
    for setting in (
        "spark.archives=",
        "#environment",
        "spark.emr-serverless.driverEnv.PYTHONPATH=./environment",
        "spark.executorEnv.PYTHONPATH=./environment",
        "spark.sql.catalog.warehouse=org.apache.iceberg.spark.SparkCatalog",
        "spark.driver.memory=3g",
    ):
        assert setting in parameters
    assert machine["DefinitionString"].count("${SparkSubmitParameters}") == 3


def test_state_machines_are_logged_and_named_after_pipelines(assembly: Assembly) -> None:
    machines = [definitions(template) for template in assembly.templates.values()]
    assert {name for found in machines for name in found} == {
        "slackwater-pull-source",
        "slackwater-pipeline-daily_delays",
    }
    for machine in assembly.resources("AWS::StepFunctions::StateMachine").values():
        assert machine["Properties"]["LoggingConfiguration"]["Level"] == "ALL"


def test_the_outputs_are_those_that_the_library_reads(assembly: Assembly) -> None:
    found = {name for template in assembly.templates.values() for name in template["Outputs"]}
    assert {field.alias for field in Deployment.model_fields.values()} <= found
