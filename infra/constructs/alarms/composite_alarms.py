"""Creates the composite alarms of `composite_rules`."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarms import alarm_names
from infra.constructs.alarms.composite_rules import composites
from infra.settings import Settings
from slackwater.project import Project

COMPOSITE_STACK = "composite-alarms"


class CompositeAlarms(Construct):
    """The composite alarms of a deployment, which notify the topic of pages.

    They belong into a stack that is deployed after those of all other alarms: CloudWatch creates no composite alarm
    whose rule names an alarm that does not exist.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        for composite in composites(settings, project, alarm_names(settings, project)):
            alarm = cloudwatch.CompositeAlarm(
                self,
                composite.name.removeprefix(f"{settings.prefix}-"),
                composite_alarm_name=composite.name,
                alarm_description=composite.description,
                # By name: a reference would be an export of each alarm's stack.
                alarm_rule=cloudwatch.AlarmRule.from_string(composite.alarm_rule),
            )
            alarm.add_alarm_action(actions.SnsAction(topic))
