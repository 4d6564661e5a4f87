"""The alarms and their topic. Each alarm's description says what to do and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.cloudwatch_metrics import (
    QueueNames,
    ended_executions,
    oldest_message_age,
    slackwater_metric,
    waiting_messages,
)
from infra.settings import Settings
from slackwater.metrics import Dimension, Metric
from slackwater.project import Project
from slackwater.sources.pull_config import PullConfig

# Long enough for data points that reach CloudWatch late, short enough that two failures fire the alarm twice.
_COUNTER_PERIOD = Duration.minutes(5)
# The highest value of a period counts. Short, so that the check that clears an alarm is in a period of its own.
_GAUGE_PERIOD = Duration.minutes(1)
# Two daily checks can be 25 hours apart when the clocks go back, and a check takes time. The alarm counts periods of an
# hour: one period of a day is a sliding window and would fire whenever a check is minutes later than the one before.
_MAX_HOURS_BETWEEN_CHECKS = 26
# By then two attempts to store an event have failed, or the function is too slow. Not longer, because SQS excludes
# messages that were received three times from the age of a queue.
_MAX_MINUTES_WAITING = 10

MONITOR_FAILED, MONITOR_MISSING = "monitor-failed", "monitor-missing"
DEAD_LETTERS, EVENTS_WAITING, EVENT_DEAD_LETTERS = "dead-letters", "events-waiting", "event-dead-letters"


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """An alarm that exists once for each pipeline or for each source, depending on its metric's dimension."""

    name: str
    metric: Metric
    description: str
    """What has happened, where to look and what to do. `{subject}` is the pipeline or source."""
    statistic: str = cloudwatch.Stats.SUM
    threshold: int = 1
    """The alarm fires at this value and above, unless the source has a limit of its own (`silent_hours`)."""
    pulls: int = 1
    """Number of periods in a row, each with at least one pull."""

    @property
    def missing_data(self) -> cloudwatch.TreatMissingData:
        """How missing data is treated.

        A counter has no data when nothing happened. A check or a pull puts a gauge; until the next one, the last value
        stays valid.
        """
        gauge = self.metric.gauge
        return cloudwatch.TreatMissingData.IGNORE if gauge else cloudwatch.TreatMissingData.NOT_BREACHING

    def period(self, project: Project, subject: str) -> Duration:
        """Return the period over which the data points of a pipeline or source are aggregated."""
        if self.pulls > 1:
            return _pull_period(project.source(subject).require_pull())
        return _GAUGE_PERIOD if self.metric.gauge else _COUNTER_PERIOD

    def thresholds(self, project: Project) -> list[tuple[str, int]]:
        """Return each pipeline or source that has this alarm, with its threshold: the alarm fires at it and above."""
        if self.metric.dimension is Dimension.PIPELINE:
            return [(name, self.threshold) for name in sorted(project.pipelines)]
        if self.metric is not Metric.HOURS_SINCE_ARRIVAL:
            return [(name, self.threshold) for name, source in sorted(project.sources.items()) if source.pull]
        # A source's age is known only from the check of a pipeline that reads it.
        read = {name for pipeline in project.pipelines.values() for name in pipeline.sources}
        return [(name, project.source(name).silent_hours) for name in sorted(read)]


def _pull_period(pull: PullConfig) -> Duration:
    """Return a period in which a source is pulled at least once."""
    hour = pull.schedule.split()[1]
    return Duration.hours(1) if hour == "*" else Duration.days(1)


RULES = (
    AlarmRule(
        name="run-failed",
        metric=Metric.RUNS_FAILED,
        description="A run of {subject} has failed. The day that was published before is unchanged. Look: "
        "`slackwater runs {subject}` shows which day and why, `slackwater logs {subject} --date DATE` shows Spark's "
        "log. Fix the cause, then `slackwater run {subject} --date DATE`.",
    ),
    AlarmRule(
        name="day-overdue",
        metric=Metric.DAYS_OVERDUE,
        description="Days of {subject} are past their deadline and not published. Look: the latest report under "
        "checks/{subject}/ in the exchange bucket lists them (`overdue`), `slackwater runs {subject}` shows their "
        "runs. Then `slackwater run {subject} --date DATE`. The next check clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="day-on-hold",
        metric=Metric.DAYS_ON_HOLD,
        description="Days of {subject} are on hold: inputs are missing or smaller than before, a day cannot be "
        "checked, or its runs keep failing. Look: `slackwater monitor {subject}` lists days and reasons. Ask the "
        "partner. If the current data is right, `slackwater run {subject} --date DATE --allow-fewer`. Do it before "
        "the days leave the window for late data: then no check includes them, and the alarm clears with nothing done.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="late-bytes-unprocessed",
        metric=Metric.LATE_BYTES_UNPROCESSED,
        description="Late data of {subject} belongs to days on hold: a new run would publish fewer rows than before, "
        "or inputs are missing. Look: `slackwater monitor {subject}` lists days and reasons. Ask the partner. If the "
        "current data is right, `slackwater run {subject} --date DATE --allow-fewer`.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="notification-outcome-unknown",
        metric=Metric.NOTIFICATION_OUTCOME_UNKNOWN,
        description="A notification about a changed day of {subject} may or may not have been sent: its sender was "
        "interrupted. It is not sent again. Look: the log of notify-change names the day, `slackwater diff {subject} "
        "--date DATE` shows what changed. Ask one reader; if it did not arrive, notify the readers yourself.",
    ),
    AlarmRule(
        name="partner-silent",
        metric=Metric.HOURS_SINCE_ARRIVAL,
        description="{subject} has delivered nothing new for {threshold} hours or more. Look: the dashboard, and for "
        "files the executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        # Each pipeline that reads the source puts this metric; the check that saw the newest object is right.
        statistic=cloudwatch.Stats.MINIMUM,
    ),
    AlarmRule(
        name="file-not-taken",
        metric=Metric.HOURS_NOT_TAKEN,
        description="A file of {subject} could not be fetched for {threshold} hours or more. It is tried again, at the "
        "latest after a day. Look: `slackwater files {subject} --state failed` lists such files with the reasons. Fix "
        "the cause, or ask the partner. If a file will never be readable, `slackwater files give-up {subject} PATH`. "
        "The next pull clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
        threshold=24,
    ),
    AlarmRule(
        name="files-left",
        metric=Metric.FILES_LEFT,
        description="The pulls of {subject} do not keep up: each one has left files to the next for {pulls} periods in "
        "a row. Look: the dashboard shows how many. Run `slackwater pull {subject}` until none is left, and let "
        "`schedule` pull more often.",
        # The pull of the period that has left the fewest counts.
        statistic=cloudwatch.Stats.MINIMUM,
        pulls=3,
    ),
)


class AlarmTopic(Construct):
    """The SNS topic of the alarms. Only CloudWatch alarms of this account and deployment may publish to it."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings) -> None:
        super().__init__(scope, id_)
        stack = Stack.of(self)
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=settings.named("alarms"),
            display_name="Slackwater: alarms",
            enforce_ssl=True,
        )
        alarms = stack.format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=f"{settings.prefix}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": alarms},
                },
            )
        )


class Alarms(Construct):
    """The alarms of `RULES` for each pipeline and source of a project, of the monitor, and of the queues."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        topic: sns.ITopic,
        monitor: str,
        queues: QueueNames,
    ) -> None:
        """Create alarms that notify `topic`. `monitor` is the monitoring state machine's name without the prefix."""
        super().__init__(scope, id_)
        self._settings, self._action = settings, actions.SnsAction(topic)
        self.all: list[cloudwatch.Alarm] = []
        for rule in RULES:
            for subject, threshold in rule.thresholds(project):
                self._add(
                    f"{rule.name}-{subject}",
                    metric=slackwater_metric(
                        rule.metric, subject, statistic=rule.statistic, period=rule.period(project, subject)
                    ),
                    threshold=threshold,
                    periods=rule.pulls,
                    missing_data=rule.missing_data,
                    description=rule.description.format(subject=subject, threshold=threshold, pulls=rule.pulls),
                )
        # Without Airflow the deployment does not start the monitor, so its absence is no reason for an alarm.
        self._add_monitor_alarms(settings.named(monitor), sorted(project.pipelines) if settings.airflow else [])
        self._add_queue_alarms(queues)

    def _add_monitor_alarms(self, machine: str, scheduled: Sequence[str]) -> None:
        """Add the alarm of failed checks, and for each of the pipelines `scheduled` the alarm of missing checks."""
        self._add(
            MONITOR_FAILED,
            metric=ended_executions(self, machine, metric="ExecutionsFailed", period=_COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description="An execution of the monitor has failed: late days may not have been detected, run again or "
            f"reported. Look: the failed execution of {machine} names the pipeline in its input, and the days or the "
            "cause. Fix the cause, then `slackwater monitor PIPELINE`.",
        )
        for pipeline in scheduled:
            self._add(
                f"{MONITOR_MISSING}-{pipeline}",
                # Each check of the current day puts `DaysOverdue`, even if it is 0.
                metric=slackwater_metric(
                    Metric.DAYS_OVERDUE, pipeline, statistic=cloudwatch.Stats.SAMPLE_COUNT, period=Duration.hours(1)
                ),
                comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
                threshold=1,
                periods=_MAX_HOURS_BETWEEN_CHECKS,
                missing_data=cloudwatch.TreatMissingData.BREACHING,
                description=f"No check of {pipeline} has included the current day for {_MAX_HOURS_BETWEEN_CHECKS} "
                "hours: late and overdue days are not detected, and gauges keep their last value. Look: the DAG "
                f"monitor_{pipeline} in Airflow, whether it is paused or its tasks fail. Then `slackwater monitor "
                f"{pipeline}`.",
            )

    def _add_queue_alarms(self, queues: QueueNames) -> None:
        # SQS stops reporting an inactive queue after some hours, although it holds messages: missing data is ignored.
        self._add(
            DEAD_LETTERS,
            metric=waiting_messages(queues.dead_letters, period=_COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.IGNORE,
            description=f"Messages that could not be delivered wait in the queue {queues.dead_letters} for 14 days. "
            "Look: receive one; its TopicArn and text show what it is. Fix the subscription that refused it, then send "
            "it again.",
        )
        self._add(
            EVENTS_WAITING,
            metric=oldest_message_age(queues.events, period=_COUNTER_PERIOD),
            threshold=_MAX_MINUTES_WAITING * 60,
            # Lambda polls this queue all the time, so there is data whenever a message waits.
            missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            description=f"Accepted events have waited in the queue {queues.events} for {_MAX_MINUTES_WAITING} minutes "
            "or more and are in no partition yet. Look: the log of store-events shows why, `slackwater buffer status` "
            "how many wait. Fix the cause; they are retried automatically.",
        )
        self._add(
            EVENT_DEAD_LETTERS,
            metric=waiting_messages(queues.event_dead_letters, period=_COUNTER_PERIOD),
            threshold=1,
            missing_data=cloudwatch.TreatMissingData.IGNORE,
            description="Accepted events could not be stored in five attempts. They wait in the queue "
            f"{queues.event_dead_letters} until 14 days after they were sent. Look: the log of store-events shows why. "
            "Fix the cause, such as a source that was removed, then `slackwater buffer redrive`.",
        )

    def _add(
        self,
        name: str,
        *,
        metric: cloudwatch.Metric,
        threshold: int,
        missing_data: cloudwatch.TreatMissingData,
        description: str,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        periods: int = 1,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=self._settings.named(name),
            alarm_description=f"{description} See docs/operations.md.",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing_data,
        )
        alarm.add_alarm_action(self._action)
        self.all.append(alarm)
