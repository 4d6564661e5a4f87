"""`sql`: one SELECT over the step's inputs, which it reads by their names.

A query is checked twice. A parser in Python checks it together with the pipeline, so that errors are reported before
deployment. Spark's own parser checks it again before it runs (`slackwater.steps.spark_query`), because the two parsers
may read a query differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import sqlglot
from pydantic import AfterValidator
from sqlglot import exp

from slackwater.problems import Problems, unknown_name
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.merged_sql import merges_of_query
from slackwater.steps.sql_columns import query_columns
from slackwater.steps.sql_rules import FORBIDDEN_FUNCTIONS, ROW_FUNCTIONS, check_query, position_of
from slackwater.steps.step import Merge, Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sql(
    Parameters,
    json_schema_extra={"examples": [{"query": "SELECT origin, avg(dep_delay) AS delay FROM input GROUP BY origin"}]},
):
    """Parameters of `sql`."""

    query: Annotated[str, AfterValidator(check_query)]
    """One SELECT or WITH statement in Spark SQL."""


def check(inputs: Sequence[str], parameters: Sql) -> None:
    """Raise `DefinitionError` for a table that is not an input of the step."""
    statement = sqlglot.parse_one(parameters.query, dialect="spark")
    known = {*(name.lower() for name in inputs), *(cte.alias.lower() for cte in statement.find_all(exp.CTE))}
    problems = []
    for table in statement.find_all(exp.Table):
        if not isinstance(table.this, exp.Func) and table.name.lower() not in known:
            problem = unknown_name(f"{table.name} is not an input of the step", table.name, inputs, path=("query",))
            problems.append(replace(problem, position=position_of(table, parameters.query)))
    if problems:
        raise Problems(*problems)


def result_columns(inputs: InputColumns, parameters: Sql) -> Columns | None:
    """Return the columns of the query's result, if they do not depend on what only Spark knows."""
    columns, problems = query_columns(parameters.query, inputs.by_name, path=("query",))
    inputs.problems += problems
    return columns


def reads_rows_once(parameters: Sql) -> bool:
    """Return False for a query with LIMIT, OFFSET or ORDER BY, and for one that reads a table more than once.

    Before it sorts, Spark computes the rows once to sample them.
    """
    statement = sqlglot.parse_one(parameters.query, dialect="spark")
    tables = [table.name.lower() for table in statement.find_all(exp.Table)]
    orders = [node for node in statement.find_all(exp.Order) if not isinstance(node.parent, exp.Window)]
    return (
        len(set(tables)) == len(tables)
        and not orders
        and not list(statement.find_all(exp.Limit, exp.Fetch, exp.Offset))
    )


def reads_all_rows(parameters: Sql, _position: int) -> bool:
    """Return True for a query over one table: Spark may stop reading one side of a join when the other side ends."""
    statement = sqlglot.parse_one(parameters.query, dialect="spark")
    return len(list(statement.find_all(exp.Table))) == 1 and reads_rows_once(parameters)


def merges(parameters: Sql) -> Sequence[Merge] | None:
    """Return how two results of a plain grouping are merged; None for any other query."""
    return merges_of_query(parameters.query)


def apply(frames: Mapping[str, DataFrame], parameters: Sql, _context: StepContext) -> DataFrame:
    """Return the result of the query over the inputs. Raises `DefinitionError` if Spark refuses the query."""
    from slackwater.steps.spark_query import run_query

    return run_query(frames, parameters.query, functions=ROW_FUNCTIONS, forbidden=FORBIDDEN_FUNCTIONS)


STEP = Transform(
    name="sql",
    parameters=Sql,
    apply=apply,
    inputs=("input",),
    many_inputs=True,
    check=check,
    columns=result_columns,
    reads_rows_once=reads_rows_once,
    reads_all_rows=reads_all_rows,
    merges=merges,
)
