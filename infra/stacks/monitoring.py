"""Monitoring: the dashboard, the alarms with their topic, and the queue of undelivered notifications."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Environment, Stack
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms import Alarms, AlarmTopic
from infra.constructs.cloudwatch_metrics import QueueNames
from infra.constructs.common import outputs
from infra.constructs.dashboard import Dashboard
from infra.constructs.dead_letters import DeadLetters
from infra.constructs.event_buffer import EVENT_DEAD_LETTERS, EVENTS
from infra.settings import Settings
from slackwater.project import Project


class MonitoringStack(Stack):
    """The dashboard, and an alarm for every condition that needs a person."""

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
        changes: sns.ITopic,
        env: Environment | None = None,
    ) -> None:
        """Monitor these functions and state machines; `monitor` is the state machine that checks days.

        They are names without the deployment's prefix, not constructs, so that this stack depends on no other one's
        resources and the other stacks can change independently.
        """
        super().__init__(scope, id_, env=env, description="Slackwater: dashboard, alarms and dead letters")
        topic = AlarmTopic(self, "Alarming", settings=settings).topic
        self.dead_letters = DeadLetters(self, "DeadLetters", settings=settings, topics=[topic, changes])
        self.dead_letters.subscribe("Alarms", topic, settings.alarm_emails)
        self.dead_letters.subscribe("Changes", changes, settings.change_emails)
        queues = QueueNames(
            dead_letters=self.dead_letters.name,
            events=settings.named(EVENTS),
            event_dead_letters=settings.named(EVENT_DEAD_LETTERS),
        )
        self.alarms = Alarms(
            self,
            "Alarms",
            settings=settings,
            project=project,
            topic=topic,
            monitor=monitor,
            queues=queues,
        )
        self.dashboard = Dashboard(
            self,
            "Overview",
            settings=settings,
            project=project,
            alarms=self.alarms.all,
            functions=functions,
            machines=machines,
            application_id=application_id,
            queues=queues,
        )
        outputs(
            self,
            {
                "AlarmTopicArn": topic.topic_arn,
                "DashboardName": self.dashboard.name,
                "DeadLetterQueueUrl": self.dead_letters.queue.queue_url,
            },
        )
