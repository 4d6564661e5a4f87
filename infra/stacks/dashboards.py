"""A dashboard for each pipeline and each source, with the setting `subject_dashboards`.

Two stacks, without indentation, because CloudFormation allows 1 MB in a template.
"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.alarms.alarm_rules import alarm_names
from infra.constructs.alarms.cloudwatch_metrics import FAILED
from infra.constructs.common import states_arn
from infra.constructs.graphs import (
    DAY,
    HOUR,
    WIDTH,
    GraphRow,
    alarm_widgets,
    create_dashboard,
    dashboard_name,
    graph,
    metric_of,
    row_of,
)
from infra.stacks.base import DeploymentStack, Parts
from slackwater.metrics import Metric
from slackwater.project.schedule import PIPELINE_MACHINE_PREFIX

_SPENDING: GraphRow = (
    ("Cost per day, in USD", Metric.RUN_COST, DAY),
    ("Re-runs of today, % of the budget", Metric.BUDGET_PERCENT, DAY),
    ("Minutes in the queue", Metric.JOB_QUEUE_MINUTES, DAY),
)
# A graph has several metrics, because the dashboards of 150 pipelines have to fit into a template of 1 MB.
_TOGETHER = {
    "Runs, notifications, failed executions per day": (
        Metric.RUNS_PUBLISHED,
        Metric.RUNS_FAILED,
        Metric.DAYS_RERUN,
        Metric.NOTIFICATIONS_SENT,
        Metric.NOTIFICATION_OUTCOME_UNKNOWN,
    ),
    "Days missing, on hold, late before the window": (
        Metric.DAYS_OVERDUE,
        Metric.DAYS_ON_HOLD,
        Metric.LATE_DAYS_OLDER,
        Metric.LATE_OBJECTS_OLDER,
    ),
    "Late bytes per day": (Metric.LATE_BYTES, Metric.LATE_BYTES_UNPROCESSED, Metric.LATE_BYTES_IGNORED),
}
_ARRIVALS: GraphRow = (
    ("Hours since the newest arrival", Metric.HOURS_SINCE_ARRIVAL, DAY),
    ("Silence in percent of the usual one", Metric.SILENCE_PERCENT, DAY),
    ("Reject rate above normal, in percentage points", Metric.REJECTED_PERCENT_ABOVE_NORMAL, DAY),
    ("Reported events that are missing", Metric.EVENTS_MISSING, DAY),
)
_FILES: GraphRow = (
    ("Files left for the next pull", Metric.FILES_LEFT, HOUR),
    ("Files whose removal is doubtful", Metric.FILES_DOUBTFUL, HOUR),
    ("Hours since a file was not taken", Metric.HOURS_NOT_TAKEN, HOUR),
)
# These metrics have no dimension, which would cost 0.30 USD a month for each source. Their log lines name the source.
_COUNTED = (Metric.EVENTS_ACCEPTED, Metric.EVENTS_DUPLICATE, Metric.EVENTS_REJECTED, Metric.FILES_STORED)
_FUNCTIONS = ("receive-events", "fetch-file")


class SubjectDashboardsStack(DeploymentStack):
    """The dashboards `PREFIX_KIND-NAME` of all pipelines, or of all sources, each with its alarms."""

    def __init__(self, scope: Construct, kind: str, parts: Parts) -> None:
        """Create the dashboards of this kind: `pipeline` or `source`."""
        description = f"dashboards of {kind}s"
        super().__init__(scope, f"{kind}-dashboards", parts, description, suppress_template_indentation=True)
        alarms = alarm_names(parts.settings, parts.project)
        for name in sorted(parts.project.pipelines if kind == "pipeline" else parts.project.sources):
            within = Construct(self, name)
            dashboard = create_dashboard(within, dashboard_name(parts.settings, f"{kind}-{name}"))
            # Names of pipelines and sources have no hyphen.
            dashboard.add_widgets(*alarm_widgets(within, [alarm for alarm in alarms if alarm.endswith(f"-{name}")]))
            for row in self._pipeline(name) if kind == "pipeline" else self._source(name):
                dashboard.add_widgets(*row)

    def _pipeline(self, name: str) -> list[list[cloudwatch.IWidget]]:
        """Return the rows of a pipeline: its days, late data and executions, and its cost."""
        arn = states_arn(self, "stateMachine", self.settings.named(f"{PIPELINE_MACHINE_PREFIX}{name}"))
        lines = [[metric_of(self.settings, metric, name, DAY) for metric in row] for row in _TOGETHER.values()]
        lines[0].append(FAILED.of(arn, period=DAY))
        return [list(map(graph, _TOGETHER, lines)), row_of(self.settings, _SPENDING, [name])]

    def _source(self, name: str) -> list[list[cloudwatch.IWidget]]:
        """Return the rows of a source: its arrivals, events and files."""
        counted = cloudwatch.LogQueryWidget(
            title="Events and files per hour, from the logs",
            log_group_names=[f"/aws/lambda/{self.settings.named(function)}" for function in _FUNCTIONS],
            view=cloudwatch.LogQueryVisualizationType.LINE,
            query_lines=[
                f"filter source = '{name}'",
                f"stats {', '.join(f'sum({metric.value})' for metric in _COUNTED)} by bin(1h)",
            ],
            width=WIDTH,
        )
        rows: list[list[cloudwatch.IWidget]] = [row_of(self.settings, _ARRIVALS, [name]), [counted]]
        if self.parts.project.source(name).pull:
            rows.append(row_of(self.settings, _FILES, [name]))
        return rows
