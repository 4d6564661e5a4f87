"""`read_sql`: read the result of a query from a PostgreSQL database, or from an SQLite file of the project.

The query is one SELECT or WITH statement, and runs in a read-only transaction. `:date` in it is the day of the run, as
in `WHERE day = :date`. Give the database user no more rights than the query needs, because a query may also call the
database's functions.

PostgreSQL's columns keep their types: a `numeric` needs a precision, and columns of types that Spark lacks, such as
intervals and arrays, have to be cast in the query. SQLite's columns have no types, so `fields` declares them.

Up to 32 MB are read by the driver. For a larger result, one task reads all rows, in batches; the query then runs twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import pyarrow as pa
import sqlglot
from pydantic import Field, model_validator
from sqlglot import TokenType, exp

from slackwater.errors import DataError, DefinitionError, InputError
from slackwater.problems import Problem, Problems
from slackwater.steps.files import ProjectFiles, ProjectPath
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.io.frames import frame_of_parts
from slackwater.steps.io.postgres import Access, DatabaseParameters, connected
from slackwater.steps.io.typed_files import files_of, local_copy
from slackwater.steps.io.typed_rows import TypedRows, check_rows, declared_columns
from slackwater.steps.sql_rules import select_statement
from slackwater.steps.step import Extract, Parameters, StepContext

if TYPE_CHECKING:
    from psycopg import Column
    from pyspark.sql import DataFrame

_DATE = "date"
# Rows that are fetched at a time.
_ROWS = 5_000
# By the OID of a built-in type, which PostgreSQL never changes (pg_type.dat).
_ARROW_TYPES = {
    16: pa.bool_(),
    21: pa.int16(),
    23: pa.int32(),
    20: pa.int64(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
    17: pa.binary(),
    # text, varchar, char, "char", name, uuid, json, jsonb
    **dict.fromkeys((25, 1043, 1042, 18, 19, 2950, 114, 3802), pa.string()),
}
_NUMERIC, _MAX_PRECISION = 1700, 38
# psycopg would parse these to objects.
_READ_AS_TEXT = ("uuid", "json", "jsonb")
_SQLITE_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


class SqliteFile(TypedRows):
    """An SQLite database."""

    path: ProjectPath
    """Path of the file below the project's files."""


_EXAMPLES = [
    {
        "query": "SELECT currency, rate FROM rates WHERE day = :date",
        "postgres": {"url": "postgresql://db.example:5432/finance", "credentials": "secretsmanager:finance/reader"},
    },
    {
        "query": "SELECT currency, rate FROM rates WHERE day = :date",
        "sqlite": {"path": "finance.db", "fields": {"currency": "string", "rate": "double"}},
    },
]


class ReadSql(Parameters, json_schema_extra={"examples": _EXAMPLES}):
    """Parameters of `read_sql`."""

    query: Annotated[str, Field(min_length=1)]
    """One SELECT or WITH statement. `:date` is the day of the run."""
    postgres: DatabaseParameters | None = None
    """The PostgreSQL database to read from; or set `sqlite`."""
    sqlite: SqliteFile | None = None
    """The SQLite file to read from."""

    @model_validator(mode="after")
    def _check_query(self) -> ReadSql:
        if (self.postgres is None) == (self.sqlite is None):
            raise ValueError("set one of `postgres` and `sqlite`")
        try:
            _check_select(self.query, self.dialect)
        except ValueError as error:
            found = error if isinstance(error, Problems) else Problems(Problem(message=str(error)))
            raise found.below("query") from error
        return self

    @property
    def dialect(self) -> str:
        """The dialect of the query, as sqlglot names it."""
        return "postgres" if self.postgres else "sqlite"


def result_columns(inputs: InputColumns, parameters: ReadSql) -> Columns | None:
    """Return the declared fields of an SQLite file. PostgreSQL knows the columns of its own result."""
    return declared_columns(inputs, parameters.sqlite) if parameters.sqlite else None


def read(parameters: ReadSql, context: StepContext) -> DataFrame:
    """Return the result of the query.

    Raises `InputError` for a query that the database refuses, `Unavailable` for a database that does not answer, and
    `DataError` for a value that does not fit its column.
    """
    day = context.day.date if context.day else None
    if day is None and _date_positions(parameters.query, parameters.dialect):
        raise InputError("query: it contains :date, which only a run of a pipeline has")
    read_rows: Callable[[str], Iterator[pa.Table]]
    if parameters.postgres:
        read_rows = partial(_read_postgres, database=parameters.postgres, day=day, access=Access.of(context))
    elif parameters.sqlite:
        read_rows = partial(_read_sqlite, database=parameters.sqlite, day=day, files=files_of(context))
    return frame_of_parts(context.spark, [parameters.query], read_rows)


def _read_postgres(query: str, *, database: DatabaseParameters, day: date | None, access: Access) -> Iterator[pa.Table]:
    """Yield the result in tables of `_ROWS` rows; the first one is empty."""
    from psycopg.types.string import TextLoader

    with connected(database, access) as connection:
        connection.read_only = True
        for name in _READ_AS_TEXT:
            connection.adapters.register_loader(name, TextLoader)
        # A named cursor is one of the server, which keeps the rows that are not fetched yet.
        with connection.cursor(name="rows") as cursor:
            cursor.execute(_for_psycopg(query), {"date": day})
            schema = _schema(cursor.description or [])
            yield schema.empty_table()
            while rows := cursor.fetchmany(_ROWS):
                yield _table(rows, schema, database.url)


def _schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the types of a result. Raises `InputError` for a column that Spark has no type for."""
    _refuse_repeated([column.name for column in columns])
    return pa.schema([(column.name, _arrow_type(column)) for column in columns])


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if repeated:
        raise InputError(f"query: more than one column is named {', '.join(repeated)}: rename them with AS")


def _arrow_type(column: Column) -> pa.DataType:
    if column.type_code == _NUMERIC:
        precision, scale = column.precision or 0, column.scale or 0
        if 0 < precision <= _MAX_PRECISION and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        raise InputError(
            f"query: column {column.name} is a numeric that may have more digits than Spark's decimals: cast it, for "
            f'example "{column.name}"::numeric(38, 6)'
        )
    if column.type_code not in _ARROW_TYPES:
        raise InputError(
            f'query: column {column.name} is of type {column.type_display}: cast it, for example "{column.name}"::text'
        )
    return _ARROW_TYPES[column.type_code]


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema, place: str) -> pa.Table:
    """Return rows as a table. Raises `DataError` for a value such as a NaN in a numeric column."""
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{place}: column {field.name}: {error}: cast it in the query") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _read_sqlite(query: str, *, database: SqliteFile, day: date | None, files: ProjectFiles) -> Iterator[pa.Table]:
    """Yield the result in tables of `_ROWS` rows; the first one is empty. The file is on disk meanwhile."""
    yield database.schema.empty_table()
    item = files.find_one(database.path, day)
    name = files.name(item.uri)
    with local_copy(item, files) as path:
        try:
            # `immutable`: the copy has no journal, and SQLite would write one for a database that has one elsewhere.
            with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as connection:
                connection.set_authorizer(_authorize)
                cursor = connection.execute(query, {"date": day and day.isoformat()})
                names = [column[0] for column in cursor.description]
                _expect_columns(database, names)
                read_rows = 0
                while rows := cursor.fetchmany(_ROWS):
                    records: list[Mapping[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
                    yield check_rows(records, database, name=name, before=read_rows)
                    read_rows += len(rows)
        except sqlite3.Error as error:
            raise InputError(f"{name}: {error}") from error


def _expect_columns(database: SqliteFile, names: Sequence[str]) -> None:
    """Raise `DefinitionError` for a field that the result of the query lacks, and `InputError` for a repeated name."""
    _refuse_repeated(names)
    missing = [name for name in database.definition().partner_fields if name.isprintable() and name not in names]
    if missing:
        raise DefinitionError(
            f"sqlite.fields: the query has no column {', '.join(missing)} (it has: {', '.join(names)})"
        )


def _authorize(action: int, *_: object) -> int:
    """Let SQLite read, and refuse all else, such as opening another file."""
    return sqlite3.SQLITE_OK if action in _SQLITE_READS else sqlite3.SQLITE_DENY


def _check_select(query: str, dialect: str) -> str:
    """Return the query unchanged if it is one SELECT or WITH statement that changes nothing.

    `dialect` is `postgres` or `sqlite`. Raises `ValueError` that names the fault.
    """
    forbidden = next(select_statement(query, dialect).find_all(exp.DML, exp.DDL, exp.Into, exp.Command, exp.Lock), None)
    if forbidden:
        raise ValueError(f"{forbidden.key.upper()} is not allowed in a query")
    return query


def _date_positions(query: str, dialect: str) -> list[tuple[int, int]]:
    """Return start and end of each `:date` in the query, outside of strings, comments and casts."""
    tokens = sqlglot.tokenize(query, read=dialect)
    return [
        (colon.start, name.end + 1)
        for colon, name in pairwise(tokens)
        if colon.token_type is TokenType.COLON and name.text.lower() == _DATE and colon.end + 1 == name.start
    ]


def _for_psycopg(query: str) -> str:
    """Return the query with `:date` as psycopg's placeholder, and all percent signs as psycopg expects them."""
    parts, position = [], 0
    for start, end in _date_positions(query, "postgres"):
        parts += [query[position:start].replace("%", "%%"), f"%({_DATE})s"]
        position = end
    return "".join([*parts, query[position:].replace("%", "%%")])


STEP = Extract(name="read_sql", parameters=ReadSql, read=read, columns=result_columns)
