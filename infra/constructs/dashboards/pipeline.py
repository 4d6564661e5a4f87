"""The dashboard of one pipeline: its days, late data, cost and executions."""

from __future__ import annotations

from collections.abc import Sequence

from constructs import Construct

from infra.constructs.cloudwatch_metrics import ended_executions
from infra.constructs.dashboards.graphs import (
    DAY,
    HOUR,
    GraphRow,
    alarm_widgets,
    create_dashboard,
    graph,
    metric_of,
    row_of,
)
from infra.settings import Settings
from slackwater.metrics import Metric
from slackwater.schedule import PIPELINE_MACHINE_PREFIX

_ROWS: tuple[GraphRow, ...] = (
    (
        ("Runs published per day", Metric.RUNS_PUBLISHED, DAY),
        ("Runs failed per day", Metric.RUNS_FAILED, DAY),
        ("Days missing (past their deadline)", Metric.DAYS_OVERDUE, DAY),
        ("Days on hold", Metric.DAYS_ON_HOLD, DAY),
    ),
    (
        ("Late days run again, per day", Metric.DAYS_RERUN, DAY),
        ("Days before the window with late data", Metric.LATE_DAYS_OLDER, DAY),
        ("New objects of days before the window, per day", Metric.LATE_OBJECTS_OLDER, DAY),
    ),
    (
        ("Cost of runs per day, in USD", Metric.RUN_COST, DAY),
        ("Re-runs of today, in percent of the budget", Metric.BUDGET_PERCENT, DAY),
        ("Minutes in the queue of Spark jobs", Metric.JOB_QUEUE_MINUTES, DAY),
    ),
)
# One graph has several metrics, because the dashboards of 100 pipelines have to fit into a template of 1 MB.
_TOGETHER = {
    "Late bytes per day": (Metric.LATE_BYTES, Metric.LATE_BYTES_UNPROCESSED, Metric.LATE_BYTES_IGNORED),
    "Notifications per day": (Metric.NOTIFICATIONS_SENT, Metric.NOTIFICATION_OUTCOME_UNKNOWN),
}


class PipelineDashboard(Construct):
    """The dashboard `PREFIX-pipeline-NAME`."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, pipeline: str, alarms: Sequence[str]) -> None:
        """Create the dashboard. `alarms` are the full names of the pipeline's alarms."""
        super().__init__(scope, id_)
        machine = settings.named(f"{PIPELINE_MACHINE_PREFIX}{pipeline}")
        dashboard = create_dashboard(self, settings.named(f"pipeline-{pipeline}"))
        dashboard.add_widgets(*alarm_widgets(self, alarms))
        for row in _ROWS:
            dashboard.add_widgets(*row_of(row, [pipeline]))
        failed = ended_executions(self, machine, metric="ExecutionsFailed", period=HOUR)
        dashboard.add_widgets(
            *[
                graph(title, [metric_of(metric, pipeline, DAY) for metric in metrics])
                for title, metrics in _TOGETHER.items()
            ],
            graph("Executions failed per hour", [failed]),
        )
