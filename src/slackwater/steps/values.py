"""Single values of two versions of a row: whether they are equal, and how they are displayed."""

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
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)


def equal(before: Column, after: Column, data_type: DataType, tolerance: float) -> Column:
    """Return whether two values are equal; never null.

    Floating-point values, also inside of other values, are equal if they differ by at most `tolerance` times the larger
    one. NaN equals NaN, and null equals null. All other values are compared exactly; the order of a map's entries is
    ignored.
    """
    if not _needs_own_comparison(data_type):
        return before.eqNullSafe(after)
    match data_type:
        case ArrayType():
            equals = sf.zip_with(before, after, lambda old, new: equal(old, new, data_type.elementType, tolerance))
            result = (sf.size(before) == sf.size(after)) & sf.forall(equals, lambda element: element)
        case MapType():

            def same_entry(name: Column) -> Column:
                old, new = sf.try_element_at(before, name), sf.try_element_at(after, name)
                return sf.map_contains_key(after, name) & equal(old, new, data_type.valueType, tolerance)

            result = (sf.size(before) == sf.size(after)) & sf.forall(sf.map_keys(before), same_entry)
        case StructType():
            fields = [equal(before[f.name], after[f.name], f.dataType, tolerance) for f in data_type.fields]
            result = reduce(and_, fields) & before.isNotNull() & after.isNotNull()
        case _:  # a floating-point number
            result = _close(before.cast("double"), after.cast("double"), tolerance) | before.eqNullSafe(after)
    return sf.coalesce(result, sf.lit(False)) | (before.isNull() & after.isNull())


def _close(before: Column, after: Column, tolerance: float) -> Column:
    """Return whether two doubles differ by at most `tolerance` times the larger one."""
    difference = sf.abs(before - after)
    # Spark orders NaN after infinity, so this is true for finite differences only.
    is_finite = difference < sf.lit(float("inf"))
    return is_finite & (difference <= sf.greatest(sf.abs(before), sf.abs(after)) * tolerance)


def _needs_own_comparison(data_type: DataType) -> bool:
    """Return whether Spark's equality is not enough: floating-point values and maps, and types that contain them."""
    match data_type:
        case StructType():
            return any(_needs_own_comparison(field.dataType) for field in data_type.fields)
        case ArrayType():
            return _needs_own_comparison(data_type.elementType)
        case _:
            return isinstance(data_type, FloatType | DoubleType | MapType)


def finite(column: Column) -> Column:
    """Return a number as a double, and null for NaN and the infinities."""
    number = column.cast("double")
    return sf.when(sf.abs(number) < sf.lit(float("inf")), number)


def as_decimal(column: Column, data_type: DataType) -> Column:
    """Return an integer or decimal as a decimal, whose sum neither overflows nor rounds."""
    # 20 digits hold every 64-bit integer; Spark adds 10 digits for a sum.
    return column if isinstance(data_type, DecimalType) else column.cast(DecimalType(20, 0))


def readable(column: Column, data_type: DataType, max_length: int) -> Column:
    """Return a value as a boolean, a number, or a string of at most `max_length` characters."""
    match data_type:
        case BooleanType() | IntegralType() | DoubleType():
            return column
        case FloatType():
            return column.cast("string").cast("double")  # through a string, 0.1 stays 0.1
        case StringType():
            string = column
        case TimestampType():
            # As in ISO 8601; the session's timezone is UTC.
            string = sf.concat(sf.translate(column.cast("string"), " ", "T"), sf.lit("Z"))
        case TimestampNTZType():
            string = sf.translate(column.cast("string"), " ", "T")
        case BinaryType():
            string = sf.lower(sf.hex(sf.substring(column, 1, max_length)))
        case ArrayType() | MapType() | StructType():
            string = sf.to_json(column, {"ignoreNullFields": "false"})
        case _:
            string = column.cast("string")
    cut = sf.concat(sf.left(string, sf.lit(max_length - 3)), sf.lit("..."))
    return sf.when(sf.length(string) > max_length, cut).otherwise(string)
