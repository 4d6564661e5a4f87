"""A dashboard for each pipeline and each source, with the setting `subject_dashboards`.

Two stacks, without indentation, because CloudFormation allows 1 MB in a template.
"""

from __future__ import annotations

from constructs import Construct

from infra.constructs.alarms.alarms import alarm_names
from infra.constructs.pipeline import PipelineDashboard
from infra.constructs.source import SourceDashboard
from infra.stacks.base import DeploymentStack, Parts


class SubjectDashboardsStack(DeploymentStack):
    """The dashboards of all pipelines, or of all sources, each with its alarms."""

    def __init__(self, scope: Construct, kind: str, parts: Parts) -> None:
        """Create the dashboards of this kind: `pipeline` or `source`."""
        description = f"dashboards of {kind}s"
        super().__init__(scope, f"{kind}-dashboards", parts, description, suppress_template_indentation=True)
        settings, project = parts.settings, parts.project
        alarms = alarm_names(settings, project)
        for name in sorted(project.pipelines if kind == "pipeline" else project.sources):
            # Names of pipelines and sources have no hyphen.
            own = [alarm for alarm in alarms if alarm.endswith(f"-{name}")]
            if kind == "pipeline":
                PipelineDashboard(self, name, settings=settings, pipeline=name, alarms=own)
            else:
                SourceDashboard(self, name, settings=settings, source=project.source(name), alarms=own)
