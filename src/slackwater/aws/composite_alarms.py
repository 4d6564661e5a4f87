"""Composite alarms that a deployment keeps from deleting other alarms."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from slackwater.aws.failures import translated, unless_refused

_TYPE = "AWS::CloudWatch::CompositeAlarm"
_CONDITION = re.compile(r'ALARM\("([^"]+)"\)')
_KEPT = ("AlarmDescription", "ActionsEnabled", "AlarmActions", "OKActions", "InsufficientDataActions")


def release_alarms(cloudformation: Any, cloudwatch: Any, *, stack: str, alarms: Collection[str]) -> list[str]:
    """Take the alarms that a deployment deletes out of the deployed rules of a stack; return their names.

    CloudWatch deletes no alarm that a rule names, and CloudFormation changes the rules after it has deleted the alarms,
    because a rule cannot name an alarm before it exists. CloudFormation would not fail, but leave the alarm behind, and
    could not create it again later. An alarm that is about to be deleted counts as not in ALARM.

    `alarms` are the full names of the alarms of the new templates. Raises `SlackwaterError`.
    """
    with translated(f"read the template of stack {stack}"):
        # CloudFormation's answer for a stack that does not exist
        template = unless_refused("ValidationError", lambda: cloudformation.get_template(StackName=stack))
    resources = template["TemplateBody"].get("Resources", {}).values() if template else ()
    deployed = [resource["Properties"] for resource in resources if resource["Type"] == _TYPE]
    named = {alarm["AlarmName"]: set(_CONDITION.findall(alarm["AlarmRule"])) for alarm in deployed}
    released: set[str] = set()
    for composite, children in named.items():
        if removed := children - set(alarms):
            _release(cloudwatch, composite, removed)
            released |= removed
    return sorted(released)


def _release(cloudwatch: Any, composite: str, removed: Collection[str]) -> None:
    with translated(f"change the rule of the composite alarm {composite}"):
        described = cloudwatch.describe_alarms(AlarmNames=[composite], AlarmTypes=["CompositeAlarm"])
        # None if somebody has deleted it.
        for alarm in described["CompositeAlarms"]:
            rule = _CONDITION.sub(lambda match: "FALSE" if match[1] in removed else match[0], alarm["AlarmRule"])
            kept = {key: alarm[key] for key in _KEPT if key in alarm}
            cloudwatch.put_composite_alarm(AlarmName=composite, AlarmRule=rule, **kept)
