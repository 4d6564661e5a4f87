"""The columns of a step's inputs, as far as they are known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slackwater.problems import Path, Problem, unknown_name
from slackwater.sources.event_schema import BATCH_ID, EVENT_TIME, EXTRA, RECEIVED_AT

Columns = tuple[str, ...]
"""The names of the columns of a frame, in order."""


class InputColumns:
    """The columns of the inputs of one step, and the problems of its parameters that they show."""

    def __init__(
        self, inputs: Mapping[str, Columns | None], *, sources: Mapping[str, Columns | None] | None = None
    ) -> None:
        """`inputs` are the columns by the name of the input, in order; None where they are not known.

        `sources` are those of all sources of the pipeline.
        """
        self.by_name = inputs
        self.sources = sources or {}
        self.problems: list[Problem] = []

    def __getitem__(self, index: int) -> Columns | None:
        """Return the columns of an input by its position; None if they are not known."""
        return list(self.by_name.values())[index]

    def require(self, index: int, names: Mapping[Path, str], *, at_key: bool = False) -> None:
        """Report each name that is no column of the input at this position.

        The keys are paths in the parameters. `at_key` says that the names are keys there, and not values.
        """
        columns, of = self[index], self.name(index)
        for path, name in names.items():
            if columns is not None and name not in columns:
                self.problems.append(missing_column(name, of, columns, path=path, at_key=at_key))

    def require_new(
        self, index: int, names: Sequence[str], *, path: Path, remedy: str = "rename or delete it in a step before"
    ) -> None:
        """Report that the input at this position has columns of these names already, regardless of case."""
        new = {name.lower() for name in names}
        existing = [name for name in self[index] or () if name.lower() in new]
        if existing:
            message = f"{self.name(index)} has a column {', '.join(existing)} already"
            self.problems.append(Problem(path=path, message=f"{message}: {remedy}"))

    def name(self, index: int) -> str:
        """Return the name of the input at this position."""
        return list(self.by_name)[index]


def missing_column(name: str, of: str, columns: Iterable[str], *, path: Path, at_key: bool = False) -> Problem:
    """Return the problem of a name that is none of the columns of the input `of`."""
    message = f"no column {name!r} in {of}"
    if name.lower() in {EVENT_TIME, RECEIVED_AT, BATCH_ID, EXTRA}:
        message += ": stored events have it for queries, and steps do not see it: use a field of the source"
    return unknown_name(message, name, columns, path=path, at_key=at_key)


def each(names: Sequence[str], *path: str | int) -> dict[Path, str]:
    """Return the names in a list of the parameters, by their paths; `path` is that of the list.

    >>> each(["origin", "carrier"], "group_by")
    {('group_by', 0): 'origin', ('group_by', 1): 'carrier'}
    """
    return {(*path, index): name for index, name in enumerate(names)}
