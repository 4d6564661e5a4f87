"""Alarms that a deployment deletes are taken out of the deployed rules first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.composite_alarms import CompositeAlarmRules
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
    released = CompositeAlarmRules(cloudformation=account, cloudwatch=account).release(STACK, alarms=alarms)
    return released, account.put


def test_alarms_that_stay_change_no_rule():
    assert release({"c": 'ALARM("a") OR ALARM("b")'}, {"a", "b", "new"}) == ([], {})


def test_a_removed_alarm_counts_as_not_in_alarm():
    rules = {"c": 'ALARM("a") OR ALARM("a-2") OR ALARM("b")', "d": 'ALARM("b")'}
    assert release(rules, {"a-2", "b"}) == (["a"], {"c": 'FALSE OR ALARM("a-2") OR ALARM("b")'})


def test_the_removed_alarm_of_a_source_keeps_no_other_alarm_from_paging():
    rule = '(ALARM("overdue") AND NOT (ALARM("gone") OR ALARM("silent")))'
    expected = '(ALARM("overdue") AND NOT (FALSE OR ALARM("silent")))'
    assert release({"c": rule}, {"overdue", "silent"}) == (["gone"], {"c": expected})


def test_a_composite_alarm_of_a_removed_pipeline_has_a_rule_without_alarms_until_it_is_deleted():
    assert release({"c": 'ALARM("a") OR ALARM("b")'}, set()) == (["a", "b"], {"c": "FALSE OR FALSE"})


def test_a_composite_alarm_that_somebody_has_deleted_needs_no_change():
    assert release({"deleted": 'ALARM("a")'}, set()) == (["a"], {})


def test_the_first_deployment_has_nothing_to_change():
    account = Account({}, code="ValidationError")
    assert CompositeAlarmRules(cloudformation=account, cloudwatch=account).release(STACK, alarms=set()) == []


def test_a_refusal_names_the_stack():
    account = Account({}, code="AccessDenied")
    with pytest.raises(AccessDenied, match=STACK):
        CompositeAlarmRules(cloudformation=account, cloudwatch=account).release(STACK, alarms=set())


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
