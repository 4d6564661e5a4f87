"""Progress on standard error: which tasks run, which have ended, and how long each took."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Self, TextIO

from slackwater.formatting import escape_control_characters


class TaskState(StrEnum):
    """State of a task."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_SYMBOLS = {TaskState.DONE: ("✓", "green"), TaskState.FAILED: ("✗", "red")}


@dataclass
class _Task:
    state: TaskState
    note: str
    started: float
    seconds: float | None = None
    line_written: float = -math.inf
    """When a line about the task was last written to a pipe."""

    def elapsed(self) -> float:
        return time.monotonic() - self.started if self.seconds is None else self.seconds


@dataclass
class ProgressBoard:
    """Tasks in the order in which they started.

    On a terminal the list is redrawn in place. In a pipe, each change writes one line.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    note_interval: float = 5.0
    """In a pipe: the minimum seconds between two lines about a task if only its note has changed."""
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _live: Any = None

    def __enter__(self) -> Self:
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream, highlight=False)
            self._live = Live(self, console=console, refresh_per_second=6, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            if task.state is TaskState.RUNNING:
                task.seconds = task.elapsed()
        if self._live:
            self._live.stop()

    def update(
        self, name: str, state: TaskState = TaskState.RUNNING, *, note: str = "", seconds: float | None = None
    ) -> None:
        """Show a task's state. `seconds` is how long it took; by default, the time since its first update."""
        # A note may change many times a second: in a pipe, `note_interval` limits the lines about it.
        now = time.monotonic()
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = _Task(state, note, started=now)
            changed = True
        else:
            new_note = task.note != note and now - task.line_written >= self.note_interval
            changed = task.state != state or new_note
            task.state, task.note = state, note
        if state is not TaskState.RUNNING and task.seconds is None:
            task.seconds = task.elapsed() if seconds is None else seconds
        if changed and not self._live:
            task.line_written = now
            elapsed = f" {task.elapsed():.1f} s" if state is not TaskState.RUNNING else ""
            line = escape_control_characters(f"{name}: {state}{elapsed}{f', {note}' if note else ''}")
            self.stream.write(f"{line}\n")
            self.stream.flush()

    def __rich__(self) -> Any:
        """Return the list to draw; rich calls this for each redraw."""
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        # A list that is longer than the terminal would be cut at its end, where the running tasks are.
        too_many = len(self._tasks) - get_terminal_size().lines + 2
        ended = [name for name, task in self._tasks.items() if task.state is not TaskState.RUNNING]
        left_out = set(ended[: max(too_many, 0)])
        for name, task in self._tasks.items():
            if name in left_out:
                continue
            symbol, style = _SYMBOLS.get(task.state, ("", "cyan"))
            icon: Any = Text(symbol, style=style) if symbol else Spinner("dots", style=style)
            elapsed = Text(f"{task.elapsed():.1f} s", style="dim")
            note = Text(escape_control_characters(task.note), style="dim")
            grid.add_row(icon, Text(escape_control_characters(name)), elapsed, note)
        return grid
