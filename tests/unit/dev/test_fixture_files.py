"""The files of `slackwater test`: how they are found and checked, and the command as far as it needs no Spark."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from slackwater.dev import context
from slackwater.dev.testing import runner
from slackwater.dev.testing.definition import fixture_schema
from slackwater.dev.testing.input_files import input_files
from slackwater.dev.testing.read_tests import read_tests
from slackwater.problems import Problems

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).resolve().parents[3] / "docs" / "contracts" / "test.schema.json"
HEAD = "pipeline: daily_sales\ndate: 2024-03-04\n"
INPUTS = "inputs: {orders: []}\n"
EXPECT = "expect: {sales_by_shop: []}\n"


@pytest.fixture
def project(tmp_path, printed_by, monkeypatch) -> Path:
    """The project of `slackwater init`, without its test."""
    printed_by("init", str(tmp_path / "project"))
    (tmp_path / "project" / "tests" / "daily_sales.yaml").unlink()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def problems_of(project):
    def problems_of(content):
        (project / "tests" / "one.yaml").write_text(content)
        read = read_tests(project)
        assert bool(read.problems) != bool(read.tests)
        return [f"{problem.line}:{problem.column} {problem.description}" for problem in read.problems]

    return problems_of


def test_the_contract_in_docs_is_up_to_date():
    assert json.loads(CONTRACT.read_text(encoding="utf-8")) == json.loads(json.dumps(fixture_schema())), (
        "write it again: python -m slackwater.dev.testing.definition > docs/contracts/test.schema.json"
    )


def test_dates_and_timestamps_are_strings_as_they_are_written(project, problems_of):
    row = "{ordered_at: 2024-03-04 09:12:00, day: 2024-03-04, at: 2024-03-04T09:12:00+01:00}"
    assert problems_of(f"{HEAD}inputs:\n  orders:\n    - {row}\n{EXPECT}") == []
    (test,) = read_tests(project).tests
    assert test.definition.inputs["orders"] == [
        {"ordered_at": "2024-03-04 09:12:00", "day": "2024-03-04", "at": "2024-03-04T09:12:00+01:00"}
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ["1:1 date: missing (expected a string)", "1:1 expect: missing (expected a mapping)"]),
        ("- a", ["1:1 wrong value: a list (expected a mapping)"]),
        ("pipeline: [", ["1:12 not readable as YAML"]),
        (f"{HEAD}{INPUTS}expected: {{sales_by_shop: []}}\n", ["4:1 expected: unknown key (did you mean expect?)"]),
        (f"{HEAD}{INPUTS}expect: {{}}\n", ["4:1 expect: an empty mapping (expected a length of at least 1)"]),
        (f"pipeline: daily_sale\ndate: 2024-03-04\n{INPUTS}{EXPECT}",
         ["1:11 pipeline: no pipeline 'daily_sale' in this project (did you mean daily_sales?)"]),
        (f"pipeline: daily_sales\ndate: 2024-3-4\n{INPUTS}{EXPECT}", ["2:7 date: '2024-3-4' is not a date"]),
        (f"{HEAD}inputs: {{order: []}}\n{EXPECT}",
         ["3:1 inputs: orders missing: give rows of each input of daily_sales (`[]` for none)",
          "3:10 inputs.order: order is no input of daily_sales (did you mean orders?)"]),
        (f"{HEAD}{INPUTS}expect:\n  sales_by_shops: []\n",
         ["5:3 expect.sales_by_shops: sales_by_shops is no step of daily_sales (did you mean sales_by_shop?)"]),
        (f"{HEAD}{INPUTS}rejected: {{order: 1}}\n{EXPECT}",
         ["4:12 rejected.order: order is no source of daily_sales (did you mean orders?)"]),
        (f"{HEAD}{INPUTS}rejected: {{orders: 0}}\n{EXPECT}", ["4:20 rejected.orders: wrong value: 0 (expected a v"]),
        (f"{HEAD}inputs: {{orders: orders.csv}}\n{EXPECT}", ["3:18 inputs.orders: no such file: "]),
        (f"{HEAD}inputs:\n  orders:\n    - [1]\n{EXPECT}", ["5:7 inputs.orders"]),
        (f"{HEAD}{INPUTS}expect:\n  sales_by_shop:\n    - {{shop: a, orders: 1}}\n    - {{shop: a}}\n",
         ["7:7 expect.sales_by_shop: all rows of a step name the same columns: only this row or the first one has"]),
        (f"{HEAD}{INPUTS}expect:\n  sales_by_shop:\n    - {{}}\n", ["6:7 expect.sales_by_shop: a row names at"]),
    ],
)  # fmt: skip
def test_every_problem_of_a_file_has_its_position(problems_of, content, expected):
    found = problems_of(content)
    assert [problem[: len(start)] for problem, start in zip(found, expected, strict=False)] == expected


def test_a_broken_file_ends_the_command_before_a_test_runs(project, printed_by, document_of):
    Path("tests/good.yaml").write_text(f"{HEAD}{INPUTS}{EXPECT}")
    Path("tests/bad.yaml").write_text(f"{HEAD}{INPUTS}expect: {{sales_by_shops: []}}\n")
    assert printed_by("test", code=2).out == (
        "tests/bad.yaml:4:10  expect.sales_by_shops: sales_by_shops is no step of daily_sales (did you mean "
        "sales_by_shop?)\n"
    )
    document = document_of("test", code=2)
    assert (document["passed"], document["failed"], document["tests"]) == (0, 0, [])
    assert [problem["line"] for problem in document["problems"]] == [4]
    assert [problem.place for problem in read_tests(project, ["bad"]).problems] == ["expect.sales_by_shops"]
    assert read_tests(project, ["good"]).problems == ()


def test_without_tests_and_for_unknown_names_the_remedy_is_named(project, printed_by):
    assert f"no tests in {project / 'tests'}: write one as tests/NAME.yaml" in printed_by("test", code=2).err
    Path("tests/good.yaml").write_text(f"{HEAD}{INPUTS}{EXPECT}")
    assert "no test 'god' in this project (did you mean good?)" in printed_by("test", "god", code=2).err


def test_an_interrupted_test_leaves_nothing(project, printed_by, monkeypatch, tmp_path):
    Path("tests/good.yaml").write_text(f"{HEAD}{INPUTS}{EXPECT}")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    calls = []

    @contextmanager
    def spark():
        def check():
            calls.append([path.name for path in (tmp_path / "scratch").iterdir()])
            if calls[-1]:
                raise KeyboardInterrupt

        yield None, check

    monkeypatch.setattr(context, "interruptible_spark", spark)
    assert printed_by("test", "--junit", "results.xml", code=130).err.splitlines()[-1] == "interrupted"
    assert len(calls[-1]) == 1
    assert [*(tmp_path / "scratch").iterdir()] == []
    assert not Path("results.xml").exists()


def test_values_of_a_table_without_a_common_type_are_a_problem(project, tmp_path):
    (project / "pipelines" / "weekly.yaml").write_text(
        "pipeline: weekly\ntables: {days: {table: daily_sales}}\n"
        "steps: {all: {step: sql, depends_on: [days], with: {query: SELECT * FROM days}}}\n"
        "publish: {step: all, key: [date]}\n"
    )
    rows = "[{date: 2024-03-04, orders: 1}, {date: 2024-03-04, orders: many}]"
    content = f"pipeline: weekly\ndate: 2024-03-04\ninputs: {{days: {rows}}}\nexpect: {{all: []}}\n"
    (project / "tests" / "one.yaml").write_text(content)
    read = read_tests(project)
    with pytest.raises(Problems, match=r"inputs\.days: the values of orders have no common type"):
        input_files(
            read.tests[0].definition, read.checked.pipelines["weekly"], folder=project / "tests", scratch=tmp_path
        )
    result = runner.run_test(read.tests[0], project, read.checked.pipelines["weekly"], lambda _: None)
    assert [(problem.line, problem.place) for problem in result.problems] == [(3, "inputs.days")]
