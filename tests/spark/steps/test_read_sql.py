"""`read_sql` against a real PostgreSQL and SQLite: types, the day, memory, rights, and what is refused."""

from __future__ import annotations

import socket
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from pyspark.sql import DataFrame

from slackwater.arrow import exchange
from slackwater.errors import DataError, DefinitionError, InputError, OutboundRefused, Unavailable
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.extract.read_sql import STEP, ReadSql
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import StepContext
from tests.fakes_spark import FolderStore
from tests.fakes_web import tls_contexts
from tests.postgres import PASSWORD, FakeSecrets, PostgresServer
from tests.spark.steps.conftest import PREFIX

Run = Callable[..., DataFrame]


@pytest.fixture
def query(context: StepContext, postgres: PostgresServer) -> Run:
    """Run the step with a query on PostgreSQL."""
    allowed = replace(context, outbound=postgres.outbound)

    def run(sql: str, context: StepContext = allowed, **parameters: Any) -> DataFrame:
        database = {**postgres.parameters, **parameters}
        return STEP.read(ReadSql.model_validate({"query": sql, "postgres": database}), context)

    return run


@pytest.mark.usefixtures("way")
def test_types_of_postgres(query: Run) -> None:
    values = {
        "b": ("true", "boolean", True),
        "i2": ("(-32768)::int2", "smallint", -32768),
        "i4": ("2147483647", "int", 2147483647),
        "i8": ("(-9223372036854775808)::int8", "bigint", -(2**63)),
        "f4": ("1.5::float4", "float", 1.5),
        "f8": ("'Infinity'::float8", "double", float("inf")),
        "n": (
            "'-12345678901234567890.123456'::numeric(26, 6)",
            "decimal(26,6)",
            Decimal("-12345678901234567890.123456"),
        ),
        "n0": ("0::numeric(10, 4)", "decimal(10,4)", Decimal("0.0000")),
        "n38": ("repeat('9', 38)::numeric(38, 0)", "decimal(38,0)", Decimal("9" * 38)),
        "t": ("'Zoë \"年\" ' || chr(10) || '%s :date'", "string", 'Zoë "年" \n%s :date'),
        "e": ("''", "string", ""),
        "c": ("'x'::char(3)", "string", "x  "),
        "u": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "string", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        "j": ("'{\"a\": [1, null]}'::jsonb", "string", '{"a": [1, null]}'),
        "d": ("'0001-01-01'::date", "date", date(1, 1, 1)),
        "ts": ("'2013-03-10 02:30:00.123456'::timestamp", "timestamp_ntz", datetime(2013, 3, 10, 2, 30, 0, 123456)),
        "tz": ("'2013-03-10 01:30:00-05'::timestamptz", "timestamp", datetime(2013, 3, 10, 6, 30, tzinfo=UTC)),
        "y": ("'\\x00ff'::bytea", "binary", b"\x00\xff"),
        "a column.name": ("null::int", "int", None),
    }
    frame = query("SELECT " + ", ".join(f'{sql} AS "{name}"' for name, (sql, _, _) in values.items()))
    assert {f.name: f.dataType.simpleString() for f in frame.schema} == {n: t for n, (_, t, _) in values.items()}
    assert frame.toArrow().to_pylist() == [{name: value for name, (_, _, value) in values.items()}]


def test_the_day_is_bound_and_the_query_may_have_percent_signs(query: Run, context: StepContext) -> None:
    sql = """
        WITH days AS (SELECT generate_series('2013-03-09'::date, '2013-03-11'::date, '1 day')::date AS day)
        SELECT day, 7 % 4 AS rest, 'a:date%s' LIKE '%:date\\%s' AS fits FROM days WHERE day = :date -- not :date
    """
    assert query(sql).toArrow().to_pylist() == [{"day": date(2013, 3, 10), "rest": 3, "fits": True}]
    with pytest.raises(InputError, match="contains :date, which only a run of a pipeline has"):
        query(sql, context=replace(context, day=None))


@pytest.mark.usefixtures("way")
def test_a_result_without_rows_has_its_columns(query: Run) -> None:
    frame = query("SELECT 1 AS a, now() AS b WHERE false")
    assert (frame.columns, frame.count()) == (["a", "b"], 0)


@pytest.mark.usefixtures("way")
def test_nan_and_infinities_are_those_that_postgres_prints(query: Run, postgres: PostgresServer) -> None:
    values = "('NaN'::float8), ('-Infinity'), ('Infinity'), ('-0'), ('4.9e-324'), (NULL)"
    printed = postgres.execute(f"SELECT v::text FROM (VALUES {values}) AS t(v)")
    rows = query(f"SELECT v FROM (VALUES {values}) AS t(v)").toArrow().to_pylist()
    assert repr([row["v"] for row in rows]) == repr([text and float(text) for (text,) in printed])


def test_a_large_result_is_read_by_one_task_in_batches(
    query: Run, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "DRIVER_BYTES", 100_000)
    frame = query("SELECT n, repeat('x', 10) AS text FROM generate_series(1, 30000) n")
    assert "MapInArrow" in frame._jdf.queryExecution().toString()
    table = frame.toArrow()
    assert table["n"].to_pylist() == list(range(1, 30_001))
    assert postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slackwater'") == [(0,)]
    broken = query("SELECT 1 / (20000 - n) AS r, repeat('x', 10) AS text FROM generate_series(1, 30000) n")
    with pytest.raises(Exception, match="division") as raised:
        broken.collect()
    assert explain(raised.value)[0] == "InputError"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT sum(x) FROM (VALUES (1.5)) t(x)", "column sum is a numeric that may have more digits"),
        ("SELECT 1::numeric(50, 2) AS n", "column n is a numeric that may have more digits"),
        ("SELECT ARRAY[1] AS a", r'column a is of type .*: cast it, for example "a"::text'),
        ("SELECT interval '1 day' AS i", "column i is of type interval"),
        ('SELECT 1 AS a, 2 AS "A"', "more than one column is named A, a"),
        ("SELECT no_such_column FROM pg_class", 'column "no_such_column" does not exist'),
        (
            "SELECT set_config('transaction_read_only', 'off', false), nextval('s')",
            'relation "s" does not exist|read-only',
        ),
    ],
)
def test_a_result_that_spark_cannot_hold_is_refused(query: Run, sql: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        query(sql)


@pytest.mark.parametrize("value", ["'NaN'::numeric(10, 2)", "'infinity'::date", "'4000-01-01 BC'::date"])
def test_a_value_that_arrow_lacks_names_its_column(query: Run, value: str) -> None:
    with pytest.raises(InputError, match=r"postgresql://.*cast it in the query|date too"):
        query(f"SELECT {value} AS v")


def test_a_function_that_writes_is_refused_by_the_transaction(query: Run, postgres: PostgresServer) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS w",
        "CREATE TABLE w (a int)",
        "CREATE OR REPLACE FUNCTION sneak() RETURNS int AS 'INSERT INTO w VALUES (1) RETURNING a' LANGUAGE sql",
    )
    with pytest.raises(InputError, match="cannot execute INSERT in a read-only transaction"):
        query("SELECT sneak()")
    assert postgres.execute("SELECT * FROM w") == []


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "DELETE FROM t",
        "SELECT 1; SELECT 2",
        "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
        "SELECT * INTO u FROM t",
        "SELECT * FROM t FOR UPDATE",
        "COPY t TO PROGRAM 'id'",
        "EXPLAIN ANALYZE DELETE FROM t",
        "CALL p()",
        "SET ROLE admin",
        "SELECT FROM WHERE",
    ],
)
def test_only_one_select_is_accepted(sql: str) -> None:
    database = {"url": "postgresql://db.example/x", "credentials": "ssm:x"}
    for source in ({"postgres": database}, {"sqlite": {"path": "a.db", "fields": {"a": "string"}}}):
        with pytest.raises(ValidationError):
            ReadSql.model_validate({"query": sql, **source})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "postgresql://user:secret@host/db"}, "must not contain credentials"),
        ({"url": "mysql://host/db"}, "is not a URL such as"),
        ({"url": "postgresql://host"}, "is not a URL such as"),
        ({"url": "postgresql://host/db?password=hunter2"}, "a URL must not have options, which may contain a password"),
        ({"url": "postgresql:///db"}, "is not a URL such as"),
        ({"credentials": "secret"}, "secretsmanager:<name>"),
        ({"certificate_authority": "/etc/ssl/cert.pem"}, "not a path below"),
    ],
)
def test_wrong_parameters_of_a_connection(change: dict[str, str], message: str) -> None:
    database = {"url": "postgresql://host/db", "credentials": "ssm:x", **change}
    with pytest.raises(ValidationError, match=message) as raised:
        ReadSql.model_validate({"query": "SELECT 1", "postgres": database})
    said = str(raised.value.errors()[0]["msg"])
    assert "secret@" not in said
    assert "hunter2" not in said
    for databases in ({}, {"postgres": database, "sqlite": {}}):
        with pytest.raises(ValidationError):
            ReadSql.model_validate({"query": "SELECT 1", **databases})


def test_a_connection_passes_the_outbound_guard(query: Run, context: StepContext, postgres: PostgresServer) -> None:
    with pytest.raises(OutboundRefused, match=rf"127.0.0.1, loopback.*add 127.0.0.1:{postgres.port}"):
        query("SELECT 1", context=context)
    rebound = Outbound(resolve=lambda host, port: ["127.0.0.1"])
    with pytest.raises(OutboundRefused, match="loopback"):
        query("SELECT 1", context=replace(context, outbound=rebound), url="postgresql://db.example/postgres")
    named = Outbound.of([f"localhost:{postgres.port}"])
    frame = query(
        "SELECT 1 AS a", context=replace(context, outbound=named), url=postgres.url.replace("127.0.0.1", "localhost")
    )
    assert frame.count() == 1


def test_tls_is_required_unless_it_is_off_at_a_private_address(
    query: Run, context: StepContext, postgres: PostgresServer
) -> None:
    for tls in ("verify", "encrypt"):  # this server has no certificate
        with pytest.raises(Unavailable, match="server does not support SSL"):
            query("SELECT 1", tls=tls)
    public = Outbound(resolve=lambda host, port: ["93.184.215.14"])
    with pytest.raises(OutboundRefused, match=r"tls: off.*unencrypted"):
        query("SELECT 1", context=replace(context, outbound=public), url="postgresql://db.example/x")


def test_errors_of_a_connection_show_no_secret(query: Run, context: StepContext, postgres: PostgresServer) -> None:
    allowed = replace(context, outbound=postgres.outbound)
    wrong = FakeSecrets(Credentials(username="postgres", password=SecretStr("wrong-password")))
    with pytest.raises(Unavailable, match="password authentication failed") as raised:
        query("SELECT 1", context=replace(allowed, secrets=wrong))
    assert "wrong-password" not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    token = FakeSecrets(Credentials(token=SecretStr("t")))
    with pytest.raises(DefinitionError, match="needs a `username` and a `password`"):
        query("SELECT 1", context=replace(allowed, secrets=token))
    with pytest.raises(InputError, match="there are no secrets here"):
        query("SELECT 1", context=replace(allowed, secrets=None))


@pytest.fixture
def sqlite(context: StepContext, store: FolderStore, tmp_path: Path) -> Run:
    """Run the step with a query on an SQLite file, which the statements create."""

    def run(sql: str, *statements: str, fields: dict[str, Any], **parameters: Any) -> DataFrame:
        path = tmp_path / "a.db"
        if statements:
            path.unlink(missing_ok=True)
            with closing(sqlite3.connect(path)) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()
            store.put(f"{PREFIX}a.db", path.read_bytes())
        database = {"path": "a.db", "fields": fields, **parameters}
        return STEP.read(ReadSql.model_validate({"query": sql, "sqlite": database}), context)

    return run


def test_sqlite_values_get_the_declared_types(sqlite: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = [
        "CREATE TABLE t (id, day, seen, fare, late)",
        "INSERT INTO t VALUES (9007199254740993, '2013-03-10', 1362873600, 1.5, 'true')",
        "INSERT INTO t VALUES (2, '2013-03-10', NULL, 2, NULL)",
        "INSERT INTO t VALUES (3, '2013-03-11', NULL, NULL, NULL)",
    ]
    fields = {
        "n": {"type": "int64", "from": "id"},
        "seen": {"type": "timestamp", "formats": ["epoch_s"]},
        "fare": "double",
        "late": "boolean",
    }
    sql = "SELECT id, seen, fare, late FROM t WHERE day = :date AND day LIKE '%-10' ORDER BY id DESC"
    expected = [
        {"n": 9007199254740993, "seen": datetime(2013, 3, 10, tzinfo=UTC), "fare": 1.5, "late": True},
        {"n": 2, "seen": None, "fare": 2.0, "late": None},
    ]
    assert sqlite(sql, *statements, fields=fields).toArrow().to_pylist() == expected
    monkeypatch.setattr(exchange, "DRIVER_BYTES", 0)
    assert sqlite(sql, fields=fields).toArrow().to_pylist() == expected


def test_sqlite_is_read_only_and_reads_no_other_file(sqlite: Run, tmp_path: Path, store: FolderStore) -> None:
    setup = ["CREATE TABLE t (a)", "INSERT INTO t VALUES ('x')"]
    with pytest.raises(DataError, match=r"a.db: row 1: a: 'x' is not a whole number"):
        sqlite("SELECT a FROM t", *setup, fields={"a": "int64"})
    with pytest.raises(DefinitionError, match=r"the query has no column b \(it has: a\)"):
        sqlite("SELECT a FROM t", fields={"b": "string"})
    with pytest.raises(InputError, match="query: more than one column is named a: rename them with AS"):
        sqlite("SELECT a, 2 AS a FROM t", fields={"a": "string"})
    for sql in ("SELECT load_extension('x') AS a", "SELECT name AS a FROM pragma_table_info('t')", "SELECT a FROM u"):
        with pytest.raises(InputError, match=r"a.db: (not authorized|no such|prohibited|.*is prohibited)"):
            sqlite(sql, fields={"a": "string"})
    store.put(f"{PREFIX}more/1.db", b"")
    store.put(f"{PREFIX}more/2.db", b"")
    with pytest.raises(InputError, match=r"path: more/ names 2 files, and one is expected"):
        sqlite("SELECT a FROM t", fields={"a": "string"}, path="more/")
    store.put(f"{PREFIX}a.db", b"no database, but long enough to look like a file of one" * 10)
    with pytest.raises(InputError, match=r"a.db: file is not a database"):
        sqlite("SELECT a FROM t", fields={"a": "string"})


@contextmanager
def tls_in_front(port: int, folder: Path, name: str) -> Iterator[tuple[int, bytes]]:
    """Accept TLS and pass it on to a PostgreSQL; yield the port and the certificate, which is for the host `name`."""
    context, _ = tls_contexts(folder, name)
    pem = (folder / "server.pem").read_bytes()
    pem = pem[pem.index(b"-----BEGIN CERTIFICATE") :]

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                plain = listener.accept()[0]
                plain.recv(8)  # SSLRequest
                plain.sendall(b"S")
                with (
                    suppress(ssl.SSLError),
                    context.wrap_socket(plain, server_side=True) as client,
                    socket.create_connection(("127.0.0.1", port)) as server,
                ):
                    back = threading.Thread(target=copy, args=(server, client), daemon=True)
                    back.start()
                    copy(client, server)
                    back.join(10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], pem
        listener.shutdown(socket.SHUT_RDWR)


def test_the_certificate_is_verified_for_the_hosts_name(
    query: Run, context: StepContext, postgres: PostgresServer, store: FolderStore, tmp_path: Path
) -> None:
    with tls_in_front(postgres.port, tmp_path, "db.example") as (port, pem):
        store.put(f"{PREFIX}ca.pem", pem)
        guard = Outbound.of([f"127.0.0.1:{port}"], resolve=lambda host, port: ["127.0.0.1"])
        options = {"context": replace(context, outbound=guard), "url": f"postgresql://db.example:{port}/postgres"}
        assert query("SELECT 1 AS a", **options, tls="verify", certificate_authority="ca.pem").count() == 1
        assert query("SELECT 1 AS a", **options, tls="encrypt").count() == 1
        with pytest.raises(Unavailable, match="certificate verify failed"):
            query("SELECT 1 AS a", **options, tls="verify")
        other = {**options, "url": options["url"].replace("db.example", "other.example")}
        with pytest.raises(Unavailable, match="does not match host name"):
            query("SELECT 1 AS a", **other, tls="verify", certificate_authority="ca.pem")
