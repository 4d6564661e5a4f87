"""What is wrong with a definition, and where in it.

Models and steps report problems by their path in the definition. `slackwater.validation` adds file, line and column.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slackwater.errors import DefinitionError

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value in a definition, such as `("steps", "joined", "depends_on", 0)`."""

_MOST_NAMES = 12
"""How many names a message lists."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of a definition."""

    message: str
    """What is wrong, without a remedy if `expected` or `suggestion` states it."""
    path: Path = ()
    """Where it is, from the value that was checked."""
    expected: str = ""
    """What the value could be."""
    suggestion: str = ""
    """The valid name that is closest to the invalid one."""
    at_key: bool = False
    """Whether the key is the problem, and not its value."""
    position: tuple[int, int] | None = None
    """For SQL: line and column within the string, from 1."""

    def __str__(self) -> str:
        """Return `path: message (line, column) (hint)`, as a step reports it where there is no file."""
        place = f"{dotted(self.path)}: " if self.path else ""
        position = f" (line {self.position[0]}, column {self.position[1]})" if self.position else ""
        return f"{place}{self.message}{position}{hint(self.expected, self.suggestion)}"


class Problems(DefinitionError, ValueError):
    """Problems of a definition. It is a `ValueError` as well, so that the validators of a model can raise it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n  ".join(map(str, problems)))
        self.problems = problems

    def below(self, *path: str | int) -> Problems:
        """Return the same problems, for a definition that contains the checked value at `path`."""
        return Problems(*(replace(problem, path=(*path, *problem.path)) for problem in self.problems))


def hint(expected: str, suggestion: str) -> str:
    """Return what follows a message: ` (expected ...; did you mean ...?)`, or nothing."""
    hints = [f"expected {expected}"] if expected else []
    hints += [f"did you mean {suggestion}?"] if suggestion else []
    return f" ({'; '.join(hints)})" if hints else ""


def dotted(path: Path) -> str:
    """Return a path as messages show it: `steps.joined.depends_on.0`."""
    return ".".join(map(str, path))


def closest(name: str, names: Iterable[str]) -> str:
    """Return the most similar of the names, regardless of case; empty if none is similar.

    >>> closest("Orgin", ["origin", "carrier"])
    'origin'
    """
    by_lower_case = {known.lower(): known for known in names}
    similar = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[similar[0]] if similar else ""


def unknown_name(message: str, name: str, names: Iterable[str], *, path: Path, at_key: bool = False) -> Problem:
    """Return the problem of a name that is none of `names`: it suggests the closest one, or else lists them.

    >>> unknown_name("no such source", "filghts", ["flights", "weather"], path=("inputs", "filghts")).suggestion
    'flights'
    """
    known = list(names)
    similar = closest(name, known)
    return Problem(
        message=message, path=path, expected="" if similar else listed(known), suggestion=similar, at_key=at_key
    )


def sql_position(index: int, sql: str) -> tuple[int, int]:
    """Return line and column, from 1, of a character of the SQL."""
    line_start = sql.rfind("\n", 0, index) + 1
    return sql.count("\n", 0, index) + 1, index - line_start + 1


def listed(names: Iterable[str]) -> str:
    """Return names for people: `one of a, b, c`; at most the first twelve, and empty without names."""
    known = list(names)
    if len(known) <= 1:
        return "".join(known)
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"one of {', '.join(known[:_MOST_NAMES])}{more}"
