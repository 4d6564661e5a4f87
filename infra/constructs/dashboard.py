"""One dashboard: what was published, what is late, what came in, and how the machinery does."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.measures import Queues, executions, messages_in, oldest_in, put_by
from infra.settings import Settings
from slackwater.metrics import Dimension, Metric
from slackwater.project import Project

_WIDTH = 24
_HOUR, _DAY = Duration.hours(1), Duration.days(1)
_ROWS = (
    (
        ("Runs published, a day", Metric.RUNS_PUBLISHED, _DAY),
        ("Runs failed, a day", Metric.RUNS_FAILED, _DAY),
        ("Days overdue", Metric.DAYS_OVERDUE, _DAY),
    ),
    (
        ("Late bytes found, a day", Metric.LATE_BYTES, _DAY),
        ("Late bytes unprocessed: days on hold", Metric.LATE_BYTES_UNPROCESSED, _DAY),
        ("Late bytes ignored: below the thresholds", Metric.LATE_BYTES_IGNORED, _DAY),
    ),
    (
        ("Days on hold", Metric.DAYS_ON_HOLD, _DAY),
        ("Late days run again, a day", Metric.DAYS_RERUN, _DAY),
        ("Changes told, a day", Metric.CHANGES_TOLD, _DAY),
        ("Tellings unsure, a day", Metric.TELLINGS_UNSURE, _DAY),
    ),
    (
        ("Events accepted, an hour", Metric.EVENTS_ACCEPTED, _HOUR),
        ("Events duplicate, an hour", Metric.EVENTS_DUPLICATE, _HOUR),
        ("Events rejected, an hour", Metric.EVENTS_REJECTED, _HOUR),
    ),
    (
        ("Files taken, an hour", Metric.FILES_TAKEN, _HOUR),
        ("Hours since the newest arrival", Metric.HOURS_SINCE_ARRIVAL, _DAY),
    ),
)
"""Slackwater's own metrics: a row for each question, a line for each pipeline or source."""
_FAILURES = ("ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted")
_JOBS = ("SubmittedJobs", "PendingJobs", "RunningJobs", "SuccessJobs", "FailedJobs", "CancelledJobs")


class Dashboard(Construct):
    """The alarms' states, Slackwater's own metrics, and those of the services below."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        alarms: Sequence[cloudwatch.IAlarm],
        functions: Sequence[str],
        machines: Sequence[str],
        application_id: str,
        queues: Queues,
    ) -> None:
        """Make it of these alarms, and of functions, state machines, application and queues by their names."""
        super().__init__(scope, id_)
        self._settings, self._project = settings, project
        self.name = settings.prefix
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=self.name, default_interval=Duration.days(14)
        )
        add = self.dashboard.add_widgets
        add(cloudwatch.AlarmStatusWidget(alarms=list(alarms), title="Alarms", width=_WIDTH))
        for row in _ROWS:
            width = _WIDTH // len(row)
            add(*[_graph(title, self._of_each(metric, period), width=width) for title, metric, period in row])
        add(
            _graph("Events waiting to be stored", [messages_in(queues.events, period=_HOUR)]),
            _graph("Seconds that the oldest event has waited", [oldest_in(queues.events, period=_HOUR)]),
            _graph("Events that could not be stored", [messages_in(queues.event_dead_letters, period=_HOUR)]),
        )
        add(
            _graph("Dead letters of topics", [messages_in(queues.dead_letters, period=_HOUR)]),
            _graph("Functions' errors, an hour", self._errors(functions)),
            _graph("State machines' failures, an hour", self._failures(machines)),
        )
        add(_graph("Spark jobs", self._jobs(application_id)))

    def _of_each(self, metric: Metric, period: Duration) -> list[cloudwatch.Metric]:
        """Counted over the period; the highest level of a gauge."""
        statistic = cloudwatch.Stats.MAXIMUM if metric.gauge else cloudwatch.Stats.SUM
        pipelines = metric.dimension is Dimension.PIPELINE
        names = self._project.pipelines if pipelines else self._project.sources
        return [put_by(metric, name, statistic=statistic, period=period).with_(label=name) for name in sorted(names)]

    def _errors(self, functions: Sequence[str]) -> list[cloudwatch.Metric]:
        return [
            cloudwatch.Metric(
                namespace="AWS/Lambda",
                metric_name="Errors",
                dimensions_map={"FunctionName": self._settings.named(function)},
                statistic=cloudwatch.Stats.SUM,
                period=_HOUR,
                label=function,
            )
            for function in functions
        ]

    def _failures(self, machines: Sequence[str]) -> list[cloudwatch.Metric]:
        """What Step Functions counts: a run that could not even begin is seen here, and nowhere else."""
        return [
            executions(self, self._settings.named(machine), ended=failure, period=_HOUR).with_(
                label=f"{machine}: {failure.removeprefix('Executions')}"
            )
            for machine in machines
            for failure in _FAILURES
        ]

    def _jobs(self, application_id: str) -> list[cloudwatch.Metric]:
        return [
            cloudwatch.Metric(
                namespace="AWS/EMRServerless",
                metric_name=name,
                dimensions_map={"ApplicationId": application_id, "ApplicationName": self._settings.prefix},
                statistic=cloudwatch.Stats.MAXIMUM,
                period=Duration.minutes(1),
                label=name.removesuffix("Jobs"),
            )
            for name in _JOBS
        ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int = _WIDTH // 3) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=width, height=6)
