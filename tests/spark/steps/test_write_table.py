"""`write_table` against a real PostgreSQL: one transaction per day, types, repeated, concurrent and failing calls."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from slackwater.errors import DataError, DefinitionError, InputError, OutboundRefused, Superseded, Unavailable
from slackwater.pipeline.definition import StepUse
from slackwater.spark.run_loads import write_rows
from slackwater.steps.io import frames as frames_module
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.postgres_table import replace_day
from slackwater.steps.load.write_table import STEP, WriteTable
from slackwater.steps.step import Effect, StepContext
from tests.postgres import PASSWORD, SECRETS, PostgresServer
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import DAY, run_of
from tests.spark.steps.hours import check_hours

OTHER = date(2013, 3, 9)
TABLE = 'CREATE TABLE "Schema"."a table" (date date, n int, s text, added timestamptz DEFAULT now())'


@pytest.fixture(autouse=True)
def table(postgres: PostgresServer) -> None:
    """A table with three rows of the day and one of another day."""
    while not dropped(postgres):
        pass
    postgres.execute(
        'CREATE SCHEMA "Schema"',
        TABLE,
        f"INSERT INTO \"Schema\".\"a table\" VALUES ('{DAY}', 1, 'old'), ('{DAY}', 2, 'old'), ('{DAY}', 3, 'old'), "
        f"('{OTHER}', 1, 'other')",
    )


def dropped(postgres: PostgresServer) -> bool:
    """Drop the schema, unless tasks of the test before still write to it."""
    try:
        postgres.execute('DROP SCHEMA IF EXISTS "Schema" CASCADE')
    except psycopg.errors.DeadlockDetected:
        return False
    return True


def parameters(postgres: PostgresServer, **changes: Any) -> WriteTable:
    return WriteTable.model_validate({**postgres.parameters, "table": "Schema.a table", **changes})


@pytest.fixture
def write(context: StepContext, postgres: PostgresServer) -> Callable[..., Effect]:
    allowed = replace(context, outbound=postgres.outbound)

    def run(frame: DataFrame, context: StepContext = allowed, **changes: Any) -> Effect:
        return STEP.write(frame, parameters(postgres, **changes), context)

    return run


def rows(postgres: PostgresServer) -> list[tuple[Any, ...]]:
    return postgres.execute('SELECT date, n, s FROM "Schema"."a table" ORDER BY date, n')


OLD = [(OTHER, 1, "other"), (DAY, 1, "old"), (DAY, 2, "old"), (DAY, 3, "old")]
NEW = [(OTHER, 1, "other"), (DAY, 7, "new")]


@pytest.mark.usefixtures("way")
def test_the_day_is_replaced_also_by_a_repeated_call_and_by_no_rows(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer
) -> None:
    frame = frame_of(context.spark, [(7, "new")], "n int, s string")
    assert write(frame) == {"table": "Schema.a table", "rows_deleted": 3, "rows_inserted": 1}
    assert rows(postgres) == NEW
    with_day = frame.selectExpr("s", f"DATE'{DAY}' AS date", "n")
    assert write(with_day) == {"table": "Schema.a table", "rows_deleted": 1, "rows_inserted": 1}
    assert rows(postgres) == NEW
    assert write(frame_of(context.spark, [], frame.schema))["rows_deleted"] == 1
    assert rows(postgres) == OLD[:1]
    assert write(frame.where("n < 0"))["rows_inserted"] == 0


@pytest.mark.usefixtures("way")
def test_all_types_arrive_unchanged(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer
) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS types",
        'CREATE TABLE types (day date, i int2, l int8, f float8, d numeric(38, 4), b boolean, s text, "a day.x" date, '
        "t timestamptz, ntz timestamp, y bytea, j jsonb, one text)",
    )
    frame = context.spark.sql("""
        SELECT *, binary(s) AS y, struct(l, array(s) AS list, t AS at) AS j, s AS one FROM VALUES
          (1S, 9007199254740993L, 0.1D, CAST('1234567890123456789012345678901234.1200' AS DECIMAL(38, 4)), true,
           'Zoë, "年"\n\\\\.\n\\\\N \U0001f680', DATE'2013-03-10', TIMESTAMP'2013-03-10 01:02:03.123456Z',
           TIMESTAMP_NTZ'2013-03-10 02:30:00'),
          (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
          (-32768S, -9223372036854775807L, double('-Infinity'), -0.5, false, '', DATE'9999-12-31',
           TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'0001-01-01 00:00:00'),
          (0S, 0L, double('NaN'), 0, false, '=1+1', DATE'0001-01-01', TIMESTAMP'2038-01-19 03:14:08Z', NULL)
        AS t(i, l, f, d, b, s, `a day.x`, t, ntz)
    """)
    assert write(frame, table="types", day="day")["rows_inserted"] == 4
    text = 'Zoë, "年"\n\\.\n\\N \U0001f680'
    stored = postgres.execute(
        "SELECT i, l, f::text, d, b, s, \"a day.x\"::text, t AT TIME ZONE 'UTC', ntz, y, j, one FROM types ORDER BY i"
    )
    assert stored == [
        (-32768, -(2**63) + 1, "-Infinity", Decimal("-0.5000"), False, "", "9999-12-31",
         datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), b"",
         {"l": -(2**63) + 1, "list": [""], "at": "1969-12-31T23:59:59.999999Z"}, ""),
        (0, 0, "NaN", Decimal("0.0000"), False, "=1+1", "0001-01-01", datetime(2038, 1, 19, 3, 14, 8), None, b"=1+1",
         {"l": 0, "list": ["=1+1"], "at": "2038-01-19T03:14:08.000000Z"}, "=1+1"),
        (1, 9007199254740993, "0.1", Decimal("1234567890123456789012345678901234.1200"), True, text, "2013-03-10",
         datetime(2013, 3, 10, 1, 2, 3, 123456), datetime(2013, 3, 10, 2, 30), text.encode(),
         {"l": 9007199254740993, "list": [text], "at": "2013-03-10T01:02:03.123456Z"}, text),
        (None,) * 10 + ({"l": None, "list": [None], "at": None}, None),
    ]  # fmt: skip


def test_a_day_of_nulls_and_a_day_of_one_infinity(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer
) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS cells", "CREATE TABLE cells (date date, i int, f float8, r real, s text, none int)"
    )
    columns = "CAST(i AS INT) AS i, CAST(f AS DOUBLE) AS f, CAST(f AS FLOAT) AS r, CAST(s AS STRING) AS s, NULL AS none"
    for values, expected in (
        ("(NULL, NULL, NULL), (NULL, NULL, NULL)", [(None,) * 5] * 2),
        ("(1, double('Infinity'), '')", [(1, math.inf, math.inf, "", None)]),
    ):
        frame = context.spark.sql(f"SELECT {columns} FROM VALUES {values} AS t(i, f, s)")
        assert write(frame, table="cells")["rows_inserted"] == len(expected)
        assert postgres.execute("SELECT i, f, r, s, none FROM cells") == expected


@pytest.mark.parametrize(
    "case",
    [
        ("n int", "'x'", 'invalid input syntax for type integer: "x"'),
        ("n int2", "40000", 'value "40000" is out of range for type smallint'),
        ("n numeric(4,2)", "123.45", "numeric field overflow"),
        ("n real", "1e300D", '"1e+300" is out of range for type real'),
        ("n date", "'2013-02-30'", 'date/time field value out of range: "2013-02-30"'),
        ("n varchar(2)", "'abc'", "value too long for type character varying(2)"),
        ("n text NOT NULL", "CAST(NULL AS STRING)", 'null value in column "n"'),
        ("n int CHECK (n > 9)", "1", 'violates check constraint "strict_n_check"'),
    ],
)
def test_a_value_that_does_not_fit_names_its_column(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer, case: tuple[str, str, str]
) -> None:
    column, value, message = case
    postgres.execute(
        "DROP TABLE IF EXISTS strict",
        f"CREATE TABLE strict (date date, {column} DEFAULT NULL)".replace(
            "NOT NULL DEFAULT NULL", "NOT NULL DEFAULT ''"
        ),
        f"INSERT INTO strict VALUES ('{DAY}')",
    )
    before = postgres.execute("SELECT * FROM strict")
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        write(context.spark.sql(f"SELECT {value} AS n"), table="strict")
    assert re.search(r'column "?n\b|strict_n_check', str(caught.value))
    assert postgres.execute("SELECT * FROM strict") == before


SCHEMA = pa.schema([("date", pa.date32()), ("n", pa.int32()), ("s", pa.string())])


def batch(*values: tuple[int, str], day: date = DAY) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"date": day, "n": n, "s": s} for n, s in values], schema=SCHEMA)


@pytest.fixture
def access(postgres: PostgresServer) -> Access:
    return Access(SECRETS, postgres.outbound, None)


def test_a_reader_sees_the_old_day_until_the_new_one_is_complete(postgres: PostgresServer, access: Access) -> None:
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in (7, 8):
            seen.append(rows(postgres))
            yield batch((n, "new"))
        seen.append(rows(postgres))

    assert replace_day(batches(), SCHEMA, parameters(postgres), access, run_of(1)) == (3, 2)
    assert seen == [OLD] * 3
    assert rows(postgres) == [*OLD[:1], (DAY, 7, "new"), (DAY, 8, "new")]


def test_a_failure_in_the_middle_leaves_the_old_day(postgres: PostgresServer, access: Access) -> None:
    def broken(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield batch((7, "new"))
        raise error

    def killed() -> Iterator[pa.RecordBatch]:
        yield batch((7, "new"))
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slackwater'")
        for _ in range(100):
            yield batch((8, "x" * 100_000))

    for batches, expected in (
        (broken(ZeroDivisionError("a bug")), ZeroDivisionError),
        (broken(KeyboardInterrupt()), KeyboardInterrupt),
        (iter([batch((7, "new")), batch((8, "nul \x00"))]), InputError),
        (iter([batch((7, "new")), batch((8, "new"), day=OTHER)]), DataError),
        (killed(), Unavailable),
    ):
        with pytest.raises(expected):
            replace_day(batches, SCHEMA, parameters(postgres), access, run_of(1))
        assert rows(postgres) == OLD


def test_two_writers_of_one_day_wait_for_each_other(postgres: PostgresServer, access: Access) -> None:
    # The default of a database must not matter: under it, the second writer would not see the first one's rows.
    postgres.execute("ALTER DATABASE postgres SET default_transaction_isolation TO 'repeatable read'")
    first_deleted, second_started = threading.Event(), threading.Event()

    def first() -> Iterator[pa.RecordBatch]:
        first_deleted.set()
        assert second_started.wait(10)
        yield batch((1, "first"), (2, "first"))

    def second() -> tuple[int, int]:
        assert first_deleted.wait(10)
        return replace_day(iter([batch((9, "second"))]), SCHEMA, parameters(postgres), access, run_of(1))

    try:
        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(replace_day, first(), SCHEMA, parameters(postgres), access, run_of(1))
            other = threads.submit(second)
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while postgres.execute(waiting) != [(1,)]:
                assert not one.done()
            # Another day is not waited for.
            replace_day(iter([batch((5, "other"), day=OTHER)]), SCHEMA, parameters(postgres), access, run_of(1, OTHER))
            second_started.set()
            assert (one.result(10), other.result(10)) == ((3, 2), (2, 1))
    finally:
        postgres.execute("ALTER DATABASE postgres RESET default_transaction_isolation")
    assert rows(postgres) == [(OTHER, 5, "other"), (DAY, 9, "second")]


def load(
    postgres: PostgresServer, access: Access, attempt: int, batches: Iterator[pa.RecordBatch] | None = None
) -> Any:
    batches = batches or iter([batch((attempt, f"attempt {attempt}"))])
    return replace_day(batches, SCHEMA, parameters(postgres), access, run_of(attempt))


CREATED = (
    'CREATE TABLE "Schema".slackwater_loads '
    "(target text, pipeline text, day date, attempt bigint NOT NULL, PRIMARY KEY (target, pipeline, day))"
)
LOADS = 'SELECT target, pipeline, day, attempt FROM "Schema".slackwater_loads'


def test_an_earlier_attempt_changes_nothing_after_a_later_one(postgres: PostgresServer, access: Access) -> None:
    load(postgres, access, 3)
    load(postgres, access, 3)
    with pytest.raises(Superseded, match=r"attempt 3 has loaded 2013-03-10 .* this is attempt 2") as refused:
        load(postgres, access, 2)
    assert rows(postgres) == [*OLD[:1], (DAY, 3, "attempt 3")]
    assert postgres.execute(LOADS) == [("a table", "p", DAY, 3)]
    replace_day(iter([batch((1, "other"), day=OTHER)]), SCHEMA, parameters(postgres), access, run_of(1, OTHER))
    # A deployment made anew begins with attempt 1: the message has the statement that allows it.
    statement = re.search(r"execute (DELETE .*), and run the day again", str(refused.value))
    assert statement
    postgres.execute(statement[1])
    load(postgres, access, 1)
    assert postgres.execute(f"{LOADS} WHERE day = '{DAY}'") == [("a table", "p", DAY, 1)]


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_of_two_attempts_at_the_same_time_the_later_one_remains(
    postgres: PostgresServer, access: Access, first: int, second: int
) -> None:
    holds, goes_on = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        holds.set()
        assert goes_on.wait(10)
        yield batch((first, f"attempt {first}"))

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(load, postgres, access, first, slow())
        assert holds.wait(10)
        other = threads.submit(load, postgres, access, second)
        while postgres.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") != [(1,)]:
            assert not one.done()
        goes_on.set()
        assert one.result(10) == (3, 1)
        assert (type(other.exception(10)) is Superseded) == (second < first)
    assert rows(postgres) == [*OLD[:1], (DAY, 3, "attempt 3")]


def test_a_load_that_fails_records_no_attempt(postgres: PostgresServer, access: Access) -> None:
    with pytest.raises(DataError):
        load(postgres, access, 3, iter([batch((1, "x"), day=OTHER)]))
    load(postgres, access, 2)
    assert rows(postgres) == [*OLD[:1], (DAY, 2, "attempt 2")]


def test_a_role_that_may_not_create_the_table_gets_the_statements_for_the_owner(
    postgres: PostgresServer, access: Access
) -> None:
    postgres.execute(
        'DROP ROLE IF EXISTS "the loader"',
        f"CREATE ROLE \"the loader\" LOGIN PASSWORD '{PASSWORD}'",
        'GRANT USAGE ON SCHEMA "Schema" TO "the loader"',
        'GRANT SELECT, INSERT, DELETE ON "Schema"."a table" TO "the loader"',
    )
    credentials = SECRETS.credentials.model_copy(update={"username": "the loader"})
    limited = replace(access, secrets=replace(SECRETS, credentials=credentials))
    try:
        for prepared in ((), (CREATED,)):
            postgres.execute("SELECT 1", *prepared)
            with pytest.raises(InputError, match=r'the role "the loader" may not create or write') as refused:
                load(postgres, limited, 1)
            assert rows(postgres) == OLD
        statements = str(refused.value).partition("execute: ")[2]
        postgres.execute(statements)
        load(postgres, limited, 1)
        assert rows(postgres) == [*OLD[:1], (DAY, 1, "attempt 1")]
    finally:
        postgres.execute('DROP SCHEMA "Schema" CASCADE', 'DROP ROLE "the loader"')


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS n, 's' AS s, 1 AS extra", 'column "extra" of relation "a table" does not exist'),
        ("SELECT 3000000000L AS n", "out of range for type integer"),
        (
            f"SELECT 1 AS n, DATE'{OTHER}' AS date",
            f"a row has {OTHER} in the column date, and the run's day",
        ),
        ("SELECT 1 AS n, DATE(NULL) AS date", "a row has None in the column date"),
    ],
)
def test_what_does_not_fit_leaves_the_old_day(
    write: Callable[..., Effect],
    context: StepContext,
    postgres: PostgresServer,
    query: str,
    message: str,
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        write(context.spark.sql(query))
    assert rows(postgres) == OLD


def test_one_task_writes_a_large_day(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames_module, "DRIVER_ROWS", 100)
    large = context.spark.range(0, 30_000, 1, 4).selectExpr("CAST(id AS INT) AS n", "'new' AS s")
    assert write(large)["rows_inserted"] == 30_000
    count = 'SELECT count(*), count(DISTINCT n), max(date)::text FROM "Schema"."a table"'
    assert postgres.execute(f"{count} WHERE s = 'new'") == [(30_000, 30_000, str(DAY))]
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        write(large.selectExpr("CAST(1 / (29999 - n) AS INT) AS n"))
    assert postgres.execute(f"{count} WHERE s = 'new'") == [(30_000, 30_000, str(DAY))]


def test_columns_of_the_day_that_do_not_fit(write: Callable[..., Effect], context: StepContext) -> None:
    with pytest.raises(DefinitionError, match="day: the column date of the rows is string: cast it to date"):
        write(context.spark.sql("SELECT 1 AS n, '2013-03-10' AS date"))
    with pytest.raises(DefinitionError, match="day: the rows have date in other letters"):
        write(context.spark.sql("SELECT 1 AS n, DATE'2013-03-10' AS Date"))
    with pytest.raises(InputError, match="replaces the day of a run"):
        write(context.spark.range(1), context=replace(context, run=None))
    with pytest.raises(OutboundRefused, match=r"no connection is made to 127.0.0.1, loopback"):
        write(context.spark.sql("SELECT 1 AS n"), context=context)


@pytest.mark.parametrize("table", ["", ".", "a.", "a.b.c", "a" * 64, "x\x00"])
def test_names_of_tables_are_checked(postgres: PostgresServer, table: str) -> None:
    with pytest.raises(ValidationError, match="table"):
        parameters(postgres, table=table)


def test_names_are_quoted(write: Callable[..., Effect], context: StepContext, postgres: PostgresServer) -> None:
    name = 'x"; DROP TABLE "Schema"; --'
    quoted = name.replace('"', '""')
    postgres.execute(f'DROP TABLE IF EXISTS "{quoted}"', f'CREATE TABLE "{quoted}" ("a ""day""" date, "n; --" int)')
    write(context.spark.sql("SELECT 1 AS `n; --`"), table=name, day='a "day"')
    assert postgres.execute(f'SELECT * FROM "{quoted}"') == [(DAY, 1)]


def test_several_inputs_are_tables_of_their_own_each_with_its_attempt(
    context: StepContext, postgres: PostgresServer
) -> None:
    postgres.execute(
        *(f'CREATE TABLE "Schema".{name} (date date, n int)' for name in ("a", "b")),
        f"INSERT INTO \"Schema\".b VALUES ('{DAY}', 9)",
    )
    allowed = replace(context, outbound=postgres.outbound)
    both = {**postgres.parameters, "table": "Schema.{input}"}
    use = StepUse.model_validate({"step": "write_table", "depends_on": ["a", "b"], "with": both})
    frames = {name: frame_of(context.spark, [(n,)], "n int") for n, name in enumerate(("a", "b"))}
    effect = write_rows("load", use, frames, allowed, rows={}).effect
    assert effect["table.a"] == "Schema.a"
    assert (effect["rows_deleted.a"], effect["rows_deleted.b"], effect["rows_inserted.b"]) == (0, 1, 1)
    tables = {name: postgres.execute(f'SELECT date, n FROM "Schema".{name}') for name in ("a", "b")}
    assert tables == {"a": [(DAY, 0)], "b": [(DAY, 1)]}
    postgres.execute("UPDATE \"Schema\".slackwater_loads SET attempt = 2 WHERE target = 'b'")
    with pytest.raises(Superseded, match=r'"Schema"."b": attempt 2'):
        write_rows("load", use, {**frames, "a": frames["b"]}, allowed, rows={})
    tables = {name: postgres.execute(f'SELECT date, n FROM "Schema".{name}') for name in ("a", "b")}
    assert tables == {"a": [(DAY, 1)], "b": [(DAY, 1)]}


def test_an_hour_replaces_its_rows_and_no_others_and_has_attempts_of_its_own(
    context: StepContext, postgres: PostgresServer
) -> None:
    def write(frame: DataFrame, of_hour: StepContext, hour: str | None) -> Effect:
        return STEP.write(frame, parameters(postgres, hour=hour), replace(of_hour, outbound=postgres.outbound))

    table = '"Schema"."a table"'
    check_hours(context, write, postgres.execute, table=table, name="Schema.a table", number="smallint")
