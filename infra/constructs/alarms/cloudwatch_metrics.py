"""The CloudWatch metrics that alarms watch and the dashboard shows."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.common import states_arn
from infra.settings import Settings
from slackwater.metrics import Metric


@dataclass(frozen=True, kw_only=True)
class QueueNames:
    """Full names of the queues that are monitored."""

    dead_letters: str
    """Messages that SNS could not deliver to a subscriber of a topic."""
    events: str
    event_dead_letters: str
    arrivals: str
    """Objects that were written, whose days are to be checked."""
    arrival_dead_letters: str


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


def waiting_messages(queue: str, *, period: Duration) -> cloudwatch.Metric:
    """Return the number of messages that wait in a queue, given by its full name."""
    return _queue_metric("ApproximateNumberOfMessagesVisible", queue, period)


def oldest_message_age(queue: str, *, period: Duration) -> cloudwatch.Metric:
    """Return the age in seconds of the oldest message in a queue, given by its full name."""
    return _queue_metric("ApproximateAgeOfOldestMessage", queue, period)


def _queue_metric(metric: str, queue: str, period: Duration) -> cloudwatch.Metric:
    # The maximum: SQS puts one approximate value a minute, and their sum means nothing.
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name=metric,
        dimensions_map={"QueueName": queue},
        statistic=cloudwatch.Stats.MAXIMUM,
        period=period,
    )


def ended_executions(scope: Construct, machine: str, *, metric: str, period: Duration) -> cloudwatch.Metric:
    """Return a count of executions of one state machine, given by its full name: `ExecutionsFailed`, for example."""
    return cloudwatch.Metric(
        namespace="AWS/States",
        metric_name=metric,
        dimensions_map={"StateMachineArn": states_arn(scope, "stateMachine", machine)},
        statistic=cloudwatch.Stats.SUM,
        period=period,
    )


def function_errors(function: str, *, period: Duration) -> cloudwatch.Metric:
    """Return the number of failed invocations of a Lambda function, given by its full name."""
    return cloudwatch.Metric(
        namespace="AWS/Lambda",
        metric_name="Errors",
        dimensions_map={"FunctionName": function},
        statistic=cloudwatch.Stats.SUM,
        period=period,
    )


def spark_jobs(application_id: str, application_name: str, *, metric: str) -> cloudwatch.Metric:
    """Return a count of Spark jobs of one EMR Serverless application: `RunningJobs`, for example."""
    return cloudwatch.Metric(
        namespace="AWS/EMRServerless",
        metric_name=metric,
        dimensions_map={"ApplicationId": application_id, "ApplicationName": application_name},
        statistic=cloudwatch.Stats.MAXIMUM,
        period=Duration.minutes(1),
    )
