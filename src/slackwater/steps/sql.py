"""`sql`: one SELECT over the step's inputs, by their names.

What a query may do is checked twice. When the pipeline is checked, a parser in Python reads it, so that a fault shows
before anything is deployed; before it runs, Spark's own parser does (`slackwater.steps.spark.query`), so that no
difference between the two lets anything past.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import sqlglot
from pydantic import AfterValidator
from sqlglot import exp

from slackwater.errors import DefinitionError
from slackwater.steps.step import Parameters, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_MAKERS = frozenset(
    {
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "range",
        "stack",
    }
)
"""Table functions that a query may read from: they make rows of values, and reach nothing outside."""

FORBIDDEN_FUNCTIONS = frozenset({"reflect", "try_reflect", "java_method"})
"""They call any static method of the Java machine."""


def _one_select(text: str) -> str:
    """Accept one SELECT or WITH statement. Raises `ValueError` that says what else it found."""
    try:
        statements = [statement for statement in sqlglot.parse(text, dialect="spark") if statement is not None]
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"not readable as SQL: {_place(error)}") from error
    if len(statements) != 1:
        raise ValueError(f"one statement is expected, not {len(statements)}")
    statement = statements[0]
    if not isinstance(statement, (exp.Select, exp.SetOperation, exp.Subquery)):
        raise ValueError(  # noqa: TRY004 - pydantic reports a ValueError as the parameter's fault
            f"a SELECT or WITH statement is expected, not {statement.key.upper()}"
        )
    for node in statement.walk():
        fault = _fault(node)
        if fault:
            raise ValueError(fault)
    return text


def _fault(node: exp.Expr) -> str | None:
    fault = None
    changes = isinstance(node, (exp.DML, exp.DDL)) and not isinstance(node, exp.Query)
    if changes or isinstance(node, (exp.QueryTransform, exp.Into, exp.Command)):
        fault = f"{node.key.upper()} is not allowed in a query"
    elif isinstance(node, exp.Table) and (node.db or node.catalog):
        fault = f"{node.sql('spark')}: a query reads its inputs by their bare names, not files and not other tables"
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
        name = _function(node.this)
        if name not in ROW_MAKERS:
            fault = f"the table function {name} is not allowed (allowed: {', '.join(sorted(ROW_MAKERS))})"
    elif isinstance(node, exp.Func) and _function(node) in FORBIDDEN_FUNCTIONS:
        fault = f"the function {_function(node)} is not allowed in a query"
    return fault


def _function(node: exp.Func) -> str:
    name: str = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.lower()


def _place(error: sqlglot.errors.SqlglotError) -> str:
    faults = getattr(error, "errors", None)
    if not faults:
        return str(error)
    return f"{faults[0]['description']} (line {faults[0]['line']}, column {faults[0]['col']})"


class Sql(Parameters):
    """Parameters of `sql`."""

    query: Annotated[str, AfterValidator(_one_select)]
    """One SELECT or WITH statement in Spark's SQL."""


def _check(inputs: Sequence[str], parameters: Sql) -> None:
    statement = sqlglot.parse_one(parameters.query, dialect="spark")
    known = {*(name.lower() for name in inputs), *(cte.alias.lower() for cte in statement.find_all(exp.CTE))}
    read = {table.name for table in statement.find_all(exp.Table) if not isinstance(table.this, exp.Func)}
    for name in sorted(read):
        if name.lower() not in known:
            near = difflib.get_close_matches(name, inputs, n=1)
            hint = f"did you mean {near[0]}?" if near else f"its inputs are: {', '.join(inputs)}"
            raise DefinitionError(f"query: {name} is not an input of the step ({hint})")


def _apply(frames: Mapping[str, DataFrame], parameters: Sql) -> DataFrame:
    from slackwater.steps.spark.query import run_query  # noqa: PLC0415 - needs Spark, which checking does not

    return run_query(frames, parameters.query, functions=ROW_MAKERS, forbidden=FORBIDDEN_FUNCTIONS)


STEP = Step(name="sql", parameters=Sql, apply=_apply, inputs=range(1, 17), check=_check)
