"""Progress on standard error: what is under way, what has ended, and how long each part took."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TextIO

from slackwater.cli.output import clean


class PartState(StrEnum):
    """Where a part stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_STYLES = {PartState.DONE: ("✓", "green"), PartState.FAILED: ("✗", "red")}


@dataclass
class _Part:
    mark: PartState
    note: str
    began: float
    seconds: float | None = None
    written: float = -math.inf
    """When a line of it was last written."""

    def elapsed(self) -> float:
        return time.monotonic() - self.began if self.seconds is None else self.seconds


@dataclass
class ProgressBoard:
    """Parts in the order in which they began: redrawn in place on a terminal, a line for each change in a pipe."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: float = 5.0
    """In a pipe, the seconds between two lines of a part of which only the note changes."""
    _parts: dict[str, _Part] = field(default_factory=dict)
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts.values():
            if part.mark is PartState.RUNNING:
                part.seconds = part.elapsed()
        if self._live:
            self._live.stop()

    def update(
        self, name: str, mark: PartState = PartState.RUNNING, *, note: str = "", seconds: float | None = None
    ) -> None:
        """Show where a part stands. `seconds`: how long it took, if not since its first update."""
        before = self._parts.get(name)
        part = before or _Part(mark, note, time.monotonic())
        changed = before is None or before.mark != mark
        renoted = part.note != note and time.monotonic() - part.written >= self.quiet
        part.mark, part.note = mark, note
        if mark is not PartState.RUNNING and part.seconds is None:
            part.seconds = part.elapsed() if seconds is None else seconds
        self._parts[name] = part
        if (changed or renoted) and not self._live:
            part.written = time.monotonic()
            self.stream.write(f"{_line(name, part)}\n")
            self.stream.flush()

    def __rich__(self) -> Any:
        """Return what the terminal shows now."""
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        for name, part in self._parts.items():
            sign, style = _STYLES.get(part.mark, ("", "cyan"))
            icon: Any = Text(sign, style=style) if sign else Spinner("dots", style=style)
            clock = Text(f"{part.elapsed():.1f} s", style="dim")
            grid.add_row(icon, Text(clean(name)), clock, Text(clean(part.note), style="dim"))
        return grid


def _line(name: str, part: _Part) -> str:
    seconds = f" {part.elapsed():.1f} s" if part.mark is not PartState.RUNNING else ""
    return clean(f"{name}: {part.mark}{seconds}{f', {part.note}' if part.note else ''}")
