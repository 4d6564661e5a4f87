"""The functions of Spark SQL: which there are, how many arguments they take, and which of them aggregate rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import sqlglot
from sqlglot import Token, TokenType, exp

from slackwater.formatting import counted
from slackwater.problems import Problem, closest, sql_position
from slackwater.steps.spark_functions import AGGREGATES, ARGUMENTS, WINDOW_FUNCTIONS

# Spark reads these names as functions, if there is no such column.
FUNCTIONS_WITHOUT_BRACKETS = frozenset(
    {
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "grouping__id",
        "localtimestamp",
        "session_user",
        "user",
    }
)
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
# Arguments with one of these words follow a grammar of their own, such as `extract(year FROM day)`.
_WORDS = frozenset({TokenType.ALIAS, TokenType.FROM, TokenType.IN})
# Spark also accepts these with a unit before the other arguments.
_WITH_UNIT = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"})


class _Arity(NamedTuple):
    counts: Sequence[int]
    is_least: bool
    """Whether any number from `counts` on is accepted."""


def function_problems(statement: exp.Expr, sql: str) -> Iterator[Problem]:
    """Yield a problem for each call of a function that Spark lacks, or calls in another way.

    `sql` is the text that was parsed as `statement`.
    """
    tokens = sqlglot.tokenize(sql, read="spark")
    indices = {token.start: index for index, token in enumerate(tokens)}
    for node in statement.find_all(exp.Func):
        name = spark_name(node, sql)
        # A name of several parts is a function of a catalog; a table function has rules of its own.
        if not name or isinstance(node.parent, exp.Dot | exp.Table) or node.find_ancestor(exp.Hint):
            continue
        position = sql_position(node.meta["start"], sql)
        if name not in spark_arities():
            similar = closest(name, spark_arities())
            yield Problem(message=f"Spark has no function {name!r}", suggestion=similar, position=position)
            continue
        count = _count_arguments(tokens, indices[node.meta["start"]])
        message = _wrong_count(name, count) if count is not None else ""
        if message:
            yield Problem(message=message, position=position)
        elif name in WINDOW_FUNCTIONS and not _is_over_window(node):
            message = f"{name} needs a window: write `{name}(...) OVER (PARTITION BY ... ORDER BY ...)`"
            yield Problem(message=message, position=position)


def spark_name(node: exp.Expr, sql: str) -> str:
    """Return the name by which the SQL calls a function, in lower case; empty if the node is no such call.

    sqlglot gives functions of several names, such as `nvl` and `coalesce`, one name.
    """
    if not isinstance(node, exp.Func) or "start" not in node.meta:
        return ""
    end = node.meta["end"] + 1
    return sql[node.meta["start"] : end].strip("`").lower() if re.match(r"\s*\(", sql[end:]) else ""


def is_aggregate(node: exp.Expr, sql: str) -> bool:
    """Return whether a node makes one value of several rows, and not one for each row of a window."""
    name = spark_name(node, sql)
    # sqlglot keeps no position of some functions, such as `percentile` and `any`.
    is_known = name in AGGREGATES or (not name and isinstance(node, exp.AggFunc | exp.Any))
    return is_known and not _is_over_window(node)


@cache
def spark_arities() -> dict[str, _Arity | None]:
    """Return how many arguments each function takes; None where Spark's parser decides."""
    arities: dict[str, _Arity | None] = {}
    for counts, names in ARGUMENTS.items():
        numbers = [int(number) for number in counts.removesuffix("+").split()]
        arity = _Arity(numbers, counts.endswith("+")) if numbers else None
        arities |= dict.fromkeys(names.split(), arity)
    return arities


def _wrong_count(name: str, count: int) -> str:
    """Return what is wrong with a number of arguments; empty if the function takes so many."""
    arity = spark_arities()[name]
    if arity is None or count in arity.counts or (arity.is_least and count >= arity.counts[-1]):
        return ""
    if name in _WITH_UNIT and count == len(("unit", "value", "time")):
        return ""
    *others, last = arity.counts
    numbers = f"{', '.join(map(str, others))} or " if others else "at least " if arity.is_least else ""
    return f"{name} takes {numbers}{counted(last, 'argument')}, not {count}"


def _count_arguments(tokens: Sequence[Token], index: int) -> int | None:
    """Return how many arguments follow the name at an index; None if they are not a plain list of expressions."""
    depth, commas = 0, 0
    for before, token in zip(tokens[index:], tokens[index + 1 :], strict=False):
        kind = token.token_type
        if depth == 1 and kind in _CLOSING:
            return 0 if before.token_type in _OPENING else commas + 1
        if depth == 1 and kind == TokenType.COMMA:
            commas += 1
        # `*` may stand for several columns.
        if depth == 1 and (kind in _WORDS or (kind == TokenType.STAR and _is_start(before))):
            return None if kind in _WORDS or tokens[index].text.lower() != "count" else 1
        depth += (kind in _OPENING) - (kind in _CLOSING)
    return None


def _is_start(token: Token) -> bool:
    return token.token_type in (TokenType.L_PAREN, TokenType.COMMA, TokenType.DOT)


def _is_over_window(node: exp.Expr) -> bool:
    while isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"
