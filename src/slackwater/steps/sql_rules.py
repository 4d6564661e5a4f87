"""What SQL in parameters may contain: a query reads nothing but its inputs, a condition nothing but its row.

A parser in Python checks it together with the pipeline. Spark's own parser checks it again before it runs
(`slackwater.steps.spark_query`), because the two parsers may read SQL differently.
"""

from __future__ import annotations

import re
from itertools import zip_longest

import sqlglot
from sqlglot import ErrorLevel, TokenType, exp

from slackwater.problems import Problem, Problems, sql_position
from slackwater.steps.sql_functions import function_problems

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

_AFTER_LIST = frozenset(
    {
        *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT),
        *(TokenType.UNION, TokenType.R_PAREN),
    }
)

# Expressions whose value is never true or false.
_NEVER_BOOLEAN = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe, exp.Interval)


def check_query(query: str) -> str:
    """Return the query unchanged if it is one SELECT or WITH statement that reads nothing but inputs.

    The names of the inputs are not known yet: `check` compares them. Raises `ValueError` that names the problem.
    """
    statement = select_statement(query, "spark")
    for node in statement.walk():
        problem = _problem(node)
        if problem:
            raise Problems(Problem(message=problem, position=position_of(node, query)))
    _check_calls(statement, query)
    return query


def check_condition(condition: str) -> str:
    """Return the condition unchanged if it is one expression over the columns of a row.

    Raises `ValueError` that names the problem, such as a subquery, an aggregate or a window function.
    """
    expression = _only_statement(condition, "spark")
    if any(token.token_type == TokenType.SEMICOLON for token in sqlglot.tokenize(condition, read="spark")):
        raise ValueError("a condition has no `;`: remove it")
    for node in expression.walk():
        problem = _problem(node)
        if isinstance(node, (exp.Query, exp.Table)):
            problem = "a subquery is not allowed in a condition: use an sql step"
        elif isinstance(node, (exp.AggFunc, exp.Window, exp.UDTF)):
            problem = f"{node.sql('spark')}: a condition calls only functions of one row's values: use an sql step"
        if problem:
            raise Problems(Problem(message=problem, position=position_of(node, condition)))
    value = expression.unnest()
    if not isinstance(value, exp.Condition) or isinstance(value, _NEVER_BOOLEAN) or value.is_number or value.is_string:
        what = expression.key.upper() if not isinstance(value, exp.Condition) else expression.sql("spark")
        raise ValueError(f"a condition such as `distance > 0` is expected, not {what}")
    _check_calls(expression, condition)
    return condition


def select_statement(query: str, dialect: str) -> exp.Expr:
    """Return the parsed query. Raises `ValueError` unless it is one SELECT or WITH statement of this SQL dialect."""
    statement = _only_statement(query, dialect)
    if not isinstance(statement, (exp.Select, exp.SetOperation, exp.Subquery)):
        raise ValueError(  # noqa: TRY004 - pydantic reports a ValueError as the parameter's problem
            f"a SELECT or WITH statement is expected, not {statement.key.upper()}"
        )
    return statement


def _only_statement(sql: str, dialect: str) -> exp.Expr:
    """Return the only statement or expression of the SQL. Raises `ValueError` if there is not exactly one."""
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=dialect) if statement is not None]
    except sqlglot.errors.SqlglotError as error:
        raise Problems(*_syntax_problems(error, sql, dialect)) from error
    except RecursionError as error:
        raise ValueError("more nested than Python can read: split it into several steps") from error
    if len(statements) != 1:
        raise ValueError(f"one statement is expected, not {len(statements)}")
    return statements[0]


def _problem(node: exp.Expr) -> str | None:
    """Return why a node of the parsed query is not allowed, or None."""
    problem = None
    # DML and DDL change data or tables, TRANSFORM runs a program, a Command is a statement that sqlglot cannot parse.
    if isinstance(node, (exp.DML, exp.DDL, exp.QueryTransform, exp.Into, exp.Command)):
        problem = f"{node.key.upper()} is not allowed in a query"
    elif isinstance(node, exp.Table) and (node.db or node.catalog):
        problem = f"{node.sql('spark')}: a query reads its inputs by their bare names, not files and not other tables"
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
        name = _function(node.this)
        if name not in ROW_FUNCTIONS:
            problem = f"the table function {name} is not allowed (allowed: {', '.join(sorted(ROW_FUNCTIONS))})"
    elif isinstance(node, exp.Func) and _function(node) in FORBIDDEN_FUNCTIONS:
        problem = f"the function {_function(node)} is not allowed in a query"
    return problem


def _function(node: exp.Func) -> str:
    """Return the name of a function in lower case. `Anonymous` is a function that sqlglot does not know."""
    name: str = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.lower()


def position_of(node: exp.Expr, sql: str) -> tuple[int, int] | None:
    """Return line and column, from 1, at which a node of the parsed SQL begins; None if the parser does not keep it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return sql_position(min(starts), sql) if starts else None


def _check_calls(statement: exp.Expr, sql: str) -> None:
    """Raise `Problems` for what sqlglot accepts and Spark does not: functions, and a comma at the end of a list."""
    tokens = sqlglot.tokenize(sql, read="spark")
    problems = [
        Problem(message="nothing follows this comma: remove it", position=sql_position(token.start, sql))
        for token, following in zip_longest(tokens, tokens[1:])
        if token.token_type == TokenType.COMMA and (following is None or following.token_type in _AFTER_LIST)
    ]
    problems += function_problems(statement, sql)
    if problems:
        raise Problems(*problems)


def _syntax_problems(error: sqlglot.errors.SqlglotError, sql: str, dialect: str) -> tuple[Problem, ...]:
    """Return the problems of SQL that cannot be parsed: wrong numbers of arguments, or else the first problem."""
    details = getattr(error, "errors", None)
    if not details:
        # Such as `Missing ' from 1:7`: the line in which the SQL ends, and the index of the opening quote.
        opened = re.match(r"Missing (\S+) from \d+:(\d+)", str(error.__cause__))
        if not opened:
            return (Problem(message=f"not readable as SQL: {' '.join(str(error).split())}"),)
        message = f"not readable as SQL: the {opened[1]} that opens here is never closed"
        return (Problem(message=message, position=sql_position(int(opened[2]), sql)),)
    first = details[0]
    description = first["description"]
    if dialect == "spark" and description.startswith(("The number of provided arguments", "Required keyword")):
        (parsed, *_) = sqlglot.parse(sql, dialect=dialect, error_level=ErrorLevel.IGNORE)
        found = tuple(function_problems(parsed, sql)) if parsed else ()
        if found:
            return found
    # sqlglot reports where the invalid token ends.
    lines = sql.split("\n")
    end = sum(len(line) + 1 for line in lines[: first["line"] - 1]) + first["col"]
    token = first["highlight"] or " "
    if description.startswith("Required keyword"):  # sqlglot names its own classes
        description = f"something is missing after {token}"
    elif description == "Expected TYPE after CAST":
        description = f"{token} is not a type such as int, double, string or decimal(10,2)"
    elif description.startswith("Expecting "):
        description = f"{description.removeprefix('Expecting ')} is expected near {token}"
    elif description == "Invalid expression / Unexpected token":
        description = f"{token} is not expected here"
    position = sql_position(max(end - len(token), 0), sql)
    return (Problem(message=f"not readable as SQL: {description}", position=position),)
