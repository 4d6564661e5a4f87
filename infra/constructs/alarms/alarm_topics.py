"""The topics of the alarms, one for each severity."""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarm_rules import Severity
from infra.constructs.alarms.alarms import alarm_names
from infra.constructs.alarms.composite_rules import composites
from infra.settings import Settings
from slackwater.project.project import Project

# Pages kept the name of the only topic that there was before.
_NAMES = {Severity.PAGE: "alarms", Severity.WARNING: "warnings"}


class AlarmTopic(Construct):
    """The SNS topic of the alarms of a severity. Only CloudWatch alarms of this account and deployment may publish."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, severity: Severity) -> None:
        super().__init__(scope, id_)
        stack, name = Stack.of(self), _NAMES[severity]
        self.topic = sns.Topic(
            self, "Topic", topic_name=settings.named(name), display_name=f"Slackwater: {name}", enforce_ssl=True
        )
        alarms = [
            stack.format_arn(
                service="cloudwatch", resource="alarm", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
            )
            for name in alarm_patterns(settings, project)
        ]
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": alarms},
                },
            )
        )


def alarm_patterns(settings: Settings, project: Project) -> list[str]:
    """Return patterns of the names of all alarms: one for the alarms of all pipelines or all sources.

    `slackwater-*` would be shorter, and would match the alarms of the deployment `slackwater-dev`. The names of all
    alarms do not fit into the policy of a topic.
    """
    names = alarm_names(settings, project)
    patterns = set()
    for name in (*names, *(composite.name for composite in composites(settings, project, names))):
        subjects = [item for item in (*project.pipelines, *project.sources) if name.endswith(f"-{item}")]
        begin = name.removesuffix(max(subjects, key=len, default=""))
        patterns.add(name if begin in {name, settings.named("")} else f"{begin}*")
    return sorted(patterns)
