"""Graphs that several dashboards have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.alarms.cloudwatch_metrics import slackwater_metric
from infra.settings import Settings
from slackwater.metrics import Metric

WIDTH = 24  # columns of CloudWatch's grid
HOUR, DAY = Duration.hours(1), Duration.days(1)
# CloudWatch allows no more alarms in a widget ("Dashboard body structure and syntax" in its API reference).
_MAX_ALARMS = 100

GraphRow = tuple[tuple[str, Metric, Duration], ...]
"""Graphs that stand side by side: title, metric and period of each."""


def dashboard_name(settings: Settings, name: str) -> str:
    """Return the full name of a dashboard besides the operators' one, whose full name is the prefix."""
    # No prefix has an underscore: PREFIX-NAME could be the operators' dashboard of another deployment.
    return f"{settings.prefix}_{name}"


def create_dashboard(scope: Construct, name: str) -> cloudwatch.Dashboard:
    """Create an empty dashboard that shows two weeks. `name` is its full name."""
    return cloudwatch.Dashboard(scope, "Dashboard", dashboard_name=name, default_interval=Duration.days(14))


def metric_of(settings: Settings, metric: Metric, subject: str | None, period: Duration) -> cloudwatch.Metric:
    """Return the metric of a pipeline or source, or its total: the sum of a counter, the maximum of a gauge."""
    statistic = cloudwatch.Stats.MAXIMUM if metric.gauge else cloudwatch.Stats.SUM
    # Without a label, CloudWatch shows by which dimension the lines of a graph differ.
    return slackwater_metric(settings, metric, subject, statistic=statistic, period=period)


def graph(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int = WIDTH // 3) -> cloudwatch.GraphWidget:
    """Return a graph with one line for each metric."""
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=width, height=6)


def row_of(settings: Settings, graphs: GraphRow, subjects: Sequence[str]) -> list[cloudwatch.IWidget]:
    """Return a row of graphs, with a line for each of these pipelines or sources, or the total of all sources."""
    row: list[cloudwatch.IWidget] = []
    for title, metric, period in graphs:
        lines = [metric_of(settings, metric, name, period) for name in (subjects if metric.has_dimension else [None])]
        row.append(graph(title, lines, width=WIDTH // len(graphs)))
    return row


def alarm_widgets(scope: Construct, alarms: Sequence[str]) -> Iterator[cloudwatch.IWidget]:
    """Return widgets with the states of alarms, given by their full names: they belong to other stacks."""
    known = Construct(scope, "Alarms")
    shown = [cloudwatch.Alarm.from_alarm_name(known, name, name) for name in alarms]
    for first in range(0, len(shown), _MAX_ALARMS):
        yield cloudwatch.AlarmStatusWidget(alarms=shown[first : first + _MAX_ALARMS], title="Alarms", width=WIDTH)
