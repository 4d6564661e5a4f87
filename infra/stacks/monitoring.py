"""Monitoring: the dashboard, alarms, the topics of all alarms, and the queue of undelivered notifications.

`infra.app` adds the alarms of pipelines and sources, and the composite alarms, unless there are too many for a stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Environment, Stack
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarm_rules import Severity
from infra.constructs.alarms.alarm_topics import AlarmTopic
from infra.constructs.alarms.alarms import DeploymentAlarms, Topics, alarm_names
from infra.constructs.alarms.cloudwatch_metrics import QueueNames
from infra.constructs.arrivals import dead_arrivals
from infra.constructs.common import outputs
from infra.constructs.dead_letters import DeadLetters
from infra.constructs.event_buffer import EventBuffer
from infra.constructs.operators import Dashboard
from infra.settings import Settings
from slackwater.project.project import Project


class MonitoringStack(Stack):
    """The dashboard, the topics of all alarms, and the alarms of the monitor and of the queues."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        functions: Sequence[str],
        machines: Sequence[str],
        monitor: str,
        application_id: str,
        buffer: EventBuffer,
        changes: sns.ITopic,
        arrivals: str,
        env: Environment | None = None,
    ) -> None:
        """Monitor these functions and state machines; `monitor` is the state machine that checks days.

        They are names without the deployment's prefix, not constructs, so that their stacks can change independently.
        """
        super().__init__(scope, id_, env=env, description="Slackwater: dashboard, alarms and dead letters")
        pages = AlarmTopic(self, "Alarming", settings=settings, project=project, severity=Severity.PAGE).topic
        warnings = AlarmTopic(self, "Warning", settings=settings, project=project, severity=Severity.WARNING).topic
        self.topics: Topics = {Severity.PAGE: pages, Severity.WARNING: warnings}
        self.dead_letters = DeadLetters(self, "DeadLetters", settings=settings, topics=[pages, warnings, changes])
        self.dead_letters.subscribe("Alarms", pages, settings.alarm_emails)
        self.dead_letters.subscribe("Warnings", warnings, settings.warning_emails)
        self.dead_letters.subscribe("Changes", changes, settings.change_emails)
        queues = QueueNames(
            dead_letters=self.dead_letters.name,
            events=buffer.queue.queue_name,
            event_dead_letters=buffer.dead_letters.queue_name,
            arrivals=arrivals,
            arrival_dead_letters=dead_arrivals(arrivals),
        )
        DeploymentAlarms(self, "Alarms", settings=settings, topics=self.topics, monitor=monitor, queues=queues)
        self.dashboard = Dashboard(
            self,
            "Overview",
            settings=settings,
            project=project,
            alarms=alarm_names(settings, project),
            functions=functions,
            machines=machines,
            application_id=application_id,
            queues=queues,
        )
        outputs(
            self,
            {
                "AlarmTopicArn": pages.topic_arn,
                "WarningTopicArn": warnings.topic_arn,
                "DashboardName": self.dashboard.name,
                "DeadLetterQueueUrl": self.dead_letters.queue.queue_url,
            },
        )
