"""`delete_columns`: remove columns.

A column that the input lacks is an error: it may be misspelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slackwater.problems import Problem
from slackwater.steps.columns import ColumnNames, all_quoted, require_distinct
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Effect, Parameters, StepContext, Transform, always, any_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeleteColumns(Parameters, json_schema_extra={"examples": [{"columns": ["year", "month", "day"]}]}):
    """Parameters of `delete_columns`."""

    columns: ColumnNames
    """Columns to remove."""


def check(_inputs: Sequence[str], parameters: DeleteColumns) -> None:
    """Raise `DefinitionError` for a column that is named twice."""
    require_distinct(parameters.columns, field="columns")


def result_columns(inputs: InputColumns, parameters: DeleteColumns) -> Columns | None:
    """Return the other columns. They are not known if one of those to remove is missing."""
    inputs.require(0, each(parameters.columns, "columns"))
    if inputs[0] is None or inputs.problems:
        return None
    others = tuple(name for name in inputs[0] if name not in parameters.columns)
    if not others:
        message = f"{inputs.name(0)} has no other columns, so none would remain"
        inputs.problems.append(Problem(path=("columns",), message=message))
    return others


def apply(frames: Mapping[str, DataFrame], parameters: DeleteColumns, _context: StepContext) -> DataFrame:
    """Return the other columns."""
    (frame,) = frames.values()
    return frame.select(*all_quoted(name for name in frame.columns if name not in parameters.columns))


def report(parameters: DeleteColumns, _observed: Mapping[str, Any]) -> Effect:
    """Return the names of the removed columns."""
    return {"deleted": list(parameters.columns)}


STEP = Transform(
    name="delete_columns",
    parameters=DeleteColumns,
    apply=apply,
    report=report,
    check=check,
    columns=result_columns,
    reads_all_rows=any_input,
    is_row_by_row=always,
)
