"""The stack of Airflow: what the setting `schedule=airflow` deploys, and what Airflow may do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment
from aws_cdk.assertions import Template

from infra.app import ROOT
from infra.settings import Settings
from infra.stacks.schedule import AIRFLOW, ScheduleStack
from slackwater.project.project import Project
from slackwater.project.schedule import ProjectSchedule, schedule_of
from tests.infra.assembly import Assembly, parts_of, settings_of, synthesised
from tests.infra.rights import granted, resource_name, short

pytestmark = pytest.mark.infra

_STACK = "slackwater-schedule"


@pytest.fixture(scope="module")
def schedule(scheduled: Assembly) -> Assembly:
    """The stack of the schedule."""
    return Assembly(scheduled.folder, {_STACK: scheduled.templates[_STACK]})


def test_by_default_there_is_no_airflow(assembly: Assembly) -> None:
    assert not assembly.resources("AWS::MWAA::Environment")


def test_the_setting_changes_no_alarm_and_not_the_receiver(assembly: Assembly, scheduled: Assembly) -> None:
    assert scheduled.templates["slackwater-receiver"] == assembly.templates["slackwater-receiver"]
    before, after = (set(app.resources("AWS::CloudWatch::Alarm")) for app in (assembly, scheduled))
    # `cost-per-day` differs by another setting.
    assert {name for name in before ^ after if "costperday" not in name} == set()


@pytest.mark.parametrize("scheduler", ["assembly", "scheduled"])
def test_what_a_scheduler_starts_is_deployed_before_it(scheduler: str, request: pytest.FixtureRequest) -> None:
    deployed: Assembly = request.getfixturevalue(scheduler)
    started = {stack for stack, types in deployed.types().items() if "AWS::StepFunctions::StateMachine" in types}
    assert started == {"slackwater-processing", "slackwater-late"}
    assert started <= set(deployed.manifest()["slackwater-schedule"]["dependencies"])


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
    assert "RequirementsS3Path" not in environment, "MWAA already has everything that the DAG file imports"


def test_the_dags_are_tested_with_the_versions_of_mwaas_constraints() -> None:
    constraints, lock = pinned(f"mwaa-{AIRFLOW}-constraints.txt"), pinned("airflow.txt")
    assert lock["apache-airflow"] == lock["apache-airflow-core"] == AIRFLOW
    others = {name: version for name, version in lock.items() if constraints.get(name) != version}
    # The constraints do not name Airflow itself, nor a package that only Python 3.13 needs.
    assert set(others) == {"apache-airflow", "apache-airflow-core", "apache-airflow-task-sdk", "pyyaml-ft"}
    requirements = re.split(r"^(?=\w)", (ROOT / "requirements" / "airflow.txt").read_text(), flags=re.MULTILINE)[1:]
    assert [entry for entry in requirements if "--hash=sha256:" not in entry] == []


def pinned(name: str) -> dict[str, str]:
    """Return the versions in a file of requirements, by normalised name."""
    found = re.findall(r"^([\w.-]+)(?:\[.*\])?==([^ ;\\\n]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_the_dags_get_the_beginning_of_the_state_machines_arns(schedule: Assembly) -> None:
    options = schedule.one("AWS::MWAA::Environment", "Environment")["AirflowConfigurationOptions"]
    assert set(options) == {"slackwater.state_machine_prefix"}
    assert resource_name(options["slackwater.state_machine_prefix"]).endswith(":stateMachine:slackwater-")


def test_late_data_starts_dag_runs_in_the_environment(scheduled: Assembly, assembly: Assembly) -> None:
    variables = scheduled.one("AWS::Lambda::Function", "checkarrivals")["Environment"]["Variables"]
    assert variables["AIRFLOW_ENVIRONMENT"] == _STACK
    without = assembly.one("AWS::Lambda::Function", "checkarrivals")["Environment"]["Variables"]
    assert set(variables) - set(without) == {"AIRFLOW_ENVIRONMENT"}


def test_an_environment_that_exists_is_used_and_none_is_created(tmp_path: Path) -> None:
    settings = {"schedule": "airflow", "airflow_environment": "ours"}
    deployed = synthesised(tmp_path, **settings)
    assert _STACK not in deployed.templates
    variables = deployed.one("AWS::Lambda::Function", "checkarrivals")["Environment"]["Variables"]
    assert variables["AIRFLOW_ENVIRONMENT"] == "ours"
    assert ("airflow:InvokeRestApi", "role/ours/User") in granted(deployed)["checkarrivals"]


def test_the_queues_key_is_used_through_the_queue_only(schedule: Assembly) -> None:
    statements = schedule.one("AWS::IAM::Policy", "AirflowRole")["PolicyDocument"]["Statement"]
    [keys] = [statement for statement in statements if "kms:Decrypt" in statement["Action"]]
    assert resource_name(keys["NotResource"]) == "arn:AWS::Partition:kms:*:AWS::AccountId:key/*"
    [through] = keys["Condition"]["StringLike"]["kms:ViaService"]
    assert resource_name(through) == "sqs.AWS::Region.amazonaws.com"


def test_only_this_environment_may_assume_the_role(schedule: Assembly) -> None:
    [statement] = schedule.one("AWS::IAM::Role", "AirflowRole")["AssumeRolePolicyDocument"]["Statement"]
    source = short(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    assert statement["Principal"] == {"Service": ["airflow-env.amazonaws.com", "airflow.amazonaws.com"]}
    assert source == f"environment/{_STACK}"
    assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}


def test_the_bucket_gets_the_dag_file_and_the_projects_schedule_and_nothing_else(
    scheduled: Assembly, project: Project
) -> None:
    [folder] = {path.parent for path in scheduled.folder.glob("asset.*/schedule.py")}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "schedule.py",
        "slackwater_operators.py",
        "slackwater_stages.py",
        ".airflowignore",
        "schedule.json",
    }
    assert ProjectSchedule.model_validate_json((folder / "schedule.json").read_text()) == schedule_of(project)


def test_the_environment_is_created_after_its_files(schedule: Assembly) -> None:
    [files] = schedule.resources("Custom::CDKBucketDeployment")
    assert files in schedule.templates[_STACK]["Resources"]["Environment"]["DependsOn"]


def test_two_private_subnets_share_one_nat_gateway_and_accept_no_traffic(schedule: Assembly) -> None:
    network = schedule.one("AWS::MWAA::Environment", "Environment")["NetworkConfiguration"]
    assert ["Private" in subnet["Ref"] for subnet in network["SubnetIds"]] == [True, True]
    [gateway] = schedule.resources("AWS::EC2::NatGateway")
    tables = {
        link["SubnetId"]["Ref"]: link["RouteTableId"]["Ref"]
        for link in schedule.properties("AWS::EC2::SubnetRouteTableAssociation").values()
    }
    routes = {
        route["RouteTableId"]["Ref"]: route
        for route in schedule.properties("AWS::EC2::Route").values()
        if route["DestinationCidrBlock"] == "0.0.0.0/0"
    }
    for subnet in network["SubnetIds"]:
        assert routes[tables[subnet["Ref"]]]["NatGatewayId"] == {"Ref": gateway}
        assert schedule.properties("AWS::EC2::Subnet")[subnet["Ref"]]["MapPublicIpOnLaunch"] is False
    [[group, properties]] = schedule.properties("AWS::EC2::SecurityGroup").items()
    [rule] = schedule.properties("AWS::EC2::SecurityGroupIngress").values()
    assert rule["SourceSecurityGroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    assert "SecurityGroupIngress" not in properties


def test_every_log_group_has_a_retention_also_those_of_mwaa(schedule: Assembly) -> None:
    groups = schedule.properties("AWS::Logs::LogGroup", "LogGroupName")
    assert {group["RetentionInDays"] for group in groups.values()} == {30}
    own = {name for name in groups if name.startswith("airflow-")}
    assert own == {f"airflow-{_STACK}-{name}" for name in ("DAGProcessing", "Scheduler", "Task", "WebServer", "Worker")}
    logged = schedule.one("AWS::MWAA::Environment", "Environment")["LoggingConfiguration"]
    assert len(logged) == len(own)
    assert logged["TaskLogs"] == {"Enabled": True, "LogLevel": "INFO"}


def test_synthesis_reads_nothing_from_a_known_account(tmp_path: Path, project: Project) -> None:
    app = App(outdir=str(tmp_path))
    env = Environment(account="123456789012", region="eu-central-1")
    ScheduleStack(app, replace(parts_of(Settings(), project), env=env))
    app.synth()
    assert Assembly(tmp_path, {}).manifest()


def zones(settings: Settings, project: Project) -> list[Any]:
    """The availability zones of the subnets of the environment with these settings."""
    template = Template.from_stack(ScheduleStack(App(), parts_of(settings, project)))
    [environment] = template.find_resources("AWS::MWAA::Environment").values()
    used = [subnet["Ref"] for subnet in environment["Properties"]["NetworkConfiguration"]["SubnetIds"]]
    subnets = template.find_resources("AWS::EC2::Subnet")
    return [subnets[name]["Properties"]["AvailabilityZone"] for name in used]


def test_airflow_has_the_zones_of_the_setting_or_two_that_aws_chooses(project: Project) -> None:
    chosen = settings_of(airflow_zones="eu-west-1b, eu-west-1c")
    assert zones(chosen, project) == ["eu-west-1b", "eu-west-1c"]
    assert zones(Settings(), project) == [{"Fn::Select": [number, {"Fn::GetAZs": ""}]} for number in range(2)]
