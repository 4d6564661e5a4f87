"""The rules of `data_quality`, as a pipeline states them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slackwater.steps.columns import ColumnNames, Scalar
from slackwater.steps.step import Parameters


class RowRule(Parameters):
    """Base of the rules of rows."""

    severity: Literal["warn", "reject", "fail", "invalidate"] = "fail"
    """`fail` fails the run, `reject` leaves failed rows out of the result, `warn` reports them. `invalidate` fails the
    run, and gives the input the verdict that it should not be used."""


class FrameRule(Parameters):
    """Base of the rules of the whole frame."""

    severity: Literal["warn", "fail", "invalidate"] = "fail"
    """`fail` fails the run, `warn` reports it. `invalidate` fails the run, and gives the input the verdict that it
    should not be used. There is no row to reject."""


class NotNull(RowRule):
    """Rule: a column has a value in each row."""

    rule: Literal["not_null"]
    """The name of the rule."""
    column: str
    """The column."""


class Unique(RowRule):
    """Rule: no two rows have equal values in some columns."""

    rule: Literal["unique"]
    """The name of the rule."""
    columns: ColumnNames
    """The columns, which are compared together."""


class Range(RowRule):
    """Rule: the values of a column are between two limits."""

    rule: Literal["range"]
    """The name of the rule."""
    column: str
    """A column of numbers, dates, timestamps or strings."""
    min: Scalar | None = None
    """The smallest allowed value, of the column's type. Dates and timestamps are such as 2013-03-10; without offset in
    UTC."""
    max: Scalar | None = None
    """The largest allowed value."""


class Regex(RowRule):
    """Rule: the strings of a column match a regular expression."""

    rule: Literal["regex"]
    """The name of the rule."""
    column: str
    """A column of strings."""
    pattern: str
    """The regular expression in Java's syntax. It matches whole strings."""


class Allowed(RowRule):
    """Rule: the values of a column are among some values."""

    rule: Literal["allowed"]
    """The name of the rule."""
    column: str
    """The column."""
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)]
    """The allowed values, of the column's type."""


class Referential(RowRule):
    """Rule: the values of some columns exist in the second input."""

    rule: Literal["referential"]
    """The name of the rule."""
    columns: ColumnNames
    """The columns of the first input."""
    reference_columns: ColumnNames | None = None
    """The columns of the second input, in the same order. Without it, those of the same names."""


class RowCount(FrameRule):
    """Rule: the number of rows is between two limits."""

    rule: Literal["row_count"]
    """The name of the rule."""
    min: Annotated[int, Field(ge=0)] | None = None
    """The smallest allowed number."""
    max: Annotated[int, Field(ge=0)] | None = None
    """The largest allowed number."""


class Freshness(FrameRule):
    """Rule: the newest timestamp of a column is close to the end of the day."""

    rule: Literal["freshness"]
    """The name of the rule."""
    column: str
    """A column of timestamps; those without a timezone are UTC."""
    hours: Annotated[float, Field(ge=0, le=87_600)]
    """How many hours before the end of the day the newest value may be."""


Rule = NotNull | Unique | Range | Regex | Allowed | Referential | RowCount | Freshness


def reason_of(rule: RowRule) -> str:
    """Return why a row fails a rule of rows, for people; the row has the values."""
    match rule:
        case NotNull():
            return f"{rule.column}: no value"
        case Unique():
            return f"{', '.join(rule.columns)}: other rows have the same values"
        case Range():
            limits = [f"less than {rule.min}" if rule.min is not None else "", f"more than {rule.max}"]
            return f"{rule.column}: {' or '.join(filter(None, limits[: 1 if rule.max is None else 2]))}, or NaN"
        case Regex():
            return f"{rule.column}: does not match {rule.pattern}"
        case Allowed():
            return f"{rule.column}: none of the allowed values"
        case Referential():
            return f"{', '.join(rule.columns)}: the reference has no such row"
        case _:
            raise TypeError(f"no such rule: {rule!r}")


def columns_of(rule: Rule) -> tuple[str, ...]:
    """Return the columns of the first input that a rule checks."""
    match rule:
        case RowCount():
            return ()
        case Unique() | Referential():
            return rule.columns
        case _:
            return (rule.column,)
