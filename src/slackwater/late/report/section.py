"""The parts of a report: sections with lines and tables of strings, and how values become strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from slackwater.formatting import escape_control_characters, number_pair, relative_change
from slackwater.late.comparison import Comparison, Value

MAX_CELL = 24
"""Characters of a value in a table."""
# Of a value in a line.
_MAX_VALUE = 40


class ReportTable(NamedTuple):
    """A table of strings. Cells of numbers are padded with blanks, which align them to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of_columns(cls, columns: Sequence[Sequence[str]]) -> ReportTable:
        """Return the table of these columns; the first string of each is its name."""
        names, *rows = zip(*columns, strict=True)
        return cls(names, tuple(rows))

    def aligned(self, *names: str) -> ReportTable:
        """Return the table with the cells of these columns, names included, aligned to the right."""
        columns = list(zip(self.columns, *self.rows, strict=True))
        return ReportTable.of_columns(
            [
                [cell.rjust(max(map(len, column))) for cell in column] if column[0] in names else column
                for column in columns
            ]
        )


class ReportSection(NamedTuple):
    """A part of a report: a title, then lines, then a table. Control characters in data are escaped."""

    title: str
    lines: tuple[str, ...] = ()
    table: ReportTable | None = None


def cut_value(value: Value, limit: int = _MAX_VALUE) -> str:
    """Return a value as one line of at most `limit` characters.

    Numbers have no thousands separators, because numbers in keys are names: the year 2013 stays 2013.

    >>> cut_value(None), cut_value(2013), cut_value("a long value", limit=6)
    ('none', '2013', 'a l...')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    string = escape_control_characters(str(value))
    return string if len(string) <= limit else f"{string[: limit - 3]}..."


def with_count(title: str, shown: int, total: int) -> str:
    """Return the title; with the two counts if not all entries are shown: `Changed rows: 10 of 1,234`."""
    return title if shown == total else f"{title}: {shown} of {total:,}"


def number_columns(comparison: Comparison, pairs: Sequence[tuple[float | None, float | None]]) -> list[list[str]]:
    """Return the columns of both versions' numbers and of their change, aligned to the right."""
    strings = [number_pair(before, after) for before, after in pairs]
    columns = [
        [f"version {comparison.before.attempt}", *(before for before, _ in strings)],
        [f"version {comparison.after.attempt}", *(after for _, after in strings)],
        ["change", *(relative_change(before, after) for before, after in pairs)],
    ]
    return [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]


def is_number(value: Value) -> TypeGuard[int | float | None]:
    """Return whether `number` can format the value. None counts as a number: a null beside a number."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def value_pair(before: Value, after: Value, limit: int = _MAX_VALUE) -> tuple[str, str]:
    """Return the values before and after, numbers with thousands separators."""
    if is_number(before) and is_number(after):
        return number_pair(before, after)
    return cut_value(before, limit), cut_value(after, limit)
