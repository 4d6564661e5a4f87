"""Evaluates alarms by CloudWatch's rules for datapoints and for missing data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# CloudWatch evaluates more periods than an alarm names. Its documentation gives no number; in its examples of missing
# data, an alarm of three periods evaluates five.
_EXTRA_PERIODS = 2
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


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
