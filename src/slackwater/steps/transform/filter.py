"""`filter`: keep the rows for which a condition is true.

The condition is one boolean expression in Spark SQL over the columns of the input, such as
`distance > 0 AND carrier <> 'XX'`. A row for which it is null is dropped, as in SQL. It may contain no subquery, no
aggregate and no window function: use an `sql` step for those. Write a column whose name is not a plain word in
backticks.

Effect: `rows_dropped`, and `condition_null`, the rows of them for which the condition was null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from slackwater.arrow.names import quoted
from slackwater.steps.columns import all_quoted
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.merged_sql import is_condition_of_row
from slackwater.steps.sql_columns import condition_problems
from slackwater.steps.sql_rules import FORBIDDEN_FUNCTIONS, check_condition
from slackwater.steps.step import Parameters, StepContext, Transform, any_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MATCHES = "__matches"


class Filter(Parameters, json_schema_extra={"examples": [{"where": "dep_time IS NOT NULL AND distance > 0"}]}):
    """Parameters of `filter`."""

    where: Annotated[str, AfterValidator(check_condition)]
    """One boolean expression in Spark SQL. The rows for which it is true are kept."""


def result_columns(inputs: InputColumns, parameters: Filter) -> Columns | None:
    """Return the columns of the input."""
    if inputs[0] is not None:
        inputs.problems += condition_problems(parameters.where, inputs.name(0), inputs[0], path=("where",))
    return inputs[0]


def is_row_by_row(parameters: Filter) -> bool:
    """Return whether the condition is the same in each run."""
    return is_condition_of_row(parameters.where)


def apply(frames: Mapping[str, DataFrame], parameters: Filter, context: StepContext) -> DataFrame:
    """Return the rows that match. Raises `DefinitionError` if Spark refuses the condition."""
    from pyspark.sql import functions as sf

    from slackwater.steps.spark_query import run_query

    ((input_name, frame),) = frames.items()
    # The line break ends a comment in the condition.
    condition = f"({parameters.where}\n)"
    # Without its alias, Spark would read `WHERE (late)` as another alias, with a name for the table's only column.
    table = f"{quoted(input_name)} AS {quoted(input_name)}"
    # In a WHERE clause, Spark refuses everything but a boolean of one row.
    queries = (
        f"SELECT 1 FROM {table} WHERE {condition}",  # noqa: S608 - `run_query` checks it
        f"SELECT *, {condition} AS {_MATCHES} FROM {table}",  # noqa: S608
    )
    _, result = (
        run_query(frames, query, functions=(), forbidden=FORBIDDEN_FUNCTIONS, field="where", written=parameters.where)
        for query in queries
    )
    matches = sf.col(_MATCHES)
    counts = {
        "rows_dropped": sf.count(sf.when(~matches | matches.isNull(), 1)),
        "condition_null": sf.count(sf.when(matches.isNull(), 1)),
    }
    return context.observe(result, counts).where(matches).select(*all_quoted(frame.columns))


STEP = Transform(
    name="filter",
    parameters=Filter,
    apply=apply,
    columns=result_columns,
    reads_all_rows=any_input,
    is_row_by_row=is_row_by_row,
)
