"""The dashboard: publications, late data, arrivals, and the health of functions, state machines and queues."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.cloudwatch_metrics import (
    QueueNames,
    ended_executions,
    function_errors,
    oldest_message_age,
    slackwater_metric,
    spark_jobs,
    waiting_messages,
)
from infra.settings import Settings
from slackwater.metrics import Metric, Subject
from slackwater.project import Project

_WIDTH = 24  # columns of CloudWatch's grid
_HOUR, _DAY = Duration.hours(1), Duration.days(1)
# CloudWatch allows no more alarms in a widget ("Dashboard body structure and syntax" in its API reference).
_MAX_ALARMS = 100
# Rows of graphs: title, metric, period. A graph has a line for each pipeline or source, or the total of all sources.
_ROWS = (
    (
        ("Runs published per day", Metric.RUNS_PUBLISHED, _DAY),
        ("Runs failed per day", Metric.RUNS_FAILED, _DAY),
        ("Days overdue", Metric.DAYS_OVERDUE, _DAY),
        ("Cost of runs per day, in USD", Metric.RUN_COST, _DAY),
    ),
    (
        ("Late bytes found per day", Metric.LATE_BYTES, _DAY),
        ("Late bytes unprocessed (days on hold or deferred)", Metric.LATE_BYTES_UNPROCESSED, _DAY),
        ("Late bytes ignored (below the thresholds)", Metric.LATE_BYTES_IGNORED, _DAY),
    ),
    (
        ("Days on hold", Metric.DAYS_ON_HOLD, _DAY),
        ("Late days run again, per day", Metric.DAYS_RERUN, _DAY),
        ("Days before the window with late data", Metric.LATE_DAYS_OLDER, _DAY),
        ("New objects of days before the window, per day", Metric.LATE_OBJECTS_OLDER, _DAY),
    ),
    (
        ("Notifications sent per day", Metric.NOTIFICATIONS_SENT, _DAY),
        ("Notifications with unknown outcome, per day", Metric.NOTIFICATION_OUTCOME_UNKNOWN, _DAY),
    ),
    (
        ("Events accepted per hour", Metric.EVENTS_ACCEPTED, _HOUR),
        ("Duplicate events per hour", Metric.EVENTS_DUPLICATE, _HOUR),
        ("Events rejected per hour", Metric.EVENTS_REJECTED, _HOUR),
    ),
    (
        ("Files stored per hour", Metric.FILES_STORED, _HOUR),
        ("Files left for the next pull", Metric.FILES_LEFT, _HOUR),
        ("Files whose removal is doubtful", Metric.FILES_DOUBTFUL, _HOUR),
        ("Hours since a file was not taken", Metric.HOURS_NOT_TAKEN, _HOUR),
        ("Hours since the newest arrival", Metric.HOURS_SINCE_ARRIVAL, _DAY),
    ),
)
_FAILURES = {
    "Executions failed per hour": "ExecutionsFailed",
    "Executions timed out per hour": "ExecutionsTimedOut",
    "Executions aborted per hour": "ExecutionsAborted",
}
_JOBS = ("SubmittedJobs", "PendingJobs", "RunningJobs", "SuccessJobs", "FailedJobs", "CancelledJobs")


class Dashboard(Construct):
    """A CloudWatch dashboard of alarm states, Slackwater's own metrics, and metrics of the AWS services."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        alarms: Sequence[str],
        functions: Sequence[str],
        machines: Sequence[str],
        application_id: str,
        queues: QueueNames,
    ) -> None:
        """Create the dashboard.

        Functions and machines are names without the deployment's prefix. Alarms are full names: they belong to other
        stacks, which need this stack's topic.
        """
        super().__init__(scope, id_)
        self.name = settings.prefix
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=self.name, default_interval=Duration.days(14)
        )
        add = self.dashboard.add_widgets
        known = Construct(self, "Alarms")
        shown = [cloudwatch.Alarm.from_alarm_name(known, name, name) for name in alarms]
        for first in range(0, len(shown), _MAX_ALARMS):
            widget_alarms = shown[first : first + _MAX_ALARMS]
            add(cloudwatch.AlarmStatusWidget(alarms=widget_alarms, title="Alarms", width=_WIDTH))
        for row in _ROWS:
            width = _WIDTH // len(row)
            add(*[_graph(title, _per_subject(project, metric, period), width=width) for title, metric, period in row])
        add(
            _graph("Events waiting to be stored", [waiting_messages(queues.events, period=_HOUR)]),
            _graph("Age of the oldest waiting event, in seconds", [oldest_message_age(queues.events, period=_HOUR)]),
            _graph("Events that could not be stored", [waiting_messages(queues.event_dead_letters, period=_HOUR)]),
        )
        add(
            _graph("Age of the oldest new object without a check", [oldest_message_age(queues.arrivals, period=_HOUR)]),
            _graph("New objects without a check", [waiting_messages(queues.arrival_dead_letters, period=_HOUR)]),
        )
        errors = [function_errors(settings.named(name), period=_HOUR).with_(label=name) for name in functions]
        # Only these metrics of Step Functions show a run that failed before it was recorded.
        failures = []
        for title, metric in _FAILURES.items():
            ended = [
                ended_executions(self, settings.named(name), metric=metric, period=_HOUR).with_(label=name)
                for name in machines
            ]
            failures.append(_graph(title, ended))
        add(*failures)
        jobs = [
            spark_jobs(application_id, settings.prefix, metric=name).with_(label=name.removesuffix("Jobs"))
            for name in _JOBS
        ]
        add(
            _graph("Undelivered notifications (dead letters)", [waiting_messages(queues.dead_letters, period=_HOUR)]),
            _graph("Lambda errors per hour", errors),
            _graph("Spark jobs", jobs),
        )


def _per_subject(project: Project, metric: Metric, period: Duration) -> list[cloudwatch.Metric]:
    """Return the metric of each pipeline or source, or its total: the sum of a counter, the maximum of a gauge."""
    statistic = cloudwatch.Stats.MAXIMUM if metric.gauge else cloudwatch.Stats.SUM
    names: list[str | None] = [None]
    if metric.has_dimension:
        names = [*sorted(project.pipelines if metric.subject is Subject.PIPELINE else project.sources)]
    # Without a label, CloudWatch shows by which dimension the lines of a graph differ.
    return [slackwater_metric(metric, name, statistic=statistic, period=period) for name in names]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int = _WIDTH // 3) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=width, height=6)
