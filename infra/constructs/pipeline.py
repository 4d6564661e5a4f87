"""The dashboard of one pipeline: its days, late data, cost and executions."""

from __future__ import annotations

from collections.abc import Sequence

from constructs import Construct

from infra.constructs.alarms.cloudwatch_metrics import ended_executions
from infra.constructs.graphs import (
    DAY,
    GraphRow,
    alarm_widgets,
    create_dashboard,
    dashboard_name,
    graph,
    metric_of,
    row_of,
)
from infra.settings import Settings
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


class PipelineDashboard(Construct):
    """The dashboard `PREFIX_pipeline-NAME`."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, pipeline: str, alarms: Sequence[str]) -> None:
        """Create the dashboard. `alarms` are the full names of the pipeline's alarms."""
        super().__init__(scope, id_)
        machine = settings.named(f"{PIPELINE_MACHINE_PREFIX}{pipeline}")
        dashboard = create_dashboard(self, dashboard_name(settings, f"pipeline-{pipeline}"))
        dashboard.add_widgets(*alarm_widgets(self, alarms))
        failed = ended_executions(self, machine, metric="ExecutionsFailed", period=DAY)
        lines = [[metric_of(settings, metric, pipeline, DAY) for metric in metrics] for metrics in _TOGETHER.values()]
        lines[0].append(failed)
        dashboard.add_widgets(*map(graph, _TOGETHER, lines))
        dashboard.add_widgets(*row_of(settings, _SPENDING, [pipeline]))
