"""`write_table`: replace the day in a table of a PostgreSQL database.

The rows of the day are deleted and the new ones inserted in one transaction: a reader sees the old day or the new one.
The table exists already, with all columns of the rows; columns that it has besides get their defaults. A day without
rows deletes the day. The table `slackwater_loads` in the same schema, which the step creates, records the attempt that
has loaded a day; an earlier attempt then fails and changes nothing. Runs of the same day wait for each other, for at
most 30 minutes.

Columns are matched by their names. The day is in the column `day`, which the step adds with the run's date; if the rows
have this column, it has to be the run's date in all of them. A timestamp with a timezone belongs into a `timestamptz`,
one without into a `timestamp`. Binary data becomes `bytea`; structs, arrays and maps become `json`.

The pipeline's own table is not written by this step, but by its `publish` section.

Effect: `table`, `rows_deleted` and `rows_inserted`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pydantic import AfterValidator

from slackwater.arrow.names import quoted
from slackwater.errors import DataError, DefinitionError, InputError
from slackwater.runs.record import Run
from slackwater.steps.files import INPUT
from slackwater.steps.io.attempts import superseded
from slackwater.steps.io.frames import JSON_OPTIONS, map_batches, nullable_schema
from slackwater.steps.io.postgres import Access, DatabaseParameters, connected
from slackwater.steps.io.targets import expect_own_targets
from slackwater.steps.step import Effect, Load, StepContext

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame

# Bytes in UTF-8. PostgreSQL would cut off the rest of a name.
_MAX_NAME = 63
_COUNTS = "deleted long not null, inserted long not null"
# Records in the database which attempt has loaded a day.
_LOADS = "slackwater_loads"
_CREATE_LOADS = (
    "CREATE TABLE IF NOT EXISTS {} (target text, pipeline text, day date, attempt bigint NOT NULL, "
    "PRIMARY KEY (target, pipeline, day))"
)
_RECORD_LOAD = (
    "INSERT INTO {0} AS loads VALUES (%s, %s, %s, %s) ON CONFLICT (target, pipeline, day) "
    "DO UPDATE SET attempt = EXCLUDED.attempt WHERE loads.attempt <= EXCLUDED.attempt RETURNING attempt"
)


def _check_name(name: str) -> str:
    if not 0 < len(name.encode()) <= _MAX_NAME or "\x00" in name:
        raise ValueError(f"{name[:60]!r} is not a name of PostgreSQL, which has 1 to {_MAX_NAME} bytes")
    return name


def _check_table(table: str) -> str:
    parts = table.split(".")
    if len(parts) > 2:  # noqa: PLR2004 - schema and table
        raise ValueError(f"{table!r} is not a table such as delays or reports.delays")
    for part in parts:
        _check_name(part)
    return table


_EXAMPLE = {
    "url": "postgresql://db.example:5432/reports",
    "credentials": "secretsmanager:reports/writer",
    "table": "public.delays",
}


class WriteTable(DatabaseParameters, json_schema_extra={"examples": [_EXAMPLE]}):
    """Parameters of `write_table`."""

    table: Annotated[str, AfterValidator(_check_table)]
    """The table, as `schema.table` or `table`. `{input}` is the name of the input, and needed for several ones."""
    day: Annotated[str, AfterValidator(_check_name)] = "date"
    """The table's column with the day, a `date`."""


def write(frame: DataFrame, parameters: WriteTable, context: StepContext) -> Effect:
    """Replace the day. Returns how many rows were deleted and inserted.

    Raises `InputError` outside of a run and for what the database refuses, `DefinitionError` for columns that cannot be
    written, `DataError` for rows of another day, and `Unavailable`. For a large frame, Spark wraps them into its own.
    """
    if context.day is None or context.run is None:
        raise InputError("write_table replaces the day of a run: use it in a pipeline")
    access, day, run = Access.of(context), context.day.date, context.run
    rows = _as_postgres_reads(frame, parameters.day, day)
    schema = nullable_schema(rows)

    def replace(_partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
        deleted, inserted = replace_day(batches, schema, parameters, access, run)
        yield {"deleted": deleted, "inserted": inserted}

    # One task, because one transaction needs one connection.
    counts = map_batches(rows, replace, _COUNTS, one_task=True)
    deleted, inserted = counts[0] if counts else replace_day(iter(()), schema, parameters, access, run)
    return {"table": parameters.table, "rows_deleted": deleted, "rows_inserted": inserted}


def replace_day(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, parameters: WriteTable, access: Access, run: Run
) -> tuple[int, int]:
    """Delete the day and insert the rows in one transaction; return how many rows were deleted and inserted.

    Raises `Superseded` if a later attempt has loaded the day; then nothing changes.
    """
    from psycopg import IsolationLevel, sql

    table, column = sql.Identifier(*parameters.table.split(".")), sql.Identifier(parameters.day)
    day = date.fromisoformat(run.date)
    columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    with connected(parameters, access) as connection:
        # Each statement sees what was committed before it: the deletion also the rows of a run that it waited for.
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        _create_loads_table(connection, table.as_string(connection))
        # By the table's own number: `delays` and `public.delays` may be one table.
        number = connection.execute("SELECT %s::regclass::oid", [table.as_string(connection)]).fetchone()
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"slackwater {number} {day}"])
        _record_load(connection, table.as_string(connection), run)
        deleted = connection.execute(sql.SQL("DELETE FROM {} WHERE {} = %s").format(table, column), [day]).rowcount
        inserted = 0
        # As CSV, PostgreSQL itself converts the values, exactly for all types.
        with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, columns)) as copy:
            for batch in batches:
                _expect_day(batch, parameters.day, day)
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
    loads = sql.Identifier(schema, _LOADS)
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
    loads = sql.Identifier(schema, _LOADS)
    key = [target, run.pipeline, run.date]
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


def _as_postgres_reads(frame: DataFrame, day_column: str, day: date) -> DataFrame:
    """Return the rows with the column of the day, binary data as PostgreSQL writes it, and nested columns as JSON."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, BinaryType, DateType, MapType, StructType

    columns = []
    for field in frame.schema:
        column = sf.col(quoted(field.name))
        if isinstance(field.dataType, BinaryType):
            column = sf.concat(sf.lit("\\x"), sf.hex(column))
        elif isinstance(field.dataType, (ArrayType, MapType, StructType)):
            column = sf.to_json(column, JSON_OPTIONS)
        columns.append(column.alias(field.name))
    if day_column not in frame.columns:
        if day_column.lower() in {name.lower() for name in frame.columns}:
            raise DefinitionError(f"day: the rows have {day_column} in other letters: rename the column, or set `day`")
        columns.insert(0, sf.lit(day).alias(day_column))
    elif not isinstance(frame.schema[day_column].dataType, DateType):
        raise DefinitionError(
            f"day: the column {day_column} of the rows is {frame.schema[day_column].dataType.simpleString()}: cast it "
            "to date, or leave it out"
        )
    return frame.select(*columns)


def _expect_day(batch: pa.RecordBatch, day_column: str, day: date) -> None:
    """Raise `DataError` for a row of another day, which a later run of this day would not replace."""
    column = batch.column(batch.schema.get_field_index(day_column))
    is_other = pc.invert(pc.fill_null(pc.equal(column, pa.scalar(day)), False))
    if pc.any(is_other).as_py():
        other = column.filter(is_other)[0].as_py()
        raise DataError(f"day: a row has {other} in the column {day_column}, and the run's day is {day}")


def _of_input(parameters: WriteTable, name: str) -> WriteTable:
    return parameters.model_copy(update={"table": parameters.table.replace(INPUT, name)})


def _check_inputs(inputs: Sequence[str], parameters: WriteTable) -> None:
    """Raise `DefinitionError` unless each input has a table of its own with a valid name."""
    expect_own_targets(inputs, parameters.table, field="table", example=f"reports.{INPUT}")
    for name in inputs:
        try:
            _check_table(_of_input(parameters, name).table)
        except ValueError as error:
            raise DefinitionError(f"table: {error}") from error


STEP = Load(
    name="write_table",
    parameters=WriteTable,
    many_inputs=True,
    check=_check_inputs,
    of_input=_of_input,
    write=write,
)
