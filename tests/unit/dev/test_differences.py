"""Expected and actual rows: which are equal, how differences are listed, and how reports show them."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.dev.testing.differences import compare_rows
from slackwater.dev.testing.report import junit_xml, lines_of, more_rows, rows_of, summary
from slackwater.dev.testing.runner import PipelineTestResult
from slackwater.dev.testing.values import WrongType, are_equal, read_actual, read_expected
from slackwater.problems import Problems

pytestmark = pytest.mark.unit

INSTANT, CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.float64())])
NOON = datetime(2024, 3, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "data_type", "actual"),
    [
        (1, pa.int64(), 1),
        (None, pa.int64(), None),
        (None, pa.null(), None),
        (True, pa.bool_(), True),
        (1, pa.float64(), 1.0),
        (0.3, pa.float64(), 0.1 + 0.2),
        (math.nan, pa.float64(), math.nan),
        (math.inf, pa.float64(), math.inf),
        (0, pa.float64(), -0.0),
        (0.1, pa.float32(), pa.scalar(0.1, pa.float32()).as_py()),
        ("12.5", pa.decimal128(10, 2), Decimal("12.50")),
        (12.1, pa.decimal128(10, 2), Decimal("12.10")),
        ("zoë", pa.string(), "zoë"),
        ("2024-03-04T13:00:00+01:00", INSTANT, NOON),
        ("2024-03-04T12:00:00Z", INSTANT, NOON),
        ("2024-03-04 12:00:00", CLOCK, NOON.replace(tzinfo=None)),
        ("2024-03-04", pa.date32(), date(2024, 3, 4)),
        ("00ff", pa.binary(), b"\x00\xff"),
        ([1, None, 0.3], pa.list_(pa.float64()), [1.0, None, 0.1 + 0.2]),
        ({"b": 0.3}, STRUCT, {"a": None, "b": 0.1 + 0.2}),
        ({"x": 1}, pa.map_(pa.string(), pa.int64()), [("x", 1)]),
    ],
)
def test_equal_values(written, data_type, actual):
    assert are_equal(read_expected(written, data_type), read_actual(actual, data_type))


@pytest.mark.parametrize(
    ("written", "data_type", "actual"),
    [
        (1, pa.int64(), None),
        (None, pa.float64(), 0.0),
        (1.000001, pa.float64(), 1.0),
        (0, pa.float64(), 1e-300),
        ("12.50", pa.decimal128(20, 10), Decimal("12.5000000001")),
        ("2024-03-04T12:00:00+01:00", INSTANT, NOON),
        ([1], pa.list_(pa.int64()), [1, 1]),
        ({"a": 1}, STRUCT, {"a": 1, "b": 0.0}),
    ],
)
def test_different_values(written, data_type, actual):
    assert not are_equal(read_expected(written, data_type), read_actual(actual, data_type))


@pytest.mark.parametrize(
    ("written", "data_type", "expected"),
    [
        (True, pa.int64(), "an integer"),
        ("1", pa.float64(), "a number"),
        (1, pa.string(), "a string: write it in quotes"),
        ("x", pa.decimal128(10, 2), "a decimal number"),
        ("2024-03-04T12:00:00", INSTANT, "a timestamp with an offset, such as 2024-03-04T09:12:00+01:00"),
        ("2024-03-04T12:00:00Z", CLOCK, "a timestamp without an offset, such as 2024-03-04T09:12:00"),
        (20240304, pa.date32(), "a date, such as 2024-03-04"),
        (1, pa.null(), "null: the column has no value in any row"),
        ({"c": 1}, STRUCT, "a mapping of a, b"),
        ("1 day", pa.duration("us"), "nothing: duration[us] cannot be compared: leave the column out"),
    ],
)
def test_values_that_do_not_fit_their_column(written, data_type, expected):
    with pytest.raises(WrongType, match=re.escape(expected)):
        read_expected(written, data_type)


def compared(expected, actual, **columns):
    table = pa.table(columns or {"name": [row[0] for row in actual], "size": [row[1] for row in actual]})
    rows = [dict(zip(table.column_names, row, strict=True)) for row in expected]
    return compare_rows("step", rows, table, list(range(1, 1 + len(rows))))


def test_rows_are_matched_in_any_order_with_tolerance_and_as_often_as_they_occur():
    assert compared([("a", 0.3), ("b", 1.0), ("a", 0.3)], [("a", 0.1 + 0.2), ("a", 0.3), ("b", 1.0)]) is None
    difference = compared([("a", 1), ("a", 1)], [("a", 1), ("b", 1), ("b", 1)])
    assert (difference.missing, difference.unexpected) == (1, 2)


def test_no_expected_rows_compare_all_columns():
    assert compared([], [], name=pa.array([], pa.string())) is None
    assert compared([], [("a", 1)]).columns == ("name", "size")


def test_columns_that_the_step_lacks_or_has_twice_are_problems():
    with pytest.raises(Problems, match=r"0\.sise: the step has no such column \(did you mean size\?\)"):
        compare_rows("step", [{"sise": 1}], pa.table({"size": [1]}), [1])
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["size", "size"])
    with pytest.raises(Problems, match=r"0\.size: the step has 2 columns of this name"):
        compare_rows("step", [{"size": 1}], twice, [1])
    assert compare_rows("step", [], twice, []).rows[0].values == (1, 2)


def test_of_many_differences_some_are_listed():
    difference = compared([(f"e{number}", 1) for number in range(30)], [(f"a{number}", 2) for number in range(40)])
    assert (difference.missing, difference.unexpected, len(difference.rows)) == (30, 40, 20)
    assert more_rows(difference) == "... and 50 more rows"


def result(**values):
    return PipelineTestResult(name="one", file=Path("tests/one.yaml"), seconds=1.25, **values)


def test_values_are_shown_with_all_their_digits():
    columns = {
        "text": ["", "null", "a\tb"],
        "number": [1.0000000001, None, 2.0],
        "at": pa.array([NOON, None, None], INSTANT),
        "list": [[1, None], None, None],
    }
    assert rows_of(compared([], [], **columns)) == (
        ["", "line", "text", "number", "at", "list"],
        [
            ["actual", "", '""', "1.0000000001", "2024-03-04T12:00:00Z", "[1, null]"],
            ["actual", "", '"null"', "null", "null", "null"],
            ["actual", "", "a\tb", "2.0", "null", "null"],
        ],
    )


def test_junit_xml_has_one_case_for_each_test_and_no_invalid_character():
    difference = compared([("a\x00\ufffe", 1)], [("b", 1)])
    failed = result(differences=(difference,), errors=("step: broken\nhere",), notes=("orders: 1 row",))
    content = junit_xml([result(), failed], now=NOON)
    root = ET.fromstring(content)  # noqa: S314 - our own
    assert root.tag == "testsuites"
    (suite,) = root
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {"tests": "2", "failures": "1", "errors": "0", "skipped": "0", "time": "2.500"}
    assert suite.get("timestamp") == "2024-03-04T12:00:00+00:00"
    passing, failing = suite
    assert (passing.attrib, len(passing)) == (
        {"classname": "tests", "name": "one", "file": "tests/one.yaml", "time": "1.250"},
        0,
    )
    failure = failing[0]
    assert failure.get("message") == "step: 1 of 1 expected row is missing, 1 of 1 actual row is unexpected"
    assert failure.text.splitlines() == [
        failure.get("message"),
        "          line  name    size",
        "expected  1     a\\x00\\ufffe  1",
        "actual          b       1",
        "step: broken\\nhere",
        "orders: 1 row",
    ]
    assert summary([result(), failed]) == "1 passed, 1 failed"
    assert lines_of(failed) == ["step: broken\nhere", "orders: 1 row"]
