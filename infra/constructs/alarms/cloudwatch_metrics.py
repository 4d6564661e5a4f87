"""The CloudWatch metrics that alarms watch and dashboards show."""

from __future__ import annotations

from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.settings import Settings
from slackwater.metrics import Metric


class AwsMetric(NamedTuple):
    """A metric of an AWS service, which has one for each queue, function or state machine."""

    namespace: str
    name: str
    dimension: str
    statistic: str = cloudwatch.Stats.SUM
    gauge: bool = False
    """Whether its last value stays valid until the next one."""

    def of(self, value: str, *, period: Duration, label: str | None = None) -> cloudwatch.Metric:
        """Return the metric of one of them, given by the value of the dimension: a full name or an ARN."""
        return cloudwatch.Metric(
            namespace=self.namespace,
            metric_name=self.name,
            dimensions_map={self.dimension: value},
            statistic=self.statistic,
            period=period,
            label=label,
        )


# The maximum: SQS puts one approximate value a minute, and their sum means nothing. It stops reporting the messages of
# an inactive queue after some hours, although the queue holds them. Lambda polls the queues whose age we watch all the
# time, so there is data whenever a message waits.
WAITING = AwsMetric("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", cloudwatch.Stats.MAXIMUM, gauge=True)
OLDEST_SECONDS = AwsMetric("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", cloudwatch.Stats.MAXIMUM)
FAILED = AwsMetric("AWS/States", "ExecutionsFailed", "StateMachineArn")
ABORTED = AwsMetric("AWS/States", "ExecutionsAborted", "StateMachineArn")
ERRORS = AwsMetric("AWS/Lambda", "Errors", "FunctionName")


def slackwater_metric(
    settings: Settings, metric: Metric, subject: str | None, *, statistic: str, period: Duration
) -> cloudwatch.Metric:
    """Return one of the deployment's own metrics: of one pipeline or source, or the total if it has no dimension."""
    return cloudwatch.Metric(
        namespace=settings.metric_namespace,
        metric_name=metric.value,
        dimensions_map={metric.subject.value: subject} if subject else None,
        statistic=statistic,
        period=period,
    )
