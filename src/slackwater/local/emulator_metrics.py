"""The emulator's inner tables of metrics and alarms, topics and executions: what `emulator` is for the rest."""

from __future__ import annotations

import functools
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slackwater.local.emf import Datum
from slackwater.local.emulator import Scope


def _module(name: str) -> Any:
    return importlib.import_module(f"ministack.{name}")


def follow_logs(note: Callable[[str], None]) -> None:
    """Call `note(line)` for every line that is written to a log stream, in the scope of who writes it."""
    logs = _module("services.cloudwatch_logs")
    append = logs._append_log_events

    @functools.wraps(append)
    def append_log_events(stream: Any, events: Any) -> None:
        append(stream, events)
        for event in events:
            note(event["message"])

    logs._append_log_events = append_log_events


def follow_failures(note: Callable[[str], None]) -> None:
    """Call `note(arn)` with the state machine of every execution that fails, in the scope of its account and region."""
    machines = _module("services.stepfunctions")
    fail = machines._fail_execution

    @functools.wraps(fail)
    def fail_execution(execution: Any, error: str, cause: str) -> None:
        fail(execution, error, cause)
        note(execution["stateMachineArn"])

    machines._fail_execution = fail_execution


def put_datum(scope: Scope, datum: Datum) -> None:
    """Put values of a metric into CloudWatch."""
    metrics, (namespace, name, dimensions, unit, at, values) = _module("services.cloudwatch"), datum
    with _module("core.responses").request_scope(*scope):
        metrics._store_datum(namespace, name, dimensions, at, unit, None, values, None, None)


def judge_alarms(judge: Callable[[Mapping[str, Any], Sequence[Any]], tuple[str, str]]) -> None:
    """Let `judge(alarm, points)` say an alarm's state and why, from all points of its metric and dimensions.

    The emulator's own evaluation mixes dimensions, and leaves an alarm as it is when its data ends.
    """
    metrics = _module("services.cloudwatch")

    def evaluate(alarm: Any) -> None:
        if not alarm.get("MetricName"):
            return
        dimensions = metrics._dims_key(metrics._dims_from_list(alarm.get("Dimensions") or []))
        points = metrics._metrics.get((alarm["Namespace"], alarm["MetricName"], dimensions)) or []
        (state, why), old = judge(alarm, list(points)), alarm["StateValue"]
        if state != old:
            alarm.update(StateValue=state, StateReason=why, StateUpdatedTimestamp=int(time.time()))
            metrics._record_history(alarm["AlarmName"], old, state, why)
            metrics._dispatch_alarm_actions(alarm, old, state, why)
            metrics._evaluate_parent_alarms(alarm)

    metrics._evaluate_alarm = evaluate


def evaluate_alarms() -> bool:
    """Evaluate every alarm; return whether one has changed its state."""
    metrics, changed = _module("services.cloudwatch"), False
    for (account, region, _), alarm in metrics._alarms.all_items():
        before = alarm["StateValue"]
        with _module("core.responses").request_scope(account, region):
            metrics._evaluate_alarm(alarm)
        changed = changed or alarm["StateValue"] != before
    return changed


def statistic(alarm: Mapping[str, Any], points: Sequence[Any]) -> float | None:
    """Return the one value that an alarm's statistic makes of points; None when there are none."""
    metrics = _module("services.cloudwatch")
    name = alarm.get("ExtendedStatistic") or alarm["Statistic"]
    value: float | None = metrics._stat_value(metrics._calc_stats(points), name, points) if points else None
    return value


def keep_dead_letters() -> None:
    """Give a subscription's dead-letter queue what its own queue, being gone, cannot be given."""
    topics, queues = _module("services.sns"), _module("services.sqs")
    deliver = topics._deliver_to_sqs

    @functools.wraps(deliver)
    def deliver_to_sqs(endpoint: str, *message: Any, topic_arn: str, **more: Any) -> None:
        if queues._queue_by_arn(endpoint) is None:
            subscriptions = topics._topic_by_arn_any_scope(topic_arn)["subscriptions"]
            policies = (of["attributes"].get("RedrivePolicy") for of in subscriptions if of["endpoint"] == endpoint)
            policy = next(filter(None, policies), None)
            endpoint = json.loads(policy)["deadLetterTargetArn"] if policy else endpoint
        deliver(endpoint, *message, topic_arn=topic_arn, **more)

    topics._deliver_to_sqs = deliver_to_sqs
