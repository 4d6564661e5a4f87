"""A problem of a project: what is wrong, and at which line and column of which file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slackwater.faults import hint


@dataclass(frozen=True, kw_only=True, order=True)
class Problem:
    """One problem of a project. Problems are ordered by their position."""

    file: Path
    line: int
    """From 1, as editors count."""
    column: int
    """From 1, in characters."""
    place: str
    """The keys that lead to the faulty value, such as `steps.joined.depends_on`; empty for the whole file."""
    message: str
    expected: str = ""
    """What the value could be."""
    suggestion: str = ""
    """The valid name that is closest to the faulty one."""

    @property
    def description(self) -> str:
        """The problem without its position: `place: message (expected ...; did you mean ...?)`."""
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.message}{hint(self.expected, self.suggestion)}"

    @property
    def position(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        """Return `file:line:column: place: message (expected ...; did you mean ...?)`."""
        return f"{self.position}: {self.description}"
