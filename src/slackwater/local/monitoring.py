"""CloudWatch as it is on AWS: log lines become metrics, queues and failed executions are measured, alarms ring."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slackwater.local import emulator, emulator_metrics, emulator_queues
from slackwater.local.alarms import Rule, State, judge, period_of
from slackwater.local.emf import Datum, data

_LOG = logging.getLogger("slackwater.local")
_PAUSE_SECONDS = 1
_REPEAT_SECONDS = 60
"""SQS measures a queue once a minute."""


class Monitoring:
    """Does once a second what the emulator does not do."""

    def __init__(self, touch: Callable[[], None]) -> None:
        """`touch` is told when something has changed that is to be kept."""
        self._touch = touch
        self._noted: deque[tuple[emulator.Scope, Datum]] = deque()
        self._measured: dict[tuple[emulator.Scope, str], tuple[float, emulator_queues.Waiting]] = {}

    def register(self) -> None:
        """Enter it in the emulator's tables."""
        emulator_metrics.follow_logs(self._note_line)
        emulator_metrics.follow_failures(self._note_failure)
        emulator_metrics.judge_alarms(verdict)
        emulator_metrics.keep_dead_letters()

    async def run(self) -> None:
        """Go on for ever. What changes, changes on the event loop, between two requests."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                if self.step(time.time()):
                    self._touch()
            except Exception:  # noqa: BLE001 - what went wrong this time must not end all alarms
                _LOG.exception("Metrics and alarms could not be brought up to date")

    def step(self, now: float) -> bool:
        """Bring metrics and alarms up to date. Return whether there was anything to do."""
        put = self._put_noted() + self._put_measured(now)
        return emulator_metrics.evaluate_alarms() or put > 0

    def _note_line(self, line: str) -> None:
        """Take a log line. Functions log, and executions fail, in threads of their own."""
        scope = emulator.request_scope()
        self._noted.extend((scope, datum) for datum in data(line))

    def _note_failure(self, machine: str) -> None:
        of = {"StateMachineArn": machine}
        datum = Datum("AWS/States", "ExecutionsFailed", of, "Count", time.time(), (1.0,))
        self._noted.append((emulator.request_scope(), datum))

    def _put_noted(self) -> int:
        count = len(self._noted)
        for _ in range(count):
            emulator_metrics.put_datum(*self._noted.popleft())
        return count

    def _put_measured(self, now: float) -> int:
        """Put what queues hold: when it has changed, and as long as there is something."""
        due = {}
        for queue, found in emulator_queues.waiting().items():
            at, before = self._measured.get(queue, (0.0, None))
            if found != before or (found.oldest and now - at >= _REPEAT_SECONDS):
                due[queue] = found
        for (scope, name), found in due.items():
            age = now - found.oldest if found.oldest else 0.0
            for metric, unit, value in (
                ("ApproximateNumberOfMessagesVisible", "Count", float(found.visible)),
                ("ApproximateAgeOfOldestMessage", "Seconds", age),
            ):
                datum = Datum("AWS/SQS", metric, {"QueueName": name}, unit, now, (value,))
                emulator_metrics.put_datum(scope, datum)
            self._measured[scope, name] = (now, found)
        return len(due)


def verdict(alarm: Mapping[str, Any], points: Sequence[Any]) -> tuple[str, str]:
    """Return an alarm's state by its metric's points, and why. One that this cloud cannot judge stays as it is."""
    rule, current, now = Rule.of(alarm), State(alarm["StateValue"]), time.time()
    if not rule.supported:
        return current, alarm["StateReason"]
    periods: list[list[Any]] = [[] for _ in range(rule.looked_at)]
    for point in points:
        age = period_of(point["Timestamp"], now=now, period=rule.period)
        if age < len(periods):
            periods[age].append(point)
    values = [emulator_metrics.statistic(alarm, found) for found in periods]
    shown = ", ".join("no data" if value is None else f"{value:g}" for value in values)
    why = f"{rule.comparison} {rule.threshold:g}; periods of {rule.period:g} s, the latest first: {shown}"
    return judge(values, rule, current=current), why
