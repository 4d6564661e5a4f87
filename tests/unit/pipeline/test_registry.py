"""Pipelines are checked against the registry of steps, before anything runs and without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.project import load_project
from slackwater.steps.registry import check, registry

pytestmark = pytest.mark.unit

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "nyc_flights"
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


def fault(**steps: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        check(pipeline(**steps))
    return str(caught.value)


def test_steps_are_the_modules_that_define_one():
    assert set(registry()) >= {"join", "sql"}
    assert all(name == step.name for name, step in registry().items())


def test_the_example_is_well_defined():
    check(load_project(EXAMPLE).pipeline("daily_delays"))


def test_checking_needs_no_spark():
    code = (
        "import sys; sys.modules['pyspark'] = None; from pathlib import Path; "
        "from slackwater.project import load_project; from slackwater.steps.registry import check; "
        f"check(load_project(Path({str(EXAMPLE)!r})).pipeline('daily_delays'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=EXAMPLE.parents[1] / "src")


def test_an_unknown_step_is_reported_with_similar_ones():
    assert fault(x={**JOIN, "step": "jion"}) == "pipeline p: steps.x.step: no step 'jion' (did you mean join?)"
    assert "known steps: aggregate, clean_nan, " in fault(x={**JOIN, "step": "zzz"})


def test_helper_modules_are_no_steps():
    assert "no step 'registry'" in fault(x={**JOIN, "step": "registry"})
    assert "no step 'spark'" in fault(x={**JOIN, "step": "spark"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": None}, "steps.x.with.keys: Input should be a valid tuple"),
        ({"keys": []}, "steps.x.with.keys: Tuple should have at least 1 item"),
        ({"how": "outer"}, "steps.x.with.how: Input should be 'inner', 'left', 'right', 'full', 'semi' or 'anti'"),
        ({"taek": ["v"]}, "steps.x.with.taek: Extra inputs are not permitted"),
        ({"take": ["k", "v"]}, "steps.x.with.take: k is a key"),
        ({"take": ["v", "v"]}, "steps.x.with.take: a column is named twice"),
        ({"keys": ["k", "k"]}, "steps.x.with.keys: a column is named twice"),
        ({"many": "perhaps"}, "steps.x.with.many: Input should be a valid boolean"),
    ],
)
def test_wrong_parameters_are_named(change, message):
    assert message in fault(x={**JOIN, "with": {**JOIN["with"], **change}})


def test_all_faults_are_reported_at_once():
    message = fault(x={**JOIN, "with": {}}, y=sql("SELECT 1 FROM nowhere"))
    for one in ("steps.x.with.keys: Field required", "steps.x.with.how: Field required", "steps.y.with.query: nowhere"):
        assert one in message


@pytest.mark.parametrize("inputs", [["a"], ["a", "b", "c"]])
def test_a_wrong_number_of_inputs_is_reported(inputs):
    assert f"steps.x.depends_on: join reads 2 inputs (left, right), not {len(inputs)} ({', '.join(inputs)})" in fault(
        x={**JOIN, "depends_on": inputs}
    )


def test_an_input_named_twice_is_reported():
    assert "steps.x.depends_on: an input is named twice (a, a)" in fault(x={**JOIN, "depends_on": ["a", "a"]})


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
    check(pipeline(x=sql(query)))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "one statement is expected, not 0"),
        ("-- nothing", "one statement is expected, not 0"),
        ("SELECT 1; DROP TABLE a", "one statement is expected, not 2"),
        ("SELEC 1", "not readable as SQL: Invalid expression / Unexpected token (line 1, column 7)"),
        ("INSERT INTO a SELECT 1", "a SELECT or WITH statement is expected, not INSERT"),
        ("WITH t AS (SELECT 1) INSERT INTO a SELECT * FROM t", "not INSERT"),
        ("FROM a INSERT INTO b SELECT *", "a SELECT or WITH statement is expected"),
        ("DROP TABLE a", "not DROP"),
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
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "the function reflect is not allowed"),
        ("SELECT x FROM a WHERE java_method('a', 'b') = 'c'", "the function java_method is not allowed"),
        ("SELECT * FROM flight", "flight is not an input of the step (its inputs are: a)"),
        ("SELECT * FROM a, b", "b is not an input of the step"),
        (1, "Input should be a valid string"),
    ],
)
def test_other_sql_statements_are_refused(query, message):
    assert message in fault(x=sql(query))


def test_the_error_for_a_misspelt_input_suggests_the_right_name():
    built = Pipeline.model_validate(
        {
            "pipeline": "p",
            "sources": ["flights"],
            "steps": {"x": sql("SELECT * FROM flight", "flights")},
            "publish": {"step": "x", "key": ["date"]},
        }
    )
    with pytest.raises(DefinitionError, match=r"flight is not an input of the step \(did you mean flights\?\)"):
        check(built)
