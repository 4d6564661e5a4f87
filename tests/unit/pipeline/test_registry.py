"""Pipelines are checked against the registry of steps, before anything runs and without Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from typing import Any

import pytest

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.steps.registry import parameters_of, registry
from tests.checking import check_steps
from tests.example_project import EXAMPLE

pytestmark = pytest.mark.unit

JOIN = {"step": "join", "depends_on": ["a", "b"], "with": {"keys": ["k"], "how": "left"}}


def pipeline(**steps: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "pipeline": "p",
            "sources": ["a", "b", "c"],
            "steps": steps,
            "publish": {"step": next(iter(steps)), "key": ["date"]},
        }
    )


def sql(query: Any, *inputs: str) -> dict[str, Any]:
    return {"step": "sql", "depends_on": list(inputs or ("a",)), "with": {"query": query}}


def problem(**steps: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        check_steps(pipeline(**steps))
    return str(caught.value)


def test_steps_are_the_modules_that_define_one():
    assert set(registry()) >= {"join", "sql"}
    assert all(name == step.name for name, step in registry().items())


def test_a_project_is_loaded_without_the_modules_of_steps_and_these_are_checked_without_spark():
    """Commands load a project each time they run."""
    code = f"""\
import sys; sys.modules["pyspark"] = None
from pathlib import Path
from slackwater.project.project import load_definitions, load_project
load_definitions(Path({str(EXAMPLE)!r}))
assert not {{"sqlglot", "pyarrow", "slackwater.steps.registry"}} & set(sys.modules)
load_project(Path({str(EXAMPLE)!r}))
assert "slackwater.steps.registry" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=EXAMPLE.parents[1] / "src")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": None}, "steps.x.with.keys: no value (expected a list)"),
        ({"keys": []}, "steps.x.with.keys: an empty list"),
        ({"take": ["k", "v"]}, "steps.x.with.take: k is a key"),
        ({"take": ["v", "v"]}, "steps.x.with.take: a column is named twice"),
        ({"keys": ["k", "k"]}, "steps.x.with.keys: a column is named twice"),
        ({"many": "perhaps"}, "steps.x.with.many: wrong value: 'perhaps' (expected true or false)"),
    ],
)
def test_wrong_parameters_are_named(change, message):
    assert message in problem(x={**JOIN, "with": {**JOIN["with"], **change}})


def test_dates_without_quotes_stay_the_same_in_a_stored_pipeline():
    """YAML reads them as dates, and the deployed pipeline is JSON."""
    rule = {"rule": "range", "column": "c", "min": date(2013, 3, 10), "max": datetime(2013, 3, 11, 1)}
    written = pipeline(x={"step": "data_quality", "depends_on": ["a"], "with": {"rules": [rule]}})
    stored = Pipeline.model_validate_json(written.model_dump_json(by_alias=True))
    limits = []
    for one in (written, stored):
        check_steps(one)
        (found,) = parameters_of("steps.x", one.steps["x"]).rules
        limits.append((found.min, found.max))
    assert limits == [("2013-03-10", "2013-03-11T01:00:00")] * 2


TABLE = {"url": "postgresql://db:5432/reports", "credentials": "ssm:db", "table": "delays"}


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (("write_csv", {"path": "{date}/a"}), ("write_json", {"path": "{date}/a/", "parts": True}), "path"),
        (("write_table", TABLE), ("write_table", {**TABLE, "tls": "encrypt"}), "table"),
        (("write_csv", {"path": "a/{date}.csv"}), ("write_csv", {"path": "b/{date}.csv"}), None),
        (("write_table", TABLE), ("write_table", {**TABLE, "table": "arrivals"}), None),
    ],
)
def test_two_load_steps_that_replace_each_others_rows_are_refused(one, other, message):
    loads = {
        name: {"step": step, "depends_on": ["x"], "with": parameters}
        for name, (step, parameters) in (("first", one), ("second", other))
    }
    with_loads = Pipeline.model_validate(
        {**pipeline(x=sql("SELECT * FROM a")).model_dump(by_alias=True), "load": loads}
    )
    if message is None:
        check_steps(with_loads)
        return
    with pytest.raises(DefinitionError, match=rf"load\.second\.with\.{message}: load\.first writes .* too"):
        check_steps(with_loads)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "select * from a;",
        "-- words\nSELECT /* more; */ ';' AS semicolon FROM a",
        "WITH t AS (SELECT * FROM a), u AS (SELECT * FROM t) SELECT * FROM u WHERE x IN (SELECT x FROM A)",
        "(SELECT x FROM a) UNION ALL (SELECT x FROM a)",
        "SELECT count_if(x IS NULL), percentile(y, 0.9) FROM a GROUP BY ALL",
        "SELECT e FROM a LATERAL VIEW explode(list) t AS e",
        "SELECT id FROM range(10)",
        "SELECT * FROM a t JOIN a u ON t.x = u.x WHERE EXISTS (SELECT 1 FROM a)",
        "SELECT row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a QUALIFY n = 1",
        "SELECT * FROM (VALUES (1, 2)) AS t(x, y)",
    ],
)
def test_queries_over_the_inputs_are_allowed(query):
    check_steps(pipeline(x=sql(query)))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "one statement is expected, not 0"),
        ("-- nothing", "one statement is expected, not 0"),
        ("SELECT 1; DROP TABLE a", "one statement is expected, not 2"),
        ("SELEC 1", "not readable as SQL: 1 is not expected here"),
        ("INSERT INTO a SELECT 1", "a SELECT or WITH statement is expected, not INSERT"),
        ("WITH t AS (SELECT 1) INSERT INTO a SELECT * FROM t", "not INSERT"),
        ("FROM a INSERT INTO b SELECT *", "a SELECT or WITH statement is expected"),
        ("CREATE VIEW v AS SELECT 1", "not CREATE"),
        ("SET spark.sql.ansi.enabled=false", "not SET"),
        ("EXECUTE IMMEDIATE 'DROP TABLE a'", "not COMMAND"),
        ("VALUES (1)", "not VALUES"),
        ("SELECT * FROM parquet.`s3://bucket/key`", "bare names, not files"),
        ("SELECT 1 FROM a WHERE x = (SELECT max(x) FROM csv.`/etc/passwd`)", "bare names, not files"),
        ("WITH t AS (SELECT * FROM json.`file:///x`) SELECT * FROM t", "bare names, not files"),
        ("SELECT * FROM warehouse.days.other", "not other tables"),
        ("SELECT * FROM read_files('s3://bucket')", "the table function read_files is not allowed"),
        ("SELECT * FROM identifier('parquet.`s3://b/k`')", "the table function identifier is not allowed"),
        ("SELECT TRANSFORM(x) USING 'cat' AS (y) FROM a", "is not allowed in a query"),
        ("SELECT x FROM a WHERE java_method('a', 'b') = 'c'", "the function java_method is not allowed"),
        ("SELECT * FROM flight", "flight is not an input of the step (expected a)"),
        ("SELECT * FROM a, b", "b is not an input of the step"),
        (1, "wrong value: 1 (expected a string: write it in quotes)"),
    ],
)
def test_other_sql_statements_are_refused(query, message):
    assert message in problem(x=sql(query))
