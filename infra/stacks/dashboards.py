"""A dashboard for each pipeline and each source, with the setting `subject_dashboards`.

Two stacks, without indentation, because CloudFormation allows 1 MB in a template.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Environment, Stack
from constructs import Construct

from infra.constructs.alarms.alarms import alarm_names
from infra.constructs.pipeline import PipelineDashboard
from infra.constructs.source import SourceDashboard
from infra.settings import Settings
from slackwater.project.project import Project


class PipelineDashboardsStack(Stack):
    """The dashboards of pipelines, each with its alarms."""

    def __init__(
        self, scope: Construct, id_: str, *, settings: Settings, project: Project, env: Environment | None = None
    ) -> None:
        description = "Slackwater: dashboards of pipelines"
        super().__init__(scope, id_, env=env, description=description, suppress_template_indentation=True)
        alarms = alarm_names(settings, project)
        for name in sorted(project.pipelines):
            PipelineDashboard(self, name, settings=settings, pipeline=name, alarms=_alarms_of(name, alarms))


class SourceDashboardsStack(Stack):
    """The dashboards of sources, each with its alarms."""

    def __init__(
        self, scope: Construct, id_: str, *, settings: Settings, project: Project, env: Environment | None = None
    ) -> None:
        description = "Slackwater: dashboards of sources"
        super().__init__(scope, id_, env=env, description=description, suppress_template_indentation=True)
        alarms = alarm_names(settings, project)
        for name, source in sorted(project.sources.items()):
            SourceDashboard(self, name, settings=settings, source=source, alarms=_alarms_of(name, alarms))


def _alarms_of(subject: str, alarms: Sequence[str]) -> list[str]:
    """Return the alarms of a pipeline or a source. Names of both have no hyphen."""
    return [alarm for alarm in alarms if alarm.endswith(f"-{subject}")]
