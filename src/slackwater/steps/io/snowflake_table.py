"""Replace a day in a table of Snowflake: deleted and copied in one transaction, which also records the attempt.

Each statement of DDL ends a transaction in Snowflake, so `slackwater_loads` and the temporary stage are created before.
The rows get into the stage as gzipped CSV (PUT), and from there into the table (COPY INTO).

Names are those of Snowflake's SQL: one of letters, digits and underscores is in capital letters, as without quotes; any
other one is as it is written.
"""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import csv as arrow_csv

from slackwater.errors import DataError, DefinitionError, InputError, SlackwaterError, Unavailable
from slackwater.outbound.credentials import Credentials
from slackwater.runs.record import Run
from slackwater.steps.io.attempts import superseded
from slackwater.steps.io.frames import JSON_OPTIONS, converted_columns
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.table_parameters import LOADS, TableParameters, expect_period, load_key, period_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = ".snowflakecomputing.com"
_SESSION = {
    "TIMEZONE": "UTC",
    # Seconds that a statement waits for a lock of another session, such as a run of the same day.
    "LOCK_TIMEOUT": 1800,
    # The connector would send measurements of its own.
    "CLIENT_TELEMETRY_ENABLED": False,
}
_CONNECT_SECONDS = 60
# Bytes of a file in the stage before compression: a warehouse loads several files at the same time.
_FILE_BYTES = 256 * 2**20
_CREATE_LOADS = (
    "CREATE TABLE IF NOT EXISTS {} (target varchar, pipeline varchar, day date, attempt number(18, 0) NOT NULL)"
)
_KEY = "target = %s AND pipeline = %s AND day = %s"
# Strings are in quotes, also empty ones, and a null is nothing.
_FORMAT = (
    "TYPE = CSV COMPRESSION = GZIP FIELD_OPTIONALLY_ENCLOSED_BY = '\"' ESCAPE_UNENCLOSED_FIELD = NONE NULL_IF = () "
    "EMPTY_FIELD_AS_NULL = TRUE"
)


def as_snowflake_reads(frame: DataFrame, _period_columns: Sequence[str]) -> DataFrame:
    """Return the rows with timestamps with their offset, binary data in hexadecimal, and nested columns as JSON."""
    return frame.select(*converted_columns(frame, _value))


def _value(column: Column, data_type: DataType) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    match data_type:
        case t.ArrayType() | t.MapType() | t.StructType():
            return sf.to_json(column, JSON_OPTIONS)
        case t.BinaryType():
            return sf.hex(column)
        case t.TimestampType():
            return sf.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'+00:00'")
        case _:
            return column


def replace_day(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, parameters: TableParameters, access: Access, run: Run
) -> tuple[int, int]:
    """Delete the day and insert the rows in one transaction; return how many rows were deleted and inserted.

    Raises `Superseded` if a later attempt has loaded the day; then nothing changes.
    """
    values = period_values(parameters, run)
    where, wanted = " AND ".join(f"{identifier(column)} = %s" for column in values), [*map(str, values.values())]
    *schemas, name = map(identifier, parameters.table.split("."))
    table, loads = ".".join([*schemas, name]), ".".join([*schemas, LOADS.upper()])
    stage = ".".join([*schemas, f"SLACKWATER_{uuid4().hex.upper()}"])
    with _connected(parameters, access) as connection, connection.cursor() as cursor:
        key = load_key(parameters.table.rpartition(".")[2], run)
        _create_loads_row(cursor, loads, key)
        cursor.execute(f"CREATE TEMPORARY STAGE {stage}")
        staged = _stage(cursor, stage, batches, values)
        cursor.execute("BEGIN")
        try:
            _record_load(cursor, loads, key, table, run)
            cursor.execute(f"DELETE FROM {table} WHERE {where}", wanted)  # noqa: S608
            deleted = int(cursor.rowcount or 0)
            if staged:
                cursor.execute(copy_statement(table, stage, schema))
            counted = f"SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608
            (inserted,) = cursor.execute(counted, wanted).fetchone()
            if inserted != staged:
                raise DataError(f"table: Snowflake has loaded {inserted:,} of {staged:,} rows: nothing was changed")
            cursor.execute("COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
    return deleted, staged


def identifier(name: str) -> str:
    """Return a name as an SQL identifier: in capital letters if Snowflake's SQL needs no quotes for it."""
    name = name.upper() if _PLAIN.fullmatch(name) else name
    return '"' + name.replace('"', '""') + '"'


def copy_statement(table: str, stage: str, schema: pa.Schema) -> str:
    """Return the statement that copies the files of a stage into a table; both are SQL identifiers."""
    columns, source = ", ".join(map(identifier, schema.names)), f"@{stage}"
    nested = [pa.types.is_nested(field.type) for field in schema]
    if any(nested):
        values = (f"PARSE_JSON(${n})" if is_nested else f"${n}" for n, is_nested in enumerate(nested, 1))
        source = f"(SELECT {', '.join(values)} FROM @{stage})"  # noqa: S608
    return f"COPY INTO {table} ({columns}) FROM {source} FILE_FORMAT = ({_FORMAT})"


def _stage(cursor: Any, stage: str, batches: Iterator[pa.RecordBatch], values: Mapping[str, date | int]) -> int:
    """Put the rows into the stage as files; return their number."""
    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (content, count) in enumerate(_contents(batches, values)):
            path = Path(folder, f"{number:05}.csv.gz")
            path.write_bytes(content)
            cursor.execute(f"PUT 'file://{path}' @{stage} AUTO_COMPRESS = FALSE SOURCE_COMPRESSION = GZIP")
            path.unlink()
            rows += count
    return rows


def _contents(batches: Iterator[pa.RecordBatch], values: Mapping[str, date | int]) -> Iterator[tuple[bytes, int]]:
    """Yield the content of each file, and its number of rows."""
    gathered, size = list[pa.RecordBatch](), 0
    for batch in batches:
        expect_period(batch, values)
        gathered.append(batch)
        size += batch.nbytes
        if size > _FILE_BYTES:
            yield _compressed(gathered), sum(batch.num_rows for batch in gathered)
            gathered, size = [], 0
    if gathered:
        yield _compressed(gathered), sum(batch.num_rows for batch in gathered)


def _compressed(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    arrow_csv.write_csv(pa.Table.from_batches(batches), sink, arrow_csv.WriteOptions(include_header=False))
    return gzip.compress(sink.getvalue(), compresslevel=6)


def _create_loads_row(cursor: Any, loads: str, key: Sequence[str]) -> None:
    """Create `slackwater_loads` and the row of the day, with attempt 0, unless they are there.

    So the transaction of each attempt updates a row, and waits for that of another one.
    """
    cursor.execute(_CREATE_LOADS.format(loads))
    there = f"SELECT 1 FROM {loads} WHERE {_KEY}"  # noqa: S608
    cursor.execute(f"INSERT INTO {loads} SELECT %s, %s, %s, 0 WHERE NOT EXISTS ({there})", [*key, *key])


def _record_load(cursor: Any, loads: str, key: Sequence[str], table: str, run: Run) -> None:
    """Record in the current transaction that the run's attempt loads its day. Raises `Superseded`."""
    update = f"UPDATE {loads} SET attempt = greatest(attempt, %s) WHERE {_KEY}"  # noqa: S608
    cursor.execute(update, [run.attempt, *key])
    # A statement of its own: it sees what was committed while the update waited.
    (later,) = cursor.execute(f"SELECT max(attempt) FROM {loads} WHERE {_KEY}", list(key)).fetchone()  # noqa: S608
    if later > run.attempt:
        values = [f"{value}".replace("'", "''") for value in key]
        delete = f"DELETE FROM {loads} WHERE {_KEY.replace('%s', chr(39) + '{}' + chr(39)).format(*values)}"  # noqa: S608
        raise superseded(table, later, run, remedy=f"execute {delete}, and run the day again")


@contextmanager
def _connected(parameters: TableParameters, access: Access) -> Iterator[Any]:
    """Yield a connection that commits each statement outside of a transaction.

    Raises `OutboundRefused`, `DefinitionError` for credentials that do not fit, `Unavailable` if Snowflake does not
    answer, and `InputError` for what it refuses.
    """
    try:
        from snowflake import connector
    except ImportError as error:
        raise InputError(
            "url: the package snowflake-connector-python is missing: deploy the pipeline, or install "
            "slackwater[snowflake]"
        ) from error
    place = parameters.url
    parts = urlsplit(place)
    # The connector resolves the name again: the guard only checks it.
    target = access.outbound.check(f"https://{parts.netloc}")
    try:
        access.outbound.connect_addresses(target)
        connection = connector.connect(
            account=target.host.removesuffix(_HOST),
            host=target.host,
            port=target.port,
            database=unquote(parts.path.removeprefix("/")),
            warehouse=parameters.snowflake.warehouse,
            role=parameters.snowflake.role,
            autocommit=True,
            session_parameters=_SESSION,
            login_timeout=_CONNECT_SECONDS,
            application="slackwater",
            **_authentication(access.secrets.read(parameters.credentials), parameters.credentials),
        )
        with connection:
            yield connection
    except SlackwaterError:
        raise
    except (connector.errors.OperationalError, connector.errors.InterfaceError, OSError) as error:
        raise Unavailable(f"{place}: {_one_line(error)}") from error
    except connector.errors.Error as error:
        raise InputError(f"{place}: {_one_line(error)}") from error


def _authentication(credentials: Credentials, reference: str) -> dict[str, Any]:
    """Return the connector's arguments that authenticate a user: by a key pair, or by a password."""
    from cryptography.hazmat.primitives import serialization

    if credentials.username and credentials.private_key:
        try:
            pem = credentials.private_key.get_secret_value().encode()
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise DefinitionError(
                f"{reference}: `private_key` is not an unencrypted private key in PEM, as Snowflake's documentation "
                "makes it with openssl"
            ) from error
        der = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {"user": credentials.username, "authenticator": "SNOWFLAKE_JWT", "private_key": der}
    if credentials.username and credentials.password:
        return {"user": credentials.username, "password": credentials.password.get_secret_value()}
    raise DefinitionError(f"{reference}: Snowflake needs a `username` with a `private_key` or a `password`")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
