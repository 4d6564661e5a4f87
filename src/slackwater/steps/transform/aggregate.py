"""`aggregate`: compute measures of groups of rows.

The result has one row for each combination of values of `group_by`, with these columns first and the measures after
them. Without `group_by` it has one row, also if the input is empty. Null is a group of its own.

| Function | Result |
|---|---|
| `count` | the number of rows; with `column`, of values that are not null |
| `count_distinct` | the number of different values |
| `sum`, `min`, `max`, `mean`, `stddev` | of the values; `stddev` is that of a sample |
| `median`, `quantile` | of numbers, interpolated as in numpy and pandas; `quantile` needs `q`, from 0 to 1 |
| `first`, `last` | the value of the row with the smallest or the largest `order_by` |

- Nulls are ignored, as in SQL; without any value, a measure is null, and a count 0. `first` and `last` ignore rows
  whose `order_by` is null, and return null if their row has no value.
- NaN is a value, as in SQL: a sum with NaN is NaN, and NaN is the largest value. Use `clean_nan` before.
- Sums of integers are `bigint`. Sums and means of decimals are decimals. Both fail the run if they overflow. The mean
  of integers is a `double`, and so are `stddev`, `median` and `quantile` of all numbers.
- Of rows with equal `order_by`, `first` returns the smallest value, and `last` the largest.
- `median` and `quantile` need memory for each distinct value of a group on one executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import (
    all_quoted,
    require_distinct,
    require_sortable,
    require_type,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Merge, Parameters, StepContext, Transform, any_input

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Measure(Parameters):
    """A measure: a function, and the column that it reads."""

    function: Literal[
        "count",
        "count_distinct",
        "sum",
        "min",
        "max",
        "mean",
        "stddev",
        "median",
        "quantile",
        "first",
        "last",
    ]
    """The function."""
    column: str | None = None
    """The column. Only `count` does without it."""
    q: Annotated[float, Field(ge=0, le=1)] | None = None
    """For `quantile`: which one; 0.5 is the median."""
    order_by: str | None = None
    """For `first` and `last`: the column that orders the rows."""


class Aggregate(
    Parameters,
    json_schema_extra={
        "examples": [
            {
                "group_by": ["origin", "carrier"],
                "measures": {
                    "flights": {"function": "count"},
                    "dep_delay_p90": {"function": "quantile", "column": "dep_delay", "q": 0.9},
                },
            }
        ]
    },
):
    """Parameters of `aggregate`."""

    group_by: tuple[str, ...] = ()
    """The columns of the groups."""
    measures: Annotated[Mapping[str, Measure], Field(min_length=1)]
    """The measures by the name of their column in the result, such as `{flights: {function: count}}`."""


def check(_inputs: Sequence[str], parameters: Aggregate) -> None:
    """Raise `DefinitionError` for a column that occurs twice, and for what a function needs or does not use."""
    require_distinct(parameters.group_by, field="group_by")
    require_distinct([*parameters.group_by, *parameters.measures], field="measures")
    for name, measure in parameters.measures.items():
        function = measure.function
        needs = {
            "column": (function != "count", measure.column),
            "q": (function == "quantile", measure.q),
            "order_by": (function in ("first", "last"), measure.order_by),
        }
        for field, (is_needed, value) in needs.items():
            if is_needed and value is None:
                raise DefinitionError(f"measures.{name}.{field}: {function} needs it")
            if not is_needed and value is not None and field != "column":
                raise DefinitionError(f"measures.{name}.{field}: {function} does not use it")


def result_columns(inputs: InputColumns, parameters: Aggregate) -> Columns | None:
    """Return the columns of the groups and the measures."""
    inputs.require(0, each(parameters.group_by, "group_by"))
    for name, measure in parameters.measures.items():
        read = {"column": measure.column, "order_by": measure.order_by}
        inputs.require(0, {("measures", name, field): column for field, column in read.items() if column is not None})
    return (*parameters.group_by, *parameters.measures) if not inputs.problems else None


def apply(frames: Mapping[str, DataFrame], parameters: Aggregate, _context: StepContext) -> DataFrame:
    """Return one row for each group. Raises `DefinitionError` for a column of a wrong type."""
    (frame,) = frames.values()
    require_sortable(frame, parameters.group_by, field="group_by")
    measures = [
        _aggregate(frame, measure, f"measures.{name}").alias(name) for name, measure in parameters.measures.items()
    ]
    return frame.groupBy(*all_quoted(parameters.group_by)).agg(*measures)


def merges(parameters: Aggregate) -> Sequence[Merge] | None:
    """Return how two results are merged: sums and counts are added. None with any other function than these four."""
    known: dict[str, Merge] = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
    merges: list[Merge] = ["key" for _ in parameters.group_by]
    for measure in parameters.measures.values():
        if measure.function not in known:
            return None
        merges.append(known[measure.function])
    return merges


def _aggregate(frame: DataFrame, measure: Measure, field: str) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import NumericType

    function, name = measure.function, measure.column
    if name is None:
        return sf.count(sf.lit(1))
    if function in ("sum", "mean", "stddev", "median", "quantile"):
        require_type(frame, name, (NumericType,), field=f"{field}.column", needs="numbers")
    elif function != "count":
        require_sortable(frame, [name], field=f"{field}.column")
    column = sf.col(quoted(name))
    if measure.order_by is not None:
        require_sortable(frame, [measure.order_by], field=f"{field}.order_by")
        order = sf.col(quoted(measure.order_by))
        # With the value in it, the order is the same in each run.
        position = sf.when(order.isNotNull(), sf.struct(order, column))
        return sf.min_by(column, position) if function == "first" else sf.max_by(column, position)
    if measure.q is not None:
        return sf.percentile(column, measure.q)
    if function in ("sum", "mean"):
        return _bounded(sf.try_sum(column) if function == "sum" else sf.try_avg(column), column, f"{field}: {name}")
    functions = {
        "count": sf.count,
        "count_distinct": sf.count_distinct,
        "min": sf.min,
        "max": sf.max,
        "stddev": sf.stddev_samp,
        "median": sf.median,
    }
    return functions[function](column)


def _bounded(total: Column, column: Column, place: str) -> Column:
    """Return the sum or mean of a column, for which Spark fails if it is null although the column has values."""
    from pyspark.sql import functions as sf

    remedy = "cast the column to decimal(38,0) or double in a select step before"
    error = sf.raise_error(sf.lit(f"aggregate: {place}: the sum has too many digits: {remedy}"))
    return sf.when(total.isNotNull() | (sf.count(column) == 0), total).otherwise(error)


STEP = Transform(
    name="aggregate",
    parameters=Aggregate,
    apply=apply,
    check=check,
    columns=result_columns,
    reads_all_rows=any_input,
    merges=merges,
)
