"""The dashboard of one source: its arrivals, events and files."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.graphs import (
    DAY,
    HOUR,
    WIDTH,
    GraphRow,
    alarm_widgets,
    create_dashboard,
    dashboard_name,
    row_of,
)
from infra.settings import Settings
from slackwater.metrics import Metric
from slackwater.sources.definition import Source

_ARRIVALS: GraphRow = (
    ("Hours since the newest arrival", Metric.HOURS_SINCE_ARRIVAL, DAY),
    ("Silence in percent of the usual one", Metric.SILENCE_PERCENT, DAY),
    ("Reject rate above normal, in percentage points", Metric.REJECTED_PERCENT_ABOVE_NORMAL, DAY),
)
_FILES: GraphRow = (
    ("Files left for the next pull", Metric.FILES_LEFT, HOUR),
    ("Files whose removal is doubtful", Metric.FILES_DOUBTFUL, HOUR),
    ("Hours since a file was not taken", Metric.HOURS_NOT_TAKEN, HOUR),
)
# These metrics have no dimension, which would cost 0.30 USD a month for each source. Their log lines name the source.
_COUNTED = (Metric.EVENTS_ACCEPTED, Metric.EVENTS_DUPLICATE, Metric.EVENTS_REJECTED, Metric.FILES_STORED)
_FUNCTIONS = ("receive-events", "fetch-file")


class SourceDashboard(Construct):
    """The dashboard `PREFIX_source-NAME`."""

    def __init__(
        self, scope: Construct, id_: str, *, settings: Settings, source: Source, alarms: Sequence[str]
    ) -> None:
        """Create the dashboard. `alarms` are the full names of the source's alarms."""
        super().__init__(scope, id_)
        dashboard = create_dashboard(self, dashboard_name(settings, f"source-{source.source}"))
        if alarms:
            dashboard.add_widgets(*alarm_widgets(self, alarms))
        dashboard.add_widgets(*row_of(settings, _ARRIVALS, [source.source]))
        dashboard.add_widgets(
            cloudwatch.LogQueryWidget(
                title="Events and files per hour, from the logs",
                log_group_names=[f"/aws/lambda/{settings.named(name)}" for name in _FUNCTIONS],
                view=cloudwatch.LogQueryVisualizationType.LINE,
                query_lines=[
                    f"filter source = '{source.source}'",
                    f"stats {', '.join(f'sum({metric.value})' for metric in _COUNTED)} by bin(1h)",
                ],
                width=WIDTH,
            )
        )
        if source.pull:
            dashboard.add_widgets(*row_of(settings, _FILES, [source.source]))
