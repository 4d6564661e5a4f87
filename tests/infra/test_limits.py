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
from infra.constructs.alarms.alarm_rules import AlarmGroup
from infra.lint import context, nag_findings, placeholder_artefacts, synthesise
from infra.settings import load_settings
from slackwater.errors import DefinitionError
from tests.infra.assembly import Assembly
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

_COUNT = 100
# The longest names that are accepted: 63 characters, and for a pipeline 80 with the name of its state machine.
_SOURCE, _PIPELINE = "source_{:03}_" + "x" * 52, "pipeline_{:03}_" + "x" * 47
_SOURCE_FILE = """
source: {source}
timestamp: {{field: at}}
fields: {{at: timestamp, key: string, value: double}}
pull: {{url: "s3://the-bucket-of-partner-{number:03}/exports", files: "{{date}}.csv"}}
"""
_PIPELINE_FILE = """
pipeline: {pipeline}
sources: [{source}]
steps:
  totals:
    step: sql
    depends_on: [{source}]
    with: {{query: "SELECT key, sum(value) AS value FROM {source} GROUP BY key"}}
    exchange: true
  largest:
    step: sql
    depends_on: [totals]
    with: {{query: "SELECT key, max(value) AS value FROM totals GROUP BY key"}}
publish: {{step: largest, key: [date, key]}}
"""


def write_project(folder: Path, *, pipeline: str = _PIPELINE, count: int = _COUNT) -> Path:
    """Write a project whose every source is pulled from a bucket of its own and read by a pipeline of its own."""
    for name in ("sources", "pipelines"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        names = {"source": _SOURCE.format(number), "pipeline": pipeline.format(number), "number": number}
        (folder / "sources" / f"{names['source']}.yaml").write_text(_SOURCE_FILE.format(**names))
        (folder / "pipelines" / f"{names['pipeline']}.yaml").write_text(_PIPELINE_FILE.format(**names))
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app of the large project, with Airflow."""
    folder = tmp_path_factory.mktemp("large")
    project = write_project(folder / "project")
    more = {"schedule": "airflow", "project": str(project), "subject_dashboards": True}
    settings = load_settings({**context(), **{f"slackwater:{name}": value for name, value in more.items()}})
    out = folder / "cdk.out"
    return Assembly(out, synthesise(out, settings=settings, artefacts=placeholder_artefacts(folder)))


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
    more = {"project": str(write_project(tmp_path / "project", count=24)), "alarm_usd_per_day": 1.0}
    settings = load_settings({**context(), **{f"slackwater:{name}": value for name, value in more.items()}})
    folder = tmp_path / "cdk.out"
    synthesised = Assembly(folder, synthesise(folder, settings=settings, artefacts=placeholder_artefacts(tmp_path)))
    alarms = [synthesised.resources(f"AWS::CloudWatch::{kind}Alarm") for kind in ("", "Composite")]
    template = synthesised.templates[settings.named("monitoring")]
    assert MOST_ALARMS - 10 < sum(map(len, alarms)) <= MOST_ALARMS
    assert {name for each in alarms for name in each} <= set(template["Resources"])
    assert len(template["Resources"]) <= MOST_ALARMS + 50  # up to 50 addresses of e-mails
    assert (folder / f"{settings.named('monitoring')}.template.json").stat().st_size <= 800_000


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
    assert sum(shown) == len(large.resources("AWS::CloudWatch::Alarm")) == 14 * _COUNT + 10


def test_every_alarm_fits_cloudwatch(large: Assembly) -> None:
    """`PutMetricAlarm` in CloudWatch's API reference."""
    for alarm in (resource["Properties"] for resource in large.resources("AWS::CloudWatch::Alarm").values()):
        assert len(alarm["AlarmName"]) <= 255
        assert len(alarm["AlarmDescription"]) <= 1024
        days = 7 if alarm["Period"] >= 3600 else 1
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= days * 86_400


def test_every_state_machine_fits_step_functions(large: Assembly) -> None:
    """`CreateStateMachine` in the API reference of Step Functions."""
    machines = large.machines()
    assert len(machines) == _COUNT + 4
    for name, definition in machines.items():
        assert len(name) <= 80
        assert len(definition) <= 2**20


def test_the_environment_of_every_function_fits_lambda(large: Assembly) -> None:
    """The quotas of Lambda's developer guide: 4 KB in all variables of a function."""
    for function in large.resources("AWS::Lambda::Function").values():
        variables = function["Properties"].get("Environment", {}).get("Variables", {})
        assert sum(len(name) + len(resource_name(value)) for name, value in variables.items()) <= 4096


def test_the_policies_of_every_role_fit_iam(large: Assembly) -> None:
    """ "IAM and AWS STS quotas" in IAM's user guide. White space does not count."""
    inline = Counter(
        {
            name: sum(_policy_size(policy["PolicyDocument"]) for policy in role["Properties"].get("Policies", []))
            for name, role in large.resources("AWS::IAM::Role").items()
        }
    )
    attached: Counter[str] = Counter()
    for policy in large.resources("AWS::IAM::Policy").values():
        for role in policy["Properties"]["Roles"]:
            inline[role["Ref"]] += _policy_size(policy["Properties"]["PolicyDocument"])
    for policy in large.resources("AWS::IAM::ManagedPolicy").values():
        assert _policy_size(policy["Properties"]["PolicyDocument"]) <= 6144
        for role in policy["Properties"].get("Roles", []):
            attached[role["Ref"]] += 1
    for name, role in large.resources("AWS::IAM::Role").items():
        attached[name] += len(role["Properties"].get("ManagedPolicyArns", []))
    assert max(inline.values()) <= 10_240
    assert max(attached.values()) <= 10
    for role in large.resources("AWS::IAM::Role").values():
        assert _policy_size(role["Properties"]["AssumeRolePolicyDocument"]) <= 2048


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
    project = write_project(tmp_path / "project", pipeline=_PIPELINE + "x", count=1)
    settings = load_settings({**context(), "slackwater:project": str(project)})
    with pytest.raises(DefinitionError, match="have a name of 81 characters, and Step Functions allows 80: shorten"):
        synthesise(tmp_path / "cdk.out", settings=settings, artefacts=placeholder_artefacts(tmp_path))
