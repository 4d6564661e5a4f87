"""What alarms ring by and the dashboard shows: Slackwater's own metrics, and those of queues and state machines."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.common import states_arn
from slackwater.metrics import NAMESPACE, Metric


@dataclass(frozen=True, kw_only=True)
class Queues:
    """Names of the queues that are looked at."""

    dead_letters: str
    """Of messages that no subscriber of a topic could be given."""
    events: str
    event_dead_letters: str


def put_by(metric: Metric, of: str, *, statistic: str, period: Duration) -> cloudwatch.Metric:
    """Return one of Slackwater's own metrics, of one pipeline or source."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map={metric.dimension.value: of},
        statistic=statistic,
        period=period,
    )


def messages_in(queue: str, *, period: Duration) -> cloudwatch.Metric:
    """Return how many messages wait in the queue of that name."""
    return _of_queue("ApproximateNumberOfMessagesVisible", queue, period)


def oldest_in(queue: str, *, period: Duration) -> cloudwatch.Metric:
    """Return for how many seconds the oldest message of the queue of that name has waited."""
    return _of_queue("ApproximateAgeOfOldestMessage", queue, period)


def _of_queue(metric: str, queue: str, period: Duration) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name=metric,
        dimensions_map={"QueueName": queue},
        statistic=cloudwatch.Stats.MAXIMUM,
        period=period,
    )


def executions(scope: Construct, machine: str, *, ended: str, period: Duration) -> cloudwatch.Metric:
    """Return how many executions of the state machine of that full name ended so, such as `ExecutionsFailed`."""
    arn = states_arn(scope, "stateMachine", machine)
    return cloudwatch.Metric(
        namespace="AWS/States",
        metric_name=ended,
        dimensions_map={"StateMachineArn": arn},
        statistic=cloudwatch.Stats.SUM,
        period=period,
    )
