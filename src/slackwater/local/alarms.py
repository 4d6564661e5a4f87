"""The state of an alarm, by CloudWatch's rules for a metric's values and for data that is missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_FURTHER_BACK = 2
"""How many periods more than it needs CloudWatch looks at: its documentation's examples show five for three."""
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


class State(StrEnum):
    """Of an alarm."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What an alarm is told when it is made."""

    period: float
    """Seconds that are taken together to one value."""
    periods: int
    """How many values are judged."""
    to_alarm: int
    """How many of them must breach."""
    comparison: str
    threshold: float
    missing: str
    """`missing`, `ignore`, `breaching` or `notBreaching`."""

    @classmethod
    def of(cls, alarm: Mapping[str, Any]) -> Rule:
        """Read an alarm as `DescribeAlarms` shows it."""
        periods = int(alarm["EvaluationPeriods"])
        return cls(
            period=float(alarm["Period"]),
            periods=periods,
            to_alarm=int(alarm.get("DatapointsToAlarm") or periods),
            comparison=alarm["ComparisonOperator"],
            threshold=float(alarm["Threshold"]),
            missing=alarm.get("TreatMissingData") or "missing",
        )

    @property
    def looked_at(self) -> int:
        """How many periods, from now backwards, can decide: the evaluation range."""
        return self.periods + _FURTHER_BACK

    def breaches(self, value: float) -> bool:
        """Whether a value is beyond the threshold."""
        return _COMPARISONS[self.comparison](value, self.threshold)

    @property
    def supported(self) -> bool:
        """Whether it compares with a threshold; bands of anomalies are not known here."""
        return self.comparison in _COMPARISONS


def period_of(at: float, *, now: float, period: float) -> int:
    """Return in which period from now backwards, counted from 0, a moment lies."""
    return max(0, int((now - at) // period))


def judge(values: Sequence[float | None], rule: Rule, *, current: State) -> State:
    """Return the state by the values of the periods looked at, the latest first, None where there is no data.

    What is there decides as long as there is enough of it, also from further back; only then is missing data treated.
    """
    there = [(age, value) for age, value in enumerate(values, start=1) if value is not None][: rule.periods]
    breaching = [age for age, value in there if rule.breaches(value)]
    lacking = rule.periods - len(there)
    counted = len(breaching) + (lacking if rule.missing == "breaching" else 0)
    if counted >= rule.to_alarm:
        return State.ALARM
    if not lacking or rule.missing in {"breaching", "notBreaching"} or len(breaching) < len(there):
        return State.OK
    if rule.missing == "ignore":
        return current
    if not there:
        return State.INSUFFICIENT_DATA
    # All that there is breaches, and it is too little: an alarm rings if it began long enough ago.
    return State.ALARM if breaching[-1] >= rule.to_alarm else current
