from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.app import ROOT, add_stacks
from infra.lint import context, nag_findings, stand_ins, synthesise, template_findings
from infra.settings import Settings, load_settings
from infra.stacks.schedule import AIRFLOW
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra

_STACK = "slackwater-schedule"


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with the setting on."""
    scratch = tmp_path_factory.mktemp("scheduled")
    settings = load_settings({**context(), "slackwater:airflow": True})
    folder = scratch / "cdk.out"
    return Assembly(folder, synthesise(folder, settings=settings, artefacts=stand_ins(scratch)))


@pytest.fixture(scope="module")
def schedule(scheduled: Assembly) -> Assembly:
    """The one stack that the setting adds."""
    return Assembly(scheduled.folder, {_STACK: scheduled.templates[_STACK]})


def words(resource: Any) -> str:
    """An address without partition, region and account; what it refers to by its name."""
    match resource:
        case {"Fn::Join": [_, parts]}:
            return "".join(words(part) for part in parts)
        case {"Fn::GetAtt": [name, _]}:
            return str(name)[:-8]
        case {"Ref": name}:
            return str(name).removeprefix("AWS::")
        case {"Fn::Sub": _}:
            return "assets"
        case _:
            return str(resource)


def granted(assembly: Assembly, role: str) -> dict[str, set[str]]:
    """What a role's policy allows: resources by action."""
    found: dict[str, set[str]] = {}
    for statement in assembly.one("AWS::IAM::Policy", role)["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement.get("Resource", {"not": statement.get("NotResource")})
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                found.setdefault(action, set()).add(words(resource))
    return found


def test_by_default_there_is_no_airflow(assembly: Assembly) -> None:
    assert _STACK not in assembly.templates
    assert not assembly.resources("AWS::MWAA::Environment")


def test_the_setting_adds_a_stack_and_changes_none_but_for_alarms(assembly: Assembly, scheduled: Assembly) -> None:
    changed = {name for name, template in scheduled.templates.items() if template != assembly.templates.get(name)}
    assert changed == {_STACK, "slackwater-monitoring"}
    before, after = (set(found.templates["slackwater-monitoring"]["Resources"]) for found in (assembly, scheduled))
    alarms = scheduled.resources("AWS::CloudWatch::Alarm")
    assert before < after
    assert after - before == {name for name in alarms if "monitormissing" in name}


def test_nothing_is_found_against_it(scheduled: Assembly) -> None:
    assert [*nag_findings(scheduled.folder), *template_findings(scheduled.folder)] == []


def test_the_environment_is_the_smallest_of_the_version_that_the_dags_are_tested_with(schedule: Assembly) -> None:
    environment = schedule.one("AWS::MWAA::Environment", "Environment")
    lock = (ROOT / "requirements" / "airflow.txt").read_text()
    assert f"apache-airflow=={AIRFLOW} " in lock
    assert (environment["Name"], environment["AirflowVersion"], environment["DagS3Path"]) == (_STACK, AIRFLOW, "dags")
    assert (environment["EnvironmentClass"], environment["MinWorkers"], environment["MaxWorkers"]) == (
        "mw1.small",
        1,
        1,
    )
    assert environment["WebserverAccessMode"] == "PUBLIC_ONLY"
    assert "RequirementsS3Path" not in environment, "MWAA brings all that the DAGs import"


def test_the_dags_are_told_what_the_machines_are_called(schedule: Assembly) -> None:
    options = schedule.one("AWS::MWAA::Environment", "Environment")["AirflowConfigurationOptions"]
    assert set(options) == {"slackwater.machines"}
    assert words(options["slackwater.machines"]) == "arn:Partition:states:Region:AccountId:stateMachine:slackwater-"


def test_airflow_runs_exactly_the_machines_that_the_dags_start(schedule: Assembly) -> None:
    found = granted(schedule, "AirflowRole")
    machines = {"pull-source", "pipeline-daily_delays", "monitor-days"}
    prefix = "arn:Partition:states:Region:AccountId:"
    assert found["states:StartExecution"] == {f"{prefix}stateMachine:slackwater-{name}" for name in machines}
    assert found["states:DescribeExecution"] == {f"{prefix}execution:slackwater-{name}:*" for name in machines}


def test_airflow_may_do_nothing_else_but_what_mwaa_needs(schedule: Assembly) -> None:
    found = granted(schedule, "AirflowRole")
    services = {action.partition(":")[0] for action in found} - {"states"}
    assert services == {"airflow", "s3", "logs", "cloudwatch", "sqs", "kms"}
    assert {action: resources for action, resources in found.items() if action.startswith("s3:")} == {
        **{f"s3:{verb}": {"Dags", "Dags/*"} for verb in ("GetObject*", "GetBucket*", "List*")},
        "s3:GetAccountPublicAccessBlock": {"*"},
    }
    assert {action for action, resources in found.items() if "*" in resources} == {
        "s3:GetAccountPublicAccessBlock",
        "logs:DescribeLogGroups",
        "cloudwatch:PutMetricData",
    }
    assert found["logs:PutLogEvents"] == {f"arn:Partition:logs:Region:AccountId:log-group:airflow-{_STACK}-*"}
    assert found["sqs:SendMessage"] == {"arn:Partition:sqs:Region:*:airflow-celery-*"}


def test_the_queues_key_is_used_through_the_queue_only(schedule: Assembly) -> None:
    statements = schedule.one("AWS::IAM::Policy", "AirflowRole")["PolicyDocument"]["Statement"]
    [keys] = [statement for statement in statements if "kms:Decrypt" in statement["Action"]]
    assert words(keys["NotResource"]) == "arn:Partition:kms:*:AccountId:key/*"
    [through] = keys["Condition"]["StringLike"]["kms:ViaService"]
    assert words(through) == "sqs.Region.amazonaws.com"


def test_only_this_environment_takes_the_role(schedule: Assembly) -> None:
    [statement] = schedule.one("AWS::IAM::Role", "AirflowRole")["AssumeRolePolicyDocument"]["Statement"]
    source = words(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    assert statement["Principal"] == {"Service": ["airflow-env.amazonaws.com", "airflow.amazonaws.com"]}
    assert source == f"arn:Partition:airflow:Region:AccountId:environment/{_STACK}"
    assert words(statement["Condition"]["StringEquals"]["aws:SourceAccount"]) == "AccountId"


def test_the_bucket_gets_the_dags_and_the_projects_yaml_and_nothing_else(scheduled: Assembly) -> None:
    [folder] = {path.parent for path in scheduled.folder.glob("asset.*/schedule.py")}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "schedule.py",
        "project/sources/flights.yaml",
        "project/sources/weather.yaml",
        "project/pipelines/daily_delays.yaml",
    }


def test_the_files_are_written_below_the_dags_only(schedule: Assembly) -> None:
    found = {action: names for action, names in granted(schedule, "FilesRole").items() if action.startswith("s3:")}
    [asset] = found.pop("s3:GetObject")
    assert asset.endswith(".zip")
    assert found == {"s3:ListBucket": {"Dags"}, "s3:PutObject": {"Dags/dags/*"}, "s3:DeleteObject": {"Dags/dags/*"}}
    [files] = schedule.resources("Custom::CDKBucketDeployment")
    assert files in schedule.templates[_STACK]["Resources"]["Environment"]["DependsOn"]


def test_two_private_subnets_share_one_way_out_and_take_nothing_in(schedule: Assembly) -> None:
    network = schedule.one("AWS::MWAA::Environment", "Environment")["NetworkConfiguration"]
    assert ["Private" in subnet["Ref"] for subnet in network["SubnetIds"]] == [True, True]
    assert len(schedule.resources("AWS::EC2::NatGateway")) == 1
    [group] = schedule.resources("AWS::EC2::SecurityGroup")
    [rule] = schedule.resources("AWS::EC2::SecurityGroupIngress").values()
    assert rule["Properties"]["SourceSecurityGroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    assert "SecurityGroupIngress" not in schedule.resources("AWS::EC2::SecurityGroup")[group]["Properties"]


def test_every_log_group_forgets_mwaas_own_too(schedule: Assembly) -> None:
    groups = [group["Properties"] for group in schedule.resources("AWS::Logs::LogGroup").values()]
    assert {group["RetentionInDays"] for group in groups} == {30}
    own = {group["LogGroupName"] for group in groups if group["LogGroupName"].startswith("airflow-")}
    assert own == {f"airflow-{_STACK}-{name}" for name in ("DAGProcessing", "Scheduler", "Task", "WebServer", "Worker")}
    logged = schedule.one("AWS::MWAA::Environment", "Environment")["LoggingConfiguration"]
    assert len(logged) == len(own)
    assert logged["TaskLogs"] == {"Enabled": True, "LogLevel": "INFO"}


def test_its_findings_are_accepted_one_by_one_with_reasons(scheduled: Assembly) -> None:
    accepted = json.loads((scheduled.folder / f"{_STACK}.metadata.json").read_text())
    for path, entries in accepted.items():
        for entry in entries:
            if entry["type"] == "aws:cdk:acknowledged-rules":
                for rule, reason in entry["data"].items():
                    assert path.count("/") > 1
                    assert len(reason.split()) >= 5
                    assert rule.removeprefix("Annotation::") not in {"AwsSolutions-IAM4", "AwsSolutions-IAM5"}


def test_an_account_that_is_known_is_asked_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "123456789012")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-central-1")
    app = App(context=context(), outdir=str(tmp_path / "cdk.out"))
    add_stacks(app, settings=Settings(airflow=True), artefacts=stand_ins(tmp_path))
    app.synth()
    assert "missing" not in json.loads((tmp_path / "cdk.out" / "manifest.json").read_text())
