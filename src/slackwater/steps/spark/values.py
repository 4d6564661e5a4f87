"""Single values of two versions of a row: whether they are the same, and how they are shown."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)


def same(before: Column, after: Column, kind: DataType, tolerance: float) -> Column:
    """Whether two values are the same; never null.

    Floating-point values, inside others too, are the same when they differ by no more than `tolerance` of the larger
    one; NaN is the same as NaN, and null as null. Everything else is compared exactly, a map whatever its order.
    """
    if not _is_inexact(kind):
        return before.eqNullSafe(after)
    match kind:
        case ArrayType():
            alike = _same_elements(before, after, kind.elementType, tolerance)
        case MapType():
            alike = _same_entries(before, after, kind.valueType, tolerance)
        case StructType():
            parts = [same(before[f.name], after[f.name], f.dataType, tolerance) for f in kind.fields]
            alike = reduce(and_, parts) & before.isNotNull() & after.isNotNull()
        case _:  # a floating-point number
            alike = _close(before.cast("double"), after.cast("double"), tolerance) | before.eqNullSafe(after)
    return sf.coalesce(alike, sf.lit(False)) | (before.isNull() & after.isNull())


def _close(before: Column, after: Column, tolerance: float) -> Column:
    difference = sf.abs(before - after)
    # What is not finite is close to nothing; to Spark NaN is larger than infinity, and equal to itself.
    bounded = difference < sf.lit(float("inf"))
    return bounded & (difference <= sf.greatest(sf.abs(before), sf.abs(after)) * tolerance)


def _same_elements(before: Column, after: Column, kind: DataType, tolerance: float) -> Column:
    alike = sf.zip_with(before, after, lambda old, new: same(old, new, kind, tolerance))
    return (sf.size(before) == sf.size(after)) & sf.forall(alike, lambda each: each)


def _same_entries(before: Column, after: Column, kind: DataType, tolerance: float) -> Column:
    def in_both(key: Column) -> Column:
        old, new = sf.try_element_at(before, key), sf.try_element_at(after, key)
        return sf.map_contains_key(after, key) & same(old, new, kind, tolerance)

    return (sf.size(before) == sf.size(after)) & sf.forall(sf.map_keys(before), in_both)


def _is_inexact(kind: DataType) -> bool:
    """Whether Spark's own comparison is not enough: for floating-point values and maps, and what holds them."""
    match kind:
        case StructType():
            return any(_is_inexact(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_inexact(kind.elementType)
        case _:
            return isinstance(kind, FloatType | DoubleType | MapType)


def finite(column: Column) -> Column:
    """Return a number as a double, null for what is not finite."""
    number = column.cast("double")
    return sf.when(sf.abs(number) < sf.lit(float("inf")), number)


def shown(column: Column, kind: DataType, max_text: int) -> Column:
    """Return a value as a truth value, a number, or a text of at most `max_text` characters."""
    match kind:
        case BooleanType() | IntegralType() | DoubleType():
            return column
        case FloatType():
            return column.cast("string").cast("double")  # 0.1 stays 0.1
        case StringType():
            text = column
        case TimestampType():
            text = sf.concat(sf.translate(column.cast("string"), " ", "T"), sf.lit("Z"))
        case TimestampNTZType():
            text = sf.translate(column.cast("string"), " ", "T")
        case BinaryType():
            text = sf.lower(sf.hex(sf.substring(column, 1, max_text)))
        case ArrayType() | MapType() | StructType():
            text = sf.to_json(column, {"ignoreNullFields": "false"})
        case _:
            text = column.cast("string")
    short = sf.concat(sf.left(text, sf.lit(max_text - 3)), sf.lit("..."))
    return sf.when(sf.length(text) > max_text, short).otherwise(text)
