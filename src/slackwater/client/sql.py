"""DuckDB's SQL over published tables and raw partitions, in this process and read only."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from slackwater.client.arguments import Date, period_name
from slackwater.client.tables import QueryResult, sql_errors
from slackwater.errors import InputError
from slackwater.pipeline.definition import LEDGER_TABLE
from slackwater.project.project import Project
from slackwater.sources.first_by_id import is_first_of_its_id

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse
    from slackwater.receiver.pull.file_cache import FileCache

# DuckDB's type of a PIVOT statement is MULTI. Scripts of several statements are refused by their number.
_READ_ONLY = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI)
# A query can read the registered tables, but no files and no URLs, because its SQL may come from somebody else.
# The last setting prevents changes to the others.
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_PARTITION_COLUMNS = ("date", "hour")
STATE_TABLE = "state"
"""The states of the hours of sources."""


@dataclass(frozen=True, kw_only=True)
class CloudTables:
    """The tables that a query can read, as relations that DuckDB can register (Arrow tables or datasets)."""

    project: Project
    warehouse: Warehouse
    files: FileCache
    tags: Mapping[str, str] = field(default_factory=dict)
    """By pipeline: the Iceberg tag of the version as of which its table is read. All other tables are read as now."""
    states: Callable[[], Any]
    """Returns the states of the hours of sources."""

    def published(self, pipeline: str) -> Any | None:
        """Return the pipeline's published table, or the ledger, or None if nothing has been written to it yet."""
        return self.warehouse.published(self.project.stored_name(pipeline), tag=self.tags.get(pipeline))

    def raw(self, source: str) -> Any:
        """Return the events of a source with the columns `_date`, `_hour`, `_object` and `_first_received_at`.

        `_date` and `_hour` are those of the event's partition. `_object` is the name of the event's object.
        `_first_received_at` is when the first content of the event's file was received; null if the file has not
        changed since, and for pushed events. Objects that a pull has not committed or has replaced are left out.
        Raises `DayChanged` when files of the source keep changing meanwhile.
        """
        from slackwater.runs.inputs.consistent_listing import consistent_listing
        from slackwater.sources.event_schema import raw_schema

        definition = self.project.source(source)
        listing = consistent_listing(definition, lambda: self.warehouse.objects(source), files=self.files)
        received = {item.uri: listing.first_received_at(item.uri) for item in listing.objects}
        first_received = {uri: at for uri, at in received.items() if at}
        return self.warehouse.partitions(listing.objects, raw_schema(definition), first_received=first_received)

    def id_column(self, source: str) -> str | None:
        """Return the source's id column, or None. Each id counts once in its partition."""
        return self.project.source(source).id_column


def run_query(
    sql: str,
    *,
    tables: CloudTables,
    pipelines: Iterable[str],
    sources: Iterable[str],
    hourly: Collection[str] = (),
) -> QueryResult:
    """Open the tables of one SQL statement, and return its result, which runs it.

    `pipelines` and `sources` are the names that a query may use, `hourly` those of hourly pipelines. Only tables whose
    names occur in the SQL are opened, because opening one lists its objects in S3.

    Raises `InputError` for SQL that is wrong or does more than read, `CloudError` if a table cannot be read.
    """
    connection = duckdb.connect(":memory:")
    _check_read_only(connection, sql)
    unpublished = []
    for name in _names_in(sql, [*pipelines, LEDGER_TABLE]):
        published = tables.published(name)
        if published is None:
            unpublished.append(name)
        else:
            connection.register(name, published)
    # Not by its name alone, which is also that of many columns.
    if STATE_TABLE not in pipelines and re.search(rf"\b(from|join)\s+{STATE_TABLE}\b", sql, re.IGNORECASE):
        connection.register(STATE_TABLE, tables.states())
    if _names_in(sql, ["raw"]):
        connection.execute("CREATE SCHEMA raw")
        for name in _names_in(sql, sources):
            _create_raw_view(connection, name, tables.raw(name), tables.id_column(name))
    # Before the statement runs, so that they apply to it.
    for setting in _SETTINGS:
        connection.execute(setting)
    try:
        with sql_errors():
            return QueryResult(connection.sql(sql), connection)
    except InputError as error:
        if not isinstance(error.__cause__, duckdb.CatalogException):
            raise
        # DuckDB suggests names of internal tables such as `_raw_weather`; the names of the project help more.
        message = str(error).split("\nDid you mean")[0]
        for name in unpublished:
            if name == LEDGER_TABLE and f"name {name} " in message.lower():
                raise InputError("the ledger is empty: a monitoring writes to it when data is late") from error
            if f"name {name} " in message.lower():
                value = "HOUR" if name in hourly else "DATE"
                raise InputError(f"{name} has not been published yet: slackwater run {name} --date {value}") from error
        known = [*sorted(pipelines), LEDGER_TABLE, STATE_TABLE, *(f"raw.{name}" for name in sorted(sources))]
        raise InputError(f"{message} (tables: {', '.join(known)})") from error


def named_version(
    sql: str, pipelines: Iterable[str], *, date: Date | None, version: int | None
) -> tuple[str, str, int] | None:
    """Return the pipeline, day and version as of which a statement reads a table; None if it reads all as they are now.

    Raises `InputError` for a version without a date or the reverse, or a statement that does not name the table of
    exactly one pipeline.
    """
    if version is None or date is None:
        if version is None and date is None:
            return None
        missing = "--date" if date is None else "--version"
        raise InputError(f"{missing} is missing: a version is that of a day, so --version and --date go together")
    names = _names_in(sql, pipelines)
    if len(names) != 1:
        found = f"names {' and '.join(names)}" if names else "names no published table"
        raise InputError(f"--version: the query {found}: with a version, it reads the table of one pipeline")
    return names[0], period_name(date), version


def _check_read_only(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise InputError(f"SQL: {error}") from error
    if len(statements) != 1:
        raise InputError(f"SQL: one statement is expected, not {len(statements)}")
    if statements[0].type not in _READ_ONLY:
        raise InputError(f"SQL: {statements[0].type.name} is not allowed: a query only reads")


def _create_raw_view(connection: duckdb.DuckDBPyConnection, source: str, events: Any, id_column: str | None) -> None:
    """Create `raw.SOURCE` with the columns that the source's Glue table has.

    `date` and `hour` are the partition's; a field of the event with such a name becomes `_date` or `_hour`. If the
    source has an id column, each id counts once in its partition (`slackwater.sources.first_by_id`).
    """
    connection.register(f"_raw_{source}", events)
    renamed = [
        *(f"_{column} AS {column}" for column in _PARTITION_COLUMNS),
        *(f"{column} AS _{column}" for column in _PARTITION_COLUMNS if column in events.schema.names),
    ]
    select = f'SELECT * EXCLUDE (_object, _first_received_at) RENAME ({", ".join(renamed)}) FROM "_raw_{source}"'  # noqa: S608 - names of sources are words
    if id_column:
        # The receiver stores an id only once in an object, so the object's name orders all duplicates of an hour.
        is_first = is_first_of_its_id(
            f'"{id_column}"',
            partition=["_date", "_hour"],
            position=["_object"],
            first_received="_first_received_at",
        )
        select = f"{select} QUALIFY {is_first}"
    connection.execute(f'CREATE VIEW raw."{source}" AS {select}')


def _names_in(sql: str, names: Iterable[str]) -> list[str]:
    """Return the names that occur in the SQL as words, in any case.

    A name in a string or a comment counts too: its table is opened without being used, which does no harm.
    """
    # A whole word: `flights` does not occur in `flights_raw`.
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)]
