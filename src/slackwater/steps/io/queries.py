"""Queries that a step sends to a database: one SELECT or WITH statement, which only reads."""

from __future__ import annotations

from itertools import pairwise

import sqlglot
from sqlglot import TokenType, exp

from slackwater.steps.sql_rules import select_statement

_DATE = "date"


def check_select(query: str, dialect: str) -> str:
    """Return the query unchanged if it is one SELECT or WITH statement that changes nothing.

    `dialect` is `postgres` or `sqlite`. Raises `ValueError` that names the fault.
    """
    forbidden = next(select_statement(query, dialect).find_all(exp.DML, exp.DDL, exp.Into, exp.Command, exp.Lock), None)
    if forbidden:
        raise ValueError(f"{forbidden.key.upper()} is not allowed in a query")
    return query


def date_positions(query: str, dialect: str) -> list[tuple[int, int]]:
    """Return start and end of each `:date` in the query, outside of strings, comments and casts."""
    tokens = sqlglot.tokenize(query, read=dialect)
    return [
        (colon.start, name.end + 1)
        for colon, name in pairwise(tokens)
        if colon.token_type is TokenType.COLON and name.text.lower() == _DATE and colon.end + 1 == name.start
    ]


def for_psycopg(query: str) -> str:
    """Return the query with `:date` as psycopg's placeholder, and all percent signs as psycopg expects them."""
    parts, position = [], 0
    for start, end in date_positions(query, "postgres"):
        parts += [query[position:start].replace("%", "%%"), f"%({_DATE})s"]
        position = end
    return "".join([*parts, query[position:].replace("%", "%%")])
