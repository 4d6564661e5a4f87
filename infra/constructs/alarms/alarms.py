"""The alarms, and the topics that they notify."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarm_rule import AlarmGroup, AlarmRule, Severity
from infra.constructs.alarms.alarm_rules import RULES, alarm_names
from infra.constructs.alarms.cloudwatch_metrics import AwsMetric, slackwater_metric
from infra.constructs.alarms.composite_alarms import COVERED, composites
from infra.constructs.alarms.subjects import Evaluation
from infra.constructs.common import states_arn
from infra.settings import Scheduler, Settings
from slackwater.project.project import Project

# Pages kept the name of the only topic that there was before.
_TOPICS = {Severity.PAGE: "alarms", Severity.WARNING: "warnings"}
_MOST_READERS = 8

Topics = Mapping[Severity, sns.ITopic]
"""The topic of each severity."""


class Alarms(Construct):
    """The alarms of one group of rules, or those of the deployment.

    Each notifies the topic of its severity, or is in the rule of a composite alarm, which does.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        topics: Topics,
        group: AlarmGroup | None = None,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        """Create the alarms. `queues` are the full names of the queues that alarms of the deployment watch."""
        super().__init__(scope, id_)
        self._settings, self._queues = settings, queues or {}
        within = Construct(self, "Alarms")  # part of each alarm's logical id
        for rule in RULES:
            for subject, threshold in rule.thresholds(settings, project) if rule.group is group else ():
                name, evaluation = rule.alarm_name(subject), rule.evaluation(project, subject)
                missing = cloudwatch.TreatMissingData
                alarm = cloudwatch.Alarm(
                    within,
                    name,
                    alarm_name=settings.named(name),
                    alarm_description=_describe(rule, subject, threshold, settings, project),
                    metric=self._metric(rule, subject, evaluation),
                    threshold=threshold,
                    comparison_operator=rule.comparison,
                    evaluation_periods=evaluation.periods,
                    datapoints_to_alarm=evaluation.datapoints,
                    treat_missing_data=rule.missing_data
                    or (missing.IGNORE if rule.metric.gauge else missing.NOT_BREACHING),
                )
                if rule.name not in COVERED:
                    alarm.add_alarm_action(actions.SnsAction(topics[rule.severity]))

    def _metric(self, rule: AlarmRule, subject: str, evaluation: Evaluation) -> cloudwatch.Metric:
        metric, period = rule.metric, evaluation.period
        if isinstance(metric, AwsMetric):
            of = rule.of.format(subject=subject)
            name = self._settings.named(of)
            own = {
                "QueueName": lambda: self._queues[of],
                "StateMachineArn": lambda: states_arn(self, "stateMachine", name),
                "FunctionName": lambda: name,
            }[metric.dimension]()
            return metric.of(own, period=period)
        statistic = rule.statistic or (cloudwatch.Stats.MAXIMUM if metric.gauge else cloudwatch.Stats.SUM)
        return slackwater_metric(self._settings, metric, subject, statistic=statistic, period=period)


def _describe(rule: AlarmRule, subject: str, threshold: float, settings: Settings, project: Project) -> str:
    text = rule.description.format(
        subject=subject,
        threshold=f"{threshold:g}",
        pipelines=readers(project, subject),
        periods=rule.evaluation(project, subject).periods,
        named=settings.named(rule.of),
        scheduler=_scheduler_of(settings, subject),
    )
    return f"{text} Severity: {rule.severity}. Prefix: {settings.prefix}. Runbook: docs/runbooks/{rule.name}.md."


def readers(project: Project, source: str) -> str:
    """Return the pipelines that read a source, for the description of its alarm, which has 1,024 characters at most."""
    names = [name for name, pipeline in sorted(project.pipelines.items()) if source in pipeline.sources]
    more = len(names) - _MOST_READERS
    return ", ".join(names[:_MOST_READERS]) + (f" and {more} more" if more > 0 else "")


def _scheduler_of(settings: Settings, pipeline: str) -> str:
    """Return where to look when the monitor of a pipeline is not started."""
    if settings.schedule is Scheduler.AIRFLOW:
        return f"the DAG monitor_{pipeline} in Airflow, whether it is paused or its tasks fail"
    return (
        f"the schedule monitor-{pipeline} in EventBridge Scheduler, whether it is enabled, the log of "
        f"{settings.named('start-scheduled')}, and {settings.named('dead-letters')}"
    )


class AlarmTopic(Construct):
    """The SNS topic of the alarms of a severity. Only CloudWatch alarms of this account and deployment may publish."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, severity: Severity) -> None:
        super().__init__(scope, id_)
        stack, name = Stack.of(self), _TOPICS[severity]
        self.topic = sns.Topic(
            self, "Topic", topic_name=settings.named(name), display_name=f"Slackwater: {name}", enforce_ssl=True
        )
        alarms = [
            stack.format_arn(
                service="cloudwatch", resource="alarm", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
            )
            for name in alarm_patterns(settings, project)
        ]
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


def alarm_patterns(settings: Settings, project: Project) -> list[str]:
    """Return patterns of the names of all alarms: one for the alarms of all pipelines or all sources.

    `slackwater-*` would be shorter, and would match the alarms of the deployment `slackwater-dev`. The names of all
    alarms do not fit into the policy of a topic.
    """
    patterns = set()
    for name in (*alarm_names(settings, project), *(each.name for each in composites(settings, project))):
        subjects = [item for item in (*project.pipelines, *project.sources) if name.endswith(f"-{item}")]
        begin = name.removesuffix(max(subjects, key=len, default=""))
        patterns.add(name if begin in {name, settings.named("")} else f"{begin}*")
    return sorted(patterns)
