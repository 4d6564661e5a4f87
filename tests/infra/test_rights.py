"""Every role has exactly the permissions that it needs: policies are compared by action and resource."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

from infra.app import ROOT
from infra.constructs.permissions import grants
from infra.lint import nag_findings
from infra.settings import Settings
from infra.stacks.processing import check_steps
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import Assembly, policies
from tests.infra.rights import granted, without_logs

pytestmark = pytest.mark.infra

_RAW_TABLES = {"catalog", "database/slackwater_raw", "table/slackwater_raw/*"}
_REGISTER = {"glue:GetTable": _RAW_TABLES, "glue:BatchCreatePartition": _RAW_TABLES}


def test_receive_events_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "receiveevents")) == {
        "s3:GetObject": {"asset.json", "Raw/receipts/*"},
        "s3:PutObject": {"Raw/raw/*", "Raw/sideline/*", "Raw/receipts/*"},
        "s3:ListBucket": {"Raw"},
        "dynamodb:GetItem": {"TokenTable"},
        "dynamodb:UpdateItem": {"FileTable"},
        "sqs:SendMessage": {"EventBufferQueue"},
        **_REGISTER,
    }


def test_store_events_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "storeevents")) == {
        "s3:GetObject": {"asset.json"},
        "s3:PutObject": {"Raw/raw/*"},
        "sqs:ReceiveMessage": {"EventBufferQueue"},
        "sqs:DeleteMessage": {"EventBufferQueue"},
        "sqs:GetQueueAttributes": {"EventBufferQueue"},
        **_REGISTER,
    }


def test_list_files_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "listfiles")) == {
        "s3:GetObject": {"asset.json"},
        "s3:PutObject": {"Exchange/pulls/*"},
        "dynamodb:BatchGetItem": {"FileTable"},
        "dynamodb:PutItem": {"FileTable"},
        "dynamodb:Query": {"FileTable/index/due", "FileTable/index/not-taken", "FileTable/index/dated"},
    }


def test_fetch_file_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "fetchfile")) == {
        "s3:GetObject": {"asset.json", "Exchange/pulls/*"},
        "s3:PutObject": {"Raw/raw/*", "Raw/sideline/*", "Raw/landing/*"},
        "sqs:SendMessage": {"slackwater-arrivals"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:BatchGetItem": {"FileTable"},
        "dynamodb:PutItem": {"FileTable"},
        "dynamodb:UpdateItem": {"FileTable"},
        **_REGISTER,
    }


def test_remove_stale_has_exactly_these_permissions(assembly: Assembly) -> None:
    """No other role of the receiver deletes raw objects, and none deletes rejected events or pulled files."""
    assert without_logs(granted(assembly, "removestale")) == {
        "s3:GetObject": {"asset.json", "Exchange/stale-objects/*"},
        "s3:PutObject": {"Exchange/stale-objects/*"},
        "s3:DeleteObject": {"Raw/raw/*"},
        "s3:ListBucket": {"Raw", "Exchange"},
        "dynamodb:BatchGetItem": {"FileTable"},
    }


def test_freeze_inputs_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "freezeinputs")) == {
        "s3:GetObject": {
            "asset.json",
            "Raw/raw/*",
            *(f"Exchange/{name}/*" for name in ("manifests", "runs", "projects")),
        },
        "s3:PutObject": {"Exchange/manifests/*", "Exchange/runs/*"},
        "s3:ListBucket": {"Raw", "Exchange"},
        "dynamodb:BatchGetItem": {"FileTable"},
        "dynamodb:Query": {"FileTable/index/dated"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:DeleteItem": {"RunTable"},
        "states:DescribeExecution": {"execution:slackwater-pipeline-*:*"},
    }


def job_runs(synthesised: Assembly, role: str) -> set[str]:
    """Return the resource that a role may read job runs of: those of the Spark application."""
    [application] = granted(synthesised, role)["emr-serverless:GetJobRun"]
    assert re.fullmatch(r".*SparkApplication\w+.*/jobruns/\*", application)
    return {application}


def test_record_run_has_exactly_these_permissions(assembly: Assembly, scheduled: Assembly) -> None:
    permissions = {
        "s3:GetObject": {"Exchange/runs/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:DeleteItem": {"RunTable"},
        "sqs:SendMessage": {"slackwater-arrivals"},
        "states:GetExecutionHistory": {"execution:slackwater-pipeline-*:*"},
        "emr-serverless:GetJobRun": job_runs(assembly, "recordrun"),
    }
    assert without_logs(granted(assembly, "recordrun")) == permissions
    # Only a deployment with `intermediate_days: 0` removes files.
    removes = permissions | {"s3:DeleteObject": {"Exchange/arrow/*"}}
    assert without_logs(granted(scheduled, "recordrun")) == removes
    for synthesised, listed in ((assembly, ["runs/*"]), (scheduled, ["runs/*", "arrow/*"])):
        statements = synthesised.one("AWS::IAM::Policy", "recordrun")["PolicyDocument"]["Statement"]
        conditions = [statement["Condition"] for statement in statements if "Condition" in statement]
        assert conditions == [{"StringLike": {"s3:prefix": listed}}]


def test_the_permissions_of_a_run_that_the_doctors_job_does_not_use_are_listed(assembly: Assembly) -> None:
    table, tables = "Warehouse/slackwater_warehouse/*", _DATABASE | {"table/slackwater_warehouse/*"}
    used = {
        "AnyPipelineJobRole": {
            "s3:GetObject": {*_ASSETS, "Exchange/runs/*", table},
            "s3:PutObject": {"Exchange/runs/*", "Exchange/logs/*", table},
            "s3:DeleteObject": {"Exchange/runs/*"},
            "dynamodb:GetItem": {"RunTable"},
            **{f"glue:{verb}": tables for verb in ("GetDatabase", "GetTable", "CreateTable", "UpdateTable")},
        },
        "AnyPipelineRole": {
            action: resources
            for action, resources in granted(assembly, "AnyPipelineRole").items()
            if action.startswith(("events:", "iam:", "emr-serverless:")) and "Cancel" not in action
        },
    }
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("that the job does not use |")[2], re.MULTILINE))
    roles = {
        "state machine": "AnyPipelineRole",
        "job": "AnyPipelineJobRole",
        "`freeze-inputs`": "freezeinputs",
        "`record-run`": "recordrun",
    }
    for name, role in roles.items():
        unused = {
            action
            for action, resources in without_logs(granted(assembly, role)).items()
            if resources - used.get(role, {}).get(action, set())
        }
        assert set(re.findall(r"`(\w[\w-]+:\w+)`", rows[name])) == unused


_ASSETS = {"asset.json", "asset.zip", "asset.py"}
_DATABASE = {"catalog", "database/slackwater_warehouse"}
_HISTORIES = {"execution:slackwater-pipeline-*:*", "execution:slackwater-compare-day:*"}


def test_the_jobs_of_a_pipeline_have_the_permissions_for_its_inputs_and_its_table(assembly: Assembly) -> None:
    # weekly_delays reads the table of daily_delays.
    replaced = {"Exchange/runs/weekly_delays/*", "Warehouse/slackwater_warehouse/weekly_delays/*", "Warehouse/files/*"}
    read = {
        "Warehouse/slackwater_warehouse/daily_delays/*",
        *("Exchange/manifests/weekly_delays/*", "Exchange/arrow/weekly_delays/*"),
    }
    written = _DATABASE | {"table/slackwater_warehouse/weekly_delays"}
    assert granted(assembly, "PipelineweeklydelaysJobRole") == {
        "s3:GetObject": {*_ASSETS, *read, *replaced},
        "s3:PutObject": {"Exchange/arrow/weekly_delays/*", "Exchange/logs/*", *replaced},
        "s3:DeleteObject": replaced,
        "s3:AbortMultipartUpload": replaced,
        "s3:ListBucket": {"Exchange", "Warehouse"},
        "dynamodb:GetItem": {"RunTable"},
        "glue:GetDatabase": _DATABASE,
        "glue:GetTable": written | {"table/slackwater_warehouse/daily_delays"},
        "glue:CreateTable": written,
        "glue:UpdateTable": written,
    }


def test_the_jobs_of_a_pipeline_read_the_events_of_its_sources_only(assembly: Assembly) -> None:
    permissions = granted(assembly, "PipelinedailydelaysJobRole")
    raw = {resource for resource in permissions["s3:GetObject"] if resource.startswith("Raw/")}
    assert raw == {f"Raw/raw/source={source}/*" for source in ("flights", "weather")}


def test_the_jobs_of_a_pipeline_that_is_not_deployed_may_run_any(assembly: Assembly) -> None:
    tables = _DATABASE | {"table/slackwater_warehouse/*"}
    replaced = {"Exchange/runs/*", "Warehouse/slackwater_warehouse/*", "Warehouse/files/*"}
    read = {"Raw/raw/*", "Exchange/manifests/*", "Exchange/projects/*", "Exchange/arrow/*"}
    assert granted(assembly, "AnyPipelineJobRole") == {
        "s3:GetObject": {*_ASSETS, *read, *replaced},
        "s3:PutObject": {"Exchange/arrow/*", "Exchange/logs/*", *replaced},
        "s3:DeleteObject": replaced,
        "s3:AbortMultipartUpload": replaced,
        "s3:ListBucket": {"Raw", "Exchange", "Warehouse"},
        "dynamodb:GetItem": {"RunTable"},
        **{f"glue:{verb}": tables for verb in ("GetDatabase", "GetTable", "CreateTable", "UpdateTable")},
    }


def test_every_job_reads_the_jars_of_the_settings_that_are_in_s3(scheduled: Assembly) -> None:
    for role in ("PipelinedailydelaysJobRole", "AnyPipelineJobRole", "CompareJobRole", "PullJobRole"):
        jars = [name for name in granted(scheduled, role)["s3:GetObject"] if name.endswith(".jar")]
        assert [name.rpartition(":")[2] for name in jars] == ["code/iceberg.jar"]


def test_the_jobs_that_compare_versions_only_read_the_tables(assembly: Assembly) -> None:
    tables = _DATABASE | {"table/slackwater_warehouse/*"}
    assert granted(assembly, "CompareJobRole") == {
        "s3:GetObject": {
            *_ASSETS,
            *("Exchange/manifests/*", "Exchange/comparisons/*", "Warehouse/slackwater_warehouse/*"),
        },
        "s3:PutObject": {"Exchange/comparisons/*", "Exchange/logs/*"},
        "s3:DeleteObject": {"Exchange/comparisons/*"},
        "s3:AbortMultipartUpload": {"Exchange/comparisons/*"},
        "s3:ListBucket": {"Exchange", "Warehouse"},
        **{f"glue:{verb}": tables for verb in ("GetDatabase", "GetTable")},
    }


def test_jobs_that_fetch_large_files_have_the_permissions_of_fetch_file(assembly: Assembly) -> None:
    written = {"Raw/raw/*", "Raw/sideline/*", "Raw/landing/*", "Exchange/pulls/*", "Exchange/logs/*"}
    assert granted(assembly, "PullJobRole") == {
        "s3:GetObject": {*_ASSETS, "Exchange/pulls/*"},
        "s3:PutObject": written,
        **{f"dynamodb:{verb}": {"FileTable"} for verb in ("BatchGetItem", "PutItem")},
        **_REGISTER,
    }


@pytest.mark.parametrize(
    ("machine", "functions", "role"),
    [
        ("PipelinedailydelaysMachineRole", {"freezeinputs", "recordrun"}, "PipelinedailydelaysJobRole"),
        ("PipelineweeklydelaysMachineRole", {"freezeinputs", "recordrun"}, "PipelineweeklydelaysJobRole"),
        ("AnyPipelineRole", {"freezeinputs", "recordrun"}, "AnyPipelineJobRole"),
        ("PullRole", {"listfiles", "fetchfile"}, "PullJobRole"),
    ],
)
def test_a_machine_starts_watches_and_cancels_jobs_and_calls_its_two_functions(
    assembly: Assembly, machine: str, functions: set[str], role: str
) -> None:
    permissions = without_logs(granted(assembly, machine))
    application = next(iter(permissions["emr-serverless:StartJobRun"]))
    rule = {"rule/StepFunctionsGetEventsForEMRServerlessJobRule"}
    jobs = {f"{application}/jobruns/*"}
    assert application.startswith("SparkApplication")
    called = permissions.pop("lambda:InvokeFunction")
    assert {name.rpartition("FnGetAtt")[2].partition("Function")[0] for name in called} == functions
    assert {re.sub(r"\w{8}$", "", name) for name in permissions.pop("iam:PassRole")} == {role}
    assert permissions == {
        "emr-serverless:StartJobRun": {application},
        "emr-serverless:GetJobRun": jobs,
        "emr-serverless:CancelJobRun": jobs,
        "emr-serverless:TagResource": {application, *jobs},
        "events:PutRule": rule,
        "events:PutTargets": rule,
        "events:DescribeRule": rule,
    }


def test_a_job_role_is_passed_to_emr_serverless_only(assembly: Assembly) -> None:
    statements = [
        statement for document in policies(assembly.templates).values() for statement in document["Statement"]
    ]
    passing = [statement for statement in statements if statement["Action"] == "iam:PassRole"]
    assert len(passing) == 5
    for statement in passing:
        assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}


def test_no_policy_has_a_wildcard_among_its_actions(assembly: Assembly) -> None:
    documents = policies(assembly.templates)
    assert len(documents) >= 20
    for document in documents.values():
        for statement in document["Statement"]:
            assert "*" not in json.dumps(statement["Action"])


def test_listing_is_restricted_to_prefixes(assembly: Assembly) -> None:
    for document in policies(assembly.templates).values():
        for statement in document["Statement"]:
            if "s3:ListBucket" in statement["Action"]:
                assert statement["Condition"]["StringLike"]["s3:prefix"]


def test_no_role_has_a_policy_of_aws(assembly: Assembly) -> None:
    attached = [
        arn
        for role in assembly.resources("AWS::IAM::Role").values()
        for arn in role["Properties"].get("ManagedPolicyArns", [])
    ]
    assert {re.sub(r"\w{8}$", "", arn["Ref"]) for arn in attached} == {"PipelineJobs", "PipelineMachines"}


def test_check_days_has_exactly_these_permissions(assembly: Assembly) -> None:
    permissions = without_logs(granted(assembly, "checkdays"))
    assert [name[:7] for name in permissions.pop("sns:Publish")] == ["Changes"]
    assert permissions == {
        "s3:GetObject": {"asset.json", "Raw/raw/*", "Exchange/manifests/*"},
        "s3:PutObject": {"Exchange/checks/*", "Exchange/ledger/*"},
        "s3:ListBucket": {"Raw", "Exchange"},
        "dynamodb:BatchGetItem": {"FileTable"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:DeleteItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:UpdateItem": {"RunTable"},
        "dynamodb:Query": {
            "RunTable",
            "RunTable/index/published",
            "RunTable/index/notification-due",
            "RunTable/index/held",
        },
        # The monitorings are those that have claimed a message about changed tables.
        "states:DescribeExecution": {"execution:slackwater-pipeline-*:*", "execution:slackwater-monitor-days:*"},
        "states:GetExecutionHistory": _HISTORIES,
        "sqs:SendMessage": {"slackwater-arrivals"},
        "emr-serverless:GetJobRun": job_runs(assembly, "checkdays"),
    }


def test_check_arrivals_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "checkarrivals")) == {
        "s3:GetObject": {"asset.json"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:UpdateItem": {"RunTable"},
        "states:StartExecution": {"stateMachine:slackwater-monitor-days"},
        "states:DescribeExecution": {"execution:slackwater-pipeline-*:*"},
        "sqs:SendMessage": {"ArrivalsQueueC4D3E9A9"},
        "sqs:ReceiveMessage": {"ArrivalsQueueC4D3E9A9"},
        "sqs:DeleteMessage": {"ArrivalsQueueC4D3E9A9"},
        "sqs:GetQueueAttributes": {"ArrivalsQueueC4D3E9A9"},
    }


def test_write_ledger_has_exactly_these_permissions(assembly: Assembly) -> None:
    read = {f"Exchange/{name}/*" for name in ("ledger", "checks", "manifests", "comparisons")}
    files = {"Warehouse/slackwater_warehouse/ledger/*"}
    table = _DATABASE | {"table/slackwater_warehouse/ledger"}
    assert without_logs(granted(assembly, "writeledger")) == {
        "s3:GetObject": {"asset.json", *read, *files},
        "s3:PutObject": files,
        "s3:DeleteObject": {"Exchange/ledger/*", *files},
        "s3:AbortMultipartUpload": files,
        "s3:ListBucket": {"Exchange", "Warehouse"},
        "dynamodb:Query": {"RunTable"},
        "states:DescribeExecution": {"execution:slackwater-monitor-days:*"},
        "glue:GetDatabase": _DATABASE,
        "glue:GetTable": table,
        "glue:CreateTable": table,
        "glue:UpdateTable": table,
    }


def test_compare_versions_has_exactly_these_permissions(assembly: Assembly) -> None:
    assert without_logs(granted(assembly, "compareversions")) == {
        "s3:GetObject": {"Exchange/comparisons/*"},
        "s3:PutObject": {"Exchange/comparisons/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:Query": {"RunTable"},
        "states:DescribeExecution": {"execution:slackwater-compare-day:*"},
    }


def test_notify_change_has_exactly_these_permissions(assembly: Assembly) -> None:
    permissions = without_logs(granted(assembly, "notifychange"))
    assert [name[:7] for name in permissions.pop("sns:Publish")] == ["Changes"]
    assert permissions == {
        "s3:GetObject": {"Exchange/comparisons/*"},
        "s3:PutObject": {"Exchange/comparisons/*"},
        "s3:ListBucket": {"Exchange"},
        "dynamodb:GetItem": {"RunTable"},
        "dynamodb:PutItem": {"RunTable"},
        "dynamodb:Query": {"RunTable"},
        "states:DescribeExecution": {"execution:slackwater-monitor-days:*"},
        "states:GetExecutionHistory": _HISTORIES,
        "emr-serverless:GetJobRun": job_runs(assembly, "notifychange"),
    }


def test_the_monitor_starts_pipelines_and_comparisons_and_calls_its_three_functions(assembly: Assembly) -> None:
    permissions = without_logs(granted(assembly, "Monitor"))
    rule = {"rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"}
    executions = {"execution:slackwater-pipeline-*:*", "execution:slackwater-compare-day:*"}
    assert {re.sub(r"\w{8}$", "", name) for name in permissions.pop("lambda:InvokeFunction")} == {
        "checkdaysFunction",
        "notifychangeFunction",
        "writeledgerFunction",
    }
    assert permissions == {
        "states:StartExecution": {"stateMachine:slackwater-pipeline-*", "stateMachine:slackwater-compare-day"},
        "states:DescribeExecution": executions,
        "states:StopExecution": executions,
        "events:PutRule": rule,
        "events:PutTargets": rule,
        "events:DescribeRule": rule,
    }


def test_a_backfill_starts_pipelines_and_nothing_else(assembly: Assembly) -> None:
    executions, rule = "execution:slackwater-pipeline-*:*", "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    assert without_logs(granted(assembly, "Backfill")) == {
        "states:StartExecution": {"stateMachine:slackwater-pipeline-*"},
        "states:DescribeExecution": {executions},
        "states:StopExecution": {executions},
        "events:PutRule": {rule},
        "events:PutTargets": {rule},
        "events:DescribeRule": {rule},
    }


_WHOLE = "arn:aws:secretsmanager:eu-west-1:210987654321:secret:theirs-AbCdEf"
_THEIRS = "arn:aws:iam::210987654321:role/exports"
_SFTP = {
    "url": "sftp://files.example/x",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc",
}


@pytest.fixture
def reaching(tmp_path: Path) -> Callable[..., Assembly]:
    """Synthesises a role that may reach the partners of these pulls."""

    def reaching(*pulls: dict[str, Any]) -> Assembly:
        app = App(outdir=str(tmp_path))
        stack = Stack(app, "Stack")
        role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        sources = {f"s{n}": a_source(source=f"s{n}", pull={"files": "{date}", **pull}) for n, pull in enumerate(pulls)}
        pushed = a_source(source="pushed", pull=None)
        grants.allow_partners(role, Project(sources={**sources, "pushed": pushed}, pipelines={}))
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        app.synth()
        return Assembly(tmp_path, {"Stack": json.loads((tmp_path / "Stack.template.json").read_text())})

    return reaching


def test_jobs_read_the_credentials_that_steps_name_at_any_depth(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    role = iam.Role(Stack(app, "Stack"), "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    database = {"url": "postgresql://db.example/x", "credentials": "secretsmanager:acme/db"}
    pipeline = Pipeline.model_validate(
        {
            "pipeline": "p",
            "sources": ["s"],
            "steps": {
                "a": {"step": "read_sql", "with": {"query": "SELECT 1", "postgres": database}},
                "b": {"step": "read_api", "with": {"url": "https://api.example", "credentials": "ssm:/acme/api"}},
                "c": {"step": "sql", "depends_on": ["a", "b", "s"], "with": {"query": "SELECT 1"}},
            },
            "publish": {"step": "c", "key": ["date"]},
            "load": {"d": {"step": "write_table", "depends_on": ["c"], "with": {**database, "table": "t"}}},
        }
    )
    grants.allow_steps(role, [pipeline])
    app.synth()
    synthesised = Assembly(tmp_path, {"Stack": json.loads((tmp_path / "Stack.template.json").read_text())})
    assert granted(synthesised, "Role") == {
        "secretsmanager:GetSecretValue": {"secret:acme/db-??????"},
        "ssm:GetParameter": {"parameter/acme/api"},
    }
    assert [(place, url) for _, place, url in grants.step_values([pipeline], "url")] == [
        ("steps.a.with.postgres.url", "postgresql://db.example/x"),
        ("steps.b.with.url", "https://api.example"),
        ("load.d.with.url", "postgresql://db.example/x"),
    ]
    project = Project(sources={}, pipelines={"p": pipeline})
    check_steps(project, Settings(job_subnets=["subnet-1"], job_security_groups=["sg-1"]))
    with pytest.raises(DefinitionError, match=r"pipelines/p.yaml: steps.b.with.url: without the setting job_subnets"):
        check_steps(project, Settings())


def test_only_the_named_credentials_of_partners_can_be_read(reaching: Any) -> None:
    synthesised = reaching(
        {"url": "https://files.example/x", "credentials": "secretsmanager:acme/api"},
        {"url": "https://files.example/y", "credentials": "secretsmanager:acme/api"},
        {"url": "https://files.example/z", "credentials": f"secretsmanager:{_WHOLE}"},
        {**_SFTP, "credentials": "ssm:/acme/sftp"},
        {**_SFTP, "credentials": "ssm:plain"},
    )
    assert granted(synthesised, "Role") == {
        "secretsmanager:GetSecretValue": {"secret:acme/api-??????", _WHOLE},
        "ssm:GetParameter": {"parameter/acme/sftp", "parameter/plain"},
    }
    assert list(nag_findings(synthesised.folder)) == []


def test_partner_buckets_are_read_below_their_urls_or_with_their_roles(reaching: Any) -> None:
    synthesised = reaching(
        {"url": "s3://exports-a/acme/daily/"},
        {"url": "s3://exports-a/acme/hourly"},
        {"url": "s3://exports-b"},
        {"url": "s3://exports-c/acme", "role": _THEIRS},
    )
    permissions = granted(synthesised, "Role")
    assert {action: {_partition(name) for name in names} for action, names in permissions.items()} == {
        "s3:ListBucket": {"exports-a", "exports-b"},
        "s3:GetObject": {"exports-a/acme/daily/*", "exports-a/acme/hourly/*", "exports-b/*"},
        "sts:AssumeRole": {_THEIRS},
    }
    statements = synthesised.one("AWS::IAM::Policy", "Role")["PolicyDocument"]["Statement"]
    assert [statement["Condition"] for statement in statements if statement["Action"] == "s3:ListBucket"] == [
        {"StringLike": {"s3:prefix": ["acme/daily/*", "acme/hourly/*"]}},
        {"StringLike": {"s3:prefix": ["*"]}},
    ]
    assert list(nag_findings(synthesised.folder)) == []


def test_partners_without_credentials_or_buckets_add_no_permissions(reaching: Any) -> None:
    synthesised = reaching({"url": "https://files.example/x"})
    assert synthesised.resources("AWS::IAM::Policy") == {}


def _partition(resource: str) -> str:
    return resource.removeprefix("arn:AWS::Partition:s3:::")
