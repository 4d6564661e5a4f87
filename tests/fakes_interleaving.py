"""Processes that take turns: each makes one call at a time, in an order that a test draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from slackwater.errors import SlackwaterError

Work = Callable[[Callable[[Any], Any]], object]
"""The work of a process. Its argument is a function that wraps a port, so that each call waits for its turn."""


def take_turns(works: Sequence[Work], order: Iterable[int], *, after_each: Callable[[], object]) -> None:
    """Run all functions concurrently, one call at a time. Numbers of `order` choose the unfinished one that goes on."""
    processes = [_Process(work) for work in works]
    numbers = iter(order)
    while alive := [process for process in processes if not process.is_done]:
        alive[next(numbers, 0) % len(alive)].go_on()
        after_each()


class _Process:
    def __init__(self, work: Work) -> None:
        self.is_done = False
        self._mine, self._others, self._call = threading.Semaphore(0), threading.Semaphore(0), threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Let it run until its next call or its end."""
        self._mine.release()
        self._others.acquire()
        if self.is_done:
            self._thread.join()

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self._call:
            self._others.release()
            self._mine.acquire()
            return function(*arguments, **named)

    def _run(self, work: Work) -> None:
        self._mine.acquire()
        try:
            work(lambda port: _Port(self, port))
        except SlackwaterError:
            pass
        finally:
            self.is_done = True
            self._others.release()


class _Port:
    def __init__(self, process: _Process, port: Any) -> None:
        self._process, self._port = process, port

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        return lambda *arguments, **named: self._process.call(method, *arguments, **named)
