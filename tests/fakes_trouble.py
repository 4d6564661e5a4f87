"""Processes that meet with trouble at one of their writes, for tests of what a crash or a race leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.fakes_receiver import Crash

KINDS = ("ends before", "ends after", "fails", "loses the answer", "is overtaken")
_WRITES = frozenset({"put", "put_new", "put_new_file", "delete", "register", "save", "save_content", "send"})


@dataclass(frozen=True)
class Trouble:
    """What becomes of a process at one of its writes, counted from 1."""

    write: int
    kind: str
    """One of `KINDS`."""


class Process:
    """Passes calls on to what all processes share, and has its trouble there.

    A process that has ended writes nothing more; one whose write has failed, or whose answer was lost, goes on. One
    that is overtaken waits before its write until `meanwhile` is done.
    """

    def __init__(self, trouble: Trouble | None = None, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._trouble, self._meanwhile = trouble, meanwhile
        self._writes, self._ended = 0, False
        self._lock = threading.Lock()

    @property
    def has_had_trouble(self) -> bool:
        """Whether it has made the write that the trouble is at."""
        return self._trouble is not None and self._writes >= self._trouble.write

    def using(self, shared: Any) -> Any:
        """Return `shared` as this process sees it."""
        return _Port(self, shared)

    def write(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self._writes += 1
            kind = self._trouble.kind if self._trouble and self._writes == self._trouble.write else ""
            ended, self._ended = self._ended, self._ended or kind.startswith("ends")
        if ended or kind in {"ends before", "fails"}:
            raise Crash(kind)
        if kind == "is overtaken":
            self._meanwhile()
        answer = call()
        if kind in {"ends after", "loses the answer"}:
            raise Crash(kind)
        return answer


class _Port:
    def __init__(self, process: Process, shared: Any) -> None:
        self._process, self._shared = process, shared

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._shared, name)
        if name not in _WRITES:
            return found
        return lambda *arguments, **named: self._process.write(partial(found, *arguments, **named))
