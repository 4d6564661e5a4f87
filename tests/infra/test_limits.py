"""A project of 100 sources and 100 pipelines fits every documented limit of AWS that its templates can exceed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Stack

from infra.app import MOST_ALARMS, write_templates
from infra.constructs.alarms.alarm_rule import AlarmGroup
from infra.lint import nag_findings
from slackwater.errors import DefinitionError
from tests.infra.assembly import Assembly, synthesised
from tests.infra.large_project import COUNT, PIPELINE, write_project
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app of the large project, with Airflow."""
    folder = tmp_path_factory.mktemp("large")
    project = str(write_project(folder / "project"))
    return synthesised(folder, schedule="airflow", project=project, subject_dashboards=True)


def test_the_class_of_airflow_has_the_capacity_for_all_dags(large: Assembly) -> None:
    """300 DAGs: AWS documents 250 for `mw1.medium` and 1,000 for `mw1.large`."""
    assert large.one("AWS::MWAA::Environment", "Environment")["EnvironmentClass"] == "mw1.large"


def test_every_template_fits_cloudformation(large: Assembly) -> None:
    """The quotas of CloudFormation's user guide."""
    for name, template in large.templates.items():
        assert len(template["Resources"]) <= 500, name
        assert len(template.get("Outputs", {})) <= 200, name
        assert len(template.get("Parameters", {})) <= 200, name
        assert (large.folder / f"{name}.template.json").stat().st_size <= 1_000_000, name


def test_the_most_alarms_that_are_not_divided_fit_into_the_monitoring_stack(tmp_path: Path) -> None:
    """All names are as long as possible."""
    project = str(write_project(tmp_path / "project", count=24))
    deployed = synthesised(tmp_path, project=project, alarm_usd_per_day=1.0)
    alarms = [deployed.resources(f"AWS::CloudWatch::{kind}Alarm") for kind in ("", "Composite")]
    template = deployed.templates["slackwater-monitoring"]
    assert MOST_ALARMS - 10 < sum(map(len, alarms)) <= MOST_ALARMS
    assert {name for each in alarms for name in each} <= set(template["Resources"])
    assert len(template["Resources"]) <= MOST_ALARMS + 50  # up to 50 addresses of e-mails
    assert (deployed.folder / "slackwater-monitoring.template.json").stat().st_size <= 800_000


def test_the_alarms_of_the_large_project_are_divided_and_leave_the_monitoring_stack(large: Assembly) -> None:
    stacks = {f"slackwater-{name}" for name in ("composite-alarms", *AlarmGroup)}
    assert stacks <= set(large.templates)
    assert len(large.templates["slackwater-monitoring"]["Resources"]) < 30


def test_nothing_is_reported_about_the_large_project(large: Assembly) -> None:
    assert list(nag_findings(large.folder)) == []


def test_the_dashboard_fits_cloudwatch(large: Assembly) -> None:
    """The quotas of CloudWatch's user guide, and "Dashboard body structure and syntax" in its API reference."""
    body = json.loads(resource_name(large.one("AWS::CloudWatch::Dashboard", "Overview")["DashboardBody"]))
    metrics = [len(widget["properties"].get("metrics", ())) for widget in body["widgets"]]
    shown = [len(widget["properties"].get("alarms", ())) for widget in body["widgets"]]
    assert len(body["widgets"]) <= 500
    assert (max(metrics) <= 500, sum(metrics) <= 2500) == (True, True)
    assert max(shown) <= 100
    assert sum(shown) == len(large.resources("AWS::CloudWatch::Alarm")) == 14 * COUNT + 14


def test_every_alarm_fits_cloudwatch(large: Assembly) -> None:
    """`PutMetricAlarm` in CloudWatch's API reference."""
    for alarm in large.properties("AWS::CloudWatch::Alarm").values():
        assert len(alarm["AlarmName"]) <= 255
        assert len(alarm["AlarmDescription"]) <= 1024
        days = 7 if alarm["Period"] >= 3600 else 1
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= days * 86_400


def test_every_state_machine_fits_step_functions(large: Assembly) -> None:
    """`CreateStateMachine` in the API reference of Step Functions."""
    machines = large.machines()
    assert len(machines) == COUNT + 4
    for name, definition in machines.items():
        assert len(name) <= 80
        assert len(definition) <= 2**20


def test_the_environment_of_every_function_fits_lambda(large: Assembly) -> None:
    """The quotas of Lambda's developer guide: 4 KB in all variables of a function."""
    for function in large.properties("AWS::Lambda::Function").values():
        variables = function.get("Environment", {}).get("Variables", {})
        assert sum(len(name) + len(resource_name(value)) for name, value in variables.items()) <= 4096


def test_the_policies_of_every_role_fit_iam(large: Assembly) -> None:
    """ "IAM and AWS STS quotas" in IAM's user guide. White space does not count."""
    roles, attached = large.properties("AWS::IAM::Role"), Counter[str]()
    inline = Counter(
        {
            name: sum(_policy_size(policy["PolicyDocument"]) for policy in of.get("Policies", []))
            for name, of in roles.items()
        }
    )
    for policy in large.properties("AWS::IAM::Policy").values():
        for role in policy["Roles"]:
            inline[role["Ref"]] += _policy_size(policy["PolicyDocument"])
    for policy in large.properties("AWS::IAM::ManagedPolicy").values():
        assert _policy_size(policy["PolicyDocument"]) <= 6144
        attached.update(role["Ref"] for role in policy.get("Roles", []))
    for name, of in roles.items():
        attached[name] += len(of.get("ManagedPolicyArns", []))
        assert _policy_size(of["AssumeRolePolicyDocument"]) <= 2048
    assert max(inline.values()) <= 10_240
    assert max(attached.values()) <= 10


def _policy_size(document: Any) -> int:
    """The characters of a policy that IAM counts, with values of realistic lengths for what it refers to."""
    return len(re.sub(r"\s", "", json.dumps(_with_values(document))))


_PSEUDO_PARAMETERS = {"AWS::Region": "ap-southeast-3", "AWS::AccountId": "123456789012", "AWS::Partition": "aws"}


def _with_values(value: Any) -> Any:
    match value:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(_with_values(part) for part in parts)
        case dict() if any(key.startswith(("Fn::", "Ref")) for key in value):
            return _PSEUDO_PARAMETERS.get(value.get("Ref", ""), "x" * 100)
        case dict():
            return {key: _with_values(item) for key, item in value.items()}
        case list():
            return [_with_values(item) for item in value]
    return value


def test_a_project_that_is_too_large_for_a_stack_is_refused() -> None:
    app = App()
    stack = Stack(app, "slackwater-processing")
    for number in range(501):
        CfnResource(stack, f"Resource{number}", type="AWS::SNS::Topic")
    with pytest.raises(DefinitionError, match=r"slackwater-processing would have 501 resources, .* 500: divide the"):
        write_templates(app)


def test_a_name_that_is_too_long_for_a_state_machine_is_refused(tmp_path: Path) -> None:
    """The local cloud accepts it."""
    project = write_project(tmp_path / "project", pipeline=f"{PIPELINE}x", count=1)
    with pytest.raises(DefinitionError, match="have a name of 81 characters, and Step Functions allows 80: shorten"):
        synthesised(tmp_path, project=str(project))
