"""The stack of Airflow: what the setting `schedule=airflow` deploys, and what Airflow may do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template
from ministack.core import iam_evaluator

from infra.app import ROOT, add_stacks
from infra.lint import context, nag_findings, placeholder_artefacts, template_findings
from infra.settings import Scheduler, Settings, load_settings
from infra.stacks.schedule import AIRFLOW, ScheduleStack
from slackwater.errors import DefinitionError
from slackwater.project.project import load_project
from slackwater.project.schedule import ProjectSchedule, schedule_of
from tests.infra.assembly import Assembly, parts_of

pytestmark = pytest.mark.infra

_STACK = "slackwater-schedule"


@pytest.fixture(scope="module")
def schedule(scheduled: Assembly) -> Assembly:
    """The stack of the schedule."""
    return Assembly(scheduled.folder, {_STACK: scheduled.templates[_STACK]})


def resource_name(resource: Any) -> str:
    """Return a resource without partition, region and account; a reference as the name of its resource."""
    match resource:
        case {"Fn::Join": [_, parts]}:
            return "".join(resource_name(part) for part in parts)
        case {"Fn::GetAtt": [name, _]}:
            return str(name)[:-8]
        case {"Ref": name}:
            return str(name).removeprefix("AWS::")
        case {"Fn::Sub": _}:
            return "assets"
        case _:
            return str(resource)


def granted(assembly: Assembly, role: str) -> dict[str, set[str]]:
    """Return the resources that a role's policy allows, by action."""
    permissions: dict[str, set[str]] = {}
    for statement in assembly.one("AWS::IAM::Policy", role)["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement.get("Resource", {"not": statement.get("NotResource")})
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                permissions.setdefault(action, set()).add(resource_name(resource))
    return permissions


def test_by_default_there_is_no_airflow(assembly: Assembly) -> None:
    assert not assembly.resources("AWS::MWAA::Environment")


def test_the_setting_changes_the_stack_of_the_schedule_and_what_monitors_it(
    assembly: Assembly, scheduled: Assembly
) -> None:
    changed = {name for name, template in scheduled.templates.items() if template != assembly.templates.get(name)}
    # Alarms name the scheduler, and the dashboard shows its function. The others differ by other settings:
    # `intermediate_days`, `spark_jars`, `subject_dashboards` and `alarm_usd_per_day`.
    assert changed == {_STACK, "slackwater-monitoring"} | {
        "slackwater-storage",
        "slackwater-processing",
        "slackwater-late",
        "slackwater-source-dashboards",
        "slackwater-pipeline-dashboards",
    }
    before, after = (set(app.resources("AWS::CloudWatch::Alarm")) for app in (assembly, scheduled))
    assert {name for name in before ^ after if "costperday" not in name} == set()


@pytest.mark.parametrize("scheduler", ["assembly", "scheduled"])
def test_what_a_scheduler_starts_is_deployed_before_it(scheduler: str, request: pytest.FixtureRequest) -> None:
    synthesised: Assembly = request.getfixturevalue(scheduler)
    artifacts = json.loads((synthesised.folder / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    started = {
        stack
        for stack, template in synthesised.templates.items()
        if any(item["Type"] == "AWS::StepFunctions::StateMachine" for item in template["Resources"].values())
    }
    assert started == {"slackwater-processing", "slackwater-late"}
    assert started <= set(artifacts["slackwater-schedule"]["dependencies"])


def test_cdk_nag_and_cfn_lint_report_nothing(scheduled: Assembly) -> None:
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
    assert (
        resource_name(options["slackwater.state_machine_prefix"])
        == "arn:Partition:states:Region:AccountId:stateMachine:slackwater-"
    )


def test_airflow_runs_exactly_the_machines_that_the_dags_start(schedule: Assembly) -> None:
    permissions = granted(schedule, "AirflowRole")
    machines = {"pull-source", "pipeline-daily_delays", "pipeline-weekly_delays", "monitor-days"}
    prefix = "arn:Partition:states:Region:AccountId:"
    assert permissions["states:StartExecution"] == {f"{prefix}stateMachine:slackwater-{name}" for name in machines}
    assert permissions["states:DescribeExecution"] == {f"{prefix}execution:slackwater-{name}:*" for name in machines}
    assert {action for action in permissions if action.startswith("states:")} == {
        "states:StartExecution",
        "states:DescribeExecution",
        "states:GetExecutionHistory",
    }
    assert permissions["states:GetExecutionHistory"] == {f"{prefix}execution:slackwater-monitor-days:*"}


def test_airflow_has_no_other_permissions_than_mwaa_needs(schedule: Assembly) -> None:
    permissions = granted(schedule, "AirflowRole")
    services = {action.partition(":")[0] for action in permissions} - {"states"}
    assert services == {"airflow", "s3", "logs", "cloudwatch", "sqs", "kms"}
    assert {action: resources for action, resources in permissions.items() if action.startswith("s3:")} == {
        **{f"s3:{verb}": {"Dags", "Dags/*"} for verb in ("GetObject*", "GetBucket*", "List*")},
        "s3:GetAccountPublicAccessBlock": {"*"},
    }
    assert {action for action, resources in permissions.items() if "*" in resources} == {
        "s3:GetAccountPublicAccessBlock",
        "logs:DescribeLogGroups",
        "cloudwatch:PutMetricData",
    }
    assert permissions["logs:PutLogEvents"] == {f"arn:Partition:logs:Region:AccountId:log-group:airflow-{_STACK}-*"}
    assert permissions["sqs:SendMessage"] == {"arn:Partition:sqs:Region:*:airflow-celery-*"}


def test_the_queues_key_is_used_through_the_queue_only(schedule: Assembly) -> None:
    statements = schedule.one("AWS::IAM::Policy", "AirflowRole")["PolicyDocument"]["Statement"]
    [keys] = [statement for statement in statements if "kms:Decrypt" in statement["Action"]]
    assert resource_name(keys["NotResource"]) == "arn:Partition:kms:*:AccountId:key/*"
    [through] = keys["Condition"]["StringLike"]["kms:ViaService"]
    assert resource_name(through) == "sqs.Region.amazonaws.com"


def test_only_this_environment_may_assume_the_role(schedule: Assembly) -> None:
    [statement] = schedule.one("AWS::IAM::Role", "AirflowRole")["AssumeRolePolicyDocument"]["Statement"]
    source = resource_name(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    assert statement["Principal"] == {"Service": ["airflow-env.amazonaws.com", "airflow.amazonaws.com"]}
    assert source == f"arn:Partition:airflow:Region:AccountId:environment/{_STACK}"
    assert resource_name(statement["Condition"]["StringEquals"]["aws:SourceAccount"]) == "AccountId"


_ARN = "arn:Partition:{}:Region:AccountId:{}".format
_FORBIDDEN = [
    ("states:StartExecution", _ARN("states", "stateMachine:slackwater-compare-day")),
    ("states:StopExecution", _ARN("states", "execution:slackwater-monitor-days:e")),
    ("states:DescribeExecution", _ARN("states", "execution:slackwater-compare-day:e")),
    ("s3:GetObject", "Raw/raw/a"),
    ("s3:PutBucketPolicy", "Dags"),
    ("dynamodb:GetItem", _ARN("dynamodb", "table/tokens")),
    ("secretsmanager:GetSecretValue", _ARN("secretsmanager", "secret:partners/ship-AbCdEf")),
    ("lambda:InvokeFunction", _ARN("lambda", "function:slackwater-check-days")),
    ("emr-serverless:StartJobRun", _ARN("emr-serverless", "/applications/one")),
    ("sqs:ReceiveMessage", _ARN("sqs", "slackwater-events")),
    ("sns:Publish", _ARN("sns", "slackwater-changes")),
    ("kms:Decrypt", _ARN("kms", "key/one")),
    ("iam:PassRole", "arn:Partition:iam::AccountId:role/slackwater"),
    ("sts:AssumeRole", "arn:Partition:iam::AccountId:role/slackwater"),
    ("logs:GetLogEvents", _ARN("logs", "log-group:/aws/lambda/slackwater-check-days:log-stream:s")),
]


@pytest.mark.parametrize(
    ("role", "allowed", "forbidden"),
    [
        (
            "AirflowRole",
            [
                ("states:StartExecution", _ARN("states", "stateMachine:slackwater-monitor-days")),
                ("states:DescribeExecution", _ARN("states", "execution:slackwater-monitor-days:e")),
                ("s3:GetObject", "Dags/dags/schedule.py"),
            ],
            [*_FORBIDDEN, ("s3:PutObject", "Dags/dags/schedule.py")],
        ),
        (
            "FilesRole",
            [("s3:PutObject", "Dags/dags/schedule.py")],
            [
                *_FORBIDDEN,
                ("s3:PutObject", "Dags/elsewhere"),
                ("states:StartExecution", _ARN("states", "stateMachine:slackwater-monitor-days")),
            ],
        ),
    ],
)
def test_calls_are_allowed_and_denied_by_iams_rules(
    schedule: Assembly, role: str, allowed: list[tuple[str, str]], forbidden: list[tuple[str, str]]
) -> None:
    """The local cloud cannot run MWAA. Its evaluator of policies answers instead of a call."""
    document = schedule.one("AWS::IAM::Policy", role)["PolicyDocument"]
    statements = []
    for statement in document["Statement"]:
        names = {key: statement[key] for key in ("Resource", "NotResource") if key in statement}
        for key, value in names.items():
            names[key] = [resource_name(item) for item in (value if isinstance(value, list) else [value])]
        statements.append({**statement, **names})
    policy = iam_evaluator.parse_policy_document({"Statement": statements})

    def may(action: str, resource: str) -> bool:
        request = iam_evaluator.EvalContext("role", "AssumedRole", "AccountId", action, resource, "Region")
        return bool(iam_evaluator.evaluate(request, [policy]).decision == "Allow")

    assert [call for call in allowed if not may(*call)] == []
    assert [call for call in forbidden if may(*call)] == []


def test_the_bucket_gets_the_dag_file_and_the_projects_schedule_and_nothing_else(scheduled: Assembly) -> None:
    [folder] = {path.parent for path in scheduled.folder.glob("asset.*/schedule.py")}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "schedule.py",
        "slackwater_operators.py",
        ".airflowignore",
        "schedule.json",
    }
    schedule = ProjectSchedule.model_validate_json((folder / "schedule.json").read_text())
    assert schedule == schedule_of(load_project(ROOT / "examples" / "nyc_flights"))


def test_the_files_are_written_below_the_dags_only(schedule: Assembly) -> None:
    permissions = {
        action: names for action, names in granted(schedule, "FilesRole").items() if action.startswith("s3:")
    }
    [asset] = permissions.pop("s3:GetObject")
    assert asset.endswith(".zip")
    assert permissions == {
        "s3:ListBucket": {"Dags"},
        "s3:PutObject": {"Dags/dags/*"},
        "s3:DeleteObject": {"Dags/dags/*"},
    }
    [files] = schedule.resources("Custom::CDKBucketDeployment")
    assert files in schedule.templates[_STACK]["Resources"]["Environment"]["DependsOn"]


def test_two_private_subnets_share_one_nat_gateway_and_accept_no_traffic(schedule: Assembly) -> None:
    network = schedule.one("AWS::MWAA::Environment", "Environment")["NetworkConfiguration"]
    assert ["Private" in subnet["Ref"] for subnet in network["SubnetIds"]] == [True, True]
    [gateway] = schedule.resources("AWS::EC2::NatGateway")
    tables = {
        link["Properties"]["SubnetId"]["Ref"]: link["Properties"]["RouteTableId"]["Ref"]
        for link in schedule.resources("AWS::EC2::SubnetRouteTableAssociation").values()
    }
    routes = {
        route["Properties"]["RouteTableId"]["Ref"]: route["Properties"]
        for route in schedule.resources("AWS::EC2::Route").values()
        if route["Properties"]["DestinationCidrBlock"] == "0.0.0.0/0"
    }
    for subnet in network["SubnetIds"]:
        assert routes[tables[subnet["Ref"]]]["NatGatewayId"] == {"Ref": gateway}
        properties = schedule.resources("AWS::EC2::Subnet")[subnet["Ref"]]["Properties"]
        assert properties["MapPublicIpOnLaunch"] is False
    [group] = schedule.resources("AWS::EC2::SecurityGroup")
    [rule] = schedule.resources("AWS::EC2::SecurityGroupIngress").values()
    assert rule["Properties"]["SourceSecurityGroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    assert "SecurityGroupIngress" not in schedule.resources("AWS::EC2::SecurityGroup")[group]["Properties"]


def test_every_log_group_has_a_retention_also_those_of_mwaa(schedule: Assembly) -> None:
    groups = [group["Properties"] for group in schedule.resources("AWS::Logs::LogGroup").values()]
    assert {group["RetentionInDays"] for group in groups} == {30}
    own = {group["LogGroupName"] for group in groups if group["LogGroupName"].startswith("airflow-")}
    assert own == {f"airflow-{_STACK}-{name}" for name in ("DAGProcessing", "Scheduler", "Task", "WebServer", "Worker")}
    logged = schedule.one("AWS::MWAA::Environment", "Environment")["LoggingConfiguration"]
    assert len(logged) == len(own)
    assert logged["TaskLogs"] == {"Enabled": True, "LogLevel": "INFO"}


def test_findings_are_accepted_one_by_one_with_reasons(scheduled: Assembly) -> None:
    accepted = json.loads((scheduled.folder / f"{_STACK}.metadata.json").read_text())
    for path, entries in accepted.items():
        for entry in entries:
            if entry["type"] == "aws:cdk:acknowledged-rules":
                for rule, reason in entry["data"].items():
                    assert path.count("/") > 1
                    assert len(reason.split()) >= 5
                    assert rule.removeprefix("Annotation::") not in {"AwsSolutions-IAM4", "AwsSolutions-IAM5"}


def test_synthesis_reads_nothing_from_a_known_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "123456789012")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-central-1")
    app = App(context=context(), outdir=str(tmp_path / "cdk.out"))
    add_stacks(app, settings=Settings(schedule=Scheduler.AIRFLOW), artefacts=placeholder_artefacts(tmp_path))
    app.synth()
    assert "missing" not in json.loads((tmp_path / "cdk.out" / "manifest.json").read_text())


def zones(settings: Settings) -> list[Any]:
    """The availability zones of the subnets of the environment with these settings."""
    project = load_project(ROOT / "examples" / "nyc_flights")
    template = Template.from_stack(ScheduleStack(App(), parts_of(settings, project)))
    [environment] = template.find_resources("AWS::MWAA::Environment").values()
    used = [subnet["Ref"] for subnet in environment["Properties"]["NetworkConfiguration"]["SubnetIds"]]
    subnets = template.find_resources("AWS::EC2::Subnet")
    return [subnets[name]["Properties"]["AvailabilityZone"] for name in used]


def test_airflow_has_the_zones_of_the_setting_or_two_that_aws_chooses() -> None:
    chosen = load_settings({"slackwater:airflow_zones": "eu-west-1b, eu-west-1c"})
    assert zones(chosen) == ["eu-west-1b", "eu-west-1c"]
    assert zones(Settings()) == [{"Fn::Select": [number, {"Fn::GetAZs": ""}]} for number in range(2)]


@pytest.mark.parametrize("value", ["eu-west-1a", "eu-west-1a,eu-west-1a", "eu-west-1a,eu-west-1b,eu-west-1c"])
def test_mwaa_requires_two_different_zones(value: str) -> None:
    with pytest.raises(DefinitionError, match="airflow_zones: name two different zones"):
        load_settings({"slackwater:airflow_zones": value})


def test_a_zone_has_the_name_of_its_region_and_a_letter() -> None:
    with pytest.raises(DefinitionError, match=r"airflow_zones\.1"):
        load_settings({"slackwater:airflow_zones": "eu-west-1a,eu-west-1"})
