"""`slackwater test`: rows of fixture files pass sources and steps as in a run, and differences are found."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.cli.main import run as run_command
from slackwater.dev.context import loop_context
from slackwater.dev.testing.read_tests import read_tests
from slackwater.dev.testing.runner import run_test
from tests.step_package import installed_package

SOURCE = """
source: orders
timestamp: {field: at, timezone: America/New_York}
event_id: id
fields:
  id: {type: string, required: true}
  shop: string
  amount: {type: double, from: total, decimal: ","}
  count: int64
  paid: boolean
  at: {type: timestamp, formats: ["%Y-%m-%d %H:%M:%S", iso8601]}
  due: date
enrich:
  place: {of: shop, values: {berlin: Berlin}, default: elsewhere}
pull: {url: s3://files/, files: "orders-{date}.csv"}
"""
# What the tests read: one row with a value of each type, and totals.
PIPELINE = """
pipeline: daily
timezone: America/New_York
sources: [orders]
steps:
  rows:
    step: sql
    depends_on: [orders]
    with:
      query: |
        SELECT id, shop, place, amount, count, paid, at, due, CAST(amount AS decimal(10, 2)) AS price,
          array(amount, null) AS list, named_struct('shop', shop, 'amount', amount) AS pair, map(id, count) AS counts,
          encode(id, 'utf-8') AS bytes, CAST(at AS timestamp_ntz) AS clock, float(amount) AS small
        FROM orders
  totals:
    step: sql
    depends_on: [rows]
    with: {query: "SELECT count(*) AS orders, sum(amount) AS revenue FROM rows"}
publish: {step: totals, key: [date]}
load:
  file: {step: write_csv, depends_on: [totals], with: {path: out.csv}}
"""
IN_PYTHON = (
    PIPELINE.partition("  rows:")[0]
    + "  rows: {step: in_celsius, depends_on: [orders], with: {column: amount}}\n  totals:"
    + PIPELINE.partition("  totals:")[2]
)
WEEK = """
pipeline: weekly
tables:
  days: {table: daily, days: [-1, 0]}
steps:
  week: {step: sql, depends_on: [days], with: {query: "SELECT max(date) AS last, sum(orders) AS orders FROM days"}}
publish: {step: week, key: [date, last]}
"""
ORDER = '{id: a, shop: "köln ☕", total: "12,5", count: 3, paid: true, at: 2024-03-10 12:00:00, due: 2024-03-11}'


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "project"
    for name, content in {"sources/orders": SOURCE, "pipelines/daily": PIPELINE, "pipelines/weekly": WEEK}.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "tests").mkdir()
    return folder


@pytest.fixture
def result_of(project, spark):
    """Run a test of the pipeline `daily` for the 23 hours of 2024-03-10, or one with another beginning."""

    def result_of(body, head="pipeline: daily\ndate: 2024-03-10\n"):
        (project / "tests" / "one.yaml").write_text(head + body)
        read = read_tests(project)
        assert read.problems == ()
        (test,) = read.tests
        pipeline = read.checked.pipelines.get(test.definition.pipeline)
        return run_test(test, project, pipeline, lambda samples: loop_context(spark, samples, project))

    return result_of


def orders(*rows, expect, more=""):
    lines = "".join(f"\n    - {row}" for row in rows) or " []"
    return f"inputs:\n  orders:{lines}\n{more}expect:\n{expect}\n"


def differing(result):
    """The rows that differ: the line of an expected one, or None, and its values."""
    assert (result.problems, result.errors) == ((), ())
    return [(row.line, *row.values) for difference in result.differences for row in difference.rows]


HOURLY = """
pipeline: hourly
period: hour
sources: [orders]
steps:
  rows: {step: sql, depends_on: [orders], with: {query: "SELECT id FROM orders"}}
publish: {step: rows, key: [date, hour, id]}
schedule: {process: "10 * * * *"}
"""


def test_an_hourly_pipeline_is_tested_with_an_hour(result_of, project):
    (project / "pipelines" / "hourly.yaml").write_text(HOURLY)
    rows = [
        *("{id: first, at: 2024-03-10T16:00:00Z}", "{id: last, at: 2024-03-10T16:59:59Z}"),
        *("{id: before, at: 2024-03-10T15:59:59Z}", "{id: after, at: 2024-03-10T17:00:00Z}"),
    ]
    body = orders(*rows, expect="  rows:\n    - {id: first}\n    - {id: last}")
    assert result_of(body, "pipeline: hourly\ndate: 2024-03-10T16\n").passed
    (error,) = result_of(body, "pipeline: hourly\ndate: 2024-03-10\n").errors
    assert "2024-03-10 is not an hour of UTC such as 2013-03-10T15: hourly has `period: hour`" in error


PASSING = {
    "every type": (
        [ORDER],
        '  rows:\n    - {id: a, shop: "köln ☕", place: elsewhere, amount: 12.5000000001, count: 3, paid: true, '
        "at: 2024-03-10T16:00:00Z, due: 2024-03-11, price: 12.50, list: [12.5, null], "
        'pair: {shop: "köln ☕", amount: 12.5}, counts: {a: 3}, bytes: "61", clock: 2024-03-10T16:00:00, small: 12.5}',
    ),
    "any order, each row as often as it occurs": (
        ["{id: a, shop: x, at: 2024-03-10 12:00:00}", "{id: b, at: 2024-03-10 12:00:00}",
         "{id: c, at: 2024-03-10 12:00:00}"],
        "  rows:\n    - {shop: null}\n    - {shop: x}\n    - {shop: null}",
    ),
    "some columns, and two steps": (
        [ORDER], "  rows:\n    - {id: a}\n  totals:\n    - {orders: 1, revenue: 12.5}",
    ),
    "an empty input": ([], "  rows: []\n  totals:\n    - {orders: 0, revenue: null}"),
    "23 hours": (
        ["{id: first, at: 2024-03-10T05:00:00Z}", "{id: last, at: 2024-03-10 23:59:59}",
         "{id: before, at: 2024-03-10T04:59:59Z}", "{id: after, at: 2024-03-11 00:00:00}"],
        "  rows:\n    - {id: first}\n    - {id: last}",
    ),
    "a duplicate id in one hour, and not in two": (
        ["{id: a, count: 1, at: 2024-03-10 12:00:00}", "{id: a, count: 2, at: 2024-03-10 12:59:59}",
         "{id: a, count: 3, at: 2024-03-10 13:00:00}"],
        "  rows:\n    - {count: 1}\n    - {count: 3}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PASSING)
def test_equal_rows_pass(result_of, project, case):
    rows, expect = PASSING[case]
    result = result_of(orders(*rows, expect=expect))
    assert differing(result) == []
    assert result.passed
    assert not (project / "out.csv").exists()


def test_differences_have_the_line_of_the_expected_row_and_the_row_that_is_most_like_it(result_of):
    rows = [
        f"{{id: {name}, count: {count}, at: 2024-03-10 12:00:00}}" for name, count in (("a", 1), ("b", 2), ("c", 3))
    ]
    expect = "  rows:\n    - {id: a, count: 1}\n    - {id: b, count: 7}\n    - {id: d, count: 9}"
    result = result_of(orders(*rows, expect=expect))
    assert differing(result) == [(11, "b", 7), (None, "b", 2), (12, "d", 9), (None, "c", 3)]
    (difference,) = result.differences
    assert (difference.expected, difference.actual, difference.missing, difference.unexpected) == (3, 3, 2, 2)
    assert not result.passed


@pytest.mark.parametrize(
    ("expect", "expected"),
    [
        ("  totals:\n    - {orders: 2}", [(8, 2), (None, 1)]),
        ("  totals:\n    - {revenue: 12.500001}", [(8, 12.500001), (None, 12.5)]),
        ("  totals:\n    - {revenue: null}", [(8, None), (None, 12.5)]),
        ("  totals:\n    - {orders: 1}\n    - {orders: 1}", [(9, 1)]),
        ("  totals: []", [(None, 1, 12.5)]),
    ],
)
def test_wrong_missing_and_extra_rows_are_found(result_of, expect, expected):
    assert differing(result_of(orders(ORDER, expect=expect))) == expected


@pytest.mark.parametrize(
    ("expect", "position", "message"),
    [
        ("{orders: '1'}", (8, 16), "the column is of type int64 (expected an integer)"),
        ("{order: 1}", (8, 8), "the step has no such column (did you mean orders?)"),
        ("{orders: 1.5}", (8, 16), "the column is of type int64 (expected an integer)"),
    ],
)
def test_values_of_a_wrong_type_and_unknown_columns_have_their_position(result_of, expect, position, message):
    (problem,) = result_of(orders(ORDER, expect=f"  totals:\n    - {expect}")).problems
    assert ((problem.line, problem.column), message in problem.description) == (position, True), problem


def test_a_rejected_row_fails_the_test_unless_it_is_expected(result_of):
    rows = (ORDER, "{id: b, at: noon}", "{shop: x, at: 2024-03-10 12:00:00}")
    expect = "  rows:\n    - {id: a}"
    result = result_of(orders(*rows, expect=expect))
    assert [(problem.line, problem.place) for problem in result.problems] == [
        (6, "inputs.orders"),
        (7, "inputs.orders"),
    ]
    assert result.problems[0].message.startswith("the source rejects row 2: at: 'noon'")
    assert result_of(orders(*rows, expect=expect, more="rejected: {orders: 2}\n")).passed
    problems = result_of(orders(*rows, expect=expect, more="rejected: {orders: 1}\n")).problems
    assert (problems[0].line, problems[0].message) == (8, "2 rows rejected, not 1")


def test_rows_that_the_pipeline_does_not_read_are_noted(result_of):
    rows = (ORDER, ORDER, "{id: b, at: 2024-03-11 12:00:00}")
    assert result_of(orders(*rows, expect="  totals:\n    - {orders: 3}")).notes == (
        "orders: the pipeline reads 1 row; left out: 1 of another day, 1 with the id of another one",
    )


def test_a_file_beside_the_test_has_the_format_of_the_source(result_of, project):
    (project / "tests" / "orders.csv").write_text('id,total,at\na,"1,5",2024-03-10 12:00:00\nb,x,2024-03-10 12:00:00\n')
    body = "inputs: {orders: orders.csv}\nrejected: {orders: 1}\nexpect:\n  rows:\n    - {id: a, amount: 1.5}\n"
    assert result_of(body).passed
    problems = result_of(body.replace("rejected: {orders: 1}\n", "")).problems
    assert [(problem.line, problem.message) for problem in problems] == [
        (3, "rejected: orders.csv: line 3: amount (total): 'x' is not a number such as 1234,5")
    ]


WEEKLY = "pipeline: weekly\ndate: 2024-03-10\ninputs:\n  days:\n"


def test_the_days_of_a_table_are_rows_with_a_date(result_of, project):
    days = "    - {date: 2024-03-09, orders: 1}\n    - {date: 2024-03-10, orders: 2}\n"
    expect = "expect:\n  week:\n    - {last: 2024-03-10, orders: 3}\n"
    assert result_of(days + expect, head=WEEKLY).passed
    (problem,) = result_of(f"{days}    - {{date: 2024-03-08, orders: 2}}\n{expect}", head=WEEKLY).problems
    assert (problem.line, problem.message) == (
        7, "a row of 2024-03-08: the pipeline reads 2024-03-09 to 2024-03-10 of this table",
    )  # fmt: skip
    (project / "tests" / "days.ndjson").write_text('{"date": "2024-03-09", "orders": 3}\n')
    file = "    days.ndjson\nexpect:\n  week:\n    - {last: 2024-03-09, orders: 3}\n"
    assert result_of(file, head=WEEKLY).passed
    (project / "tests" / "none.csv").write_text("date,orders\n")
    assert result_of("    none.csv\nexpect:\n  week:\n    - {orders: null}\n", head=WEEKLY).passed


def test_an_error_of_spark_has_its_position_in_the_file_of_the_pipeline(result_of, project):
    path = project / "pipelines" / "daily.yaml"
    path.write_text(PIPELINE.replace("sum(amount)", "sum(1 / (count - 3))"))
    (problem,) = result_of(orders(ORDER, expect="  totals:\n    - {orders: 1}")).problems
    lines = path.read_text().splitlines()
    assert (problem.file, problem.place) == (path, "steps.totals.with.query")
    assert lines[problem.line - 1][problem.column - 1 :].startswith("1 / (count")


def test_problems_of_the_pipeline_and_of_its_sources_fail_the_test(result_of, project):
    expect = "  totals:\n    - {orders: 1}"
    (project / "pipelines" / "daily.yaml").write_text(PIPELINE.replace("step: sql", "step: sqll", 1))
    (problem,) = result_of(orders(ORDER, expect=expect)).problems
    assert (problem.line, problem.suggestion) == (7, "sql")
    (project / "pipelines" / "daily.yaml").write_text(PIPELINE)
    (project / "sources" / "orders.yaml").write_text(SOURCE.replace("count: int64", "count: int65"))
    (problem,) = result_of(orders(ORDER, expect=expect)).problems
    assert problem.file.name == "orders.yaml"


def test_steps_in_python_run(result_of, project, tmp_path):
    with installed_package(tmp_path / "site-packages"):
        (project / "pipelines" / "daily.yaml").write_text(IN_PYTHON)
        row = "{id: a, total: 50, at: 2024-03-10 12:00:00}"
        assert result_of(orders(row, expect="  rows:\n    - {amount: 10}")).passed


def test_an_error_of_a_step_in_python_has_its_line(result_of, project, tmp_path):
    with installed_package(tmp_path / "site-packages"):
        module = tmp_path / "site-packages" / "acme_steps" / "in_celsius.py"
        module.write_text(module.read_text().replace("frames.values()", "frames['none']"))
        (project / "pipelines" / "daily.yaml").write_text(IN_PYTHON)
        (error,) = result_of(orders(ORDER, expect="  rows: []")).errors
        assert error.startswith(f"KeyError: 'none' ({module}:")


@pytest.mark.usefixtures("spark")
def test_the_command_prints_one_document_or_text_and_writes_junit_xml(project, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(project)
    good = orders(ORDER, expect="  totals:\n    - {orders: 1}")
    Path("tests/good.yaml").write_text(f"pipeline: daily\ndate: 2024-03-10\n{good}")
    assert run_command(["test"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    Path("tests/bad.yaml").write_text(f"pipeline: daily\ndate: 2024-03-10\n{good.replace('orders: 1', 'orders: 2')}")
    assert run_command(["test", "--json", "--junit", "results.xml"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["passed"], document["failed"], document["problems"]) == (1, 1, [])
    bad, good = document["tests"]
    assert (bad["name"], bad["passed"], good["name"], good["passed"]) == ("bad", False, "good", True)
    assert bad["differences"][0]["rows"] == [{"line": 8, "values": [2]}, {"line": None, "values": [1]}]
    suite = ET.parse("results.xml").getroot()[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [(case.get("name"), len(case)) for case in suite] == [("bad", 1), ("good", 0)]
    assert run_command(["test", "bad"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bad: failed, ")
    assert lines[1:] == [
        "totals: 1 of 1 expected row is missing, 1 of 1 actual row is unexpected",
        "          line  orders",
        "expected  8     2",
        "actual          1",
        "0 passed, 1 failed",
    ]


@pytest.mark.usefixtures("spark")
def test_the_tests_that_init_writes_for_own_data_pass(tmp_path, monkeypatch, capsys):
    """Of each format, with local times, decimal commas, nulls, duplicate ids, and names that are words of SQL."""
    monkeypatch.chdir(tmp_path)
    Path("orders-2024-03-10.csv").write_text(
        "id;at;order;total\n1;10.03.2024 01:30;a b;1,5\n2;10.03.2024 23:00;;2,5\n3;10.03.2024 12:00;c;n/a\n"
        "4;10.03.2024 12:30;c;1,25\n5;10.03.2024 12:40;c;2,25\n6;25.03.2024 12:40;c;2,25\n"
    )
    events = [
        {"uuid": name, "timestamp": f"2024-03-10T0{hour}:00:00+01:00", "when": "x"} for name, hour in ("a1", "b2")
    ]
    Path("group.ndjson").write_text("".join(f"{json.dumps(event)}\n" for event in [*events, events[0]]))
    Path("visits.json").write_text(json.dumps([{"at": f"2024-03-10T0{h}:00:00Z", "page": {"a": h}} for h in (1, 5)]))
    times = [datetime(2024, 3, 10, 5, 30, tzinfo=UTC), datetime(2024, 3, 10, 6, tzinfo=UTC)]
    table = {"at": times * 2, "kind": ["x", "y"] * 2, "bytes": [b"a", None] * 2, "price": [Decimal("1.10")] * 4}
    pq.write_table(pa.table(table), "trips.parquet")
    workbook = openpyxl.Workbook()
    for row in [("Sold at", "Name"), (datetime(2024, 3, 10, 12), "x"), (datetime(2024, 3, 10, 13), "y")]:
        workbook.active.append(row)
    workbook.save("sales.xlsx")
    names = ("orders-2024-03-10.csv", "group.ndjson", "visits.json", "trips.parquet", "sales.xlsx")
    assert run_command(["init", "new", *(word for name in names for word in ("--from", name)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for path in Path("new").glob("*/*.yaml"):
        path.write_text(path.read_text().replace("DECIDE the timezone", "America/New_York"))
    tests = [name for name in document["files"] if name.startswith("tests/")]
    assert len(tests) == len(names), document
    code = run_command(["test", "--project", "new", "--json"])
    assert code == 0, capsys.readouterr().out
    assert json.loads(capsys.readouterr().out)["passed"] == len(names)


@pytest.mark.usefixtures("spark")
def test_the_test_that_init_writes_passes(tmp_path, capsys):
    assert run_command(["init", str(tmp_path / "new")]) == 0
    assert run_command(["test", "--project", str(tmp_path / "new")]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out
