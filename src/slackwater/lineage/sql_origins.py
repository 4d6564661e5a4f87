"""From which columns of its tables each column of a SQL query is computed, found by a parser in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import build_scope

InputColumn = tuple[str, str]
"""An input of the pipeline, and a column of it."""


class Computed(IntEnum):
    """How a value is computed; of several steps, the largest counts."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


Origins = dict[InputColumn, Computed]
"""The columns that a column is computed from."""
KnownColumns = dict[str, Origins]
"""By column of a frame: those whose origins are known."""

# They make rows or columns that the parser does not follow.
_UNKNOWN = (exp.Lateral, exp.Pivot, exp.UDTF, exp.Unnest, exp.Values, exp.Explode, exp.Inline, exp.Aliases, exp.Star)


def query_origins(query: str, inputs: Mapping[str, KnownColumns]) -> KnownColumns:
    """Return the origins of the columns of a query's result; `inputs` are those of its tables.

    A column is left out if it is also computed from what is not known, such as a column of a table whose columns are
    not. No column is known if the parser cannot tell of which table one is.
    """
    try:
        statement = sqlglot.parse_one(query, dialect="spark")
    except (SqlglotError, RecursionError):  # accepted by an older version, or nested deeper than the parser follows
        return {}
    if not isinstance(statement, exp.Query):
        return {}
    if any(not isinstance(star.parent, exp.Count) for star in statement.find_all(*_UNKNOWN)):
        return {}
    # The parser follows only the first part of a recursive query, and later ones compute more.
    if any(each.recursive for each in statement.find_all(exp.With)):
        return {}
    # Spark matches names without regard to case.
    tables = {
        name.lower(): {column.lower(): origins for column, origins in known.items()} for name, known in inputs.items()
    }
    schema: dict[str, object] = {name: dict.fromkeys(known, "string") for name, known in tables.items() if known}
    try:
        names = [projection.alias_or_name for projection in statement.selects]
        qualified = qualify(statement, schema=schema, dialect="spark", validate_qualify_columns=True)
        scope = build_scope(qualified)
        nodes = {
            name: lineage(name.lower(), qualified, schema=schema, dialect="spark", scope=scope, copy=False)
            for name in names
            if name
        }
        found = {name: _origins(node, tables) for name, node in nodes.items()}
    except (SqlglotError, ValueError, RecursionError):
        return {}
    return {name: origins for name, origins in found.items() if origins}


def _origins(node: Node, tables: Mapping[str, KnownColumns]) -> Origins | None:
    """Return what a column is computed from; None if that is not known, and nothing for a constant."""
    origins: Origins = {}
    for leaf, computed in _leaves(node, _computed(node)):
        table = leaf.source.name.lower() if isinstance(leaf.source, exp.Table) else ""
        column = leaf.name.rpartition(".")[2].strip('"`').lower()
        if isinstance(leaf.source, exp.Table):
            if column not in tables.get(table, {}):
                return None
            for origin, before in tables[table][column].items():
                origins[origin] = max(origins.get(origin, computed), computed, before)
        elif leaf.expression.find(exp.Column):
            return None
    return origins


def _leaves(node: Node, computed: Computed) -> Iterator[tuple[Node, Computed]]:
    if not node.downstream:
        yield node, computed
    for below in node.downstream:
        yield from _leaves(below, max(computed, _computed(below)))


def _computed(node: Node) -> Computed:
    value = node.expression.unalias() if isinstance(node.expression, exp.Expression) else node.expression
    if isinstance(value, exp.Column | exp.Table):
        return Computed.IDENTITY
    return Computed.AGGREGATION if value.find(exp.AggFunc) else Computed.TRANSFORMATION
