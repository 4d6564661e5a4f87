"""CloudWatch as on AWS: metrics from log lines, queues and failed executions; alarms by CloudWatch's rules.

It replaces functions of the emulator's logs, state machines and metrics; see `emulator`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from slackwater.local.emulator import Scope, module, replaces, request_scope

_LOG = logging.getLogger("slackwater.local")
_PAUSE_SECONDS = 1
_QUEUE_METRIC_SECONDS = 60  # SQS puts the metrics of a queue once a minute
# CloudWatch evaluates more periods than an alarm names. Its documentation gives no number; in its examples of missing
# data, an alarm of three periods evaluates five.
_EXTRA_PERIODS = 2
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
# The format's specification allows this number of values for one metric in one line.
_MAX_VALUES = 100


class MetricDatum(NamedTuple):
    """The values that one line has for one metric and one set of dimensions."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    unit: str
    timestamp: float
    """Seconds since the epoch."""
    values: tuple[float, ...]


class Monitoring:
    """Puts metrics and evaluates alarms once a second."""

    def __init__(self, touch: Callable[[], None]) -> None:
        """`touch` is called when something has changed that must be saved."""
        self._touch = touch
        # Metrics that are not put yet. Threads append to it without a lock: a deque is thread-safe.
        self._pending: deque[tuple[Scope, MetricDatum]] = deque()
        # By account, region and queue: when it was measured, its visible messages, when the oldest message was sent.
        self._measured_queues: dict[tuple[Scope, str], tuple[float, int, float | None]] = {}

    def register(self) -> None:
        """Collect metrics from log lines and failed executions, and evaluate alarms by CloudWatch's rules."""
        logs, machines = module("services.cloudwatch_logs"), module("services.stepfunctions")

        # Functions log, and executions fail, in threads of their own; the metrics are put later, on the event loop.
        @replaces(logs, "_append_log_events")
        def append_log_events(append: Any, stream: Any, events: Any) -> None:
            append(stream, events)
            for event in events:
                self._pending.extend((request_scope(), datum) for datum in read_metrics(event["message"]))

        @replaces(machines, "_fail_execution")
        def fail_execution(fail: Any, execution: Any, error: str, cause: str) -> None:
            fail(execution, error, cause)
            dimensions = {"StateMachineArn": execution["stateMachineArn"]}
            datum = MetricDatum("AWS/States", "ExecutionsFailed", dimensions, "Count", time.time(), (1.0,))
            self._pending.append((request_scope(), datum))

        module("services.cloudwatch")._evaluate_alarm = evaluate_alarm

    async def run(self) -> None:
        """Run `step` once a second on the event loop, between two requests; it runs until it is cancelled."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                if self.step(time.time()):
                    self._touch()
            except Exception:  # noqa: BLE001 - one failure must not end all alarms
                _LOG.exception("Metrics and alarms could not be updated")

    def step(self, now: float) -> bool:
        """Put the metrics of the last second and evaluate every alarm. Return whether anything changed.

        `now` is in seconds since the epoch.
        """
        metrics, changed = module("services.cloudwatch"), False
        self._measure_queues(now)
        for _ in range(len(self._pending)):
            scope, (namespace, name, dimensions, unit, timestamp, values) = self._pending.popleft()
            with module("core.responses").request_scope(*scope):
                metrics._store_datum(namespace, name, dimensions, timestamp, unit, None, values, None, None)
            changed = True
        for (account, region, _), alarm in metrics._alarms.all_items():
            before = alarm["StateValue"]
            with module("core.responses").request_scope(account, region):
                metrics._evaluate_alarm(alarm)
            changed = changed or alarm["StateValue"] != before
        return changed

    def _measure_queues(self, now: float) -> None:
        """Measure the queues that have changed, and once a minute those that hold messages.

        The emulator has no metrics of queues. Changes are measured within a second, so that alarms fire without a wait.
        """
        for (account, region, _), queue in module("services.sqs")._queues.all_items():
            key, messages = (Scope(account, region), queue["name"]), list(queue["messages"])
            visible = sum(message["visible_at"] <= time.time() for message in messages)
            oldest = min((message["sent_at"] for message in messages), default=None)  # messages in flight count too
            measured_at, *measured = self._measured_queues.get(key, (0.0, None, None))
            if measured == [visible, oldest] and (oldest is None or now - measured_at < _QUEUE_METRIC_SECONDS):
                continue
            for metric, unit, value in (
                ("ApproximateNumberOfMessagesVisible", "Count", float(visible)),
                ("ApproximateAgeOfOldestMessage", "Seconds", now - oldest if oldest else 0.0),
            ):
                datum = MetricDatum("AWS/SQS", metric, {"QueueName": queue["name"]}, unit, now, (value,))
                self._pending.append((key[0], datum))
            self._measured_queues[key] = (now, visible, oldest)


def evaluate_alarm(alarm: dict[str, Any]) -> None:
    """Set an alarm's state from its metric, and run its actions when the state changes.

    The emulator's own function mixes the dimensions of a metric, and keeps the state of an alarm whose data ends.
    """
    if not alarm.get("MetricName"):
        return
    metrics = module("services.cloudwatch")
    dimensions = metrics._dims_key(metrics._dims_from_list(alarm.get("Dimensions") or []))
    points = metrics._metrics.get((alarm["Namespace"], alarm["MetricName"], dimensions)) or []
    (state, reason), old = alarm_state(alarm, list(points)), alarm["StateValue"]
    if state != old:
        alarm.update(StateValue=state, StateReason=reason, StateUpdatedTimestamp=int(time.time()))
        metrics._record_history(alarm["AlarmName"], old, state, reason)
        metrics._dispatch_alarm_actions(alarm, old, state, reason)
        metrics._evaluate_parent_alarms(alarm)


def alarm_state(alarm: Mapping[str, Any], points: Sequence[Any]) -> tuple[str, str]:
    """Return an alarm's state and its reason from the points of its metric; both stay when it is not supported."""
    definition, current, now = AlarmDefinition.from_document(alarm), AlarmState(alarm["StateValue"]), time.time()
    if not definition.supported:
        return current, alarm["StateReason"]
    metrics, statistic = module("services.cloudwatch"), alarm.get("ExtendedStatistic") or alarm["Statistic"]
    periods: list[list[Any]] = [[] for _ in range(definition.evaluation_range)]
    for point in points:
        index = period_index(point["Timestamp"], now=now, period=definition.period)
        if index < len(periods):
            periods[index].append(point)
    values = [metrics._stat_value(metrics._calc_stats(group), statistic, group) if group else None for group in periods]
    datapoints = ", ".join("no data" if value is None else f"{value:g}" for value in values)
    reason = f"{definition.comparison} {definition.threshold:g}; periods of {definition.period:g} s, latest first: "
    return evaluate(values, definition, current=current), reason + datapoints


class AlarmState(StrEnum):
    """The states of an alarm."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True, kw_only=True)
class AlarmDefinition:
    """The parameters of PutMetricAlarm that decide about an alarm's state."""

    period: float
    """Seconds whose points become one datapoint."""
    evaluation_periods: int
    datapoints_to_alarm: int
    comparison: str
    threshold: float
    missing: str
    """`missing`, `ignore`, `breaching` or `notBreaching`."""

    @classmethod
    def from_document(cls, alarm: Mapping[str, Any]) -> AlarmDefinition:
        """Read an alarm as DescribeAlarms shows it."""
        periods = int(alarm["EvaluationPeriods"])
        return cls(
            period=float(alarm["Period"]),
            evaluation_periods=periods,
            datapoints_to_alarm=int(alarm.get("DatapointsToAlarm") or periods),
            comparison=alarm["ComparisonOperator"],
            threshold=float(alarm["Threshold"]),
            missing=alarm.get("TreatMissingData") or "missing",
        )

    @property
    def evaluation_range(self) -> int:
        """The number of periods, from now backwards, whose datapoints count."""
        return self.evaluation_periods + _EXTRA_PERIODS

    @property
    def supported(self) -> bool:
        """Whether the alarm compares with a threshold; anomaly detection is not emulated."""
        return self.comparison in _COMPARISONS

    def breaches(self, value: float) -> bool:
        """Return whether a value is beyond the threshold."""
        return _COMPARISONS[self.comparison](value, self.threshold)


def period_index(timestamp: float, *, now: float, period: float) -> int:
    """Return how many periods ago a timestamp was: 0 for the current period. Times and `period` are in seconds."""
    return max(0, int((now - timestamp) // period))


def evaluate(values: Sequence[float | None], alarm: AlarmDefinition, *, current: AlarmState) -> AlarmState:
    """Return the state of an alarm from the datapoints of its evaluation range, the latest first; None is missing.

    If the range has enough datapoints, they decide, even if some of them are older than the alarm's periods. Otherwise
    `TreatMissingData` decides for the ones that are missing.
    """
    existing = [(age, value) for age, value in enumerate(values, start=1) if value is not None]
    existing = existing[: alarm.evaluation_periods]
    breaching = [age for age, value in existing if alarm.breaches(value)]
    lacking = alarm.evaluation_periods - len(existing)
    if len(breaching) + (lacking if alarm.missing == "breaching" else 0) >= alarm.datapoints_to_alarm:
        return AlarmState.ALARM
    if not lacking or alarm.missing in {"breaching", "notBreaching"} or len(breaching) < len(existing):
        return AlarmState.OK
    if alarm.missing == "ignore":
        return current
    if not existing:
        return AlarmState.INSUFFICIENT_DATA
    # All existing datapoints breach, but too few: the alarm fires when the oldest one is old enough.
    return AlarmState.ALARM if breaching[-1] >= alarm.datapoints_to_alarm else current


def read_metrics(line: str) -> Iterator[MetricDatum]:
    """Yield the metrics of a log line; none when the line is not a document of the format.

    The metadata names metrics and dimensions; their values are members of the document. A metric is a number or a list
    of numbers, a dimension a string. Metrics without such values are skipped.
    """
    if '"_aws"' not in line:  # most lines are plain log lines; parsing all of them would slow functions down
        return
    try:
        document = json.loads(line)
        timestamp = document["_aws"]["Timestamp"] / 1000  # from milliseconds
        declared = [
            (directive["Namespace"], metric["Name"], metric.get("Unit", "None"), names)
            for directive in document["_aws"]["CloudWatchMetrics"]
            for metric in directive["Metrics"]
            for names in directive["Dimensions"] or [[]]
        ]
    except (ValueError, KeyError, TypeError):
        return
    for namespace, name, unit, names in declared:
        value = document.get(name)
        values = value if isinstance(value, list) else [value]
        # In Python, true and false are ints.
        numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in values)
        dimensions = {key: document[key] for key in names if isinstance(document.get(key), str)}
        if numeric and 0 < len(values) <= _MAX_VALUES and len(dimensions) == len(names):
            yield MetricDatum(namespace, name, dimensions, unit, timestamp, tuple(float(item) for item in values))
