"""`write_table` to Snowflake, with `fakesnow` in its place.

What fakesnow lacks is compared as text: the statement that loads nested columns, and the file in which an empty string
is in quotes and a null is not. fakesnow reads both as null.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyspark.sql import DataFrame

from slackwater.errors import DataError, InputError, Superseded
from slackwater.steps.io import snowflake_table
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.snowflake_table import copy_statement, identifier, replace_day
from slackwater.steps.load.write_table import STEP
from slackwater.steps.step import Effect, StepContext
from tests.fakes_snowflake import OLD, OTHER, OUTBOUND, PASSWORD, SCHEMA, Snowflake, batch, fake_snowflake, parameters
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import DAY, run_of
from tests.spark.steps.hours import check_hours

# fakesnow calls a method of DuckDB that warns.
pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result:UserWarning")


@pytest.fixture
def snowflake() -> Iterator[Snowflake]:
    with fake_snowflake() as fake:
        yield fake


@pytest.fixture
def write(context: StepContext) -> Callable[..., Effect]:
    def run(frame: DataFrame, **changes: Any) -> Effect:
        return STEP.write(frame, parameters(**changes), replace(context, outbound=OUTBOUND, secrets=PASSWORD))

    return run


def load(attempt: int, batches: Iterator[pa.RecordBatch] | None = None) -> tuple[int, int]:
    batches = batches or iter([batch((attempt, f"attempt {attempt}"))])
    return replace_day(batches, SCHEMA, parameters(), Access(PASSWORD, OUTBOUND, None), run_of(attempt))


def test_the_day_is_replaced_also_by_a_repeated_call_and_by_no_rows(
    write: Callable[..., Effect], context: StepContext, snowflake: Snowflake
) -> None:
    frame = frame_of(context.spark, [(7, "new"), (8, None), (9, " ")], "n int, s string")
    assert write(frame) == {"table": "shop.delays", "rows_deleted": 2, "rows_inserted": 3}
    assert snowflake.rows() == [OLD[0], (DAY, 7, "new"), (DAY, 8, None), (DAY, 9, " ")]
    assert snowflake.execute("SELECT DISTINCT added FROM delays") == [("default",)]
    assert write(frame.where("n = 7")) == {"table": "shop.delays", "rows_deleted": 3, "rows_inserted": 1}
    assert snowflake.rows() == [OLD[0], (DAY, 7, "new")]
    assert write(frame.where("n < 0"))["rows_deleted"] == 1
    assert snowflake.rows() == OLD[:1]


def test_values_arrive_unchanged(write: Callable[..., Effect], context: StepContext, snowflake: Snowflake) -> None:
    snowflake.execute(
        "CREATE TABLE types (date date, i number(38, 0), f float, d number(38, 4), b boolean, s varchar, x date, "
        "t timestamp_tz, ntz timestamp_ntz, y varchar)"
    )
    frame = context.spark.sql(r"""
        SELECT *, binary(s) AS y FROM VALUES
          (9007199254740993L, 0.1D, CAST('1234567890123456789012345678901234.1200' AS DECIMAL(38, 4)), true,
           'Zoë, "年"\n\\N \\', DATE'2013-03-10', TIMESTAMP'2013-03-10 01:02:03.123456Z',
           TIMESTAMP_NTZ'2013-03-10 02:30:00'),
          (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
          (-9223372036854775807L, -1e300D, -0.5, false, '.', DATE'9999-12-31',
           TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'0001-01-01 00:00:00')
        AS t(i, f, d, b, s, x, t, ntz)
    """)
    assert write(frame, table="shop.types")["rows_inserted"] == 3
    text = 'Zoë, "年"\n\\N \\'
    stored = snowflake.execute("SELECT i, f, d, b, s, x, t, ntz, y FROM types ORDER BY i")
    assert stored == [
        (-(2**63) + 1, -1e300, Decimal("-0.5000"), False, ".", date(9999, 12, 31),
         datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1, 1, 1), "2E"),
        (9007199254740993, 0.1, Decimal("1234567890123456789012345678901234.1200"), True, text, DAY,
         datetime(2013, 3, 10, 1, 2, 3, 123456, UTC), datetime(2013, 3, 10, 2, 30), text.encode().hex().upper()),
        (None,) * 9,
    ]  # fmt: skip


def test_nested_columns_are_parsed_when_they_are_loaded() -> None:
    schema = pa.schema([("date", pa.date32()), ("my items", pa.list_(pa.int32()))])
    assert copy_statement('"SHOP"."T"', '"SHOP".STAGE', schema) == (
        'COPY INTO "SHOP"."T" ("DATE", "my items") FROM (SELECT $1, PARSE_JSON($2) FROM @"SHOP".STAGE) FILE_FORMAT = '
        "(TYPE = CSV COMPRESSION = GZIP FIELD_OPTIONALLY_ENCLOSED_BY = '\"' ESCAPE_UNENCLOSED_FIELD = NONE "
        "NULL_IF = () EMPTY_FIELD_AS_NULL = TRUE)"
    )


def test_an_empty_string_is_in_quotes_and_a_null_is_nothing() -> None:
    rows = pa.record_batch({"date": [DAY, DAY], "n": [1, None], "s": ["", None], "t": ['a,"b"\n', "\\N"]})
    ((content, count),) = snowflake_table._contents(iter([rows]), {"date": DAY})
    assert gzip.decompress(content).decode() == '2013-03-10,1,"","a,""b""\n"\n2013-03-10,,,"\\N"\n'
    assert count == 2


@pytest.mark.parametrize(
    ("name", "expected"), [("delays", '"DELAYS"'), ("a b", '"a b"'), ('x"y', '"x""y"'), ("order", '"ORDER"')]
)
def test_names_are_those_of_snowflakes_sql(name: str, expected: str) -> None:
    assert identifier(name) == expected


def test_an_earlier_attempt_changes_nothing_after_a_later_one(snowflake: Snowflake) -> None:
    assert load(3) == (2, 1)
    assert load(3) == (1, 1)
    with pytest.raises(Superseded, match=r"attempt 3 has loaded 2013-03-10 .* this is attempt 2") as refused:
        load(2)
    assert snowflake.rows() == [OLD[0], (DAY, 3, "attempt 3")]
    loads = "SELECT target, pipeline, day, attempt FROM slackwater_loads"
    assert snowflake.execute(loads) == [("delays", "p", DAY, 3)]
    statement = re.search(r"execute (DELETE .*), and run the day again", str(refused.value))
    assert statement
    snowflake.execute(statement[1])
    load(1)
    assert snowflake.execute(loads) == [("delays", "p", DAY, 1)]


def test_no_statement_in_the_transaction_ends_it(snowflake: Snowflake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement of DDL would commit."""
    statements: list[str] = []
    cursor = type(snowflake._cursor)
    execute = cursor.execute
    monkeypatch.setattr(
        cursor, "execute", lambda self, text, *a, **n: (statements.append(text), execute(self, text, *a, **n))[1]
    )
    load(1)
    began, ended = statements.index("BEGIN"), statements.index("COMMIT")
    before = [statement.split()[0] for statement in statements[:began]]
    assert before == ["CREATE", "INSERT", "CREATE", "PUT"]
    inside = [statement.split()[0] for statement in statements[began + 1 : ended]]
    assert inside == ["UPDATE", "SELECT", "DELETE", "COPY", "SELECT"]


def test_a_failure_leaves_the_old_day_and_records_no_attempt(
    snowflake: Snowflake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch((1, "new"))
        raise ZeroDivisionError

    for batches, expected in (
        (broken(), ZeroDivisionError),
        (iter([batch((1, "new"), day=OTHER)]), DataError),
        (iter([pa.record_batch({"date": [DAY], "n": ["x"], "s": ["no number"]})]), InputError),
    ):
        with pytest.raises(expected):
            load(3, batches)
        assert snowflake.rows() == OLD
    monkeypatch.setattr(snowflake_table, "copy_statement", lambda *_: "SELECT 1")
    with pytest.raises(DataError, match="has loaded 0 of 1 rows: nothing was changed"):
        load(3)
    assert snowflake.rows() == OLD
    assert snowflake.execute("SELECT max(attempt) FROM slackwater_loads") == [(0,)]


def test_a_large_day_is_several_files(snowflake: Snowflake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snowflake_table, "_FILE_BYTES", 1_000)
    batches = (batch(*((100 * n + i, "x") for i in range(100))) for n in range(5))
    assert load(1, batches) == (2, 500)
    assert snowflake.execute("SELECT count(DISTINCT n) FROM delays WHERE s = 'x'") == [(500,)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tls": "off"}, "tls: connections to Snowflake are always verified: remove it"),
        ({"redshift": {"role": "arn:aws:iam::123456789012:role/x"}}, "redshift: the database is Snowflake: remove it"),
    ],
)
def test_parameters_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parameters(**changes)


def test_an_hour_replaces_its_rows_and_no_others_and_has_attempts_of_its_own(
    context: StepContext, snowflake: Snowflake
) -> None:
    def write(frame: DataFrame, of_hour: StepContext, hour: str | None) -> Effect:
        return STEP.write(frame, parameters(hour=hour), replace(of_hour, outbound=OUTBOUND, secrets=PASSWORD))

    check_hours(context, write, snowflake.execute, table="delays", name="shop.delays", number="int")
