"""The columns that a step states before a run, compared with those that Spark returns, and with what Spark refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from slackwater.errors import DefinitionError
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.registry import registry
from slackwater.steps.step import StepContext, Transform
from tests.spark.frames import frame_of

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMAS = {
    "a": "k int, x string, y double, ts timestamp, `odd name` int, list array<int>, s struct<f: int, g: string>",
    "b": "k int, z double, w string",
}


@pytest.fixture(scope="module")
def frames(spark) -> dict[str, DataFrame]:
    return {name: frame_of(spark, [], schema) for name, schema in SCHEMAS.items()}


def stated(step: Transform, frames: dict[str, DataFrame], parameters: Any) -> tuple[Columns | None, list[str]]:
    """Return the columns that the step states, and its problems."""
    inputs = InputColumns({name: tuple(frame.columns) for name, frame in frames.items()})
    columns = step.columns(inputs, parameters)
    return columns, [problem.message for problem in inputs.problems]


def returned(step: Any, frames: dict[str, DataFrame], parameters: Any) -> Columns | None:
    """Return the columns of Spark's result; None if Spark or the step refuses the parameters."""
    spark = next(iter(frames.values())).sparkSession
    # Spark itself has to refuse the SQL in which the step has found a fault.
    apply = step.apply if step.name in ("sql", "filter") else step.result
    try:
        return tuple(apply(frames, parameters, StepContext(spark=spark)).columns)
    except DefinitionError:
        return None


def compared(name: str, frames: dict[str, DataFrame], values: dict[str, Any]) -> tuple[Columns | None, list[str]]:
    """Return what the step states, after a comparison with Spark: no problem in what it accepts, no other columns."""
    step = registry()[name]
    assert isinstance(step, Transform)
    parameters = step.parameters.model_validate(values)
    columns, problems = stated(step, frames, parameters)
    expected = returned(step, frames, parameters)
    assert not problems or expected is None, f"Spark returns {expected}, and the step reports {problems}"
    if columns is not None and not problems:
        assert columns == expected
    return columns, problems


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("select", {"columns": ["y", "x"], "rename": {"x": "name"}}, ("y", "name")),
        ("select", {"rename": {"k": "key"}}, ("key", "x", "y", "ts", "odd name", "list", "s")),
        ("delete_columns", {"columns": ["odd name", "x"]}, ("k", "y", "ts", "list", "s")),
        ("filter", {"where": "k > 0 AND `odd name` IS NULL"}, ("k", "x", "y", "ts", "odd name", "list", "s")),
        ("join", {"keys": ["k"], "how": "left"}, ("k", "x", "y", "ts", "odd name", "list", "s", "z", "w")),
        (
            "join",
            {"keys": [{"left": "x", "right": "w"}], "how": "full", "take": ["z"]},
            ("k", "x", "y", "ts", "odd name", "list", "s", "z"),
        ),
        ("join", {"keys": ["k"], "how": "semi"}, ("k", "x", "y", "ts", "odd name", "list", "s")),
        (
            "aggregate",
            {"group_by": ["x"], "measures": {"n": {"function": "count"}, "m": {"function": "mean", "column": "y"}}},
            ("x", "n", "m"),
        ),
        ("deduplicate", {"keys": ["k"], "order_by": ["ts"]}, ("k", "x", "y", "ts", "odd name", "list", "s")),
        ("clean_nan", {"columns": {"y": "mean"}}, ("k", "x", "y", "ts", "odd name", "list", "s")),
        (
            "outliers",
            {"columns": ["y", "k"], "method": "iqr", "action": "flag"},
            ("k", "x", "y", "ts", "odd name", "list", "s", "y_outlier", "k_outlier"),
        ),
        (
            "outliers",
            {"columns": ["y"], "method": "mad", "action": "clip"},
            ("k", "x", "y", "ts", "odd name", "list", "s"),
        ),
        (
            "lookup",
            {"column": "x", "reference_column": "w", "values": ["z"], "missing": "null"},
            ("k", "z", "y", "ts", "odd name", "list", "s"),
        ),
        (
            "data_quality",
            {"rules": [{"rule": "unique", "columns": ["k", "x"]}, {"rule": "referential", "columns": ["k"]}]},
            ("k", "x", "y", "ts", "odd name", "list", "s"),
        ),
    ],
)
def test_the_columns_of_steps(frames, name, values, expected):
    inputs = 2 if name in ("join", "lookup", "data_quality") else 1
    assert compared(name, dict(list(frames.items())[:inputs]), values) == (expected, [])


@pytest.mark.parametrize(
    ("name", "values", "missing"),
    [
        ("select", {"columns": ["x", "X"]}, ["X"]),
        ("select", {"cast": {"q": "int"}}, ["q"]),
        ("delete_columns", {"columns": ["q"]}, ["q"]),
        ("join", {"keys": ["k", "x"], "how": "left", "take": ["q"]}, ["x", "q"]),
        ("aggregate", {"group_by": ["q"], "measures": {"n": {"function": "max", "column": "r"}}}, ["q", "r"]),
        ("deduplicate", {"keys": ["q"], "order_by": ["r"]}, ["q", "r"]),
        ("clean_nan", {"columns": {"q": "mean"}}, ["q"]),
        ("outliers", {"columns": ["q"], "method": "iqr", "action": "drop", "group_by": ["r"]}, ["q", "r"]),
        ("lookup", {"column": "q", "values": ["r"]}, ["q", "q", "r"]),
        ("data_quality", {"rules": [{"rule": "not_null", "column": "q"}], "key": ["r"]}, ["r", "q"]),
        ("filter", {"where": "q > 0 AND a.r = 1 AND x = 'r'"}, ["q", "r"]),
    ],
)
def test_columns_that_an_input_lacks(frames, name, values, missing):
    inputs = 2 if name in ("join", "lookup") else 1
    _, problems = compared(name, dict(list(frames.items())[:inputs]), values)
    assert sorted(problem.split("'")[1] for problem in problems) == sorted(missing)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("join", {"keys": [{"left": "x", "right": "w"}], "how": "left"}),
        ("lookup", {"column": "x", "reference_column": "w", "values": ["k"]}),
        ("delete_columns", {"columns": ["k", "x", "y", "ts", "odd name", "list", "s"]}),
    ],
)
def test_results_that_no_table_has(frames, name, values):
    """Two columns of one name, or no column at all."""
    inputs = 1 if name == "delete_columns" else 2
    _, problems = compared(name, dict(list(frames.items())[:inputs]), values)
    assert len(problems) == 1


QUERIES = [
    ("SELECT * FROM a", ("k", "x", "y", "ts", "odd name", "list", "s")),
    ("SELECT b.*, a.x FROM a JOIN b ON a.k = b.k", ("k", "z", "w", "x")),
    ("SELECT * FROM a JOIN b USING (k)", None),
    ("SELECT * FROM a NATURAL JOIN b", None),
    ("SELECT x, z, k FROM a JOIN b USING (k)", ("x", "z", "k")),
    ("SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k", None),
    ("SELECT x FROM a LEFT ANTI JOIN b ON a.k = b.k AND z > 1", ("x",)),
    ("SELECT X, count(*) AS N FROM A GROUP BY x", ("X", "N")),
    ("SELECT x, count(*) FROM a GROUP BY 1", None),
    ("SELECT x AS v, v AS u FROM a", ("v", "u")),
    ("SELECT x AS v, max(y) AS m FROM a GROUP BY v HAVING m > 1 ORDER BY v, m", ("v", "m")),
    ("SELECT x, sum(y) AS t FROM a GROUP BY ALL ORDER BY ALL", ("x", "t")),
    ("WITH t AS (SELECT x, y FROM a), u AS (SELECT y FROM t) SELECT * FROM u", ("y",)),
    ("WITH t(p, q) AS (SELECT x, y FROM a) SELECT q, p FROM t", ("q", "p")),
    ("SELECT p FROM (SELECT x FROM a) AS t(p)", ("p",)),
    ("SELECT t.x FROM (SELECT x FROM a WHERE y > 1) t JOIN (SELECT w FROM b) u ON t.x = u.w", ("x",)),
    ("SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND z > y)", ("x",)),
    ("SELECT x FROM a WHERE k IN (SELECT k FROM b UNION SELECT k FROM a) AND y > (SELECT max(z) FROM b)", ("x",)),
    ("SELECT (SELECT max(z) FROM b WHERE b.k = a.k) AS m FROM a", ("m",)),
    ("SELECT x FROM a UNION ALL SELECT w FROM b ORDER BY x", ("x",)),
    ("SELECT e FROM a LATERAL VIEW explode(list) t AS e", None),
    ("SELECT explode(list) AS e FROM a", None),
    ("SELECT x, e.m FROM a, LATERAL (SELECT max(z) AS m FROM b WHERE b.k = a.k) e", None),
    ("SELECT s.f, a.s.g, s FROM a", ("f", "g", "s")),
    ("SELECT s.* FROM a", None),
    ("SELECT * EXCEPT (x) FROM a", None),
    ("FROM a SELECT x", ("x",)),
    ("SELECT `odd name` FROM a", ("odd name",)),
    ("SELECT exists(list, i -> i > k) AS q, transform(list, (i, n) -> i + n) AS r FROM a", ("q", "r")),
    ("SELECT current_date AS d, current_timestamp t, user u, current_user c FROM a", ("d", "t", "u", "c")),
    ("SELECT row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a", ("n",)),
    ("SELECT sum(y) OVER w AS s1 FROM a WINDOW w AS (PARTITION BY x)", ("s1",)),
    ("SELECT x, grouping_id() AS g, grouping__id AS h FROM a GROUP BY x WITH CUBE", None),
    ("SELECT x, grouping_id() AS g FROM a GROUP BY CUBE (x, k)", ("x", "g")),
    ("SELECT /*+ BROADCAST(b) */ x FROM a JOIN b ON a.k = b.k", ("x",)),
    (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY y) AS m, count(*) FILTER (WHERE y > 1) AS n FROM a",
        ("m", "n"),
    ),
    ("SELECT timestampadd(HOUR, 1, ts) AS t, datediff(DAY, ts, ts) AS d, extract(HOUR FROM ts) AS h FROM a", None),
    ("SELECT x FROM a DISTRIBUTE BY k SORT BY y", ("x",)),
    ("SELECT x FROM a TABLESAMPLE (10 PERCENT)", ("x",)),
    ("SELECT x FROM a TABLESAMPLE (2 ROWS)", ("x",)),
    ("SELECT x FROM a UNION ALL SELECT w FROM b ORDER BY 1 LIMIT 2 OFFSET 1", ("x",)),
    ("SELECT DISTINCT k FROM a EXCEPT SELECT k FROM b", ("k",)),
    ("SELECT count(*) AS n FROM a JOIN b USING (k) GROUP BY ROLLUP (k) HAVING n > 0", ("n",)),
    ("SELECT * FROM (SELECT x, y FROM a) PIVOT (sum(y) FOR x IN ('p', 'q'))", None),
    ("SELECT * FROM (VALUES (1, 2)) AS t(p, q)", None),
    ("SELECT id FROM range(10)", ("id",)),
    ("SELECT t.id, r.x FROM range(3) t CROSS JOIN a r", ("id", "x")),
    ("SELECT struct(*) AS v FROM a", ("v",)),
    ("SELECT stack(2, x, x) FROM a", None),
    ("SELECT count(DISTINCT k, x) AS n, max_by(x, y) AS m, first(x) IGNORE NULLS AS f FROM a", ("n", "m", "f")),
    ("SELECT x COLLATE UTF8_LCASE AS c FROM a", ("c",)),
    ("SELECT a.x FROM a AS a JOIN a AS c ON a.k = c.k", ("x",)),
    ("SELECT 'ü😀' AS u, x FROM a", ("u", "x")),
    ("SELECT x FROM a |> WHERE x > 'm' |> SELECT x AS v", None),
    ("SELECT CASE x WHEN 'p' THEN y END AS c, cast(y AS decimal(10,2)) AS d, list[0] AS e FROM a", ("c", "d", "e")),
]
"""Queries that Spark accepts, and their columns; None where the parser does not determine them."""


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=[query for query, _ in QUERIES])
def test_the_columns_of_queries(frames, query, expected):
    step = registry()["sql"]
    assert returned(step, frames, step.parameters.model_validate({"query": query})) is not None, "Spark refuses it"
    columns, problems = compared("sql", frames, {"query": query})
    assert problems == []
    assert expected is None or columns == expected


def test_a_name_of_two_columns_of_the_result_is_reported(frames):
    """Spark returns them, but a run can neither store nor read them."""
    step = registry()["sql"]
    _, problems = stated(step, frames, step.parameters.model_validate({"query": "SELECT * FROM a, b"}))
    assert problems == ["two columns of the result have the name k: rename one of them with AS"]


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("SELECT q, x FROM a WHERE r > 1 GROUP BY p", ["q", "r", "p"]),
        ("SELECT a.q, b.x FROM a JOIN b ON a.k = b.kk", ["q", "x", "kk"]),
        ("SELECT avg(q) AS q FROM a", ["q"]),
        ("WITH t AS (SELECT q FROM a) SELECT q FROM t", ["q"]),
        ("WITH t AS (SELECT x FROM a) SELECT y FROM t", ["y"]),
        ("SELECT x FROM a WHERE k IN (SELECT q FROM b WHERE r = 1)", ["q", "r"]),
        ("SELECT x FROM a UNION SELECT q FROM b", ["q"]),
        ("SELECT t.p, t.x FROM (SELECT x FROM a) AS t(p)", ["x"]),
        ("SELECT exists(list, i -> i > q) AS e FROM a", ["q"]),
        ("SELECT x AS v FROM a WHERE v = 'p' AND q = 1", ["v", "q"]),
        ("SELECT sum(y) OVER (PARTITION BY q) AS s FROM a", ["q"]),
    ],
)
def test_columns_that_a_query_reads_and_no_input_has(frames, query, missing):
    _, problems = compared("sql", frames, {"query": query})
    assert sorted(problem.split("'")[1] for problem in problems) == sorted(missing)
