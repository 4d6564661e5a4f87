"""`sql`: what it returns, what it refuses, what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.errors import DefinitionError
from slackwater.steps.registry import registry
from slackwater.steps.spark_query import run_query
from slackwater.steps.step import StepContext
from tests.spark.frames import frame_of

pytestmark = pytest.mark.usefixtures("interpreted")


def apply(name: str, frames, **parameters: Any):
    step = registry()[name]
    spark = next(iter(frames.values())).sparkSession
    return step.apply(frames, step.parameters.model_validate(parameters), StepContext(spark=spark))


@pytest.fixture
def sides(spark):
    left = frame_of(spark, [(1, "a"), (2, "b"), (None, "c")], "k int, l string")
    right = frame_of(spark, [(1, 10.0, "x"), (3, 30.0, "y"), (None, 0.0, "z")], "k int, v double, w string")
    return {"left": left, "right": right}


def rows(frame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_a_query_reads_its_inputs_by_name_and_leaves_no_view(spark, sides):
    result = apply("sql", sides, query="SELECT l, v FROM left JOIN right USING (k)")
    assert spark.catalog.listTables() == []
    assert rows(result) == [("a", 10.0)]


def test_a_view_does_not_leak_from_a_query_that_fails(spark, sides):
    with pytest.raises(
        DefinitionError, match=r"^query: A column.* `nothing` cannot be resolved.*\(line 1, column 8\)$"
    ):
        apply("sql", sides, query="SELECT nothing FROM left")
    assert spark.catalog.listTables() == []


def test_two_queries_of_one_input_name_do_not_mix(spark):
    frames = [apply("sql", {"t": spark.range(n).toDF("id")}, query="SELECT count(*) AS n FROM t") for n in (2, 3)]
    assert [frame.first()["n"] for frame in frames] == [2, 3]


def test_session_settings_are_restored(spark, sides):
    names = ["spark.sql.runSQLOnFiles", "spark.sql.variable.substitute", "spark.sql.execution.arrow.maxBytesPerBatch"]
    before = [spark.conf.get(name) for name in names]
    apply("sql", sides, query="SELECT 1 AS one")
    with pytest.raises(DefinitionError):
        apply("sql", sides, query="SELECT nothing FROM left")
    assert [spark.conf.get(name) for name in names] == before


def test_queries_cannot_read_the_environment(spark, sides):
    assert rows(apply("sql", sides, query="SELECT '${env:PATH}' AS path")) == [("${env:PATH}",)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM parquet.`s3://bucket/key`", "parquet.s3://bucket/key is not an input"),
        ("WITH t AS (SELECT * FROM csv.`/etc/passwd`) SELECT * FROM t", "csv./etc/passwd is not an input"),
        ("SELECT 1 FROM left WHERE k IN (SELECT k FROM secret)", "secret is not an input"),
        ("SELECT 1 FROM (SELECT 1) AS secret, secret", "secret is not an input"),
        ("SELECT 1 FROM left, LATERAL (SELECT 1 FROM secret)", "secret is not an input"),
        ("SELECT * FROM sql_keywords()", "the table function sql_keywords is not allowed"),
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "the function reflect is not allowed"),
        ("SELECT max(try_reflect('a', 'b')) FROM left", "the function try_reflect is not allowed"),
        ("SELECT TRANSFORM(k) USING 'cat' AS (y) FROM left", "this query contains ScriptTransformation"),
        ("SELECT * FROM left VERSION AS OF 1", "this query contains RelationTimeTravel"),
        ("SELECT * FROM identifier('par' || 'quet.`/x`')", "this query contains PlanWithUnresolvedIdentifier"),
        ("SELECT identifier('k') FROM left", "this query contains ExpressionWithUnresolvedIdentifier"),
        ("CREATE TABLE t (a int)", "this query contains CreateTable"),
        ("INSERT INTO left SELECT 1, 'a'", "this query contains InsertIntoStatement"),
        ("FROM left INSERT INTO left SELECT *", "this query contains InsertIntoStatement"),
        ("SET x = 1", "this query contains SetCommand"),
        ("EXPLAIN SELECT 1", "this query contains ExplainCommand"),
        ("SELECT 1; SELECT 2", "query: Syntax error at or near 'SELECT': extra input 'SELECT'. (line 1, column 11)"),
        ("nonsense", "query: Syntax error at or near 'nonsense'. (line 1, column 1)"),
    ],
)
def test_sparks_own_parser_refuses_what_the_other_parser_accepts(spark, sides, query, message):
    with pytest.raises(DefinitionError) as failure:
        run_query(sides, query, functions={"range"}, forbidden={"reflect", "try_reflect"})
    assert message in str(failure.value)


QUERIES = {
    "WITH t AS (SELECT * FROM left), u AS (SELECT k FROM t) SELECT * FROM u WHERE k IN (SELECT k FROM T)": ["1", "2"],
    "(SELECT l FROM LEFT UNION ALL SELECT w FROM right ORDER BY 1 LIMIT 2 OFFSET 1)": ["b", "c"],
    "SELECT l || e FROM left LATERAL VIEW explode(array(1, 2)) t AS e": ["a1", "a2", "b1", "b2", "c1", "c2"],
    "SELECT `1` || `2` FROM (SELECT * FROM left PIVOT (count(l) FOR k IN (1, 2)))": ["11"],
    "SELECT x || y FROM (VALUES (1, 2)) AS t(x, y)": ["12"],
    "SELECT id FROM range(2)": ["0", "1"],
    "SELECT sum(v) OVER w FROM right WINDOW w AS (ORDER BY k)": ["0.0", "10.0", "40.0"],
    "SELECT /*+ BROADCAST(right) */ count(*) AS n FROM left, right GROUP BY ROLLUP (l) HAVING n > 3": ["9"],
    "SELECT DISTINCT k FROM left EXCEPT SELECT k FROM right": ["2"],
    "SELECT count(*) FROM (SELECT * FROM left TABLESAMPLE (2 ROWS))": ["2"],
    "SELECT (SELECT max(v) FROM right)": ["30.0"],
    "SELECT l FROM left WHERE EXISTS (SELECT 1 FROM right WHERE right.k = left.k)": ["a"],
}


@pytest.mark.usefixtures("generated")
def test_every_type_of_query_runs(sides):
    """As parts of one query: Spark plans and runs one job."""
    parts = (
        f"SELECT {number} AS part, CAST(v AS string) FROM ({query}) AS q(v)" for number, query in enumerate(QUERIES)
    )
    result = rows(apply("sql", sides, query=" UNION ALL ".join(parts)))
    found = {query: [v for part, v in result if part == number] for number, query in enumerate(QUERIES)}
    assert found == QUERIES
