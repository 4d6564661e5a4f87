"""The dashboard for operators: the days of all pipelines, lateness, throughput, cost, and the health of services.

With many pipelines, lateness and cost have a dashboard of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.alarms.cloudwatch_metrics import ABORTED, ERRORS, FAILED, OLDEST_SECONDS, WAITING
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
    row_of,
)
from infra.settings import Settings
from slackwater.errors import DefinitionError
from slackwater.metrics import Metric, Subject
from slackwater.project.project import Project

_DAYS: tuple[GraphRow, ...] = (
    (
        ("Days published: runs per day", Metric.RUNS_PUBLISHED, DAY),
        ("Days missing (past their deadline)", Metric.DAYS_OVERDUE, DAY),
        ("Days on hold", Metric.DAYS_ON_HOLD, DAY),
        ("Late days run again, per day", Metric.DAYS_RERUN, DAY),
    ),
    (
        ("Runs failed per day", Metric.RUNS_FAILED, DAY),
        ("Notifications sent per day", Metric.NOTIFICATIONS_SENT, DAY),
        ("Notifications with unknown outcome, per day", Metric.NOTIFICATION_OUTCOME_UNKNOWN, DAY),
        ("Parts of checks failed per day", Metric.CHECK_PARTS_FAILED, DAY),
    ),
)
_LATENESS: tuple[GraphRow, ...] = (
    (
        ("Late bytes found per day", Metric.LATE_BYTES, DAY),
        ("Late bytes unprocessed (days on hold or deferred)", Metric.LATE_BYTES_UNPROCESSED, DAY),
        ("Late bytes ignored (below the thresholds)", Metric.LATE_BYTES_IGNORED, DAY),
    ),
    (
        ("Days before the window with late data", Metric.LATE_DAYS_OLDER, DAY),
        ("New objects of days before the window, per day", Metric.LATE_OBJECTS_OLDER, DAY),
    ),
    (("Reported events that are missing", Metric.EVENTS_MISSING, DAY),),
)
_SPENDING: GraphRow = (
    ("Cost of runs per day, in USD", Metric.RUN_COST, DAY),
    ("Re-runs of today, in percent of the budget", Metric.BUDGET_PERCENT, DAY),
    ("Minutes in the queue of Spark jobs", Metric.JOB_QUEUE_MINUTES, DAY),
)
_ARRIVALS: tuple[GraphRow, ...] = (
    (
        ("Events accepted per hour", Metric.EVENTS_ACCEPTED, HOUR),
        ("Duplicate events per hour", Metric.EVENTS_DUPLICATE, HOUR),
        ("Events rejected per hour", Metric.EVENTS_REJECTED, HOUR),
        ("Files stored per hour", Metric.FILES_STORED, HOUR),
    ),
    (
        ("Hours since the newest arrival", Metric.HOURS_SINCE_ARRIVAL, DAY),
        ("Silence in percent of the usual one", Metric.SILENCE_PERCENT, DAY),
        ("Reject rate above normal, in percentage points", Metric.REJECTED_PERCENT_ABOVE_NORMAL, DAY),
        ("Files left for the next pull", Metric.FILES_LEFT, HOUR),
    ),
    (
        ("Files whose removal is doubtful", Metric.FILES_DOUBTFUL, HOUR),
        ("Hours since a file was not taken", Metric.HOURS_NOT_TAKEN, HOUR),
    ),
)
_QUEUES = (
    (
        ("Events waiting to be stored", WAITING, "events"),
        ("Age of the oldest waiting event, in seconds", OLDEST_SECONDS, "events"),
        ("Events that could not be stored", WAITING, "event-dead-letters"),
    ),
    (
        ("Age of the oldest new object without a check", OLDEST_SECONDS, "arrivals"),
        ("New objects without a check", WAITING, "arrival-dead-letters"),
    ),
    (
        ("Age of the oldest message without a state", OLDEST_SECONDS, "states"),
        ("Messages without a state", WAITING, "state-dead-letters"),
    ),
)
# CloudWatch shows so many metrics on a dashboard.
_MAX_METRICS = 2500
# No execution times out: no state machine has a timeout of its own.
_FAILURES = {"Executions failed per hour": FAILED, "Executions aborted per hour": ABORTED}
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
        queues: Mapping[str, str],
    ) -> None:
        """Create the dashboard.

        Functions and machines are names without the deployment's prefix, `queues` full names by those without it.
        Alarms are full names: they belong to other stacks, which need this stack's topic.
        """
        super().__init__(scope, id_)
        self.name = settings.prefix
        subjects = {Subject.PIPELINE: sorted(project.pipelines), Subject.SOURCE: sorted(project.sources)}
        # The dead letters of the topics have a line of their own.
        services = len(_FAILURES) * len(machines) + len(functions) + len(_JOBS) + sum(map(len, _QUEUES)) + 1
        rows, more = place_rows(subjects, services)
        self.dashboard = create_dashboard(self, self.name)
        add = self.dashboard.add_widgets
        for widget in alarm_widgets(self, alarms):
            add(widget)
        for row in rows:
            add(*row_of(settings, row, subjects[row[0][1].subject]))
        for queue_row in _QUEUES:
            add(*(graph(title, [metric.of(queues[queue], period=HOUR)]) for title, metric, queue in queue_row))
        # Only these metrics of Step Functions show a run that failed before it was recorded.
        for title, metric in _FAILURES.items():
            arns = {name: states_arn(self, "stateMachine", settings.named(name)) for name in machines}
            ended = [metric.of(arn, period=HOUR, label=name) for name, arn in arns.items()]
            add(graph(title, ended, width=WIDTH))
        errors = [ERRORS.of(settings.named(name), period=HOUR, label=name) for name in functions]
        application = {"ApplicationId": application_id, "ApplicationName": settings.prefix}
        jobs = [
            cloudwatch.Metric(
                namespace="AWS/EMRServerless",
                metric_name=name,
                dimensions_map=application,
                statistic=cloudwatch.Stats.MAXIMUM,
                period=Duration.minutes(1),
                label=name.removesuffix("Jobs"),
            )
            for name in _JOBS
        ]
        undelivered = WAITING.of(queues["dead-letters"], period=HOUR)
        add(
            graph("Undelivered notifications (dead letters)", [undelivered]),
            graph("Lambda errors per hour", errors),
            graph("Spark jobs", jobs),
        )
        if more:
            lateness = create_dashboard(Construct(self, "Lateness"), dashboard_name(settings, "lateness"))
            for row in more:
                lateness.add_widgets(*row_of(settings, row, subjects[row[0][1].subject]))


def place_rows(
    subjects: Mapping[Subject, Sequence[str]], services: int
) -> tuple[tuple[GraphRow, ...], tuple[GraphRow, ...]]:
    """Return the rows of the dashboard for operators, and those of a second one if they do not fit one.

    `services` is the number of metrics of AWS services on the first one. Raises `DefinitionError` when the rows do not
    fit two.
    """
    everything = (*_DAYS, *_LATENESS, *_ARRIVALS, _SPENDING)
    if _lines(everything, subjects) + services <= _MAX_METRICS:
        return everything, ()
    rows, more = (*_DAYS, *_ARRIVALS), (*_LATENESS, _SPENDING)
    if max(_lines(rows, subjects) + services, _lines(more, subjects)) > _MAX_METRICS:
        pipelines, sources = len(subjects[Subject.PIPELINE]), len(subjects[Subject.SOURCE])
        raise DefinitionError(
            f"{pipelines} pipelines and {sources} sources do not fit the dashboards for operators, because CloudWatch "
            f"shows {_MAX_METRICS} metrics on each: divide the project, and deploy its parts with different prefixes"
        )
    return rows, more


def _lines(rows: Iterable[GraphRow], subjects: Mapping[Subject, Sequence[str]]) -> int:
    return sum(len(subjects[metric.subject]) if metric.has_dimension else 1 for row in rows for _, metric, _ in row)
