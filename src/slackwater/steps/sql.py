"""`sql`: one SELECT over the step's inputs, which it reads by their names.

A query is checked twice. A parser in Python checks it together with the pipeline, so that errors are reported before
deployment. Spark's own parser checks it again before it runs (`slackwater.steps.spark.query`), because the two parsers
may read a query differently.
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

# Table functions that a query may read from: they turn values into rows, and read no other data. All others are
# refused, also those of later Spark versions.
ROW_FUNCTIONS = frozenset(
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

# Functions that call any static method in the Java virtual machine, for example to run a program.
FORBIDDEN_FUNCTIONS = frozenset({"reflect", "try_reflect", "java_method"})


def check_query(query: str) -> str:
    """Return the query unchanged if it is one SELECT or WITH statement that reads nothing but inputs.

    The names of the inputs are not known yet: `check` compares them. Raises `ValueError` that names the fault.
    """
    try:
        statements = [statement for statement in sqlglot.parse(query, dialect="spark") if statement is not None]
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"not readable as SQL: {_first_fault(error)}") from error
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
    return query


def _fault(node: exp.Expr) -> str | None:
    """Return why a node of the parsed query is not allowed, or None."""
    fault = None
    # DML and DDL change data or tables, TRANSFORM runs a program, a Command is a statement that sqlglot cannot parse.
    if isinstance(node, (exp.DML, exp.DDL, exp.QueryTransform, exp.Into, exp.Command)):
        fault = f"{node.key.upper()} is not allowed in a query"
    elif isinstance(node, exp.Table) and (node.db or node.catalog):
        fault = f"{node.sql('spark')}: a query reads its inputs by their bare names, not files and not other tables"
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
        name = _function(node.this)
        if name not in ROW_FUNCTIONS:
            fault = f"the table function {name} is not allowed (allowed: {', '.join(sorted(ROW_FUNCTIONS))})"
    elif isinstance(node, exp.Func) and _function(node) in FORBIDDEN_FUNCTIONS:
        fault = f"the function {_function(node)} is not allowed in a query"
    return fault


def _function(node: exp.Func) -> str:
    """Return the name of a function in lower case. `Anonymous` is a function that sqlglot does not know."""
    name: str = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.lower()


def _first_fault(error: sqlglot.errors.SqlglotError) -> str:
    """Return the first fault of a query that cannot be parsed, with its position if sqlglot reports one."""
    faults = getattr(error, "errors", None)
    if not faults:
        return str(error)
    return f"{faults[0]['description']} (line {faults[0]['line']}, column {faults[0]['col']})"


class Sql(Parameters):
    """Parameters of `sql`."""

    query: Annotated[str, AfterValidator(check_query)]
    """One SELECT or WITH statement in Spark SQL."""


def check(inputs: Sequence[str], parameters: Sql) -> None:
    """Raise `DefinitionError` for a table that is not an input of the step."""
    statement = sqlglot.parse_one(parameters.query, dialect="spark")
    known = {*(name.lower() for name in inputs), *(cte.alias.lower() for cte in statement.find_all(exp.CTE))}
    tables = {table.name for table in statement.find_all(exp.Table) if not isinstance(table.this, exp.Func)}
    for name in sorted(tables):
        if name.lower() not in known:
            similar = difflib.get_close_matches(name, inputs, n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"its inputs are: {', '.join(inputs)}"
            raise DefinitionError(f"query: {name} is not an input of the step ({hint})")


def apply(frames: Mapping[str, DataFrame], parameters: Sql) -> DataFrame:
    """Return the result of the query over the inputs. Raises `DefinitionError` if Spark refuses the query."""
    from slackwater.steps.spark.query import run_query  # noqa: PLC0415 - pipelines are checked without Spark

    return run_query(frames, parameters.query, functions=ROW_FUNCTIONS, forbidden=FORBIDDEN_FUNCTIONS)


STEP = Step(name="sql", parameters=Sql, apply=apply, inputs=range(1, 17), check=check)
