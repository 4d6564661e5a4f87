"""Alarms that a deployment deletes are taken out of the deployed rules first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.composite_alarms import release_alarms
from slackwater.deploy import deploy as deployment
from slackwater.errors import AccessDenied

pytestmark = pytest.mark.unit

STACK = "slackwater-composite-alarms"
KEPT = {"ActionsEnabled": True, "AlarmDescription": "what to do", "AlarmActions": ["arn:topic"], "OKActions": []}


class Account:
    """CloudFormation and CloudWatch, with the composite alarms of one stack."""

    def __init__(self, rules: dict[str, str], *, code: str = "") -> None:
        self.rules, self.code, self.put = dict(rules), code, {}

    def get_template(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        if self.code:
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, "GetTemplate")
        assert StackName == STACK
        alarms = {
            f"Id{number}": {
                "Type": "AWS::CloudWatch::CompositeAlarm",
                "Properties": {"AlarmName": name, "AlarmRule": rule},
            }
            for number, (name, rule) in enumerate(self.rules.items())
        }
        # The CDK adds it, unless its version reporting is off.
        return {"TemplateBody": {"Resources": {**alarms, "CDKMetadata": {"Type": "AWS::CDK::Metadata"}}}}

    def describe_alarms(self, *, AlarmNames: list[str], AlarmTypes: list[str]) -> dict[str, Any]:  # noqa: N803
        assert AlarmTypes == ["CompositeAlarm"]
        alarms = [{"AlarmName": name, "AlarmRule": self.rules[name], "StateValue": "OK", **KEPT} for name in AlarmNames]
        return {"CompositeAlarms": [alarm for alarm in alarms if alarm["AlarmName"] != "deleted"], "MetricAlarms": []}

    def put_composite_alarm(self, *, AlarmName: str, AlarmRule: str, **kept: Any) -> None:  # noqa: N803
        assert kept == KEPT
        self.put[AlarmName] = AlarmRule


def release(rules: dict[str, str], alarms: set[str]) -> tuple[list[str], dict[str, str]]:
    account = Account(rules)
    return release_alarms(account, account, stack=STACK, alarms=alarms), account.put


_BOTH = 'ALARM("a") OR ALARM("b")'


@pytest.mark.parametrize(
    ("rules", "alarms", "released", "changed"),
    [
        ({"c": _BOTH}, {"a", "b", "new"}, [], {}),
        # A removed alarm counts as not in ALARM.
        (
            {"c": 'ALARM("a") OR ALARM("a-2") OR ALARM("b")', "d": 'ALARM("b")'},
            {"a-2", "b"},
            ["a"],
            {"c": 'FALSE OR ALARM("a-2") OR ALARM("b")'},
        ),
        # The removed alarm of a source keeps no other alarm from paging.
        (
            {"c": '(ALARM("overdue") AND NOT (ALARM("gone") OR ALARM("silent")))'},
            {"overdue", "silent"},
            ["gone"],
            {"c": '(ALARM("overdue") AND NOT (FALSE OR ALARM("silent")))'},
        ),
        # The composite alarm of a removed pipeline has a rule without alarms until it is deleted.
        ({"c": _BOTH}, set(), ["a", "b"], {"c": "FALSE OR FALSE"}),
        # Somebody has deleted the composite alarm.
        ({"deleted": 'ALARM("a")'}, set(), ["a"], {}),
    ],
)
def test_alarms_that_a_deployment_removes_are_taken_out_of_the_rules(
    rules: dict[str, str], alarms: set[str], released: list[str], changed: dict[str, str]
) -> None:
    assert release(rules, alarms) == (released, changed)


def test_the_first_deployment_has_nothing_to_change():
    account = Account({}, code="ValidationError")
    assert release_alarms(account, account, stack=STACK, alarms=set()) == []


def test_a_refusal_names_the_stack():
    account = Account({}, code="AccessDenied")
    with pytest.raises(AccessDenied, match=STACK):
        release_alarms(account, account, stack=STACK, alarms=set())


def test_a_deployment_reads_the_names_of_its_alarms_from_all_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in (1, 2):
        resources = {
            "A": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"AlarmName": f"a{number}"}},
            "T": {"Type": "AWS::SNS::Topic"},
        }
        (tmp_path / f"s{number}.template.json").write_text(json.dumps({"Resources": resources}))
    account = Account({"c": 'ALARM("a1") OR ALARM("a2") OR ALARM("a3")'})
    monkeypatch.setattr(deployment, "client", lambda _service: account)
    deployment.release_removed_alarms(tmp_path, stack=STACK)
    assert account.put == {"c": 'ALARM("a1") OR ALARM("a2") OR FALSE'}
