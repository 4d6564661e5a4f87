"""DuckDB's SQL over published tables and raw partitions, in process and read only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from slackwater.errors import CloudError, InputError

_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI)
_LOCKED = (
    "SET TimeZone = 'UTC'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""A query sees the tables that it is given, and neither files nor the network."""

_PARTITION = ("date", "hour")


class Tables(Protocol):
    """Where a query's tables come from: anything that DuckDB takes for a relation (an Arrow table or dataset)."""

    def published(self, pipeline: str) -> Any | None:
        """Return the pipeline's published table, or None when nothing was published yet."""

    def raw(self, source: str) -> Any:
        """Return the events of a source, with their partitions' `_date` and `_hour`.

        Their `_object` is a number, by which objects are in order of address.
        """

    def id_column(self, source: str) -> str | None:
        """Return the column by whose value an event of the source counts once in its partition, if it has one."""


@dataclass(frozen=True)
class Answer:
    """Column names, and rows of Python values."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def ask(sql: str, *, tables: Tables, pipelines: Iterable[str], sources: Iterable[str]) -> Answer:
    """Answer one SQL statement. Raises `InputError` for SQL that is wrong or does more than read.

    `pipelines` and `sources` are the names that a query may use; only those that stand in it are opened.
    """
    with duckdb.connect(":memory:") as connection:
        _check(connection, sql)
        missing = _register(connection, sql, tables, pipelines, sources)
        for setting in _LOCKED:
            connection.execute(setting)
        try:
            result = connection.execute(sql)
            return Answer([column[0] for column in result.description or []], result.fetchall())
        except duckdb.CatalogException as error:
            raise InputError(_unknown(error, missing, pipelines, sources)) from error
        except duckdb.Error as error:
            if "reading the stream registered" in str(error):
                raise CloudError(f"a table could not be read to its end: {error}") from error
            raise InputError(f"SQL: {error}") from error


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InputError(f"SQL: {error}") from error
    if len(statements) != 1:
        raise InputError(f"SQL: one statement is expected, not {len(statements)}")
    if statements[0].type not in _READING:
        raise InputError(f"SQL: {statements[0].type.name} is not allowed: a query only reads")


def _register(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: Tables, pipelines: Iterable[str], sources: Iterable[str]
) -> list[str]:
    """Make the tables known that the SQL names; return the pipelines among them that are not published."""
    missing: list[str] = []
    for name in _named(sql, pipelines):
        found = tables.published(name)
        if found is None:
            missing.append(name)
        else:
            connection.register(name, found)
    if _named(sql, ["raw"]):
        connection.execute("CREATE SCHEMA raw")
        for name in _named(sql, sources):
            _add_raw(connection, name, tables.raw(name), tables.id_column(name))
    return missing


def _add_raw(connection: duckdb.DuckDBPyConnection, name: str, found: Any, id_column: str | None) -> None:
    """Show partitions as Glue does: `hour` is the partition's, and a field of that name steps back to `_hour`.

    Where there are ids, each counts once in its partition (`slackwater.runs.duplicates`).
    """
    names = [
        *(f"_{key} AS {key}" for key in _PARTITION),
        *(f"{key} AS _{key}" for key in _PARTITION if key in found.schema.names),
    ]
    connection.register(f"_raw_{name}", found)
    shown = f'SELECT * EXCLUDE (_object) RENAME ({", ".join(names)}) FROM "_raw_{name}"'  # noqa: S608 - names of the project, which are words
    connection.execute(f'CREATE VIEW raw."{name}" AS {shown} {_once(id_column) if id_column else ""}')


def _once(id_column: str) -> str:
    """Return what leaves the first received event of each id and partition, and all events without an id."""
    alike = f'PARTITION BY _date, _hour, "{id_column}" ORDER BY _received_at, _object'
    return f'QUALIFY "{id_column}" IS NULL OR row_number() OVER ({alike}) = 1'


def _named(sql: str, names: Iterable[str]) -> list[str]:
    """Return those names that stand in the SQL as words, whatever their case; one too many is opened in vain."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)]


def _unknown(error: duckdb.Error, missing: list[str], pipelines: Iterable[str], sources: Iterable[str]) -> str:
    """Say which table is not there, without DuckDB's guesses among inner tables and with the names that there are."""
    message = str(error).split("\nDid you mean")[0]
    for name in missing:
        if f"name {name} " in message.lower():
            return f"{name} has not been published yet: slackwater run {name} --date DATE"
    known = [*sorted(pipelines), *(f"raw.{name}" for name in sorted(sources))]
    return f"SQL: {message} (tables: {', '.join(known)})"
