"""`clean_nan`: fill missing values, or drop the rows that have them.

A value is missing if it is null, or NaN in a column of floating-point numbers. Infinities are values: they stay.
`strategy` applies to every column that it fits, and `columns` names a strategy for single columns, which comes first.

| Strategy | Fits | A missing value becomes |
|---|---|---|
| `drop` | all columns | nothing: the row is dropped |
| `{constant: VALUE}` | columns of the value's type | the value |
| `mean`, `median` | numbers | the mean or the median of the column's finite values |
| `mode` | strings, numbers, booleans, dates, timestamps | the most frequent value; of several, the smallest |
| `forward` | all columns but those of `order_by` and `group_by` | the last value before it, by `order_by` |

- Rows are dropped first: they count in no mean, median or mode, and fill nothing.
- A column keeps its type. A mean or a median is rounded half up to an integer, or to the scale of a decimal. The mean
  of decimals and integers is exact, and so is the median, but that of integers beyond 2^53.
- A value stays as it is if there is nothing to fill it with: the column has no value at all, or no value before it.
- `mean`, `median` and `mode` compute the input twice. `median` and `mode` need memory for each distinct value of a
  column on one executor, and the median of decimals of more than 15 digits for each value.
- `forward` sorts each group on one executor. `group_by: []` makes all rows one group, so use it for small inputs only.
  Rows with equal `order_by` are ordered by their other columns. Null comes first in `order_by`, and equals null in
  `group_by`.

Effect: `filled.COLUMN` for each column with a strategy that fills, and `rows_dropped` if there is one that drops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Tag

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import (
    Scalar,
    all_quoted,
    literal,
    missing,
    require_sortable,
    sortable_columns,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


class Constant(Parameters):
    """A strategy: fill with a constant."""

    constant: Scalar
    """The value, of the column's type. Dates and timestamps are such as 2013-03-10; without offset in UTC."""


def _form(strategy: object) -> str:
    """Return how a strategy is written, so that only faults of this form are reported."""
    return "constant" if isinstance(strategy, Mapping | Constant) else "name"


_Named = Literal["drop", "mean", "median", "mode", "forward"]
Strategy = Annotated[Annotated[_Named, Tag("name")] | Annotated[Constant, Tag("constant")], Discriminator(_form)]


class CleanNan(
    Parameters,
    json_schema_extra={
        "examples": [{"strategy": "median"}, {"columns": {"tailnum": {"constant": "unknown"}, "dep_delay": "drop"}}]
    },
):
    """Parameters of `clean_nan`."""

    strategy: Strategy | None = None
    """What to do in all columns that it fits: `drop`, `mean`, `median`, `mode`, `forward` or `{constant: VALUE}`."""
    columns: Mapping[str, Strategy] = {}
    """What to do in single columns, such as `{age: median, city: {constant: unknown}}`."""
    order_by: tuple[str, ...] = ()
    """For `forward`: the columns that order the rows, ascending."""
    group_by: tuple[str, ...] | None = None
    """For `forward`: columns. Rows with equal values in them are a group, and each group is filled on its own."""


def check(_inputs: Sequence[str], parameters: CleanNan) -> None:
    """Raise `DefinitionError` if there is nothing to do, and if `order_by` and `group_by` do not go with `forward`."""
    if parameters.strategy is None and not parameters.columns:
        raise DefinitionError("strategy: clean_nan needs a strategy for all columns, or some in `columns`")
    if "forward" in (parameters.strategy, *parameters.columns.values()):
        if not parameters.order_by:
            raise DefinitionError("order_by: forward needs the columns that order the rows")
        if parameters.group_by is None:
            raise DefinitionError(
                "group_by: forward needs the columns whose groups are filled on their own; "
                "`[]` makes all rows one group, which one process sorts"
            )
    elif parameters.order_by or parameters.group_by is not None:
        raise DefinitionError(f"{'order_by' if parameters.order_by else 'group_by'}: only forward uses it")


def result_columns(inputs: InputColumns, parameters: CleanNan) -> Columns | None:
    """Return the columns of the input."""
    inputs.require(0, {("columns", name): name for name in parameters.columns}, at_key=True)
    inputs.require(0, each(parameters.order_by, "order_by") | each(parameters.group_by or (), "group_by"))
    return inputs[0]


def apply(frames: Mapping[str, DataFrame], parameters: CleanNan, context: StepContext) -> DataFrame:
    """Return the rows with filled values. Raises `DefinitionError` for a strategy that does not fit its column."""
    from pyspark.sql import functions as sf

    (frame,) = frames.values()
    order_by, group_by = parameters.order_by, parameters.group_by or ()
    require_sortable(frame, order_by, field="order_by")
    require_sortable(frame, group_by, field="group_by")
    strategies = _strategies(frame, parameters)
    dropping = [missing(frame, name) for name, strategy in strategies.items() if strategy == "drop"]
    is_dropped = reduce(or_, dropping) if dropping else sf.lit(False)
    types = {field.name: field.dataType for field in frame.schema.fields}
    constants = {
        n: literal(s.constant, types[n]).cast(types[n]) for n, s in strategies.items() if isinstance(s, Constant)
    }
    statistics = {n: _statistic(s, frame, n) for n, s in strategies.items() if s in ("mean", "median", "mode")}
    forward = [name for name, strategy in strategies.items() if strategy == "forward"]
    fills = {
        **constants,
        **{name: sf.col(quoted(f"__statistic_{name}")) for name in statistics},
        **{name: _last_before(frame, name, is_dropped, order_by, group_by) for name in forward},
    }

    filled = frame
    if statistics:
        remaining = frame.where(~is_dropped) if dropping else frame
        row = remaining.agg(*(column.alias(f"__statistic_{name}") for name, column in statistics.items()))
        filled = frame.crossJoin(sf.broadcast(row))
    filled = filled.select("*", *(fills[name].alias(f"__fill_{name}") for name in fills))
    is_filled = {
        name: missing(frame, name) & sf.col(quoted(f"__fill_{name}")).isNotNull() & ~is_dropped for name in fills
    }
    counts = {f"filled.{name}": sf.count(sf.when(column, 1)) for name, column in is_filled.items()}
    if dropping:
        counts["rows_dropped"] = sf.count(sf.when(is_dropped, 1))
    if counts:
        filled = context.observe(filled, counts)
    if dropping:
        filled = filled.where(~is_dropped)
    return filled.select(
        *(
            sf.when(is_filled[name], sf.col(quoted(f"__fill_{name}"))).otherwise(sf.col(quoted(name))).alias(name)
            if name in fills
            else sf.col(quoted(name))
            for name in frame.columns
        )
    )


def _strategies(frame: DataFrame, parameters: CleanNan) -> dict[str, Strategy]:
    """Return the strategy of each column that has one. Raises `DefinitionError` if one of `columns` does not fit."""
    strategies: dict[str, Strategy] = {}
    for field in frame.schema.fields:
        name, data_type = field.name, field.dataType
        strategy = parameters.columns.get(name, parameters.strategy)
        if strategy is None:
            continue
        if strategy == "forward" and name in (*parameters.order_by, *(parameters.group_by or ())):
            reason: str | None = "it orders or groups the rows"
        else:
            reason = _misfit(strategy, data_type)
        if reason is None:
            strategies[name] = strategy
        elif name in parameters.columns:
            raise DefinitionError(f"columns.{name}: {reason}")
    if not strategies:
        raise DefinitionError("strategy: it fits none of the columns: name columns and strategies in `columns`")
    return strategies


def _misfit(strategy: Strategy, data_type: DataType) -> str | None:
    """Return why a strategy does not fit a type, or None."""
    from pyspark.sql import types as t

    type_name = data_type.simpleString()
    if isinstance(strategy, Constant):
        try:
            literal(strategy.constant, data_type)
        except ValueError as error:
            return str(error)
        if not _is_exact(strategy.constant, data_type):
            return f"{strategy.constant} does not fit {type_name}"
    elif strategy in ("mean", "median") and not isinstance(data_type, t.NumericType):
        return f"{strategy} needs numbers, and the column is {type_name}"
    elif strategy == "mode" and not isinstance(
        data_type,
        t.NumericType | t.StringType | t.BooleanType | t.DateType | t.TimestampType | t.TimestampNTZType,
    ):
        return f"mode needs strings, numbers, booleans, dates or timestamps, and the column is {type_name}"
    return None


def _is_exact(value: Scalar, data_type: DataType) -> bool:
    """Return whether an integer or a decimal column can store the value as it is."""
    from pyspark.sql import types as t

    sizes: dict[type[DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32}
    bits = sizes.get(type(data_type))
    if bits is not None:
        most = 1 << (bits - 1)
        return -most <= int(value) < most
    if isinstance(data_type, t.DecimalType):
        units: Fraction = Fraction(str(value)) * 10**data_type.scale
        limit: int = 10**data_type.precision
        return units.denominator == 1 and abs(units) < limit
    return True


def _statistic(strategy: Strategy, frame: DataFrame, name: str) -> Column:
    """Return the aggregate of a column's values that fills the missing ones, in the column's type."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    from slackwater.steps.decimals import exact_mean, exact_median
    from slackwater.steps.values import finite

    data_type, column = frame.schema[name].dataType, sf.col(quoted(name))
    if strategy == "mode":
        return sf.mode(sf.when(~missing(frame, name), column), deterministic=True)
    match data_type:
        case t.DecimalType():
            return (exact_mean if strategy == "mean" else exact_median)(column, data_type)
        case t.IntegralType():
            if strategy == "mean":
                integer = t.DecimalType(20, 0)
                return exact_mean(column.cast(integer), integer).cast(data_type)
            return sf.round(sf.median(column)).try_cast(data_type)
        case _:
            number = finite(column)
            return (sf.avg(number) if strategy == "mean" else sf.median(number)).cast(data_type)


def _last_before(
    frame: DataFrame, name: str, is_dropped: Column, order_by: Sequence[str], group_by: Sequence[str]
) -> Column:
    """Return the last value before each row that is not missing, in the row's group."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    order = [*order_by, *sortable_columns(frame, besides=(*order_by, *group_by))]
    before = (
        Window.partitionBy(*all_quoted(group_by)).orderBy(*all_quoted(order)).rowsBetween(Window.unboundedPreceding, -1)
    )
    value = sf.when(~missing(frame, name) & ~is_dropped, sf.col(quoted(name)))
    return sf.last(value, ignorenulls=True).over(before)


STEP = Transform(name="clean_nan", parameters=CleanNan, apply=apply, check=check, columns=result_columns)
