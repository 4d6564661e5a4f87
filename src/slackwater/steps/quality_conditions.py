"""Which rows fail the rules of `data_quality`, as columns of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import (
    Scalar,
    all_quoted,
    literal,
    missing,
    require_same_types,
    require_sortable,
    require_type,
)
from slackwater.steps.quality_rules import (
    Allowed,
    Freshness,
    NotNull,
    Range,
    Referential,
    Regex,
    Rule,
    Unique,
    columns_of,
)
from slackwater.steps.step import StepContext
from slackwater.steps.values import readable

_LONGEST_TIMESTAMP = 40


def failed_column(index: int) -> str:
    """Return the name of the column that says whether a row has failed a rule."""
    return f"__failed_{index}"


def with_failed(frame: DataFrame, index: int, rule: Rule, frames: Mapping[str, DataFrame]) -> tuple[DataFrame, Column]:
    """Return the frame with the column `failed_column(index)`, and whether the rule applies to a row."""
    field, names = f"rules.{index}", columns_of(rule)
    applies = reduce(and_, (sf.col(quoted(name)).isNotNull() for name in names))
    column = sf.col(quoted(names[0]))
    match rule:
        case NotNull():
            applies, passes = sf.lit(True), ~missing(frame, rule.column)
        case Range():
            passes = ~missing(frame, rule.column)
            if rule.min is not None:
                passes &= column >= _limit(frame, rule.column, rule.min, f"{field}.min")
            if rule.max is not None:
                passes &= column <= _limit(frame, rule.column, rule.max, f"{field}.max")
        case Regex():
            require_type(frame, rule.column, (t.StringType,), field=f"{field}.column", needs="strings")
            passes = column.rlike(_whole_string(frame, rule.pattern, f"{field}.pattern"))
        case Allowed():
            passes = column.isin(*(_limit(frame, rule.column, value, f"{field}.values") for value in rule.values))
        case Unique():
            frame, passes = _unique(frame, rule, field, applies)
        case Referential():
            frame, passes = _referential(frame, rule, frames, field)
        case _:
            raise TypeError(f"no such rule: {rule!r}")
    return frame.withColumn(failed_column(index), applies & ~sf.coalesce(passes, sf.lit(False))), applies


def _limit(frame: DataFrame, name: str, value: Scalar, field: str) -> Column:
    """Return a parameter's value for comparison with a column. Raises `DefinitionError` if it has another type."""
    try:
        return literal(value, frame.schema[name].dataType)
    except ValueError as error:
        raise DefinitionError(f"{field}: {error}, which {name} is") from error


def _whole_string(frame: DataFrame, pattern: str, field: str) -> str:
    """Return a pattern that matches whole strings only. Raises `DefinitionError` unless Java accepts the pattern.

    Python accepts other ones.
    """
    jvm: Any = frame.sparkSession._jvm
    fault = _fault(jvm, pattern)
    if fault is None:
        # The pattern may end in a comment of `(?x)`, which a line break ends, or in a quotation, which `\E` ends.
        wholes = (rf"\A(?:{pattern}{end})\z" for end in ("", "\n", r"\E", "\\E\n"))
        for whole in wholes:
            if _fault(jvm, whole) is None:
                return whole
    raise DefinitionError(f"{field}: {pattern!r} is not a regular expression: {fault or 'it has no end'}")


def _fault(jvm: Any, pattern: str) -> str | None:
    """Return why Java does not accept a regular expression, or None."""
    try:
        jvm.java.util.regex.Pattern.compile(pattern)
    except IllegalArgumentException as error:
        return str(error).partition("\n")[0]
    return None


def _unique(frame: DataFrame, rule: Unique, field: str, complete: Column) -> tuple[DataFrame, Column]:
    """Return the frame with a column of its own, and whether a row passes; `complete` rows have all columns."""
    require_sortable(frame, rule.columns, field=f"{field}.columns")
    copies = f"__copies_{field}"
    # Rows that are not checked are spread over all tasks: otherwise one task would sort all rows without a key.
    spread = sf.when(~complete, sf.monotonically_increasing_id())
    window = Window.partitionBy(*all_quoted(rule.columns), spread)
    return frame.withColumn(copies, sf.count(sf.lit(1)).over(window)), sf.col(quoted(copies)) == 1


def _referential(
    frame: DataFrame, rule: Referential, frames: Mapping[str, DataFrame], field: str
) -> tuple[DataFrame, Column]:
    """Return the frame with columns of its own, and whether a row passes."""
    (input_name, checked), (reference_name, reference) = frames.items()
    names = rule.reference_columns or rule.columns
    require_sortable(checked, rule.columns, field=f"{field}.columns")
    pairs = list(zip(rule.columns, names, strict=True))
    require_same_types(checked, reference, pairs, field=f"{field}.columns", of=(input_name, reference_name))
    exists = f"__exists_{field}"
    keys = [f"__reference_{name}_{field}" for name in names]
    known = reference.select(*(sf.col(quoted(name)).alias(key) for name, key in zip(names, keys, strict=True)))
    known = known.distinct().withColumn(exists, sf.lit(True))
    same = [sf.col(quoted(name)) == sf.col(quoted(key)) for name, key in zip(rule.columns, keys, strict=True)]
    joined = frame.join(known, on=reduce(and_, same), how="left")
    return joined, sf.col(quoted(exists)).isNotNull()


def freshness_counts(frame: DataFrame, rule: Freshness, field: str, context: StepContext) -> dict[str, Column]:
    """Return the aggregates of a freshness rule: the number of values, the newest one, and whether it is too old."""
    needed = (t.TimestampType, t.TimestampNTZType)
    require_type(frame, rule.column, needed, field=f"{field}.column", needs="timestamps")
    if context.day is None:
        raise DefinitionError(f"{field}.rule: freshness compares with the end of a run's day, and this is no run")
    data_type, newest = frame.schema[rule.column].dataType, sf.max(quoted(rule.column))
    limit = (context.day.end - timedelta(hours=rule.hours)).replace(tzinfo=None)
    index = field.rpartition(".")[2]
    return {
        f"{index}.checked": sf.count(quoted(rule.column)),
        f"{index}.newest": readable(newest, data_type, _LONGEST_TIMESTAMP),
        f"{index}.failed": sf.when(newest >= literal(limit.isoformat(), data_type), 0).otherwise(1),
    }
