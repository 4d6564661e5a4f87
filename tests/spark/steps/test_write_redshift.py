"""`write_table` to Redshift, with a real PostgreSQL in its place: its SQL is also PostgreSQL's, but for COPY.

COPY reads files in S3. Here, PostgreSQL reads the same files with `json_populate_record`, which casts strings as COPY
does.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql
from pydantic import ValidationError
from pyspark.sql import DataFrame

from slackwater.errors import DataError, InputError, Superseded
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io import redshift_table
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.redshift_table import replace_day
from slackwater.steps.load.write_table import STEP, WriteTable
from slackwater.steps.step import Effect, StepContext
from tests.fakes_spark import FolderStore
from tests.postgres import PASSWORD, SECRETS, PostgresServer
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import DAY, run_of
from tests.spark.steps.hours import check_hours

OTHER = date(2013, 3, 9)
OLD = [(OTHER, 1, "other"), (DAY, 1, "old"), (DAY, 2, "old")]
ROLE = "arn:aws:iam::123456789012:role/redshift-reads-files"
LOADS = "SELECT target, pipeline, day, attempt FROM shop.slackwater_loads"


@pytest.fixture(autouse=True)
def table(postgres: PostgresServer) -> None:
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.delays (date date, n int, s text, added text DEFAULT 'default')",
        *(f"INSERT INTO shop.delays VALUES ('{day}', {n}, '{s}')" for day, n, s in OLD),
    )


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, store: FolderStore) -> list[str]:
    """The statements of COPY, each of which PostgreSQL has executed in its own way."""
    statements: list[str] = []

    def copy(connection: Any, statement: sql.Composed) -> None:
        text = statement.as_string(connection)
        statements.append(text)
        found = re.fullmatch(r"COPY (\S+) \((.+?)\) FROM '(s3://\S+)' .*", text)
        assert found
        target, columns, manifest = found.groups()
        for entry in json.loads(store.get(manifest))["entries"]:
            assert entry["mandatory"]
            for line in gzip.decompress(store.get(entry["url"])).splitlines():
                record = f"json_populate_record(NULL::{target}, {sql.quote(line.decode())}::json)"
                connection.execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {record}")

    monkeypatch.setattr(redshift_table, "copy", copy)
    return statements


def parameters(postgres: PostgresServer, **changes: Any) -> WriteTable:
    url = postgres.url.replace("postgresql://", "redshift://")
    return WriteTable.model_validate({**postgres.parameters, "url": url, "table": "shop.delays", **changes})


@pytest.fixture
def write(context: StepContext, postgres: PostgresServer) -> Callable[..., Effect]:
    def run(frame: DataFrame, attempt: int = 1, **changes: Any) -> Effect:
        allowed = replace(context, outbound=postgres.outbound, run=run_of(attempt))
        return STEP.write(frame, parameters(postgres, **changes), allowed)

    return run


@pytest.fixture
def access(postgres: PostgresServer, files: ProjectFiles) -> Access:
    return Access(SECRETS, postgres.outbound, files)


def rows(postgres: PostgresServer) -> list[tuple[Any, ...]]:
    return postgres.execute("SELECT date, n, s FROM shop.delays ORDER BY date, n")


def test_the_day_is_replaced_and_no_staged_file_is_left(
    write: Callable[..., Effect],
    context: StepContext,
    postgres: PostgresServer,
    store: FolderStore,
    copied: list[str],
) -> None:
    frame = frame_of(context.spark, [(7, "new"), (8, None), (9, "")], "n int, s string")
    effect = write(frame, redshift={"role": ROLE})
    assert effect == {"table": "shop.delays", "rows_deleted": 2, "rows_inserted": 3}
    assert rows(postgres) == [OLD[0], (DAY, 7, "new"), (DAY, 8, None), (DAY, 9, "")]
    assert postgres.execute("SELECT DISTINCT added FROM shop.delays") == [("default",)]
    assert list(store.list("s3://bucket/files/")) == []
    (statement,) = copied
    assert re.fullmatch(
        r'COPY "shop"."delays" \("date", "n", "s"\) FROM \'s3://bucket/files/_loading/p/2013-03-10/1-\w+/manifest\' '
        rf"IAM_ROLE '{ROLE}' FORMAT JSON 'auto ignorecase' GZIP MANIFEST TIMEFORMAT 'auto' DATEFORMAT 'auto' "
        r"COMPUPDATE OFF",
        statement,
    )
    assert write(frame.where("n < 0"))["rows_deleted"] == 3
    assert rows(postgres) == OLD[:1]
    assert write(frame)["rows_inserted"] == 3
    assert " IAM_ROLE default " in copied[-1]


@pytest.mark.usefixtures("copied")
def test_all_types_arrive_unchanged(
    write: Callable[..., Effect], context: StepContext, postgres: PostgresServer
) -> None:
    postgres.execute(
        "CREATE TABLE shop.types (date date, i int2, l int8, f float8, d numeric(38, 4), b boolean, s text, x date, "
        "t timestamptz, ntz timestamp, y text, j jsonb)"
    )
    text = 'Zoë, "年"\n\\. \\N \' % {} \U0001f680'
    frame = context.spark.sql(
        """
        SELECT *, binary(s) AS y, struct(l, array(s) AS list) AS j FROM VALUES
          (1S, 9007199254740993L, 0.1D, CAST('1234567890123456789012345678901234.1200' AS DECIMAL(38, 4)), true,
           'Zoë, "年"\n\\\\. \\\\N \\' % {} \U0001f680',
           DATE'2013-03-10', TIMESTAMP'2013-03-10 01:02:03.123456Z', TIMESTAMP_NTZ'2013-03-10 02:30:00'),
          (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
          (-32768S, -9223372036854775807L, double('-Infinity'), -0.5, false, '', DATE'9999-12-31',
           TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'0001-01-01 00:00:00')
        AS t(i, l, f, d, b, s, x, t, ntz)
        """
    )
    assert write(frame, table="shop.types")["rows_inserted"] == 3
    stored = postgres.execute(
        "SELECT i, l, f::text, d, b, s, x::text, t AT TIME ZONE 'UTC', ntz, y, j FROM shop.types ORDER BY i"
    )
    assert stored == [
        (-32768, -(2**63) + 1, "-Infinity", Decimal("-0.5000"), False, "", "9999-12-31",
         datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), "", {"l": -(2**63) + 1, "list": [""]}),
        (1, 9007199254740993, "0.1", Decimal("1234567890123456789012345678901234.1200"), True, text, "2013-03-10",
         datetime(2013, 3, 10, 1, 2, 3, 123456), datetime(2013, 3, 10, 2, 30), text.encode().hex().upper(),
         {"l": 9007199254740993, "list": [text]}),
        (None,) * 10 + ({"l": None, "list": [None]},),
    ]  # fmt: skip


SCHEMA = pa.schema([("date", pa.date32()), ("n", pa.int32()), ("s", pa.string())])


def batches(*values: tuple[int, str], day: date = DAY) -> Iterator[pa.RecordBatch]:
    lines = [json.dumps({"date": str(day), "n": str(n), "s": s}) for n, s in values]
    yield pa.RecordBatch.from_pydict({"date": [day] * len(lines), "line": lines})


def load(postgres: PostgresServer, access: Access, attempt: int, rows: Iterator[pa.RecordBatch] | None = None) -> Any:
    rows = rows or batches((attempt, f"attempt {attempt}"))
    return replace_day(rows, SCHEMA, parameters(postgres), access, run_of(attempt))


@pytest.mark.usefixtures("copied")
def test_an_earlier_attempt_changes_nothing_after_a_later_one(postgres: PostgresServer, access: Access) -> None:
    load(postgres, access, 3)
    load(postgres, access, 3)
    with pytest.raises(Superseded, match=r"attempt 3 has loaded 2013-03-10 .* this is attempt 2") as refused:
        load(postgres, access, 2)
    assert rows(postgres) == [OLD[0], (DAY, 3, "attempt 3")]
    assert postgres.execute(LOADS) == [("delays", "p", DAY, 3)]
    statement = re.search(r"execute (DELETE .*), and run the day again", str(refused.value))
    assert statement
    postgres.execute(statement[1])
    load(postgres, access, 1)
    assert postgres.execute(LOADS) == [("delays", "p", DAY, 1)]


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_of_two_attempts_at_the_same_time_the_later_one_remains(
    postgres: PostgresServer, access: Access, monkeypatch: pytest.MonkeyPatch, first: int, second: int
) -> None:
    holds, goes_on = threading.Event(), threading.Event()
    copy = redshift_table.copy

    def slow(connection: Any, statement: sql.Composed) -> None:
        if f"/{first}-" in statement.as_string(connection):
            holds.set()
            assert goes_on.wait(10)
        copy(connection, statement)

    monkeypatch.setattr(redshift_table, "copy", slow)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(load, postgres, access, first)
        assert holds.wait(10)
        other = threads.submit(load, postgres, access, second)
        while postgres.execute("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(1,)]:
            assert not one.done()
            assert not other.done()
        goes_on.set()
        assert one.result(10) == (2, 1)
        assert (type(other.exception(10)) is Superseded) == (second < first)
    assert rows(postgres) == [OLD[0], (DAY, 3, "attempt 3")]


def test_a_failure_leaves_the_old_day_and_records_no_attempt(
    postgres: PostgresServer, access: Access, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "new"))
        raise ZeroDivisionError

    monkeypatch.setattr(redshift_table, "copy", lambda _connection, _statement: None)
    for rows_to_load, expected in (
        (broken(), ZeroDivisionError),
        (batches((1, "x"), day=OTHER), DataError),
        (batches((1, "COPY that loads nothing")), DataError),
    ):
        with pytest.raises(expected):
            load(postgres, access, 3, rows_to_load)
        assert rows(postgres) == OLD
    assert postgres.execute(LOADS) == []
    assert list(store.list("s3://bucket/files/")) == []


@pytest.mark.usefixtures("copied")
def test_what_a_killed_job_has_staged_is_deleted_after_a_day(
    postgres: PostgresServer, access: Access, store: FolderStore
) -> None:
    folder = "s3://bucket/files/_loading/p"
    for path in ("2013-03-10/1-dead/00000.json.gz", "2013-03-10/2-lives/x", "2013-03-09/1-other/x"):
        store.put(f"{folder}/{path}", b"")
        if "lives" not in path:
            os.utime(store.path(f"{folder}/{path}"), (0, 0))
    load(postgres, access, 2)
    left = [item.uri.removeprefix(folder) for item in store.list(folder)]
    assert left == ["/2013-03-09/1-other/x", "/2013-03-10/2-lives/x"]


@pytest.mark.usefixtures("copied")
def test_a_user_that_may_not_create_the_table_gets_the_statements_for_the_owner(
    postgres: PostgresServer, access: Access
) -> None:
    postgres.execute(
        "DROP ROLE IF EXISTS loader",
        f"CREATE ROLE loader LOGIN PASSWORD '{PASSWORD}'",
        "GRANT USAGE ON SCHEMA shop TO loader",
        "GRANT SELECT, INSERT, DELETE ON shop.delays TO loader",
    )
    credentials = SECRETS.credentials.model_copy(update={"username": "loader"})
    limited = replace(access, secrets=replace(SECRETS, credentials=credentials))
    try:
        with pytest.raises(
            InputError, match=r'the user "loader" may not create or write "shop"."slackwater_loads"'
        ) as no:
            load(postgres, limited, 1)
        assert rows(postgres) == OLD
        postgres.execute(str(no.value).partition("execute: ")[2])
        load(postgres, limited, 1)
        assert rows(postgres) == [OLD[0], (DAY, 1, "attempt 1")]
    finally:
        postgres.execute("DROP SCHEMA shop CASCADE", "DROP ROLE loader")


@pytest.mark.usefixtures("copied")
def test_a_large_day_is_several_files(
    postgres: PostgresServer, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redshift_table, "_FILE_BYTES", 1_000)
    stored: list[str] = []
    put = FolderStore.put
    monkeypatch.setattr(FolderStore, "put", lambda self, uri, *a, **n: (stored.append(uri), put(self, uri, *a, **n))[1])
    batch = [b for n in range(5) for b in batches(*((100 * n + i, "x") for i in range(100)))]
    assert load(postgres, access, 1, iter(batch)) == (2, 500)
    assert [uri.rpartition("/")[2] for uri in stored] == [*(f"{n:05}.json.gz" for n in range(5)), "manifest"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"snowflake": {"role": "x"}}, "snowflake: the database is Redshift: remove it"),
        ({"redshift": {"role": "reader"}}, "redshift.role"),
        ({"url": "postgresql://db.example/x", "redshift": {"role": ROLE}}, "redshift: the database is PostgreSQL"),
        ({"url": "mysql://db.example/x"}, "is not a URL such as .*; other schemes are redshift, snowflake"),
        ({"table": "a" * 128}, "is not a name of Redshift, which has 1 to 127 bytes"),
    ],
)
def test_parameters_that_do_not_fit_the_database(
    postgres: PostgresServer, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        parameters(postgres, **changes)
    assert re.search(message, str(refused.value).replace("\n", " "))


def test_an_hour_replaces_its_rows_and_no_others_and_has_attempts_of_its_own(
    copied: list[str], context: StepContext, postgres: PostgresServer
) -> None:
    def write(frame: DataFrame, of_hour: StepContext, hour: str | None) -> Effect:
        return STEP.write(frame, parameters(postgres, hour=hour), replace(of_hour, outbound=postgres.outbound))

    check_hours(context, write, postgres.execute, table="shop.delays", name="shop.delays", number="smallint")
