"""`select`, `delete_columns` and `filter`: which columns and rows remain."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from slackwater.errors import DefinitionError
from slackwater.spark.standalone import run_step
from slackwater.steps.spark_errors import explain
from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, described, refused

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = [(1, "a", 1.5, "2013-03-10"), (2, None, None, "2013-03-11"), (3, "ü", float("nan"), None)]


@pytest.fixture(scope="module")
def frame(spark):
    """Columns whose names need quotes."""
    return frame_of(spark, ROWS, "id bigint, `na.me ü` string, `back``tick` double, day string")


@pytest.mark.usefixtures("generated")
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
    frame = frame_of(spark, [(1, 2)], "a int, b int")
    assert applied("select", frame, rename={"a": "b", "b": "a"}).rows == [{"b": 1, "a": 2}]


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("value", "new_type", "shown"),
    [
        ("'x'", "int", '"x"'),
        ("'1.5'", "int", '"1.5"'),
        ("'1e400'", "double", '"1e400"'),
        ("'2013-02-30'", "date", '"2013-02-30"'),
        ("300", "tinyint", "300"),
        ("double('NaN')", "int", '"NaN"'),
        ("double('Infinity')", "decimal(5,2)", '"Infinity"'),
        ("double('1e300')", "float", "1.0E300"),
        ("123.45", "decimal(4,2)", '"123.45"'),
        ("X'FF'", "string", '"ff"'),
        ("TIMESTAMP'2013-03-10'", "int", None),
    ],
)
def test_a_value_that_does_not_fit_the_new_type_fails(spark, value, new_type, shown):
    """The error names the column and the value, and a null is no fault."""
    frame = spark.sql(f"SELECT * FROM VALUES ({value}), (NULL) AS t(`na.me`)")
    result, _ = described("select", frame, cast={"na.me": new_type}, rename={"na.me": "new"})
    if shown is None:
        assert [row["new"] for row in result.collect()] == [1362873600, None]
        return
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        result.collect()
    error_type, message = explain(caught.value)
    assert error_type == "DataError"
    assert message.startswith(f'select: cast.na.me: {{"na.me":{shown}}} does not fit {new_type}: correct or drop')


@pytest.mark.usefixtures("generated")
def test_casts_that_lose_digits_are_those_of_the_documentation(spark):
    cases = [
        ("1.25", "decimal(2,1)", Decimal("1.3")),
        ("-1.9D", "int", -1),
        ("9007199254740993", "double", 9007199254740992.0),
        ("16777217", "float", 16777216.0),
        ("'-Infinity'", "double", float("-inf")),
        ("double('Infinity')", "float", float("inf")),
        ("TIMESTAMP'2013-03-10 23:59:59.9'", "date", date(2013, 3, 10)),
        ("array(1.9D)", "array<int>", [1]),
        ("X'C3BC'", "string", "ü"),
    ]
    values = [value for value, _, _ in cases]
    names = ", ".join(f"`{value}`" for value in values)
    # Of a query without a table, Spark would evaluate the casts while it plans them.
    frame = spark.sql(f"SELECT * FROM VALUES ({', '.join(values)}) AS t({names})")
    result = applied("select", frame, cast={value: new_type for value, new_type, _ in cases})
    assert result.rows == [{value: expected for value, _, expected in cases}]


@pytest.mark.parametrize(
    ("step", "parameters"),
    [
        ("select", {"columns": ["a"]}),
        ("delete_columns", {"columns": ["s"]}),
        ("filter", {"where": "s = 'x'"}),
        ("clean_nan", {"strategy": "drop"}),
    ],
)
def test_columns_that_differ_in_case_are_refused(spark, step, parameters):
    frame = spark.sql("SELECT 1 AS a, 2 AS A, 'x' AS s")
    with pytest.raises(DefinitionError, match="rows has the columns a and A, which are one name to Spark: rename one"):
        run_step(step, {"rows": frame}, parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": ["id", "dya"]}, "columns.1: no column 'dya' in rows (did you mean day?)"),
        ({"rename": {"ID": "x"}}, "rename.ID: no column 'ID' in rows (did you mean id?)"),
        ({"rename": {"id": "DAY"}}, "rename: a column is named twice (day)"),
        ({"cast": {"id": "array<int>"}}, 'cast.id: Cannot resolve "id" due to data type mismatch'),
        ({"cast": {"id": "decimal(50,2)"}}, "cast.id: "),
    ],
)
def test_select_refuses_columns_that_do_not_fit(frame, parameters, message):
    assert refused("select", frame, **parameters).startswith(message)


def test_delete_columns(frame):
    result = applied("delete_columns", frame, columns=["na.me ü", "day"])
    assert result.table.column_names == ["id", "back`tick"]
    assert result.effect == {"deleted": ["na.me ü", "day"]}
    with pytest.raises(DefinitionError, match="columns: rows has no other columns"):
        described("delete_columns", frame, columns=frame.columns)


@pytest.mark.usefixtures("generated")
def test_filter_keeps_what_is_true(frame):
    result = applied("filter", frame, where="`na.me ü` = 'a' -- a comment")
    assert (result.column("id"), result.effect) == ([1], {"rows_dropped": 2, "condition_null": 1})
    assert result.table.column_names == frame.columns
    # An asterisk marks what is computed by generated code.
    plan = result.frame._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"\*\(\d+\) Filter ", plan), plan
    result = applied("filter", frame, where="isnan(`back``tick`) OR rows.id < 0")
    assert (result.column("id"), result.effect) == ([3], {"rows_dropped": 2, "condition_null": 0})
    result = applied("filter", frame, where="id > 100")
    assert (result.rows, result.effect) == ([], {"rows_dropped": 3, "condition_null": 0})


@pytest.mark.usefixtures("generated")
def test_filter_accepts_functions_of_a_row(spark):
    at = datetime(2013, 3, 10, 4, tzinfo=UTC)
    frame = frame_of(spark, [([1, 5], at), ([2], None)], "v array<int>, at timestamp")
    where = "exists(v, x -> x > 2) AND at < TIMESTAMP '2013-03-11' AND CASE WHEN size(v) > 0 THEN true END"
    assert applied("filter", frame, where=where).rows == [{"v": [1, 5], "at": at}]
    assert applied("filter", frame.where("false"), where=where).rows == []


def test_a_condition_may_be_one_column(spark):
    frame = frame_of(spark, [(True,), (False,), (None,)], "late boolean")
    result = applied("filter", frame, where="late")
    assert (result.rows, result.effect) == ([{"late": True}], {"rows_dropped": 2, "condition_null": 1})
    for where in ("true", "false"):
        assert len(applied("filter", frame, where=where).rows) == {"true": 3, "false": 0}[where]
    with pytest.raises(
        DefinitionError,
        match=r'^where: Cannot resolve "n" due to data type mismatch: Filter expression "n" of type "INT" is not a',
    ):
        described("filter", frame_of(spark, [(1,)], "n int"), where="n")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "id",
            'where: Cannot resolve "id" due to data type mismatch: Filter expression "id" of type "BIGINT" is not a',
        ),
        ("any(id > 1)", 'where: The WHERE condition "any((id > 1))" contains invalid expressions'),
        ("id = '${env:HOME}'", ""),
    ],
)
def test_spark_checks_the_condition_too(frame, where, message):
    if message:
        assert refused("filter", frame, where=where).startswith(message)
    else:
        text = frame.selectExpr("'x' AS id")
        assert applied("filter", text, where=where).rows == []
