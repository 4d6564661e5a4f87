"""The alarms, each saying what to do and where to look, and the topic that they ring by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.measures import Queues, executions, messages_in, oldest_in, put_by
from infra.settings import Settings
from slackwater.metrics import Dimension, Metric
from slackwater.project import Project

_PERIOD = Duration.minutes(5)
"""Of what is counted: long enough for a metric that reaches CloudWatch late, short enough for two failures to ring
twice."""
_LEVEL_PERIOD = Duration.minutes(1)
"""Of levels: the highest of a period counts, so the check that puts an alarm out must not share one with the last."""
_HOURS_APART = 26
"""How far apart two daily checks may be: 25 hours when clocks are put back, and one to begin in. A single
period of a day moves on all the time, and would ring whenever a check is minutes later than the one before."""
_MINUTES_WAITING = 10
"""Two attempts to store an event have failed by then, or the function does not keep up. No longer: SQS leaves messages
out of a queue's age that it has handed over three times."""
_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_MORE = "docs/operations.md says more."


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An alarm that there is one of for each pipeline, or for each source."""

    name: str
    metric: Metric
    says: str
    """What has happened, what to do and where to look; `{of}` is the pipeline or source."""
    statistic: str = cloudwatch.Stats.SUM

    @property
    def missing(self) -> cloudwatch.TreatMissingData:
        """What no data means.

        Nobody counts what has not happened. A gauge is put by the monitor, once a day: until the next one, what the
        last one said goes on.
        """
        kind = cloudwatch.TreatMissingData
        return kind.IGNORE if self.metric.gauge else kind.NOT_BREACHING

    @property
    def period(self) -> Duration:
        """What is taken together to one value."""
        return _LEVEL_PERIOD if self.metric.gauge else _PERIOD


RULES = (
    Rule(
        name="run-failed",
        metric=Metric.RUNS_FAILED,
        says="A run of {of} has failed: what was published for its day still stands. Look: `slackwater runs {of}` says "
        "which day and why, `slackwater logs {of} --date DATE` what Spark said. Mend the cause, then "
        "`slackwater run {of} --date DATE`.",
    ),
    Rule(
        name="day-overdue",
        metric=Metric.DAYS_OVERDUE,
        says="Days of {of} are past their deadline and not published. Look: the latest report under checks/{of}/ of "
        "the exchange bucket names them (`overdue`), `slackwater runs {of}` says what became of their runs. Then "
        "`slackwater run {of} --date DATE`. The next check puts the alarm out.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    Rule(
        name="day-on-hold",
        metric=Metric.DAYS_ON_HOLD,
        says="Days of {of} are on hold: inputs are gone or have shrunk, a day cannot be looked at, or its runs keep "
        "failing. Look: `slackwater monitor {of}` names days and reasons. Ask the partner; if what is there now is "
        "right, `slackwater run {of} --date DATE --allow-fewer`. Do it before the days leave the window of late data: "
        "no check looks at them then, and the alarm goes out with nothing done.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    Rule(
        name="late-bytes-unprocessed",
        metric=Metric.LATE_BYTES_UNPROCESSED,
        says="Late data of {of} stands on days on hold: to run them again would publish less than before, or from "
        "inputs that are gone. Look: `slackwater monitor {of}` names days and reasons. Ask the partner; if what is "
        "there now is right, `slackwater run {of} --date DATE --allow-fewer`.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    Rule(
        name="telling-unsure",
        metric=Metric.TELLINGS_UNSURE,
        says="A message about a changed day of {of} may have been sent or not: its sender was cut off. Look: the log "
        "of tell-change names the day, `slackwater diff {of} --date DATE` shows what changed. Ask one reader, and "
        "tell the others by hand if it has not come.",
    ),
    Rule(
        name="partner-silent",
        metric=Metric.HOURS_SINCE_ARRIVAL,
        says="Nothing new has come from {of} for {threshold} hours or more. Look: the dashboard, and for files "
        "the executions of pull-source. Ask the partner. The next check after new data puts the alarm out.",
        # A source of several pipelines is put by each check: the one that has seen the newest object is right.
        statistic=cloudwatch.Stats.MINIMUM,
    ),
)
DEAD_LETTERS, MONITOR_FAILED, MONITOR_MISSING = "dead-letters", "monitor-failed", "monitor-missing"
EVENTS_WAITING, EVENT_DEAD_LETTERS = "events-waiting", "event-dead-letters"


class AlarmTopic(Construct):
    """The topic that CloudWatch's alarms of this account, and nobody else's, may publish to."""

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
    """Every rule's alarms for a project's pipelines and sources, those on the monitor, and those on queues."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        topic: sns.ITopic,
        monitor: str,
        queues: Queues,
    ) -> None:
        """Ring by `topic`, for the monitoring state machine too, by its name."""
        super().__init__(scope, id_)
        self._settings, self._action = settings, actions.SnsAction(topic)
        self.all = [self._of_rule(rule, of, at) for rule in RULES for of, at in _thresholds(rule, project)]
        self.all.append(self._of_failed_monitor(settings.named(monitor)))
        if settings.airflow:  # without it nothing is started by the clock
            self.all.extend(self._of_missing_monitor(name) for name in sorted(project.pipelines))
        self.all.append(self._of_dead_letters(queues.dead_letters))
        self.all.append(self._of_events_waiting(queues.events))
        self.all.append(self._of_event_dead_letters(queues.event_dead_letters))

    def _of_rule(self, rule: Rule, of: str, threshold: int) -> cloudwatch.Alarm:
        return self._alarm(
            f"{rule.name}-{of}",
            metric=put_by(rule.metric, of, statistic=rule.statistic, period=rule.period),
            threshold=threshold,
            missing=rule.missing,
            says=rule.says.format(of=of, threshold=threshold),
        )

    def _of_failed_monitor(self, machine: str) -> cloudwatch.Alarm:
        return self._alarm(
            MONITOR_FAILED,
            metric=executions(self, machine, ended="ExecutionsFailed", period=_PERIOD),
            threshold=1,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
            says="A monitoring has failed: late days may not have been noticed, run again or told. Look: the failed "
            f"execution of {machine} names the pipeline in its input, and the days or the cause. Mend that, then "
            "`slackwater monitor PIPELINE`.",
        )

    def _of_missing_monitor(self, pipeline: str) -> cloudwatch.Alarm:
        """Each check of the present day puts the days overdue, if only that there are none."""
        return self._alarm(
            f"{MONITOR_MISSING}-{pipeline}",
            metric=put_by(
                Metric.DAYS_OVERDUE, pipeline, statistic=cloudwatch.Stats.SAMPLE_COUNT, period=Duration.hours(1)
            ),
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=1,
            periods=_HOURS_APART,
            missing=cloudwatch.TreatMissingData.BREACHING,
            says=f"No check of {pipeline} has looked at the present day for {_HOURS_APART} hours: late and overdue "
            f"days are not noticed, and levels stand still. Look: the DAG monitor_{pipeline} in Airflow, whether it is "
            f"paused or its tasks fail. Then `slackwater monitor {pipeline}`.",
        )

    def _of_dead_letters(self, queue: str) -> cloudwatch.Alarm:
        return self._alarm(
            DEAD_LETTERS,
            metric=messages_in(queue, period=_PERIOD),
            threshold=1,
            # A queue that nothing touches stops reporting after some hours, whatever is in it.
            missing=cloudwatch.TreatMissingData.IGNORE,
            says=f"Messages that could not be delivered wait in the queue {queue}, for 14 days. Look: read one, its "
            "TopicArn and text say what it is. Mend the subscription that did not take it, then send it again.",
        )

    def _of_events_waiting(self, queue: str) -> cloudwatch.Alarm:
        return self._alarm(
            EVENTS_WAITING,
            metric=oldest_in(queue, period=_PERIOD),
            threshold=_MINUTES_WAITING * 60,
            # The function asks for messages all the time: of a queue in which something waits there is data.
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
            says=f"Events that partners were told are accepted have waited in the queue {queue} for {_MINUTES_WAITING} "
            "minutes or more, and are in no partition yet. Look: the log of store-events says why, `slackwater buffer "
            "status` how many wait. Mend the cause: they are tried again by themselves.",
        )

    def _of_event_dead_letters(self, queue: str) -> cloudwatch.Alarm:
        return self._alarm(
            EVENT_DEAD_LETTERS,
            metric=messages_in(queue, period=_PERIOD),
            threshold=1,
            missing=cloudwatch.TreatMissingData.IGNORE,
            says="Events that partners were told are accepted could not be stored in five attempts. They wait in the "
            f"queue {queue} until 14 days after they were sent. Look: the log of store-events says why. Mend that, "
            "such as a source's definition, then `slackwater buffer redrive`.",
        )

    def _alarm(
        self,
        name: str,
        *,
        metric: cloudwatch.Metric,
        threshold: int,
        missing: cloudwatch.TreatMissingData,
        says: str,
        comparison: cloudwatch.ComparisonOperator = _AT_LEAST,
        periods: int = 1,
    ) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=self._settings.named(name),
            alarm_description=f"{says} {_MORE}",
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(self._action)
        return alarm


def _thresholds(rule: Rule, project: Project) -> Iterable[tuple[str, int]]:
    """What a rule is applied to, each with the value from which on it rings."""
    if rule.metric.dimension is Dimension.PIPELINE:
        return [(name, 1) for name in sorted(project.pipelines)]
    # Only the check of a pipeline that reads a source sees how long it has been silent.
    read = {name for pipeline in project.pipelines.values() for name in pipeline.sources}
    return [(name, project.source(name).silent_hours) for name in sorted(read)]
