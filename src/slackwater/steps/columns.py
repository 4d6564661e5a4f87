"""What steps share about columns: names in parameters, values that fit a type, missing values, unique keys, examples.

The functions that need Spark import it when they are called, as steps do.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, DecimalType


def _check_scalar(value: object) -> object:
    """Return the value, a date as a string in ISO 8601: YAML reads `2013-03-10` without quotes as a date.

    Raises `ValueError` unless it is a string, a finite number, a boolean, a date or a timestamp.
    """
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a string, a finite number, a boolean or a date is expected")
    return value


Scalar = Annotated[bool | int | float | str, BeforeValidator(_check_scalar)]
"""A value in parameters: dates and timestamps are strings in ISO 8601, or without quotes in YAML."""

ColumnNames = Annotated[tuple[str, ...], Field(min_length=1)]
"""At least one column."""

_BIGINT = 2**63
_DECIMAL_DIGITS = 38
_LARGEST_FLOAT = 3.4028234663852886e38
_EXAMPLE_LENGTH = 100
# Rows among which examples are chosen: more of them are more often examples of several rules.
_EXAMPLE_ROWS = 1000
_ROWS_PER_KEY = "__rows_per_key"
# The names of all columns that steps add to frames and remove again.
_RESERVED = re.compile(
    r"__(position|matches|key|found|missing|in_left|in_right|rows_per_key|rule|reason|failed_\d+"
    r"|(copies|exists|value|low|high|median|group|fill|statistic|reference)_.*)",
    re.IGNORECASE | re.DOTALL,
)


def all_quoted(names: Iterable[str]) -> list[str]:
    """Return the names of columns, quoted for Spark.

    >>> all_quoted(["origin", "net price"])
    ['`origin`', '`net price`']
    """
    return [quoted(name) for name in names]


def require_type(frame: DataFrame, name: str, types: tuple[type[DataType], ...], *, field: str, needs: str) -> None:
    """Raise `DefinitionError` unless the column has one of the types, which `needs` describes, such as `numbers`."""
    data_type = frame.schema[name].dataType
    if not isinstance(data_type, types):
        raise DefinitionError(
            f"{field}: {needs} are needed, and {name} is {data_type.simpleString()}: "
            "name another column, or cast it in a select step before"
        )


def _by_lower_case(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.lower(), []).append(name)
    return groups


def require_distinct(names: Iterable[str], *, field: str) -> None:
    """Raise `DefinitionError` if a column is named twice. Spark matches names without regard to case.

    >>> require_distinct(["origin", "Origin"], field="columns")
    Traceback (most recent call last):
        ...
    slackwater.errors.DefinitionError: columns: a column is named twice (origin)
    """
    repeated = [name for name, group in _by_lower_case(names).items() if len(group) > 1]
    if repeated:
        raise DefinitionError(f"{field}: a column is named twice ({', '.join(repeated)})")


def require_same_types(
    first: DataFrame, second: DataFrame, pairs: Iterable[tuple[str, str]], *, field: str, of: tuple[str, str]
) -> None:
    """Raise `DefinitionError` unless the columns of each pair, one of each input, have the same type.

    `of` are the names of the inputs. Spark would cast one of the columns, and values that differ would become equal.
    """
    for name, other in pairs:
        one, two = (frame.schema[n].dataType.simpleString() for frame, n in ((first, name), (second, other)))
        if one != two:
            raise DefinitionError(
                f"{field}: {name} is {one} in {of[0]}, and {other} is {two} in {of[1]}: "
                "cast one of them in a select step before"
            )


def require_unreserved(frame: DataFrame, *, field: str, of: str) -> None:
    """Raise `DefinitionError` for a name that a step may give to a column of its own, and for two columns of one name.

    Spark matches names without regard to case, so no step could name one of the two.
    """
    repeated = [group for group in _by_lower_case(frame.columns).values() if len(group) > 1]
    if repeated:
        raise DefinitionError(
            f"{field}: {of} has the columns {' and '.join(repeated[0])}, which are one name to Spark: rename one of "
            "them where it is read"
        )
    reserved = next((name for name in frame.columns if _RESERVED.fullmatch(name)), None)
    if reserved is not None:
        raise DefinitionError(
            f"{field}: {of} has a column {reserved}, which steps use themselves: rename it where it is read"
        )


def missing(frame: DataFrame, name: str) -> Column:
    """Return whether a value is null, or NaN."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import DoubleType, FloatType

    column = sf.col(quoted(name))
    is_float = isinstance(frame.schema[name].dataType, FloatType | DoubleType)
    return column.isNull() | sf.isnan(column) if is_float else column.isNull()


def is_sortable(data_type: DataType) -> bool:
    """Return whether Spark can sort and group by values of a type: not by maps and variants, also inside of others."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    match data_type:
        case ArrayType():
            return is_sortable(data_type.elementType)
        case StructType():
            return all(is_sortable(field.dataType) for field in data_type.fields)
        case _:
            return not isinstance(data_type, MapType | VariantType)


def require_sortable(frame: DataFrame, names: Iterable[str], *, field: str) -> None:
    """Raise `DefinitionError` for a column that Spark cannot sort or group by."""
    for name in names:
        data_type = frame.schema[name].dataType
        if not is_sortable(data_type):
            raise DefinitionError(f"{field}: {name} is {data_type.simpleString()}, by which rows cannot be compared")


def sortable_columns(frame: DataFrame, *, besides: Iterable[str]) -> list[str]:
    """Return the columns by which rows can be sorted, except some, to decide between rows that are equal in those."""
    others = [field for field in frame.schema.fields if field.name not in set(besides)]
    return [field.name for field in others if is_sortable(field.dataType)]


def literal(value: Scalar, data_type: DataType) -> Column:
    """Return a parameter's value for comparison with a column of a type.

    A number fits any type of numbers, but a fraction no integer. Raises `ValueError` for a value of another type.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match data_type:
        case t.StringType() if isinstance(value, str):
            return sf.lit(value)
        case t.BooleanType() if isinstance(value, bool):
            return sf.lit(value)
        case t.IntegralType() if is_number and isinstance(value, int) and -_BIGINT <= value < _BIGINT:
            return sf.lit(value)
        case t.DecimalType() if is_number and _fits(number := Decimal(str(value)), data_type):
            return sf.lit(number)
        case t.FloatType() | t.DoubleType() if is_number and isinstance(value, int | float):
            if abs(value) <= (_LARGEST_FLOAT if isinstance(data_type, t.FloatType) else sys.float_info.max):
                return sf.lit(float(value)).cast(data_type)
        case t.DateType() | t.TimestampType() | t.TimestampNTZType() if isinstance(value, str):
            with suppress(ValueError, OverflowError):
                return sf.lit(_iso(value, data_type)).cast(data_type)
    raise ValueError(f"{value!r} is not a value of type {data_type.simpleString()}")


def _fits(number: Decimal, data_type: DecimalType) -> bool:
    """Return whether Spark compares a number with values of a type exactly: with at most 38 digits."""
    fraction = max(data_type.scale, -int(number.as_tuple().exponent))
    return max(data_type.precision - data_type.scale, number.adjusted() + 1) + fraction <= _DECIMAL_DIGITS


def _iso(value: str, data_type: DataType) -> str:
    """Return a date or a timestamp as Spark reads it; a timestamp without offset is UTC.

    Raises `ValueError`, and `OverflowError` for a timestamp that is not in the years 1 to 9999 of UTC.
    """
    from pyspark.sql.types import DateType, TimestampNTZType

    if isinstance(data_type, DateType):
        return date.fromisoformat(value).isoformat()
    parsed = datetime.fromisoformat(value)
    if isinstance(data_type, TimestampNTZType):
        if parsed.tzinfo is not None:
            raise ValueError("the type has no offset")
        return parsed.isoformat()
    # Spark reads no offset beyond 18 hours.
    return (parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)).isoformat()


def require_unique_keys(frame: DataFrame, keys: Sequence[str], *, message: str) -> DataFrame:
    """Return the frame unchanged. Spark fails when it computes the frame, if two rows have one key.

    A key with a null is no key. The error reads `message`, with `{rows}` and `{key}` in it replaced.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    # A join by the keys needs the same shuffle and sort as this window.
    counted = frame.withColumn(_ROWS_PER_KEY, sf.count(sf.lit(1)).over(Window.partitionBy(*all_quoted(keys))))
    before, _, rest = message.partition("{rows}")
    between, _, after = rest.partition("{key}")
    # The error is raised in the query, because a step may not trigger a Spark action of its own.
    error = sf.concat(
        sf.lit(before),
        sf.col(_ROWS_PER_KEY),
        sf.lit(between),
        sf.to_json(sf.struct(*all_quoted(keys))),
        sf.lit(after),
    )
    unique = sf.col(_ROWS_PER_KEY) == 1
    for key in keys:
        unique = unique | sf.col(quoted(key)).isNull()
    return counted.where(sf.when(unique, sf.lit(True)).otherwise(sf.raise_error(error).cast("boolean"))).drop(
        _ROWS_PER_KEY
    )


def example(frame: DataFrame, names: Sequence[str]) -> Column:
    """Return the values of some columns of a row as a JSON object, with long values cut off."""
    from pyspark.sql import functions as sf

    from slackwater.steps.values import readable

    values = [
        readable(sf.col(quoted(name)), frame.schema[name].dataType, _EXAMPLE_LENGTH).alias(name) for name in names
    ]
    return sf.to_json(sf.struct(*values), {"ignoreNullFields": "false"})


def find_examples(frame: DataFrame, examples: Mapping[str, Column]) -> dict[str, list[dict[str, Any]]]:
    """Return at most three values of each column of `examples`, by its name; it is null in rows that are no examples.

    Spark reads the frame until it has found some rows for each column. Few rows give the same examples every time.
    """
    found: dict[str, list[str]] = {name: [] for name in examples}
    while missing := {name: column for name, column in examples.items() if not found[name]}:
        is_example = reduce(or_, (column.isNotNull() for column in missing.values()))
        columns = [column.alias(name) for name, column in missing.items()]
        rows = frame.where(is_example).select(*columns).limit(_EXAMPLE_ROWS).collect()
        # A frame with random values may have no example when it is computed again.
        if not rows:
            break
        for name in missing:
            found[name] = sorted({row[name] for row in rows if row[name] is not None})
    return {
        name: [json.loads(value) for value in dict.fromkeys([*values[:1], *values[-1:], *values[1:2]])]
        for name, values in found.items()
    }
