"""Compare the rows of a step with the expected ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.dev.testing.definition import Row
from slackwater.dev.testing.values import WrongType, are_equal, exact_part, read_actual, read_expected
from slackwater.problems import Problem, Problems, unknown_name

_Values = Sequence[Any]
# How many rows of each kind are listed, and among how many unexpected ones the counterpart of a missing row is found.
_LISTED, _COMPARED = 20, 1000


@dataclass(frozen=True, kw_only=True)
class DifferentRow:
    """A row that only one side has."""

    line: int | None
    """Of an expected row: its line in the test, from 1; None for an unexpected one."""
    values: tuple[Any, ...]
    """In the order of the columns."""


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """The rows of a step that differ."""

    step: str
    columns: tuple[str, ...]
    expected: int
    """How many rows are expected."""
    actual: int
    """How many rows the step has."""
    missing: int
    """How many of the expected rows it lacks."""
    unexpected: int
    """How many of its rows are not expected."""
    rows: tuple[DifferentRow, ...]
    """Some missing rows, each followed by the unexpected row that is most like it, then other unexpected rows."""


def compare_rows(step: str, expected: Sequence[Row], actual: pa.Table, lines: Sequence[int]) -> StepDifference | None:
    """Compare all rows of a step with the expected ones, in any order and each as often as it occurs.

    Only the columns of the expected rows count. `lines` are the lines of these rows in the test. Returns None if the
    rows are equal. Raises `Problems`, with paths from the expected rows, for columns that the step lacks and values
    that do not fit their column.
    """
    columns = tuple(expected[0]) if expected else tuple(actual.column_names)
    wanted = _read_expected(columns, expected, actual.schema)
    if not expected:
        table = actual.rename_columns([f"c{index}" for index in range(actual.num_columns)])
    else:
        table = actual.select(list(columns))
    fields = list(zip(table.column_names, table.schema.types, strict=True))
    found = [[read_actual(row[name], data_type) for name, data_type in fields] for row in table.to_pylist()]
    missing, unexpected = _unmatched(wanted, found)
    if not missing and not unexpected:
        return None
    rows = _paired([(lines[index], wanted[index]) for index in missing], [found[index] for index in unexpected])
    return StepDifference(
        step=step,
        columns=columns,
        expected=len(wanted),
        actual=len(found),
        missing=len(missing),
        unexpected=len(unexpected),
        rows=tuple(rows),
    )


def _read_expected(columns: Sequence[str], expected: Sequence[Row], schema: pa.Schema) -> list[list[Any]]:
    problems = []
    for name in columns:
        if expected and (count := schema.names.count(name)) != 1:
            message = "the step has no such column" if not count else f"the step has {count} columns of this name"
            problem = unknown_name(message, name, schema.names, path=(0, name), at_key=True)
            problems.append(problem if not count else Problem(path=problem.path, message=message, at_key=True))
    if problems:
        raise Problems(*problems)
    rows = []
    for index, row in enumerate(expected):
        values: list[Any] = []
        for name in columns:
            data_type = schema.field(name).type
            try:
                values.append(read_expected(row[name], data_type))
            except WrongType as error:
                message = f"the column is of type {data_type}"
                problems.append(Problem(path=(index, name), message=message, expected=str(error)))
        rows.append(values)
    if problems:
        raise Problems(*problems)
    return rows


def _unmatched(wanted: Sequence[_Values], found: Sequence[_Values]) -> tuple[list[int], list[int]]:
    """Return the indexes of the rows on each side without an equal row on the other one."""
    candidates: dict[Hashable, list[int]] = defaultdict(list)
    for index, row in enumerate(found):
        candidates[exact_part(list(row))].append(index)
    missing = []
    for index, row in enumerate(wanted):
        same = candidates[exact_part(list(row))]
        match = next((other for other in same if are_equal(list(row), list(found[other]))), None)
        if match is None:
            missing.append(index)
        else:
            same.remove(match)
    return missing, sorted(index for indexes in candidates.values() for index in indexes)


def _paired(missing: Sequence[tuple[int, _Values]], unexpected: Sequence[_Values]) -> Iterator[DifferentRow]:
    """Yield the rows to list."""
    others = list(unexpected[:_COMPARED])
    for line, row in missing[:_LISTED]:
        yield DifferentRow(line=line, values=tuple(row))
        equal: list[int] = [sum(map(are_equal, row, other)) for other in others]
        most = max(equal, default=0)
        if most:
            yield DifferentRow(line=None, values=tuple(others.pop(equal.index(most))))
    for row in others[: max(0, _LISTED - len(missing))]:
        yield DifferentRow(line=None, values=tuple(row))
