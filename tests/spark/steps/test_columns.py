"""`select`, `delete_columns` and `filter`: which columns and rows remain."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from slackwater.errors import DefinitionError
from tests.spark.steps.applied import applied, described

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

ROWS = [(1, "a", 1.5, "2013-03-10"), (2, None, None, "2013-03-11"), (3, "ü", float("nan"), None)]


@pytest.fixture(scope="module")
def frame(spark):
    """Columns whose names need quotes."""
    return spark.createDataFrame(ROWS, "id bigint, `na.me ü` string, `back``tick` double, day string")


def test_select_orders_renames_and_casts(frame):
    result = applied(
        "select",
        frame,
        columns=["day", "back`tick", "id"],
        rename={"back`tick": "zahl ß", "day": "Day"},
        cast={"id": "decimal(5,2)", "day": "date"},
    )
    assert result.table.column_names == ["Day", "zahl ß", "id"]
    assert result.column("Day") == [date(2013, 3, 10), date(2013, 3, 11), None]
    assert result.column("id") == [Decimal("1.00"), Decimal("2.00"), Decimal("3.00")]
    assert [repr(value) for value in result.column("zahl ß")] == ["1.5", "None", "nan"]
    assert result.effect == {}


def test_select_without_columns_keeps_all_of_them(frame):
    assert applied("select", frame, rename={"id": "ID"}).table.column_names == ["ID", "na.me ü", "back`tick", "day"]


def test_two_columns_may_swap_their_names(spark):
    frame = spark.createDataFrame([(1, 2)], "a int, b int")
    assert applied("select", frame, rename={"a": "b", "b": "a"}).rows == [{"b": 1, "a": 2}]


def test_a_value_that_does_not_fit_the_new_type_fails(frame):
    result, _ = described("select", frame, columns=["na.me ü"], cast={"na.me ü": "int"})
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        result.collect()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": ["id", "dya"]}, "columns: rows has no column dya (did you mean day? it has: id, na.me ü, "),
        ({"rename": {"ID": "x"}}, "rename: rows has no column ID (did you mean id?"),
        ({"cast": {"x": "int"}}, "cast: rows has no column x"),
        ({"rename": {"id": "DAY"}}, "rename: a column is named twice (day)"),
        ({"columns": ["id", "id"]}, "columns: a column is named twice (id)"),
        ({"cast": {"id": "array<int>"}}, "cast.id: [DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION]"),
        ({"cast": {"id": "decimal(50,2)"}}, "cast.id: "),
    ],
)
def test_select_refuses_columns_that_do_not_fit(frame, parameters, message):
    with pytest.raises(DefinitionError) as caught:
        described("select", frame, **parameters)
    assert str(caught.value).startswith(message)


def test_delete_columns(frame):
    result = applied("delete_columns", frame, columns=["na.me ü", "day"])
    assert result.table.column_names == ["id", "back`tick"]
    assert result.effect == {"deleted": ["na.me ü", "day"]}
    for columns, message in (
        (["nope"], "columns: rows has no column nope"),
        (frame.columns, "columns: rows has no other columns"),
    ):
        with pytest.raises(DefinitionError, match=message):
            described("delete_columns", frame, columns=columns)


def test_filter_keeps_what_is_true(frame):
    result = applied("filter", frame, where="`na.me ü` = 'a' -- a comment")
    assert (result.column("id"), result.effect) == ([1], {"rows_dropped": 2, "condition_null": 1})
    assert result.table.column_names == frame.columns
    result = applied("filter", frame, where="isnan(`back``tick`) OR rows.id < 0")
    assert (result.column("id"), result.effect) == ([3], {"rows_dropped": 2, "condition_null": 0})
    result = applied("filter", frame, where="id > 100")
    assert (result.rows, result.effect) == ([], {"rows_dropped": 3, "condition_null": 0})


def test_filter_accepts_functions_of_a_row(spark):
    at = datetime(2013, 3, 10, 4, tzinfo=UTC)
    frame = spark.createDataFrame([([1, 5], at), ([2], None)], "v array<int>, at timestamp")
    where = "exists(v, x -> x > 2) AND at < TIMESTAMP '2013-03-11' AND CASE WHEN size(v) > 0 THEN true END"
    assert applied("filter", frame, where=where).rows == [{"v": [1, 5], "at": at}]
    assert applied("filter", frame.where("false"), where=where).rows == []


def test_a_condition_may_be_one_column(spark):
    frame = spark.createDataFrame([(True,), (False,), (None,)], "late boolean")
    result = applied("filter", frame, where="late")
    assert (result.rows, result.effect) == ([{"late": True}], {"rows_dropped": 2, "condition_null": 1})
    for where in ("true", "false"):
        assert len(applied("filter", frame, where=where).rows) == {"true": 3, "false": 0}[where]
    with pytest.raises(DefinitionError, match=r"where: .*FILTER_NOT_BOOLEAN"):
        described("filter", spark.createDataFrame([(1,)], "n int"), where="n")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing > 1", "where: [UNRESOLVED_COLUMN"),
        ("id + 1", "where: [DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]"),
        ("any(id > 1)", "where: [INVALID_WHERE_CONDITION]"),
        ("id = '${env:HOME}'", ""),
    ],
)
def test_spark_checks_the_condition_too(frame, where, message):
    if message:
        with pytest.raises(DefinitionError) as caught:
            described("filter", frame, where=where)
        assert str(caught.value).startswith(message)
    else:
        text = frame.selectExpr("'x' AS id")
        assert applied("filter", text, where=where).rows == []
