"""Which SQL can be computed from parts of the rows: conditions of one row, and plain groupings.

Only what is listed here is accepted, so that a query of another form is computed from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import sqlglot
from sqlglot import exp

from slackwater.steps.sql_functions import FUNCTIONS_WITHOUT_BRACKETS
from slackwater.steps.step import Merge

# Each of them depends on values of one row alone, and is the same in each run.
_OF_ONE_ROW = frozenset(
    {
        *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren),
        *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.Case, exp.If, exp.Coalesce),
        *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
        *(exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Abs),
        *(exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
        *(exp.Lower, exp.Upper, exp.Hour, exp.Minute, exp.Day, exp.Month, exp.Year, exp.TimestampTrunc, exp.Var),
    }
)
_MERGES: dict[type[exp.Expr], Merge] = {
    exp.Count: "sum",
    exp.CountIf: "sum",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
}
_CLAUSES = {"expressions", "from_", "where", "group"}


def is_condition_of_row(condition: str) -> bool:
    """Return whether the value of a condition depends on its row alone, and is the same in each run."""
    return _is_of_one_row(sqlglot.parse_one(condition, dialect="spark"))


def merges_of_query(query: str) -> Sequence[Merge] | None:
    """Return for each column of a query's result how the results of two parts of the rows are merged.

    None unless the query is `SELECT` of its groups and of `count`, `count_if`, `sum`, `min` and `max`, `FROM` one
    table, with or without `WHERE` and `GROUP BY`.

    >>> merges_of_query("SELECT shop, count(*), max(price) AS dearest FROM sales WHERE price > 0 GROUP BY shop")
    ['key', 'sum', 'max']
    >>> merges_of_query("SELECT shop, avg(price) FROM sales GROUP BY shop")
    """
    select = sqlglot.parse_one(query, dialect="spark")
    if not isinstance(select, exp.Select) or not {"from_"} <= _parts(select) <= _CLAUSES:
        return None
    table, where, group = select.args["from_"].this, select.args.get("where"), select.args.get("group")
    is_table = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)
    if not is_table or not _parts(table) <= {"this", "alias"} or (group and not _parts(group) <= {"expressions"}):
        return None
    groups, columns = group.expressions if group else [], [column.unalias() for column in select.expressions]
    merges = ["key" if column in groups else _merge_of(column) for column in columns]
    # A number in GROUP BY is a position in the result.
    are_keys = all(item in columns and not isinstance(item, exp.Literal) and _is_of_one_row(item) for item in groups)
    if not are_keys or None in merges or set(merges) == {"key"} or (where and not _is_of_one_row(where.this)):
        return None
    return cast("list[Merge]", merges)


def _merge_of(column: exp.Expr) -> Merge | None:
    """Return how two values of an aggregate function are merged; None for any other expression."""
    merge = _MERGES.get(type(column))
    if merge is None or not _parts(column) <= {"this", "expressions", "big_int"}:
        return None
    arguments = [] if isinstance(column.this, exp.Star) else [column.this, *column.expressions]
    return merge if all(map(_is_of_one_row, arguments)) else None


def _is_of_one_row(expression: exp.Expr) -> bool:
    return all(
        type(node) in _OF_ONE_ROW
        and not (isinstance(node, exp.Column) and node.name.lower() in FUNCTIONS_WITHOUT_BRACKETS)
        # `DATE 'today'` is such a cast.
        and not (isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal))
        for node in expression.walk()
    )


def _parts(node: exp.Expr) -> set[str]:
    """Return the names of the parts that a node has."""
    return {name for name, part in node.args.items() if part}
