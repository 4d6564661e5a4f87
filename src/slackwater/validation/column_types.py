"""The types of columns, and what fits them. Only what is certain counts: any value fits a column of unknown type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime

import sqlglot
from sqlglot import exp

from slackwater.problems import Path, Problem
from slackwater.steps.columns import Scalar
from slackwater.steps.quality_rules import Allowed, Freshness, Range, Regex, Rule
from slackwater.steps.step import Parameters
from slackwater.steps.transform.aggregate import Aggregate
from slackwater.steps.transform.data_quality import DataQuality
from slackwater.steps.transform.filter import Filter

Types = Mapping[str, str]
"""By column: the name of its type in a source's definition or in Spark SQL. A column of unknown type is missing."""

_OF_NUMBERS = ("sum", "mean", "stddev", "median", "quantile")


def is_number(data_type: str) -> bool:
    """Return whether columns of a type can be summed."""
    return _type(data_type) in exp.DataType.NUMERIC_TYPES


def has_hours(data_type: str) -> bool:
    """Return whether columns of a type can be the column of hours: timestamps and integers."""
    return _type(data_type) in (exp.DataType.TEMPORAL_TYPES | exp.DataType.INTEGER_TYPES) - {exp.DType.DATE}


def type_problems(parameters: Parameters, types: Types) -> Iterator[Problem]:
    """Yield a problem for each parameter that does not fit the type of its column.

    `types` are those of the step's first input. The paths are those in the parameters.
    """
    match parameters:
        case DataQuality():
            for index, rule in enumerate(parameters.rules):
                yield from _rule_problems(rule, types, ("rules", index))
        case Filter():
            condition = sqlglot.parse_one(parameters.where, dialect="spark").unnest()
            data_type = types.get(condition.name) if isinstance(condition, exp.Column) and not condition.table else None
            if data_type and _type(data_type) != exp.DType.BOOLEAN:
                message = f"{condition.name} is of type {data_type}: a condition is true or false, such as `x > 0`"
                yield Problem(path=("where",), message=message)
        case Aggregate():
            for name, measure in parameters.measures.items():
                data_type = types.get(measure.column or "")
                if data_type and measure.function in _OF_NUMBERS and not is_number(data_type):
                    message = f"{measure.column} is of type {data_type}, and {measure.function} needs a number"
                    remedy = "name another column, or cast it in a select step before"
                    yield Problem(path=("measures", name, "column"), message=f"{message}: {remedy}")


def _rule_problems(rule: Rule, types: Types, path: Path) -> Iterator[Problem]:
    match rule:
        case Range():
            yield from _unfit(rule.min, rule.column, types, (*path, "min"))
            yield from _unfit(rule.max, rule.column, types, (*path, "max"))
        case Allowed():
            for number, value in enumerate(rule.values):
                yield from _unfit(value, rule.column, types, (*path, "values", number))
        case Regex() | Freshness() if rule.column in types:
            is_regex = isinstance(rule, Regex)
            accepted = exp.DataType.TEXT_TYPES if is_regex else exp.DataType.TEMPORAL_TYPES - {exp.DType.DATE}
            if _type(types[rule.column]) not in accepted:
                needed = "a string" if is_regex else "a timestamp"
                message = f"{rule.column} is of type {types[rule.column]}, and {rule.rule} needs {needed}"
                yield Problem(path=(*path, "column"), message=message)


def _unfit(value: Scalar | None, column: str, types: Types, path: Path) -> Iterator[Problem]:
    """Yield a problem for a value that cannot be compared with those of a column."""
    if value is not None and column in types and not _fits(value, _type(types[column])):
        message = f"{value!r} is not a value of {column}, which is of type {types[column]}"
        yield Problem(path=path, message=message)


def _fits(value: Scalar, kind: exp.DType | None) -> bool:
    if kind in exp.DataType.TEXT_TYPES:
        return isinstance(value, str)
    if kind in exp.DataType.NUMERIC_TYPES:
        types = int if kind in exp.DataType.INTEGER_TYPES else (int, float)
        return isinstance(value, types) and not isinstance(value, bool)
    if kind == exp.DType.BOOLEAN:
        return isinstance(value, bool)
    if kind in exp.DataType.TEMPORAL_TYPES:
        return isinstance(value, str) and _is_iso(value, date if kind == exp.DType.DATE else datetime)
    return True


def _is_iso(value: str, kind: type[date]) -> bool:
    try:
        kind.fromisoformat(value)
    except ValueError:
        return False
    return True


def _type(data_type: str) -> exp.DType | None:
    kind: exp.DType | None = exp.DataType.build(data_type, dialect="spark").this
    return kind
