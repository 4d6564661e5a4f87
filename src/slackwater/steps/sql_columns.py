"""The columns that SQL reads and returns, found by a parser in Python before Spark plans the query.

Only what is certain counts: a query that a run would accept has no problem here. Where the parser cannot tell which
columns there are, they are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, ScopeType, traverse_scope

from slackwater.problems import Path, Problem, unknown_name
from slackwater.steps.input_columns import Columns, missing_column
from slackwater.steps.sql_functions import FUNCTIONS_WITHOUT_BRACKETS
from slackwater.steps.sql_groups import group_problems, time_windows
from slackwater.steps.sql_rules import position_of

# What makes columns that no input has.
_NO_STRUCTS = (exp.Binary, exp.Count, exp.Sum, exp.Avg, exp.Round, exp.Literal)
_GENERATORS = (exp.Lateral, exp.Pivot, exp.UDTF, exp.Unnest, exp.Values, exp.Explode, exp.Inline, exp.Aliases)


def condition_problems(condition: str, table: str, columns: Columns, *, path: Path) -> Iterator[Problem]:
    """Yield a problem for each column that a condition over the rows of a table names and that it lacks."""
    statement = sqlglot.parse_one(condition, dialect="spark")
    for column in statement.find_all(exp.Column):
        qualifier = column.table.lower()
        if qualifier in ("", table.lower()):
            if _is_missing(column, columns):
                yield _unknown_column(column, table, columns, condition, path)
        # `name.field` may be a field of the column `name`.
        elif not column.args.get("db") and all(qualifier != name.lower() for name in columns):
            yield _unknown_table(column, [table], condition, path)


def query_columns(
    query: str, inputs: Mapping[str, Columns | None], *, path: Path
) -> tuple[Columns | None, list[Problem]]:
    """Return the columns of a query's result, None if they are not known, and problems of columns that it reads.

    `inputs` are the columns of the tables that it may read, by name.
    """
    statement = sqlglot.parse_one(query, dialect="spark")
    if statement.find(*_GENERATORS):
        return None, []
    try:
        scopes = traverse_scope(statement)
    except SqlglotError:  # such as two tables of one name
        return None, []
    results = _Results(inputs)
    problems: list[Problem] = []
    for scope in scopes:  # the inner ones first
        found = list(_column_problems(scope, results, query, path))
        if not found and isinstance(scope.expression, exp.Select):
            sees_outer = scope.scope_type == ScopeType.SUBQUERY
            found = [replace(one, path=path) for one in group_problems(scope.expression, query, sees_outer=sees_outer)]
        results.add(scope, None if found else _result(scope, results))
        problems += found
    columns = results.of(scopes[-1]) if scopes else None
    if columns is not None and not problems:
        problems += _repeated_columns(statement, columns, query, path)
    return columns, problems


class _Results:
    """The columns of tables and of the queries within a query, as far as they are known."""

    def __init__(self, inputs: Mapping[str, Columns | None]) -> None:
        self._tables = {name.lower(): columns for name, columns in inputs.items()}
        self._queries: dict[int, Columns | None] = {}

    def add(self, scope: Scope, columns: Columns | None) -> None:
        # `AS t(p, q)` renames the columns.
        self._queries[id(scope)] = tuple(scope.outer_columns) or columns

    def of(self, source: exp.Table | Scope) -> Columns | None:
        if isinstance(source, Scope):
            return self._queries.get(id(source))
        alias = source.args.get("alias")
        is_plain = isinstance(source.this, exp.Identifier) and not (alias and alias.columns)
        return self._tables.get(source.name.lower()) if is_plain else None


def _column_problems(scope: Scope, results: _Results, sql: str, path: Path) -> Iterator[Problem]:
    """Yield a problem for each column of a SELECT that no table has which it can see, or that two tables have."""
    select = scope.expression
    if not isinstance(select, exp.Select):
        yield from _different_counts(scope, results, sql, path)
        return
    sources = {name: results.of(source) for name, source in _visible_sources(scope).items()}
    known = [columns for columns in sources.values() if columns is not None]
    names = tuple(name for columns in known for name in columns) + time_windows(select)
    aliased = [projection for projection in select.expressions if isinstance(projection, exp.Alias)]
    within = {id(column): projection.alias for projection in aliased for column in projection.find_all(exp.Column)}
    all_known = len(known) == len(sources)
    # What `name.field` may be a field of.
    fields = {name.lower() for name in names}
    fields |= {projection.alias.lower() for projection in aliased if not isinstance(projection.this, _NO_STRUCTS)}
    for column in scope.find_all(exp.Column):
        if isinstance(column.this, exp.Star) or column.args.get("db") or column.find_ancestor(exp.Hint):
            continue
        qualifier = column.table.lower()
        # An expression may use the aliases of others, but in WHERE and ON there are none yet.
        reads_rows = isinstance(column.find_ancestor(exp.Where, exp.Join, exp.Select), exp.Where | exp.Join)
        aliases = () if reads_rows else [one.alias for one in aliased if one.alias != within.get(id(column))]
        visible = (*names, *aliases)
        if qualifier in sources and all(qualifier != name.lower() for name in names):
            columns = sources[qualifier]
            if columns is not None and _is_missing(column, columns):
                yield _unknown_column(column, column.table, columns, sql, path)
        elif qualifier and all_known and qualifier not in sources and qualifier not in fields:
            yield _unknown_table(column, list(scope.selected_sources), sql, path)
        elif not qualifier and all_known:
            if not sources:
                message = f"no column {column.name!r}: the query has no FROM"
                yield Problem(message=message, path=path, position=position_of(column, sql))
            elif _is_missing(column, visible):
                table = ", ".join(name for name in scope.selected_sources if name) or "its input"
                yield _unknown_column(column, table, visible, sql, path)
            elif not column.find_ancestor(exp.Order, exp.Having):
                yield from _ambiguous(column, scope, results, sql, path)


def _different_counts(scope: Scope, results: _Results, sql: str, path: Path) -> Iterator[Problem]:
    """Yield a problem if the two queries of a UNION, or of another set operation, have different numbers of columns."""
    sides = [results.of(side) for side in scope.set_operation_scopes]
    counts = [len(columns) for columns in sides if columns is not None]
    if len(counts) == len(("left", "right")) and counts[0] != counts[1]:
        message = f"{scope.expression.key.upper()} of {counts[0]} and {counts[1]} columns: both need the same number"
        yield Problem(message=message, path=path, position=position_of(scope.expression.expression, sql))


def _ambiguous(column: exp.Column, scope: Scope, results: _Results, sql: str, path: Path) -> Iterator[Problem]:
    """Yield a problem if two tables of a SELECT have the column, and a join does not make one column of both."""
    if any(_merges_columns(join) for join in scope.expression.args.get("joins") or ()):
        return
    owners = [
        name
        for name, (_, source) in scope.selected_sources.items()
        if column.name.lower() in map(str.lower, results.of(source) or ())
    ]
    if len(owners) > 1:
        message = f"{column.name} is a column of {' and of '.join(owners)}: write {owners[0]}.{column.name}"
        yield Problem(message=message, path=path, position=position_of(column, sql))


def _merges_columns(join: exp.Join) -> bool:
    """Return whether the result of a join has other columns than all of both sides."""
    return bool(join.args.get("using") or join.method or join.kind in ("SEMI", "ANTI"))


def _repeated_columns(statement: exp.Expr, columns: Columns, sql: str, path: Path) -> Iterator[Problem]:
    """Yield a problem for each column of the result that has the name of another one: no step could read it."""
    seen: set[str] = set()
    projections = statement.selects if isinstance(statement, exp.Query) else []
    for name in columns:
        if name.lower() in seen:
            named = [one for one in projections if one.alias_or_name.lower() == name.lower()]
            position = position_of(named[-1], sql) if named else None
            message = f"two columns of the result have the name {name}: rename one of them with AS"
            yield Problem(message=message, path=path, position=position)
        seen.add(name.lower())


def _visible_sources(scope: Scope) -> dict[str, exp.Table | Scope]:
    """Return the tables that a SELECT can name, in lower case: a subquery also sees those of the query around it."""
    visible: dict[str, exp.Table | Scope] = {}
    if scope.parent is not None and scope.scope_type in (ScopeType.SUBQUERY, ScopeType.SET_OPERATION):
        visible = _visible_sources(scope.parent)
    # A common table expression is a source only where FROM names it.
    named = {
        name.lower(): source
        for name, source in scope.sources.items()
        if name in scope.selected_sources or name not in scope.cte_sources
    }
    return visible | named


def _result(scope: Scope, results: _Results) -> Columns | None:
    """Return the columns of a query; None if they are not known, or if Spark makes up the name of one."""
    select = scope.expression
    if scope.set_operation_scopes:
        return results.of(scope.set_operation_scopes[0])
    if not isinstance(select, exp.Select):
        return None
    names: list[str] = []
    for projection in select.expressions:
        if projection.is_star:
            columns = _expanded(projection, scope, results)
            if columns is None:
                return None
            names += columns
        elif isinstance(projection, exp.Alias | exp.Column | exp.Dot) and projection.alias_or_name:
            names.append(projection.alias_or_name)
        else:
            return None
    return tuple(names)


def _expanded(projection: exp.Expr, scope: Scope, results: _Results) -> Columns | None:
    """Return the columns that a star means; None if one of the tables is not known."""
    is_qualified = isinstance(projection, exp.Column)
    star = projection.this if is_qualified else projection
    if not isinstance(star, exp.Star) or any(star.args.values()):  # such as EXCEPT
        return None
    if any(_merges_columns(join) for join in scope.expression.args.get("joins") or ()):
        return None
    sources = {name.lower(): results.of(source) for name, (_, source) in scope.selected_sources.items()}
    tables = [sources.get(projection.text("table").lower())] if is_qualified else list(sources.values())
    known = [columns for columns in tables if columns is not None]
    return tuple(name for columns in known for name in columns) if len(known) == len(tables) else None


def _is_missing(column: exp.Column, columns: Columns) -> bool:
    """Whether Spark finds no column of this name, regardless of case, and no function either."""
    name = column.name.lower()
    return name not in FUNCTIONS_WITHOUT_BRACKETS and all(name != known.lower() for known in columns)


def _unknown_column(column: exp.Column, table: str, columns: Columns, sql: str, path: Path) -> Problem:
    problem = missing_column(column.name, table, dict.fromkeys(columns), path=path)
    return replace(problem, position=position_of(column, sql))


def _unknown_table(column: exp.Column, tables: list[str], sql: str, path: Path) -> Problem:
    problem = unknown_name(f"no table {column.table!r} in the query", column.table, tables, path=path)
    return replace(problem, position=position_of(column, sql))
