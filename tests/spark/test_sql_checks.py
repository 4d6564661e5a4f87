"""What the checks without Spark know about its SQL is what Spark says."""

from __future__ import annotations

import re

import pytest

from slackwater.steps.spark_functions import ARGUMENTS
from slackwater.steps.sql_columns import query_columns
from slackwater.steps.sql_rules import check_query

pytestmark = pytest.mark.spark

COLUMNS = {"a": ("shop", "day", "amount", "parts"), "b": ("shop", "city", "place")}
# Of the parser, and thus not in Spark's list.
GRAMMAR = {"timestampadd", "timestampdiff", "try_cast"}
VALID = [
    "SELECT * FROM a",
    "SELECT a.shop, `a`.amount + 1 AS more, count(*) OVER () AS n FROM a",
    "SELECT shop, sum(amount) AS s, s / 2 AS half, any_value(day) FROM a GROUP BY shop HAVING s > 1 ORDER BY half",
    "SELECT upper(shop) AS name, count(*) FROM a GROUP BY name",
    "SELECT upper(shop), count(*) FROM a GROUP BY upper(shop) ORDER BY upper(shop)",
    "SELECT shop, count(*) FROM a GROUP BY 1 ORDER BY 2",
    "SELECT shop, window.start, window, count(*) FROM a GROUP BY shop, window(timestamp_seconds(amount), '1 hour')",
    "SELECT amount + 1, max(shop) FROM a GROUP BY 1 + amount",
    "SELECT shop, count(*) FROM a GROUP BY ALL ORDER BY ALL",
    "SELECT shop, day, grouping(shop), grouping_id(), count(*) FROM a GROUP BY CUBE (shop, day)",
    "SELECT shop, sum(amount) FROM a GROUP BY shop WITH ROLLUP",
    "SELECT shop, sum(amount) FROM a GROUP BY GROUPING SETS ((shop), ())",
    "SELECT shop, sum(sum(amount)) OVER (ORDER BY shop) AS total FROM a GROUP BY shop",
    "SELECT shop, rank() OVER (ORDER BY sum(amount) DESC) FROM a GROUP BY shop",
    "SELECT lag(amount) IGNORE NULLS OVER w AS before FROM a WINDOW w AS (PARTITION BY shop ORDER BY day)",
    "SELECT sum(amount) FILTER (WHERE shop = 'x') AS s, count_if(amount > 1), max_by(shop, amount) FROM a",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount), mode() WITHIN GROUP (ORDER BY shop) FROM a",
    "SELECT percentile(amount, 0.5), approx_percentile(amount, 0.5, 100), first(shop, true), mode(shop) FROM a",
    "SELECT any(amount > 1), some(amount > 1), every(amount > 1), bool_and(amount > 1) FROM a",
    "SELECT place.x, b.place.y, place['x'] FROM b",
    "SELECT place.x, max(city) FROM b GROUP BY place.x",
    "SELECT place.x AS x, max(city) FROM b GROUP BY place",
    "SELECT transform(parts, part -> part + amount), filter(parts, (p, i) -> i > 0), "
    "aggregate(parts, 0D, (s, p) -> s + p) FROM a",
    "SELECT named_struct('x', 1) AS s, s.x AS x FROM a",
    "SELECT a.shop, city FROM a JOIN b ON a.shop = b.shop",
    "SELECT shop, city FROM a JOIN b USING (shop) WHERE shop > '' GROUP BY shop, city",
    "SELECT shop, city FROM a NATURAL JOIN b",
    "SELECT shop FROM a LEFT SEMI JOIN b ON a.shop = b.shop",
    "SELECT shop FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.shop = a.shop AND amount > 1)",
    "SELECT shop, (SELECT max(city) FROM b WHERE b.shop = a.shop) AS city FROM a",
    "SELECT shop FROM a GROUP BY shop HAVING max(amount) > (SELECT count(*) FROM b WHERE b.shop = a.shop)",
    "WITH t AS (SELECT shop, max(amount) AS top FROM a GROUP BY shop), u(x) AS (SELECT city FROM b) "
    "SELECT t.shop, top, x FROM t, u",
    "SELECT s.shop FROM (SELECT shop, city FROM b) s WHERE s.city IS NOT NULL",
    "SELECT shop FROM a UNION SELECT city FROM b ORDER BY shop",
    "SELECT x, y FROM VALUES (1, 2) AS t(x, y)",
    "SELECT shop, part FROM a LATERAL VIEW explode(parts) p AS part",
    "SELECT shop, explode(parts) AS part FROM a",
    "SELECT id FROM range(3)",
    "SELECT current_date, current_timestamp(), now(), user FROM a",
    "SELECT date_add(day, 1), date_add(DAY, 1, day), datediff(day, day), timestampadd(HOUR, 2, day), "
    "extract(YEAR FROM day), date_trunc('hour', day), trim(BOTH 'x' FROM shop), substring(shop FROM 2 FOR 1), "
    "position('x' IN shop), ceil(amount), floor(amount, 1), overlay(shop PLACING 'x' FROM 1), nvl(shop, 'x'), "
    "nvl2(shop, 1, 2), if(amount > 1, 1, 2), decode(shop, 'a', 1, 2), iff.amount, "
    "try_cast(shop AS INT), string(amount), left(shop, 1) "
    "FROM a iff",
    "SELECT struct(*) AS everything, count(*), count(1), hash(shop) FROM a GROUP BY ALL",
    "SELECT /*+ BROADCAST(b) */ a.shop FROM a JOIN b ON a.shop = b.shop",
    "SELECT DISTINCT shop FROM a ORDER BY shop LIMIT 3",
]


@pytest.fixture
def tables(spark):
    spark.createDataFrame([], "shop string, day timestamp, amount double, parts array<double>").createOrReplaceTempView(
        "a"
    )
    spark.createDataFrame([], "shop string, city string, place struct<x int, y int>").createOrReplaceTempView("b")
    yield
    for name in COLUMNS:
        spark.catalog.dropTempView(name)


def test_the_functions_are_those_of_spark(spark):
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    known = {name for names in ARGUMENTS.values() for name in names.split()} - GRAMMAR
    operators = {"and", "between", "case", "div", "in", "not", "or", "when"}
    assert {name for name in names if re.fullmatch(r"\w+", name)} - operators == known


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("query", VALID)
def test_what_spark_accepts_has_no_problem(spark, query):
    spark.sql(query)
    check_query(query)
    assert query_columns(query, COLUMNS, path=("query",))[1] == []
