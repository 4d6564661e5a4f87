"""Replace a day in a table of Amazon Redshift: deleted and copied in one transaction, which also records the attempt.

The rows are staged among the project's files, as gzipped lines of JSON, and the cluster reads them with COPY: a
statement of INSERT has at most 16 MB, and thousands of them for a day of a million rows. JSON, and not CSV, because in
CSV an empty string and a null are the same to COPY.

psycopg, and not redshift_connector, which resolves the host a second time, after the outbound guard has checked it, and
needs lxml, Beautiful Soup and requests. Redshift calls its encoding UNICODE and lacks what prepared statements of
psycopg need (psycopg/psycopg#122): so the encoding is set, and values are put into the statements by the client.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from slackwater.arrow.names import quoted
from slackwater.errors import DataError, InputError
from slackwater.runs.record import Run
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io.attempts import superseded
from slackwater.steps.io.frames import JSON_OPTIONS, converted_columns
from slackwater.steps.io.postgres import Access, connected
from slackwater.steps.io.table_parameters import LOADS, TableParameters, expect_period, load_key, period_values

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable, Composed
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_CREATE_LOADS = "CREATE TABLE {} (target varchar(256), pipeline varchar(64), day date, attempt bigint NOT NULL)"
_LINE = "line"
# A job that was killed has left older files.
_LONGEST_CALL = timedelta(days=1)
# Bytes of lines in a staged file before compression: the slices of a cluster read several files at the same time.
_FILE_BYTES = 64 * 2**20
_COPY = (
    "COPY {table} ({columns}) FROM {manifest} IAM_ROLE {role} FORMAT JSON 'auto ignorecase' GZIP MANIFEST "
    "TIMEFORMAT 'auto' DATEFORMAT 'auto' COMPUPDATE OFF"
)


def as_redshift_reads(frame: DataFrame, period_columns: Sequence[str]) -> DataFrame:
    """Return the columns of the period, and each row as a line of JSON.

    All values are strings, of which COPY keeps all digits; nested columns are JSON, for columns of the type `SUPER`.
    """
    from pyspark.sql import functions as sf

    line = sf.to_json(sf.struct(*converted_columns(frame, _value)), JSON_OPTIONS)
    return frame.select(*map(quoted, period_columns), line.alias(_LINE))


def _value(column: Column, data_type: DataType) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    match data_type:
        case t.ArrayType() | t.MapType() | t.StructType():
            return column
        case t.BinaryType():
            return sf.hex(column)
        case t.TimestampType():
            return sf.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSS'+00'")
        case t.TimestampNTZType():
            return sf.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSS")
        case _:
            return column.cast("string")


def replace_day(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, parameters: TableParameters, access: Access, run: Run
) -> tuple[int, int]:
    """Delete the day and insert the rows in one transaction; return how many rows were deleted and inserted.

    `schema` is that of the rows, of which the batches have the day and the line of JSON. Raises `Superseded` if a later
    attempt has loaded the day; then nothing changes.
    """
    from psycopg import ClientCursor, sql

    if access.files is None:
        raise InputError("redshift: there are no project files here, which Redshift reads: run the step in a pipeline")
    values = period_values(parameters, run)
    with _staged(batches, values, run, access.files) as (manifest, staged):
        session = {"client_encoding": "utf8", "prepare_threshold": None, "cursor_factory": ClientCursor}
        with connected(parameters, access, session) as connection:
            connection.execute("SET timezone TO 'UTC'")
            *schemas, name = parameters.table.split(".")
            (current,) = connection.execute("SELECT current_schema()").fetchone() or ("public",)
            schema_name = schemas[0] if schemas else str(current)
            target, loads = sql.Identifier(schema_name, name), sql.Identifier(schema_name, LOADS)
            _create_loads_table(connection, schema_name, loads)
            _record_load(connection, loads, name, run)
            condition = (sql.SQL("{} = {}").format(sql.Identifier(column), value) for column, value in values.items())
            where = sql.SQL("FROM {} WHERE {}").format(target, sql.SQL(" AND ").join(condition))
            deleted = _count(connection, where)
            connection.execute(sql.SQL("DELETE {}").format(where))
            if staged:
                role = parameters.redshift.role
                statement = sql.SQL(_COPY).format(
                    table=target,
                    columns=sql.SQL(", ").join(map(sql.Identifier, schema.names)),
                    manifest=manifest,
                    role=sql.SQL("default") if role == "default" else sql.Literal(role),
                )
                copy(connection, statement)
            if (inserted := _count(connection, where)) != staged:
                raise DataError(f"table: Redshift has loaded {inserted:,} of {staged:,} rows: nothing was changed")
    return deleted, inserted


def copy(connection: Connection, statement: Composed) -> None:
    """Execute a COPY."""
    connection.execute(statement)


@contextmanager
def _staged(
    batches: Iterator[pa.RecordBatch], values: Mapping[str, date | int], run: Run, files: ProjectFiles
) -> Iterator[tuple[str, int]]:
    """Store the lines as files; yield the URI of COPY's manifest of them, and the number of lines. Delete the files.

    First, those that a killed job of the day has left are deleted.
    """
    store = files.stores()
    folder = f"{files.prefix}_loading/{run.pipeline}/{run.date}/"
    limit = datetime.now(UTC) - _LONGEST_CALL
    store.delete([item.uri for item in store.list(folder) if item.modified < limit])
    call, uris, lines = f"{folder}{run.attempt}-{uuid4().hex}/", list[str](), 0
    try:
        for content, count in _contents(batches, values):
            uris.append(f"{call}{len(uris):05}.json.gz")
            store.put(uris[-1], content)
            lines += count
        manifest = f"{call}manifest"
        entries = [{"url": uri, "mandatory": True} for uri in uris]
        uris.append(manifest)
        store.put(manifest, json.dumps({"entries": entries}).encode())
        yield manifest, lines
    finally:
        store.delete(uris)


def _contents(batches: Iterator[pa.RecordBatch], values: Mapping[str, date | int]) -> Iterator[tuple[bytes, int]]:
    """Yield the content of each file, and its number of lines."""
    lines, size = list[str](), 0
    for batch in batches:
        expect_period(batch, values)
        lines += batch.column(batch.num_columns - 1).to_pylist()
        size += batch.nbytes
        if size > _FILE_BYTES:
            yield _compressed(lines), len(lines)
            lines, size = [], 0
    if lines:
        yield _compressed(lines), len(lines)


def _compressed(lines: Sequence[str]) -> bytes:
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=6)


def _count(connection: Connection, where: Composable) -> int:
    from psycopg import sql

    (count,) = connection.execute(sql.SQL("SELECT count(*) {}").format(where)).fetchone() or (0,)
    return int(count)


def _create_loads_table(connection: Connection, schema: str, loads: Composable) -> None:
    """Create `slackwater_loads` in the schema of the table unless it is there, and commit."""
    from psycopg import errors, sql

    there = "SELECT 1 FROM information_schema.tables WHERE table_schema = lower(%s) AND table_name = %s"
    if connection.execute(there, [schema, LOADS]).fetchone() is None:
        try:
            connection.execute(sql.SQL(_CREATE_LOADS).format(loads))
        except errors.DuplicateTable:  # another run has created it meanwhile
            connection.rollback()
        except errors.InsufficientPrivilege as error:
            connection.rollback()
            raise _not_allowed(connection, loads) from error
    connection.commit()


def _record_load(connection: Connection, loads: Composable, target: str, run: Run) -> None:
    """Record in the current transaction that the run's attempt loads its day, and let other loads wait until its end.

    Redshift has no lock for a row, so loads into the tables of a schema run one after another. Raises `Superseded` if a
    later attempt is recorded, and `InputError` with the statements for the owner if the user lacks a privilege.
    """
    from psycopg import errors, sql

    name, pipeline, day = load_key(target, run)
    key = [name, pipeline, date.fromisoformat(day)]
    where = sql.SQL("FROM {} WHERE target = {} AND pipeline = {} AND day = {}").format(loads, *key)
    try:
        # Before any other statement: the snapshot of the transaction then has what others have committed.
        connection.execute(sql.SQL("LOCK {}").format(loads))
        (later,) = connection.execute(sql.SQL("SELECT max(attempt) {}").format(where)).fetchone() or (None,)
        if (later or 0) > run.attempt:
            remedy = f"execute {sql.SQL('DELETE {}').format(where).as_string(connection)}, and run the day again"
            raise superseded(target, later, run, remedy=remedy)
        connection.execute(sql.SQL("DELETE {}").format(where))
        values = sql.SQL(", ").join(map(sql.Literal, [*key, run.attempt]))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(loads, values))
    except errors.InsufficientPrivilege as error:
        connection.rollback()
        raise _not_allowed(connection, loads) from error


def _not_allowed(connection: Connection, loads: Composable) -> InputError:
    from psycopg import sql

    name, user = loads.as_string(connection), sql.Identifier(connection.info.user).as_string(connection)
    return InputError(
        f"table: the user {user} may not create or write {name}, which records the attempts that have loaded a day: "
        f"let the owner of the schema execute: {_CREATE_LOADS.format(name)}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {user};"
    )
