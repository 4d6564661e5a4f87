"""Which columns and functions a SELECT may use where rows are grouped.

Only what is certain counts: Spark compares whole expressions with those of GROUP BY, and here a column that is anywhere
in GROUP BY is grouped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from slackwater.problems import Problem
from slackwater.steps.sql_functions import FUNCTIONS_WITHOUT_BRACKETS, is_aggregate, spark_name
from slackwater.steps.sql_rules import position_of

_PLACES = {
    "where": "WHERE reads them one by one: use HAVING",
    "group": "GROUP BY needs values of one row, such as columns",
}


def group_problems(select: exp.Select, sql: str, *, sees_outer: bool) -> list[Problem]:
    """Return a problem for each aggregate at a wrong place, or else for each column that is not grouped.

    `sees_outer` says that columns and aggregates may be those of a query around this one.
    """
    nested = [
        _problem(
            f"{_text(aggregate, sql)} aggregates an aggregate: compute the inner one in a subquery", aggregate, sql
        )
        for aggregate in _aggregates(select.expressions, sql)
        if any(_aggregates(list(aggregate.iter_expressions()), sql))
    ]
    if sees_outer:
        return nested
    misplaced = [
        _problem(f"{_text(aggregate, sql)} aggregates rows: {rule}", aggregate, sql)
        for name, rule in _PLACES.items()
        for aggregate in _aggregates([select.args.get(name)], sql)
    ]
    return nested or misplaced or list(_wrong_positions(select, sql)) or list(_ungrouped(select, sql))


def _wrong_positions(select: exp.Select, sql: str) -> Iterator[Problem]:
    """Yield a problem for each number in GROUP BY and ORDER BY that is not that of a column of the result."""
    count = len(select.expressions)
    if any(projection.is_star for projection in select.expressions):
        return
    for clause in filter(None, (select.args.get("group"), select.args.get("order"))):
        for item in clause.expressions:
            value = item.this if isinstance(item, exp.Ordered) else item
            if value.is_int and not 1 <= int(value.name) <= count:
                name = "GROUP BY" if clause.key == "group" else "ORDER BY"
                message = f"{name} {value.name}: the query has {count} column{'s' if count > 1 else ''}"
                yield _problem(message, item, sql)


def _ungrouped(select: exp.Select, sql: str) -> Iterator[Problem]:
    group, having, order = (select.args.get(name) for name in ("group", "having", "order"))
    if not group and not having and not any(_aggregates(select.expressions, sql)):
        return
    if group and (group.args.get("all") or any(item.name.lower() == "all" for item in group.expressions)):
        return
    grouped = _grouped_names(select) | FUNCTIONS_WITHOUT_BRACKETS
    aliases = {projection.alias.lower() for projection in select.expressions if projection.alias}
    output = aliases | {projection.alias_or_name.lower() for projection in select.expressions}
    clauses = [(projection, aliases - {projection.alias.lower()}) for projection in select.expressions]
    clauses += [(clause, output) for clause in (having, order) if clause]
    reported: set[str] = set()
    for clause, visible in clauses:
        for column in _free_columns(clause, sql):
            name = column.name.lower()
            # `name.field` may be a field of the column `name`.
            is_grouped = name in grouped or column.table.lower() in grouped or isinstance(column.this, exp.Star)
            if not is_grouped and name not in reported and (column.table or name not in visible):
                reported.add(name)
                remedy = f"add it to GROUP BY, or aggregate it, such as max({column.name})"
                message = f"{column.name} is neither in GROUP BY nor in an aggregate: {remedy}"
                yield _problem(message, column, sql)


def _grouped_names(select: exp.Select) -> set[str]:
    """Return the names of all columns, and of their tables, in GROUP BY: also by the position or alias of a column."""
    group = select.args.get("group")
    if not group:
        return set()
    found = [group]
    names = {column.name.lower() for column in group.find_all(exp.Column)}
    numbers = {int(number.name) for number in group.find_all(exp.Literal) if number.is_int}
    for number, projection in enumerate(select.expressions, 1):
        if number in numbers or projection.alias.lower() in names:
            found.append(projection)
    columns = [column for node in found for column in node.find_all(exp.Column)]
    return {part.lower() for column in columns for part in (column.name, column.table) if part} | {
        *time_windows(select)
    }


def time_windows(select: exp.Select) -> tuple[str, ...]:
    """Return the columns that Spark adds for the functions `window` and `session_window` in GROUP BY: their names."""
    calls = [item.name.lower() for item in getattr(select.args.get("group"), "expressions", ())]
    return tuple(name for name in ("window", "session_window") if name in calls)


def _aggregates(nodes: Sequence[exp.Expr | None], sql: str) -> Iterator[exp.Expr]:
    """Yield the aggregates in some expressions, without those in subqueries."""
    return (found for node in nodes if node for found in node.walk(prune=_is_query) if is_aggregate(found, sql))


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _free_columns(node: exp.Expr, sql: str) -> Iterator[exp.Column]:
    """Yield the columns in an expression that are not within an aggregate or a subquery."""
    # `max(x) FILTER (WHERE y)` is an aggregate as a whole.
    call = node.this if isinstance(node, exp.Filter | exp.WithinGroup) else node
    if isinstance(node, exp.Column):
        yield node
    elif not _is_query(node) and not is_aggregate(call, sql):
        for child in node.iter_expressions():
            yield from _free_columns(child, sql)


def _problem(message: str, node: exp.Expr, sql: str) -> Problem:
    return Problem(message=message, position=position_of(node, sql))


def _text(node: exp.Expr, sql: str) -> str:
    return f"{spark_name(node, sql) or node.key}(...)"
