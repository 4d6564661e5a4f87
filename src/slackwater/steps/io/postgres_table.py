"""Replace a day in a table of PostgreSQL: deleted and copied in one transaction, which also records the attempt."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv as arrow_csv

from slackwater.errors import InputError
from slackwater.runs.record import Run
from slackwater.steps.io.attempts import superseded
from slackwater.steps.io.frames import JSON_OPTIONS, converted_columns
from slackwater.steps.io.postgres import Access, connected
from slackwater.steps.io.table_parameters import LOADS, TableParameters, expect_period, load_key, period_values

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_CREATE_LOADS = (
    "CREATE TABLE IF NOT EXISTS {} (target text, pipeline text, day date, attempt bigint NOT NULL, "
    "PRIMARY KEY (target, pipeline, day))"
)
_RECORD_LOAD = (
    "INSERT INTO {0} AS loads VALUES (%s, %s, %s, %s) ON CONFLICT (target, pipeline, day) "
    "DO UPDATE SET attempt = EXCLUDED.attempt WHERE loads.attempt <= EXCLUDED.attempt RETURNING attempt"
)


def as_postgres_reads(frame: DataFrame, _period_columns: Sequence[str]) -> DataFrame:
    """Return the rows with binary data as PostgreSQL writes it, and nested columns as JSON."""
    return frame.select(*converted_columns(frame, _value))


def _value(column: Column, data_type: DataType) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    match data_type:
        case t.ArrayType() | t.MapType() | t.StructType():
            return sf.to_json(column, JSON_OPTIONS)
        case t.BinaryType():
            return sf.concat(sf.lit("\\x"), sf.hex(column))
        case _:
            return column


def replace_day(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, parameters: TableParameters, access: Access, run: Run
) -> tuple[int, int]:
    """Delete the day and insert the rows in one transaction; return how many rows were deleted and inserted.

    Raises `Superseded` if a later attempt has loaded the day; then nothing changes.
    """
    from psycopg import IsolationLevel, sql

    table, values = sql.Identifier(*parameters.table.split(".")), period_values(parameters, run)
    where = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values)
    columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    with connected(parameters, access) as connection:
        # Each statement sees what was committed before it: the deletion also the rows of a run that it waited for.
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        _create_loads_table(connection, table.as_string(connection))
        # By the table's own number: `delays` and `public.delays` may be one table.
        number = connection.execute("SELECT %s::regclass::oid", [table.as_string(connection)]).fetchone()
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"slackwater {number} {run.date}"])
        _record_load(connection, table.as_string(connection), run)
        delete = sql.SQL("DELETE FROM {} WHERE {}").format(table, where)
        deleted = connection.execute(delete, list(values.values())).rowcount
        inserted = 0
        # As CSV, PostgreSQL itself converts the values, exactly for all types.
        with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, columns)) as copy:
            for batch in batches:
                expect_period(batch, values)
                sink = io.BytesIO()
                arrow_csv.write_csv(batch, sink, arrow_csv.WriteOptions(include_header=False))
                copy.write(sink.getbuffer())
                inserted += batch.num_rows
    return deleted, inserted


def _create_loads_table(connection: Connection, table: str) -> None:
    """Create `slackwater_loads` in the schema of a table, an SQL identifier, and commit.

    Raises `InputError` with the statements for the owner of the schema if the role may not create it.
    """
    from psycopg import errors, sql

    schema, _ = _names(connection, table)
    loads = sql.Identifier(schema, LOADS)
    exists = connection.execute("SELECT to_regclass(%s)", [loads.as_string(connection)]).fetchone()
    if exists == (None,):
        # PostgreSQL refuses one of two statements that create the same table at the same time.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"slackwater {schema}"])
        try:
            connection.execute(sql.SQL(_CREATE_LOADS).format(loads))
        except errors.InsufficientPrivilege as error:
            connection.rollback()
            raise _not_allowed(connection, loads.as_string(connection)) from error
    connection.commit()


def _record_load(connection: Connection, table: str, run: Run) -> None:
    """Record in the current transaction that the run's attempt loads its day into a table, an SQL identifier.

    Raises `Superseded` if a later attempt is recorded, and `InputError` with the statements for the owner if the
    role lacks a privilege.
    """
    from psycopg import errors, sql

    schema, target = _names(connection, table)
    loads = sql.Identifier(schema, LOADS)
    key = load_key(target, run)
    try:
        recorded = connection.execute(sql.SQL(_RECORD_LOAD).format(loads), [*key, run.attempt]).fetchone()
    except errors.InsufficientPrivilege as error:
        connection.rollback()
        raise _not_allowed(connection, loads.as_string(connection)) from error
    if recorded is None:
        where = sql.SQL("{} WHERE target = {} AND pipeline = {} AND day = {}").format(loads, *map(sql.Literal, key))
        (later,) = connection.execute(sql.SQL("SELECT attempt FROM {}").format(where)).fetchone() or (0,)
        delete = sql.SQL("DELETE FROM {}").format(where).as_string(connection)
        raise superseded(table, later, run, remedy=f"execute {delete}, and run the day again")


def _names(connection: Connection, table: str) -> tuple[str, str]:
    """Return the names of the schema and of the table: `delays` and `public.delays` may be one table."""
    found = connection.execute(
        "SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = %s::regclass",
        [table],
    ).fetchone()
    schema, name = found or ("", "")
    return schema, name


def _not_allowed(connection: Connection, loads: str) -> InputError:
    from psycopg import sql

    role = sql.Identifier(connection.info.user).as_string(connection)
    return InputError(
        f"table: the role {role} may not create or write {loads}, which records the attempts that have loaded a day: "
        f"let the owner of the schema execute: {_CREATE_LOADS.format(loads)}; "
        f"GRANT SELECT, INSERT, UPDATE ON {loads} TO {role};"
    )
