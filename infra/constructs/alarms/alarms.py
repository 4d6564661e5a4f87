"""The alarms. Each one's description says what to do and where to look."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarm_rules import COUNTER_PERIOD, RULES, AlarmGroup, Severity
from infra.constructs.alarms.cloudwatch_metrics import (
    QueueNames,
    ended_executions,
    function_errors,
    oldest_message_age,
    slackwater_metric,
    waiting_messages,
)
from infra.constructs.alarms.composite_rules import COVERED, readers
from infra.constructs.alarms.execution_alarms import EXECUTION_PERIOD, execution_alarms
from infra.settings import Scheduler, Settings
from slackwater.metrics import Metric
from slackwater.model import Cron
from slackwater.project.cron import cron_matches
from slackwater.project.project import Project

# Two daily checks can be 25 hours apart when the clocks go back, and a check takes time. The alarm counts periods of an
# hour: one period of a day is a sliding window and would fire whenever a check is minutes later than the one before.
_MORE_HOURS_BETWEEN_CHECKS = 2
# The periods of an alarm have at most seven days together.
_MAX_HOURS = 7 * 24
# By then two attempts to store an event have failed, or the function is too slow. Not longer, because SQS excludes
# messages that were received three times from the age of a queue.
_MAX_MINUTES_WAITING = 10
# By then two attempts to start the checks have failed: each 17 minutes, after 5 minutes of collecting.
_MAX_ARRIVAL_MINUTES = 40

MONITOR_FAILED, MONITOR_MISSING = "monitor-failed", "monitor-missing"
DEAD_LETTERS, EVENTS_WAITING, EVENT_DEAD_LETTERS = "dead-letters", "events-waiting", "event-dead-letters"
ARRIVALS_WAITING, ARRIVAL_DEAD_LETTERS = "arrivals-waiting", "arrival-dead-letters"
STALE_OBJECTS = "stale-objects"


Topics = Mapping[Severity, sns.ITopic]
"""The topic of each severity."""


def alarm_names(settings: Settings, project: Project) -> list[str]:
    """Return the full names of all alarms of a deployment."""
    missing = [f"{MONITOR_MISSING}-{pipeline}" for pipeline in _hours_between_checks(settings, project)]
    of_rules = [f"{rule.name}-{subject}" for rule in RULES for subject, _ in rule.thresholds(settings, project)]
    events = (EVENTS_WAITING, EVENT_DEAD_LETTERS, ARRIVALS_WAITING, ARRIVAL_DEAD_LETTERS)
    others = (MONITOR_FAILED, DEAD_LETTERS, STALE_OBJECTS, *events)
    executions = [f"{alarm.name}-{alarm.subject}" for alarm in execution_alarms(project)]
    return [settings.named(name) for name in (*others, *missing, *of_rules, *executions)]


def _hours_between_checks(settings: Settings, project: Project) -> dict[str, int]:
    """Return after how many hours the check of a pipeline is missing, for each pipeline with such an alarm."""
    # Without a scheduler the deployment does not start the monitor, so its absence is no reason for an alarm.
    pipelines = {} if settings.schedule is Scheduler.NONE else project.pipelines
    hours = {
        name: _most_days_between(pipeline.schedule.monitor) * 24 + _MORE_HOURS_BETWEEN_CHECKS
        for name, pipeline in sorted(pipelines.items())
    }
    # An alarm that cannot count long enough would fire between any two checks.
    return {name: value for name, value in hours.items() if value <= _MAX_HOURS}


@cache
def _most_days_between(schedule: Cron) -> int:
    """Return how many days are at most between two days of a schedule."""
    _, _, *days = schedule.split()
    first = datetime(2024, 1, 1, tzinfo=UTC)
    # Eight years, so that also the 29th of February has two days.
    span = (first + timedelta(days=day) for day in range(8 * 366))
    matching = [day for day in span if cron_matches(" ".join(("0", "0", *days)), day)]
    return max(((later - day).days for day, later in pairwise(matching)), default=_MAX_HOURS)


def _scheduler_of(settings: Settings, pipeline: str) -> str:
    """Return where to look when the monitor of a pipeline is not started."""
    if settings.schedule is Scheduler.AIRFLOW:
        return f"the DAG monitor_{pipeline} in Airflow, whether it is paused or its tasks fail"
    return (
        f"the schedule monitor-{pipeline} in EventBridge Scheduler, whether it is enabled, the log of "
        f"{settings.named('start-scheduled')}, and {settings.named('dead-letters')}"
    )


class Alarms(Construct):
    """Alarms that notify the topic of their severity, or the composite alarm that has them in its rule."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, topics: Topics) -> None:
        super().__init__(scope, id_)
        self._settings, self._topics = settings, topics

    def add(
        self,
        name: str,
        *,
        subject: str = "",
        severity: Severity,
        metric: cloudwatch.Metric,
        threshold: float,
        missing_data: cloudwatch.TreatMissingData,
        description: str,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        periods: int = 1,
        datapoints: int | None = None,
    ) -> None:
        """Create the alarm with this name, without the prefix, and its pipeline or source if there is one for each."""
        full_name = f"{name}-{subject}" if subject else name
        alarm = cloudwatch.Alarm(
            self,
            full_name,
            alarm_name=self._settings.named(full_name),
            alarm_description=f"{description} Severity: {severity}. Prefix: {self._settings.prefix}. "
            f"Runbook: docs/runbooks/{name}.md.",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=datapoints,
            treat_missing_data=missing_data,
        )
        if name not in COVERED:
            alarm.add_alarm_action(actions.SnsAction(self._topics[severity]))


class SubjectAlarms(Construct):
    """The alarms of the rules of one group, for each pipeline and source of a project."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        topics: Topics,
        group: AlarmGroup,
    ) -> None:
        super().__init__(scope, id_)
        alarms = Alarms(self, "Alarms", settings=settings, topics=topics)
        for rule in RULES:
            for subject, threshold in rule.thresholds(settings, project) if rule.group is group else ():
                period, periods, datapoints = rule.evaluation(project, subject)
                alarms.add(
                    rule.name,
                    subject=subject,
                    severity=rule.severity,
                    metric=slackwater_metric(settings, rule.metric, subject, statistic=rule.statistic, period=period),
                    threshold=threshold,
                    periods=periods,
                    datapoints=datapoints,
                    missing_data=rule.missing_data,
                    description=rule.description.format(
                        subject=subject, threshold=f"{threshold:g}", pipelines=readers(project, subject)
                    ),
                )
        for alarm in execution_alarms(project) if group is AlarmGroup.EXECUTIONS else ():
            alarms.add(
                alarm.name,
                subject=alarm.subject,
                severity=alarm.severity,
                metric=ended_executions(
                    self, settings.named(alarm.machine), metric="ExecutionsFailed", period=EXECUTION_PERIOD
                ),
                threshold=1,
                missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
                description=alarm.description,
            )
        missing = _hours_between_checks(settings, project) if group is AlarmGroup.RUNS else {}
        for pipeline, hours in missing.items():
            alarms.add(
                MONITOR_MISSING,
                subject=pipeline,
                severity=Severity.PAGE,
                # Each check of the current day puts `DaysOverdue`, even if it is 0.
                metric=slackwater_metric(
                    settings,
                    Metric.DAYS_OVERDUE,
                    pipeline,
                    statistic=cloudwatch.Stats.SAMPLE_COUNT,
                    period=Duration.hours(1),
                ),
                comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
                threshold=1,
                periods=hours,
                missing_data=cloudwatch.TreatMissingData.BREACHING,
                description=f"No check of {pipeline} has included the current day for {hours} hours: "
                "late and overdue days are not detected, and gauges keep their last value. Look: "
                f"{_scheduler_of(settings, pipeline)}. Then `slackwater monitor {pipeline}`.",
            )


class DeploymentAlarms(Construct):
    """The alarms of the monitor, of the queues, and of the deletion of stale objects."""

    def __init__(
        self, scope: Construct, id_: str, *, settings: Settings, topics: Topics, monitor: str, queues: QueueNames
    ) -> None:
        """Create the alarms. `monitor` is the monitoring state machine's name without the prefix."""
        super().__init__(scope, id_)
        self._alarms = Alarms(self, "Alarms", settings=settings, topics=topics)
        self._add_monitor_alarm(settings.named(monitor))
        self._add_stale_alarm(settings.named("remove-stale"))
        self._add_queue_alarms(queues)
        self._add_arrival_alarms(queues)

    def _add_monitor_alarm(self, machine: str) -> None:
        self._alarms.add(
            MONITOR_FAILED,
            severity=Severity.PAGE,
            metric=ended_executions(self, machine, metric="ExecutionsFailed", period=COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description="An execution of the monitor has failed: late days may not have been detected, run again or "
            f"reported. Look: the failed execution of {machine} names the pipeline in its input, and the days or the "
            "cause. Fix the cause, then `slackwater monitor PIPELINE`.",
        )

    def _add_stale_alarm(self, function: str) -> None:
        self._alarms.add(
            STALE_OBJECTS,
            severity=Severity.WARNING,
            metric=function_errors(function, period=COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description="The weekly deletion of stale objects of pulled files has failed, or has found objects without "
            f"a record in the file cache, which nobody reads. Look: the log of {function} shows why. If the records "
            "were lost, restore the file table. After another cause is fixed, the next invocation deletes the rest.",
        )

    def _add_queue_alarms(self, queues: QueueNames) -> None:
        # SQS stops reporting an inactive queue after some hours, although it holds messages: missing data is ignored.
        self._alarms.add(
            DEAD_LETTERS,
            severity=Severity.WARNING,
            metric=waiting_messages(queues.dead_letters, period=COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.IGNORE,
            description="Messages of the topics, or starts of scheduled tasks, that could not be delivered wait in the "
            "dead-letter queue for 14 days. Look: receive one. A message has a TopicArn: fix the subscription that "
            "refused it, then send it again. A start has a task: fix the cause in the log of start-scheduled, then "
            "`slackwater pull`, `run` or `monitor` its subject.",
        )
        self._alarms.add(
            EVENTS_WAITING,
            severity=Severity.PAGE,
            metric=oldest_message_age(queues.events, period=COUNTER_PERIOD),
            threshold=_MAX_MINUTES_WAITING * 60,
            # Lambda polls this queue all the time, so there is data whenever a message waits.
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description=f"Accepted events have waited in their queue for {_MAX_MINUTES_WAITING} minutes or more and "
            "are in no partition yet. Look: the log of store-events shows why, `slackwater buffer status` how many "
            "wait. Fix the cause; they are retried automatically.",
        )
        self._alarms.add(
            EVENT_DEAD_LETTERS,
            severity=Severity.PAGE,
            metric=waiting_messages(queues.event_dead_letters, period=COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.IGNORE,
            description="Accepted events could not be stored in five attempts. They wait in the dead-letter queue of "
            "the events until 14 days after they were sent. Look: the log of store-events shows why. Fix the cause, "
            "such as a source that was removed, then `slackwater buffer redrive`.",
        )

    def _add_arrival_alarms(self, queues: QueueNames) -> None:
        self._alarms.add(
            ARRIVALS_WAITING,
            severity=Severity.WARNING,
            metric=oldest_message_age(queues.arrivals, period=COUNTER_PERIOD),
            threshold=_MAX_ARRIVAL_MINUTES * 60,
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description=f"New objects have waited in their queue for {_MAX_ARRIVAL_MINUTES} minutes or more: late data "
            "is detected by the daily check only. Look: the log of check-arrivals shows why. Fix the cause; they are "
            "retried automatically.",
        )
        self._alarms.add(
            ARRIVAL_DEAD_LETTERS,
            severity=Severity.WARNING,
            metric=waiting_messages(queues.arrival_dead_letters, period=COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.IGNORE,
            description="New objects could not be put into the queue of arrivals, or no check could be started for "
            "them in five attempts. The daily check detects late data of the window only. Look: the log of "
            "check-arrivals, and a message of the dead-letter queue of the arrivals. Fix the cause, then redrive the "
            "dead-letter queue.",
        )
