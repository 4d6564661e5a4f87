"""Waiting runs in memory, and the states of Step Functions that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from slackwater.state.conditions import Unmet
from slackwater.state.waits import DayKey, WaitingRun


class MemoryWaits:
    """A `WaitTable` in a dictionary."""

    def __init__(self) -> None:
        self.runs: dict[tuple[DayKey, str], WaitingRun] = {}

    def put_wait(self, run: WaitingRun) -> None:
        self.runs[_key(run)] = run

    def waits(self, key: DayKey) -> list[WaitingRun]:
        return [run for (day, _), run in self.runs.items() if day == key]

    def save_unmet(self, run: WaitingRun, unmet: tuple[Unmet, ...]) -> None:
        if self._is_current(run):
            self.runs[_key(run)] = run._replace(unmet=unmet)

    def remove_wait(self, run: WaitingRun) -> None:
        if self._is_current(run):
            del self.runs[_key(run)]

    def _is_current(self, run: WaitingRun) -> bool:
        stored = self.runs.get(_key(run))
        return stored is not None and stored.token == run.token


class Tasks:
    """Waiting states: each execution has one token that is accepted, once."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.succeeded, self.started = Counter[str](), 0
        self.outputs: list[Mapping[str, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.on_success: Callable[[], object] = lambda: None

    def start(self, execution: str) -> str:
        """Enter the state again, and return its token; the one before has timed out."""
        self.started += 1
        self.tokens[execution] = f"{execution}-{self.started}"
        return self.tokens[execution]

    def succeed(self, token: str, output: Mapping[str, str]) -> bool:
        execution = self._end(token)
        if execution is None:
            return False
        self.on_success()
        self.succeeded[execution] += 1
        self.outputs.append(output)
        return True

    def fail(self, token: str, *, error: str, cause: str) -> bool:
        if self._end(token) is None:
            return False
        self.failures.append((error, cause))
        return True

    def _end(self, token: str) -> str | None:
        execution = next((name for name, current in self.tokens.items() if current == token), None)
        if execution is not None:
            del self.tokens[execution]
        return execution


def _key(run: WaitingRun) -> tuple[DayKey, str]:
    return DayKey(run.pipeline, run.date), run.execution
