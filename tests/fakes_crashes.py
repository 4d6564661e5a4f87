"""Processes that fail at one of their writes, for tests of crashes and races."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.fakes_receiver import Crash

FAULT_TYPES = ("ends before", "ends after", "fails", "loses the answer", "is overtaken")
_WRITES = frozenset(
    {
        "put",
        "put_new",
        "put_if_match",
        "put_new_file",
        "put_rejected",
        "delete",
        "register",
        "save",
        "save_rerun_usage",
        "record_late_day",
        "remove_late_day",
        "remove_unchanged_late_day",
        "send",
    }
)


@dataclass(frozen=True)
class WriteFault:
    """What happens to a process at one of its writes, counted from 1."""

    write: int
    type: str
    """One of `FAULT_TYPES`."""


class Process:
    """Passes calls on to the ports that all processes share, and has its fault at one of the writes.

    A process that has ended writes nothing more. One whose write has failed, or whose response was lost, goes on. One
    that is overtaken calls `meanwhile` before its write.
    """

    def __init__(self, fault: WriteFault | None = None, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._fault, self._meanwhile = fault, meanwhile
        self._writes, self._ended = 0, False
        self._lock = threading.Lock()

    @property
    def is_fault_reached(self) -> bool:
        """Whether the process has come to the write with the fault."""
        return self._fault is not None and self._writes >= self._fault.write

    @property
    def has_ended(self) -> bool:
        """Whether the process was killed by its fault."""
        return self._ended

    def using(self, shared: Any) -> Any:
        """Return `shared` as this process sees it."""
        return _Port(self, shared)

    def write(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self._writes += 1
            fault = self._fault.type if self._fault and self._writes == self._fault.write else ""
            ended, self._ended = self._ended, self._ended or fault.startswith("ends")
        if ended or fault in {"ends before", "fails"}:
            raise Crash(fault)
        if fault == "is overtaken":
            self._meanwhile()
        answer = call()
        if fault in {"ends after", "loses the answer"}:
            raise Crash(fault)
        return answer


class _Port:
    def __init__(self, process: Process, shared: Any) -> None:
        self._process, self._shared = process, shared

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shared, name)
        if name not in _WRITES:
            return method
        return lambda *arguments, **named: self._process.write(partial(method, *arguments, **named))
