"""Monitoring: the dashboard, alarms, the topics of all alarms, and the queue of undelivered notifications.

`infra.app` adds the alarms of pipelines and sources, and the composite alarms, unless there are too many for a stack.
"""

from __future__ import annotations

from constructs import Construct

from infra.constructs.alarms.alarm_rule import Severity
from infra.constructs.alarms.alarm_rules import alarm_names
from infra.constructs.alarms.alarms import Alarms, AlarmTopic, Topics
from infra.constructs.common import outputs
from infra.constructs.operators import Dashboard
from infra.constructs.queues import DeadLetters
from infra.settings import Scheduler
from infra.stacks.base import SEND_LINEAGE, DeploymentStack, Parts
from infra.stacks.eventbridge_schedule import START_FUNCTION
from infra.stacks.late import LateStack
from infra.stacks.processing import ProcessingStack
from infra.stacks.storage import StorageStack
from slackwater.project.schedule import (
    BACKFILL_MACHINE,
    COMPARE_MACHINE,
    MONITOR_MACHINE,
    PIPELINE_MACHINE_PREFIX,
    PULL_MACHINE,
)


class MonitoringStack(DeploymentStack):
    """The dashboard, the topics of all alarms, and the alarms of the monitor and of the queues."""

    def __init__(
        self, scope: Construct, parts: Parts, storage: StorageStack, processing: ProcessingStack, late: LateStack
    ) -> None:
        super().__init__(scope, "monitoring", parts, "dashboard, alarms and dead letters")
        settings, project, changes = parts.settings, parts.project, late.changes
        pages = AlarmTopic(self, "Alarming", settings=settings, project=project, severity=Severity.PAGE).topic
        warnings = AlarmTopic(self, "Warning", settings=settings, project=project, severity=Severity.WARNING).topic
        self.topics: Topics = {Severity.PAGE: pages, Severity.WARNING: warnings}
        self.dead_letters = DeadLetters(self, "DeadLetters", settings=settings, topics=[pages, warnings, changes])
        self.dead_letters.subscribe("Alarms", pages, settings.alarm_emails)
        self.dead_letters.subscribe("Warnings", warnings, settings.warning_emails)
        self.dead_letters.subscribe("Changes", changes, settings.change_emails)
        self.dead_letters.subscribe_teams(changes, settings.teams)
        queues = {
            "dead-letters": self.dead_letters.name,
            "events": storage.buffer.queue.queue_name,
            "event-dead-letters": storage.buffer.dead_letters.queue_name,
            "arrivals": late.arrivals.name,
            "arrival-dead-letters": late.arrivals.dead_letter_name,
            "states": late.states.name,
            "state-dead-letters": late.states.dead_letter_name,
        }
        Alarms(self, "Alarms", settings=settings, project=project, topics=self.topics, queues=queues)
        self.dashboard = Dashboard(
            self,
            "Overview",
            settings=settings,
            project=project,
            alarms=alarm_names(settings, project),
            # Each module of lambdas/ is one function. By name, so that the stacks can change independently.
            functions=sorted(
                path.stem.replace("_", "-")
                for path in (parts.root / "lambdas").glob("*.py")
                if (path.stem != START_FUNCTION or settings.schedule is Scheduler.EVENTBRIDGE)
                and (path.stem != SEND_LINEAGE or settings.openlineage)
            ),
            machines=[
                PULL_MACHINE,
                *(f"{PIPELINE_MACHINE_PREFIX}{name}" for name in sorted(project.pipelines)),
                *(COMPARE_MACHINE, MONITOR_MACHINE, BACKFILL_MACHINE),
            ],
            application_id=processing.spark.id,
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
