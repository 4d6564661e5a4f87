"""`after_commission`: add the amount that is left after the marketplace's commission.

Effect: `without_amount`, the number of rows whose amount is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from slackwater.errors import DefinitionError
from slackwater.steps.step import Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXAMPLE = {"column": "gross", "percent": 12.5, "as": "net"}


class AfterCommission(Parameters, json_schema_extra={"examples": [_EXAMPLE]}):
    """Parameters of `after_commission`."""

    column: str
    """The column with the amount."""
    percent: Annotated[float, Field(ge=0, le=100)]
    """The commission."""
    result: Annotated[str, Field(alias="as")]
    """The name of the new column."""


def apply(frames: Mapping[str, DataFrame], parameters: AfterCommission, context: StepContext) -> DataFrame:
    """Return the rows with the new column."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - pipelines are checked without Spark

    (frame,) = frames.values()
    if parameters.column not in frame.columns:
        raise DefinitionError(f"column: no column {parameters.column} (the input has: {', '.join(frame.columns)})")
    counted = context.observe(frame, {"without_amount": sf.count_if(sf.col(parameters.column).isNull())})
    return counted.withColumn(parameters.result, sf.col(parameters.column) * (1 - parameters.percent / 100))


STEP = Transform(
    name="after_commission",
    parameters=AfterCommission,
    apply=apply,
    is_row_by_row=lambda _parameters: True,
)
