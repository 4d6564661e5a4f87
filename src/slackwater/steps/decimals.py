"""Means and medians of decimals, rounded once. Spark's `avg` rounds twice and overflows, its `median` is a double."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType

# A number of up to 38 digits is computed as two of 19 digits: their sums and products fit into Spark's decimals.
_HALF = Decimal(10) ** 19
# Spark's sum has ten digits more than its values, and at most 38.
_DIGITS_OF_SUMMED = 28
# A double represents integers of so many digits exactly, and the middle of two of them.
_DIGITS_OF_DOUBLE = 15


def exact_mean(column: Column, data_type: DecimalType) -> Column:
    """Return the aggregate of a column's mean, rounded half up to the column's scale; null without values."""
    if data_type.precision <= _DIGITS_OF_SUMMED:
        high, low = _halves(_units(sf.sum(column), data_type.scale))
    else:
        high, low = map(sf.sum, _halves(_units(column, data_type.scale)))
    return _rounded_quotient(high, low, sf.count(column), data_type)


def exact_median(column: Column, data_type: DecimalType) -> Column:
    """Return the aggregate of a column's median, rounded half up to the column's scale; null without values."""
    if data_type.precision <= _DIGITS_OF_DOUBLE:
        middle = sf.round(sf.median(_units(column, data_type.scale)))
        return _of_units(middle.cast("decimal(38,0)"), data_type)
    middle = _let(
        sf.sort_array(sf.collect_list(column)),
        lambda values: sf.struct(
            sf.get(values, sf.floor((sf.size(values) - 1) / 2).cast("int")).alias("below"),
            sf.get(values, sf.floor(sf.size(values) / 2).cast("int")).alias("above"),
        ),
    )

    def mean(pair: Column) -> Column:
        below, above = (_halves(_units(pair[name], data_type.scale)) for name in ("below", "above"))
        return _rounded_quotient(below[0] + above[0], below[1] + above[1], sf.lit(2), data_type)

    return _let(middle, mean)


def _units(column: Column, scale: int) -> Column:
    """Return a decimal as the number of its smallest units, such as 125 for 1.25."""
    # A product with a power of ten would lose digits: its type has the digits of both factors.
    return sf.concat(column.cast("string"), sf.lit(f"E{scale}")).cast("decimal(38,0)")


def _of_units(units: Column, data_type: DecimalType) -> Column:
    """Return the decimal that has so many of its smallest units."""
    return sf.concat(units.cast("string"), sf.lit(f"E-{data_type.scale}")).cast(data_type)


def _halves(units: Column) -> tuple[Column, Column]:
    """Return the numbers `high` and `low` of `high * _HALF + low`, both with the sign of the whole."""
    low = units % sf.lit(_HALF)
    return ((units - low) / sf.lit(_HALF)).cast("decimal(20,0)"), low


def _rounded_quotient(high: Column, low: Column, count: Column, data_type: DecimalType) -> Column:
    """Return `(high * _HALF + low) / count` units as a decimal, rounded half up, which is away from zero."""

    def quotient_of(terms: Column) -> Column:
        half, high, low, count = sf.lit(_HALF), terms["high"], terms["low"], terms["count"]
        # Long division with remainders that are not negative. Each `/` has an integer as its result.
        remainder = sf.pmod(high, count)
        quotient = ((high - remainder) / count).cast("decimal(20,0)") * half
        rest = remainder * half + low
        remainder = sf.pmod(rest, count)
        quotient = quotient + ((rest - remainder) / count).cast("decimal(20,0)")
        is_up = (remainder * 2 > count) | ((remainder * 2 == count) & (quotient >= 0))
        return _of_units(quotient + sf.when(is_up, 1).otherwise(0), data_type)

    count = count.cast("decimal(18,0)")
    return _let(sf.struct(high.alias("high"), low.alias("low"), count.alias("count")), quotient_of)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body(value)`. The plan has `value` once, however often `body` uses it: Spark plans large ones slowly."""
    return sf.get(sf.transform(sf.array(value), body), sf.lit(0))
