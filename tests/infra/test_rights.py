"""Every role may do exactly what it does: its policy is compared action by action, resource by resource."""

from __future__ import annotations

import json
import re

import pytest

from tests.infra.assembly import Assembly
from tests.infra.rights import granted, without_logs

pytestmark = pytest.mark.infra

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
    replaced = {"Exchange/runs/*", "Exchange/comparisons/*", "Warehouse/slackwater_warehouse/*"}
    assets = {"asset.json", "asset.gz", "asset.py"}
    assert granted(assembly, "SparkJobRole") == {
        "s3:GetObject": {*assets, "Raw/raw/*", "Exchange/manifests/*", *replaced},
        "s3:PutObject": {"Exchange/logs/*", *replaced},
        "s3:DeleteObject": replaced,
        "s3:AbortMultipartUpload": replaced,
        "s3:ListBucket": {"Raw", "Exchange", "Warehouse"},
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
    assert len(policies) == 13
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


def test_check_days_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "checkdays")) == {
        "s3:GetObject": {"asset.json", "Raw/raw/*", "Exchange/manifests/*"},
        "s3:PutObject": {"Exchange/checks/*"},
        "s3:ListBucket": {"Raw", "Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:Query": {"FileTable", "RunTable"},
        "states:DescribeExecution": {"execution:slackwater-pipeline-*:*"},
    }


def test_compare_versions_may_do_exactly_this(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "compareversions")) == {
        "s3:GetObject": {"Exchange/comparisons/*"},
        "s3:PutObject": {"Exchange/comparisons/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:Query": {"RunTable"},
    }


def test_tell_change_may_do_exactly_this(assembly: Assembly) -> None:
    found = without_logs(granted(assembly, "tellchange"))
    assert [name[:7] for name in found.pop("sns:Publish")] == ["Changes"]
    assert found == {
        "s3:GetObject": {"Exchange/comparisons/*"},
        "s3:PutObject": {"Exchange/comparisons/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "states:DescribeExecution": {"execution:slackwater-monitor-days:*"},
    }


def test_the_monitor_starts_pipelines_and_comparisons_and_calls_its_two_functions(assembly: Assembly) -> None:
    found = without_logs(granted(assembly, "Monitor"))
    rule = {"rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"}
    executions = {"execution:slackwater-pipeline-*:*", "execution:slackwater-compare-day:*"}
    assert {re.sub(r"\w{8}$", "", name) for name in found.pop("lambda:InvokeFunction")} == {
        "checkdaysFunction",
        "tellchangeFunction",
    }
    assert found == {
        "states:StartExecution": {"stateMachine:slackwater-pipeline-*", "stateMachine:slackwater-compare-day"},
        "states:DescribeExecution": executions,
        "states:StopExecution": executions,
        "events:PutRule": rule,
        "events:PutTargets": rule,
        "events:DescribeRule": rule,
    }
