"""Creates the composite alarms of `composite_rules`."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarms import alarm_names
from infra.constructs.alarms.composite_rules import composites
from infra.settings import Settings
from slackwater.project.project import Project

COMPOSITE_STACK = "composite-alarms"


def count_alarms(settings: Settings, project: Project) -> int:
    """Return how many alarms a deployment has, with composite alarms."""
    names = alarm_names(settings, project)
    return len(names) + sum(1 for _ in composites(settings, project, names))


def own_alarms(stack: Stack) -> dict[str, cloudwatch.CfnAlarm]:
    """Return the alarms of a stack that are no composite alarms, by full name."""
    found = [node for node in stack.node.find_all() if isinstance(node, cloudwatch.CfnAlarm)]
    return {alarm.alarm_name: alarm for alarm in found if alarm.alarm_name}


class CompositeAlarms(Construct):
    """The composite alarms of a deployment, which notify the topic of pages.

    CloudWatch creates no composite alarm before the alarms in its rule, and deletes no alarm before it. So add them
    after the alarms of the same stack, and deploy their stack after all others that have alarms.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        own = own_alarms(Stack.of(self))
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
            alarm.node.add_dependency(*[own[child] for child in composite.children if child in own])
