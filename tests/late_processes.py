"""Processes of a model: each of their writes can fail or be their last, and two of them can take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from threading import Condition
from typing import Any

from slackwater.errors import ResponseLost, SlackwaterError, Unavailable
from tests.fakes_notification import Crashed

FAULTS = ("ends before", "ends after", "fails", "loses the answer", "is stopped")
_WRITES = frozenset(
    {
        "put",
        "put_new",
        "delete",
        "save",
        "save_rerun_usage",
        "save_definition_notice",
        "record_late_day",
        "remove_late_day",
    }
    | {"remove_unchanged_late_day", "publish", "write", "commit"}
    | {"put_wait", "save_unmet", "remove_wait", "succeed", "fail", "put_verdicts"}
)


class Turns:
    """Lets two processes run at the same time: before each of its calls, a process may have to wait for the other."""

    def __init__(self, order: Sequence[int]) -> None:
        """`order` are the numbers of the processes, 0 and 1, that make the next calls; it is repeated."""
        self._order, self._next, self._active = cycle(order), 0, {0, 1}
        self._changed = Condition()
        self._waiting: set[int] = set()

    def take(self, number: int, following: int | None = None) -> None:
        """Let the process `following`, or the next one of the order, go on, and wait until it is `number`'s turn."""
        with self._changed:
            chosen = next(self._order) if following is None else following
            self._next = chosen if chosen in self._active else number
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._next == number)

    def can_wait(self, number: int) -> bool:
        """Let the other process go on for a while; return False if it has ended, or waits as well."""
        if 1 - number not in self._active - self._waiting:
            return False
        self._waiting.add(number)
        self.take(number, 1 - number)
        self._waiting.discard(number)
        return True

    def run(self, *works: Callable[[], object]) -> None:
        """Run two processes until both have ended. Raises what they raise, but no `SlackwaterError` or `Crashed`."""

        def run(number: int) -> None:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._next == number)
                with suppress(SlackwaterError, Crashed):
                    works[number]()
            finally:
                with self._changed:
                    self._active.discard(number)
                    self._next = 1 - number
                    self._changed.notify_all()

        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(run, number) for number in (0, 1)]:
                each.result()


@dataclass
class Process:
    """Passes calls on to what all processes share, and has its fault at one of its writes, counted from 1.

    A process that has ended writes nothing more. One whose write failed, or whose answer was lost, goes on, and so does
    one whose execution is stopped: Step Functions stops no function that works.
    """

    at: int = 0
    fault: str = ""
    writes: int = 0
    ended: bool = False
    turns: Turns | None = None
    number: int = 0
    """Of the two processes that take turns."""
    stop: Callable[[], None] = field(default=lambda: None)
    """Stops its execution."""

    def using(self, shared: Any) -> Any:
        return _Port(self, shared)

    def write(self, call: Callable[[], Any], lost: type[Exception] = Unavailable) -> Any:
        self.writes += 1
        fault = self.fault if self.writes == self.at else ""
        if self.ended or fault == "ends before":
            self.ended = True
            raise Crashed
        if fault == "fails":
            raise Unavailable("fails")
        if fault == "is stopped":
            self.stop()
        answer = call()
        if fault == "ends after":
            self.ended = True
            raise Crashed
        if fault == "loses the answer":
            raise lost("loses the answer")
        return answer


class _Port:
    def __init__(self, process: Process, shared: Any) -> None:
        self._process, self._shared = process, shared

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shared, name)
        if self._process.turns:
            self._process.turns.take(self._process.number)
        if name not in _WRITES:
            return method
        lost = ResponseLost if name == "publish" else Unavailable
        return lambda *arguments, **named: self._process.write(lambda: method(*arguments, **named), lost)
