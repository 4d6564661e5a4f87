"""`deduplicate`: keep one row of each key, the latest or the earliest.

Of rows with equal `keys`, the one with the largest values in `order_by` is kept, or the smallest for `keep: earliest`.
If there are several, the other columns decide, in their order and in the same direction, so the result is the same in
each run; only columns of maps and variants decide nothing.

- In `keys`, null equals null and NaN equals NaN, as in pandas: all rows without a key become one. Drop them with
  `filter`, or reject them with `data_quality`, if they are not the same thing.
- In `order_by`, NaN is larger than all numbers, and a row with a null is kept only if there is no other row.
- 0.0 equals -0.0 in both. The row that is kept keeps its own value.

The rows that were dropped are the difference of rows in and out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from slackwater.arrow.names import quoted
from slackwater.steps.columns import (
    ColumnNames,
    all_quoted,
    require_distinct,
    require_sortable,
    sortable_columns,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Parameters, StepContext, Transform, any_input

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_POSITION = "__position"


class Deduplicate(
    Parameters, json_schema_extra={"examples": [{"keys": ["origin", "time_hour"], "order_by": ["observed_at"]}]}
):
    """Parameters of `deduplicate`."""

    keys: ColumnNames
    """Columns that identify a row."""
    order_by: ColumnNames
    """Columns that decide which row is the latest, the most important one first."""
    keep: Literal["latest", "earliest"] = "latest"
    """Which row of a key is kept."""


def check(_inputs: Sequence[str], parameters: Deduplicate) -> None:
    """Raise `DefinitionError` for a column that is named twice."""
    require_distinct(parameters.keys, field="keys")
    require_distinct([*parameters.keys, *parameters.order_by], field="order_by")


def result_columns(inputs: InputColumns, parameters: Deduplicate) -> Columns | None:
    """Return the columns of the input."""
    inputs.require(0, each(parameters.keys, "keys") | each(parameters.order_by, "order_by"))
    return inputs[0]


def apply(frames: Mapping[str, DataFrame], parameters: Deduplicate, _context: StepContext) -> DataFrame:
    """Return one row of each key. Raises `DefinitionError` for a column that cannot be compared."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    (frame,) = frames.values()
    require_sortable(frame, parameters.keys, field="keys")
    require_sortable(frame, parameters.order_by, field="order_by")
    others = sortable_columns(frame, besides=(*parameters.keys, *parameters.order_by))

    def ordered(name: str) -> Column:
        column = sf.col(quoted(name))
        return column.desc_nulls_last() if parameters.keep == "latest" else column.asc_nulls_last()

    window = Window.partitionBy(*all_quoted(parameters.keys)).orderBy(*map(ordered, (*parameters.order_by, *others)))
    # Spark drops most rows before the shuffle, as long as nothing stands between the number and the condition.
    numbered = frame.withColumn(_POSITION, sf.row_number().over(window))
    return numbered.where(sf.col(_POSITION) == 1).drop(_POSITION)


STEP = Transform(
    name="deduplicate",
    parameters=Deduplicate,
    apply=apply,
    check=check,
    columns=result_columns,
    reads_all_rows=any_input,
)
