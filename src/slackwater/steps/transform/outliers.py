"""`outliers`: find values that are far from the others in their column, and flag, drop or clip them.

A value is an outlier if it is outside of two limits. They come from the finite values of the column, or of each group:

| Method | Limits | Threshold |
|---|---|---|
| `z_score` | mean ± threshold · standard deviation (of a sample) | 3 |
| `iqr` | first quartile - threshold · IQR, third quartile + threshold · IQR; IQR is their distance | 1.5 |
| `mad` | median ± threshold · MAD / 0.6745; MAD is the median distance from the median | 3.5 |

`iqr` are the fences of J. W. Tukey, Exploratory Data Analysis, 1977. The scores of `z_score` and `mad` are those of
B. Iglewicz and D. C. Hoaglin, How to Detect and Handle Outliers, 1993, who recommend 0.6745 and 3.5. Quantiles are
interpolated, as in numpy and pandas. No value of at most ten has a z-score of 3: use another method for few values.

- Null and NaN are no outliers: use `clean_nan`. An infinity is one, if there are limits.
- There are no limits, and so no outliers: without finite values; for `z_score`, with one value; for `mad`, if MAD is
  0, because more than half of the values are equal, which makes the score a division by zero. For `iqr` and equal
  quartiles, every other value is an outlier.
- `clip` keeps the type: limits are rounded inwards, to an integer or to the scale of a decimal. If no such number is
  between them, they are rounded outwards.
- Limits and comparisons are computed as doubles, of about 16 digits.
- The input is computed twice, and three times for `mad`. `iqr` and `mad` need memory for each distinct value of a
  column or group on one executor.

Effect: `outliers.COLUMN` for each column, and `rows_dropped` for the action `drop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from slackwater.arrow.names import quoted
from slackwater.steps.columns import (
    ColumnNames,
    require_distinct,
    require_sortable,
    require_type,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_THRESHOLDS = {"z_score": 3.0, "iqr": 1.5, "mad": 3.5}
# The largest relative rounding error of a mean or a standard deviation of doubles.
_ROUNDING = 1e-14
_NORMAL_MAD = 0.6745
"""The MAD of a standard normal distribution."""


class Outliers(
    Parameters,
    json_schema_extra={
        "examples": [{"columns": ["wind_speed"], "method": "mad", "action": "flag", "group_by": ["origin"]}]
    },
):
    """Parameters of `outliers`."""

    columns: ColumnNames
    """Columns of numbers. Each has limits of its own."""
    method: Literal["z_score", "iqr", "mad"]
    """How the limits are computed."""
    threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """How far the limits are from the middle. Without it, the method's usual one."""
    action: Literal["flag", "drop", "clip"]
    """`flag` adds a boolean column `COLUMN_outlier` for each column, `drop` drops the rows with an outlier in any of
    the columns, `clip` replaces outliers by the nearest limit."""
    group_by: tuple[str, ...] = ()
    """Columns. Rows with equal values in them are a group with limits of its own; null equals null."""


def check(_inputs: Sequence[str], parameters: Outliers) -> None:
    """Raise `DefinitionError` for a column that is named twice."""
    require_distinct(parameters.columns, field="columns")
    require_distinct([*parameters.columns, *parameters.group_by], field="group_by")


def result_columns(inputs: InputColumns, parameters: Outliers) -> Columns | None:
    """Return the columns of the input, and those of the flags."""
    inputs.require(0, each(parameters.columns, "columns") | each(parameters.group_by, "group_by"))
    if parameters.action != "flag" or inputs[0] is None:
        return inputs[0]
    flags = [f"{name}_outlier" for name in parameters.columns]
    inputs.require_new(0, flags, path=("columns",))
    return (*inputs[0], *flags) if not inputs.problems else None


def apply(frames: Mapping[str, DataFrame], parameters: Outliers, context: StepContext) -> DataFrame:
    """Return the rows with flags, without outliers, or with clipped values.

    Raises `DefinitionError` for a column that is not of numbers.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import NumericType

    (frame,) = frames.values()
    columns, action = parameters.columns, parameters.action
    require_sortable(frame, parameters.group_by, field="group_by")
    for name in columns:
        require_type(frame, name, (NumericType,), field="columns", needs="numbers")
    limited = _with_limits(frame, parameters)
    outlier = {}
    for name in columns:
        number, low, high = _with_limits_of(name)
        outlier[name] = sf.coalesce((number < low) | (number > high), sf.lit(False))
    is_dropped = reduce(or_, outlier.values())
    counts = {f"outliers.{name}": sf.count(sf.when(found, 1)) for name, found in outlier.items()}
    if action == "drop":
        counts["rows_dropped"] = sf.count(sf.when(is_dropped, 1))
    limited = context.observe(limited, counts)
    unchanged = [sf.col(quoted(name)) for name in frame.columns]
    if action == "drop":
        return limited.where(~is_dropped).select(*unchanged)
    if action == "flag":
        return limited.select(*unchanged, *(found.alias(f"{name}_outlier") for name, found in outlier.items()))
    clipped = {name: _clipped(name, frame.schema[name].dataType) for name in columns}
    return limited.select(*(clipped.get(name, column) for name, column in zip(frame.columns, unchanged, strict=True)))


def _with_limits(frame: DataFrame, parameters: Outliers) -> DataFrame:
    """Return the frame with the lower and the upper limit of each column, for the row's group."""
    from pyspark.sql import functions as sf

    from slackwater.steps.values import finite

    method = parameters.method
    distance = sf.lit(_THRESHOLDS[method] if parameters.threshold is None else parameters.threshold)
    if method != "mad":
        limits = []
        for name in parameters.columns:
            value = finite(sf.col(quoted(name)))
            if method == "z_score":
                low = high = sf.avg(value)
                spread = sf.stddev_samp(value)
                # Equal values have a spread of rounding errors, or of zero and a mean with one.
                spread = sf.when(spread > sf.abs(low.cast("double")) * _ROUNDING, spread)
            else:
                low, high = sf.percentile(value, 0.25), sf.percentile(value, 0.75)
                spread = high - low
            limits += [(low - distance * spread).alias(_low(name)), (high + distance * spread).alias(_high(name))]
        return _with_statistics(frame, frame, limits, parameters.group_by)

    medians = [sf.median(finite(sf.col(quoted(name)))).alias(f"__median_{name}") for name in parameters.columns]
    centred = _with_statistics(frame, frame, medians, parameters.group_by)
    limits = []
    for name in parameters.columns:
        # All rows of a group have the same median.
        median = sf.first(quoted(f"__median_{name}"))
        mad = sf.median(sf.abs(finite(sf.col(quoted(name))) - sf.col(quoted(f"__median_{name}"))))
        width = sf.when(mad > 0, distance * mad / _NORMAL_MAD)
        limits += [(median - width).alias(_low(name)), (median + width).alias(_high(name))]
    return _with_statistics(frame, centred, limits, parameters.group_by)


def _with_statistics(
    frame: DataFrame, values: DataFrame, aggregates: Sequence[Column], group_by: Sequence[str]
) -> DataFrame:
    """Return the frame with aggregates of `values`, which are those of each row's group."""
    from pyspark.sql import functions as sf

    if not group_by:
        return frame.crossJoin(sf.broadcast(values.agg(*aggregates)))
    groups = values.groupBy(*(sf.col(quoted(name)).alias(f"__group_{name}") for name in group_by)).agg(*aggregates)
    same = [sf.col(quoted(name)).eqNullSafe(sf.col(quoted(f"__group_{name}"))) for name in group_by]
    return frame.join(groups, on=reduce(and_, same), how="left")


def _low(name: str) -> str:
    return f"__low_{name}"


def _high(name: str) -> str:
    return f"__high_{name}"


def _with_limits_of(name: str) -> tuple[Column, Column, Column]:
    """Return a value as a double, and its limits. NaN, which Spark orders above all numbers, is null."""
    from pyspark.sql import functions as sf

    number = sf.col(quoted(name)).cast("double")
    return sf.when(~sf.isnan(number), number), sf.col(quoted(_low(name))), sf.col(quoted(_high(name)))


def _clipped(name: str, data_type: DataType) -> Column:
    """Return a value, or the nearest limit for an outlier, in the column's type."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import DecimalType, IntegralType

    number, low, high = _with_limits_of(name)
    is_below, is_above = number < low, number > high
    if isinstance(data_type, IntegralType | DecimalType):
        if isinstance(data_type, IntegralType):
            inner = (sf.ceil(low), sf.floor(high))
        else:
            unit = sf.lit(Decimal(1).scaleb(-data_type.scale))
            above, below = low.try_cast(data_type), high.try_cast(data_type)
            inner = (
                sf.when(above.cast("double") < low, above + unit).otherwise(above),
                sf.when(below.cast("double") > high, below - unit).otherwise(below),
            )
        # A rounded limit that the type lacks is null. Where no value of the type is between the limits, they cross.
        rounded = [limit.try_cast(data_type) for limit in inner]
        low, high = sf.least(*rounded), sf.greatest(*rounded)
    clipped = sf.when(is_below, low.cast(data_type)).when(is_above, high.cast(data_type))
    return clipped.otherwise(sf.col(quoted(name))).alias(name)


STEP = Transform(name="outliers", parameters=Outliers, apply=apply, check=check, columns=result_columns)
