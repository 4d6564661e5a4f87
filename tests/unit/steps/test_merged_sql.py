"""Which queries and conditions can be computed from parts of the rows."""

from __future__ import annotations

import pytest

from slackwater.steps.merged_sql import is_condition_of_row, merges_of_query

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("query", "merges"),
    [
        ("SELECT a, count(*) AS n, sum(b), min(b), max(b) FROM t GROUP BY a", ["key", "sum", "sum", "min", "max"]),
        ("SELECT count(*), a, count(b, c), count_if(b > 1) FROM t AS x GROUP BY a", ["sum", "key", "sum", "sum"]),
        ("SELECT hour(at) AS h, upper(a), sum(b * c) FROM t GROUP BY hour(at), upper(a)", ["key", "key", "sum"]),
        ("SELECT date_trunc('hour', at) AS h, max(b) FROM t GROUP BY date_trunc('hour', at)", ["key", "max"]),
        ("select a, SUM(b) from T where b between 1 and 9 and c in (1, 2) group by a", ["key", "sum"]),
        ("SELECT sum(CASE WHEN a = 'x' THEN 1 ELSE 0 END) AS x, sum(if(a IS NULL, 1, 0)) FROM t", ["sum", "sum"]),
        ("SELECT a, sum(CAST(b AS decimal(9, 2))) FROM t WHERE coalesce(b, 0) % 2 = 0 GROUP BY a", ["key", "sum"]),
    ],
)
def test_plain_groupings_are_merged_by_column(query, merges):
    assert merges_of_query(query) == merges


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, avg(b) FROM t GROUP BY a",
        "SELECT a, round(sum(b), 2) FROM t GROUP BY a",
        "SELECT a, sum(b) / count(*) FROM t GROUP BY a",
        "SELECT a, sum(b) + 1 FROM t GROUP BY a",
        "SELECT a, median(b) FROM t GROUP BY a",
        "SELECT a, count(DISTINCT b) FROM t GROUP BY a",
        "SELECT a, sum(DISTINCT b) FROM t GROUP BY a",
        "SELECT a, sum(b) FILTER (WHERE c) FROM t GROUP BY a",
        "SELECT a, sum(b) FROM t GROUP BY a HAVING sum(b) > 1",
        "SELECT a, sum(b) FROM t GROUP BY a ORDER BY a",
        "SELECT a, sum(b) FROM t GROUP BY a LIMIT 5",
        "SELECT a, sum(b) FROM t GROUP BY a LIMIT 5 OFFSET 1",
        "SELECT DISTINCT a, sum(b) FROM t GROUP BY a",
        "SELECT a, sum(b) FROM t GROUP BY a UNION ALL SELECT a, sum(b) FROM t GROUP BY a",
        "SELECT a, sum(sum(b)) OVER () FROM t GROUP BY a",
        "SELECT a, sum(b) OVER (PARTITION BY a) FROM t",
        "SELECT a, sum(b) FROM t QUALIFY row_number() OVER (ORDER BY a) = 1",
        "SELECT a, sum(b) FROM t, u GROUP BY a",
        "SELECT a, sum(b) FROM t JOIN u USING (a) GROUP BY a",
        "SELECT a, sum(b) FROM (SELECT * FROM t) GROUP BY a",
        "WITH u AS (SELECT * FROM t) SELECT a, sum(b) FROM u GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE b > (SELECT avg(b) FROM t) GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE a IN (SELECT a FROM t) GROUP BY a",
        "SELECT a, sum(b) FROM t LATERAL VIEW explode(c) AS d GROUP BY a",
        "SELECT sum(id) FROM range(9)",
        "SELECT sum(b) FROM t TABLESAMPLE (10 PERCENT)",
        "SELECT /*+ COALESCE(2) */ a, sum(b) FROM t GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE at < current_timestamp() GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE at < current_timestamp GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE at < localtimestamp GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE at < now() GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE day < DATE 'today' GROUP BY a",
        "SELECT a, sum(b) FROM t WHERE rand() < 0.5 GROUP BY a",
        "SELECT a, sum(rand()) FROM t GROUP BY a",
        "SELECT a, sum(monotonically_increasing_id()) FROM t GROUP BY a",
        "SELECT a, max(input_file_name()) FROM t GROUP BY a",
        "SELECT sum(b) FROM t GROUP BY a",
        "SELECT upper(a) AS a, sum(b) FROM t GROUP BY a",
        "SELECT a, 1, sum(b) FROM t GROUP BY 1",
        "SELECT a, sum(b) FROM t GROUP BY ALL",
        "SELECT a, sum(b) FROM t GROUP BY ROLLUP (a)",
        "SELECT a, sum(b) FROM t GROUP BY a WITH CUBE",
        "SELECT a, sum(b) FROM t GROUP BY a GROUPING SETS ((a))",
        "SELECT a FROM t GROUP BY a",
        "SELECT a, b FROM t",
        "SELECT * FROM t",
        "SELECT 1",
    ],
)
def test_a_query_of_another_form_needs_all_rows(query):
    assert merges_of_query(query) is None


@pytest.mark.parametrize("condition", ["a > 1", "a IS NOT NULL AND NOT b", "lower(c) LIKE 'x%' OR a <=> b"])
def test_a_condition_of_values_of_a_row_is_the_same_in_each_run(condition):
    assert is_condition_of_row(condition)


@pytest.mark.parametrize(
    "condition", ["rand() < 0.1", "at > current_date", "at > localtimestamp", "f(a)", "uuid() > a"]
)
def test_a_condition_may_differ_between_runs(condition):
    assert not is_condition_of_row(condition)
