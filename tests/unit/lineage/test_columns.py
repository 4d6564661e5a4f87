"""The origins of columns: of queries, as DuckDB shows by changing one column at a time, and of each step."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from slackwater.lineage.columns import column_origins
from slackwater.lineage.sql_origins import Computed, query_origins
from slackwater.pipeline.definition import Pipeline
from tests.example_project import example_project

pytestmark = pytest.mark.unit

TABLES = {"f": ("carrier", "delay", "distance", "Year"), "w": ("year", "temp")}
KNOWN = {name: {column: {(name, column): Computed.IDENTITY} for column in columns} for name, columns in TABLES.items()}
QUERIES = [
    "SELECT carrier, delay + distance AS total, 1 AS one, count(*) AS n FROM f GROUP BY ALL",
    "SELECT upper(carrier) AS c, coalesce(delay, 0) / 2 AS half FROM f",
    "WITH x AS (SELECT carrier c, delay * 2 AS d FROM f) SELECT c, x.d + 1 AS e FROM x",
    "SELECT a.carrier, b.total FROM f a, (SELECT sum(distance) AS total FROM f) b",
    "SELECT carrier, (SELECT max(temp) FROM w) AS warmest FROM f",
    "SELECT CASE WHEN distance > 3 THEN carrier ELSE 'x' END AS k, YEAR FROM f",
    "SELECT carrier FROM f UNION ALL SELECT cast(temp AS STRING) FROM w",
    "SELECT delay, row_number() OVER (ORDER BY distance) AS r FROM f",
]


def rows(query: str, changed: tuple[str, str] | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run the query over three rows of each table, of which one column has other values."""
    with duckdb.connect() as connection:
        for table, columns in TABLES.items():
            of_rows = [
                [
                    f"'{number}'" if column == "carrier" else str(number)
                    for index, column in enumerate(columns)
                    for number in [(3 * row + 7 * index) % 5 + (10 - 6 * row) * (changed == (table, column))]
                ]
                for row in range(3)
            ]
            values = ", ".join(f"({', '.join(each)})" for each in of_rows)
            names = ", ".join(columns)
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM (VALUES {values}) t({names})")
        found = connection.execute(query)
        return [column[0] for column in found.description], found.fetchall()


@pytest.mark.parametrize("query", QUERIES)
def test_a_column_changes_only_with_its_origins(query):
    origins = query_origins(query, KNOWN)
    names, before = rows(query, None)
    assert {name.lower() for name in origins} <= {name.lower() for name in names}
    changes: dict[str, set[tuple[str, str]]] = {name: set() for name in origins}
    for table, columns in TABLES.items():
        for column in columns:
            _, after = rows(query, (table, column))
            for name in origins:
                index = [each.lower() for each in names].index(name.lower())
                if sorted(str(row[index]) for row in before) != sorted(str(row[index]) for row in after):
                    changes[name].add((table, column))
    for name, changed in changes.items():
        assert changed <= set(origins[name]), name
    # Every origin but the order of a window changes the values of these queries.
    assert sum(map(len, changes.values())) >= sum(map(len, origins.values())) - query.count("OVER")


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT delay FROM f", {"delay": {"delay": "IDENTITY"}}),
        ("SELECT delay + 1 AS d FROM f", {"d": {"delay": "TRANSFORMATION"}}),
        ("SELECT sum(delay) + 1 AS d FROM f", {"d": {"delay": "AGGREGATION"}}),
        ("WITH x AS (SELECT max(delay) m FROM f) SELECT m / 2 AS d FROM x", {"d": {"delay": "AGGREGATION"}}),
    ],
)
def test_it_says_how_a_value_is_computed(query, kinds):
    found = query_origins(query, KNOWN)
    assert {name: {column: kind.name for (_, column), kind in of.items()} for name, of in found.items()} == kinds


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM f",
        "SELECT f.* FROM f",
        "SELECT explode(array(1, 2)) AS e, delay FROM f",
        "SELECT delay FROM unknown",
        "SELECT missing FROM f",
        "SELECT (",
        "SELECT year FROM f, w",
        "SELECT count(*) AS n, 3 AS three FROM f",
        "WITH RECURSIVE r AS (SELECT delay AS n FROM f UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
    ],
)
def test_what_is_not_certain_is_left_out(query):
    assert query_origins(query, {**KNOWN, "unknown": {}}) == {}


@pytest.mark.parametrize("part", ["sqlglot.parse_one", "qualify"])
def test_nothing_is_known_of_a_query_that_is_nested_too_deeply(monkeypatch, part):
    def fail(*_: Any, **__: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(f"slackwater.lineage.sql_origins.{part}", fail)
    assert query_origins("SELECT delay FROM f", KNOWN) == {}


def origins(*steps: tuple[str, str, dict[str, Any], list[str]]) -> dict[str, set[str]]:
    """Return the columns of the inputs by column of the last step; each step has a name, a kind, parameters, inputs."""
    pipeline = Pipeline.model_validate(
        {
            "pipeline": "p",
            "sources": ["flights", "weather"],
            "steps": {name: {"step": kind, "with": given, "depends_on": read} for name, kind, given, read in steps},
            "publish": {"step": steps[-1][0], "key": ["date"]},
        }
    )
    found = column_origins(example_project(), pipeline)
    return {name: {column for _, column in of} for name, of in found.items()}


NARROW = ("a", "select", {"columns": ["origin", "dep_delay", "carrier"]}, ["flights"])
HOURLY = ("w", "select", {"columns": ["origin", "temp"]}, ["weather"])
MEASURES = {"n": {"function": "count"}, "m": {"function": "max", "column": "dep_delay"}}
SAME = {name: {name} for name in ("origin", "dep_delay", "carrier")}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([NARROW], SAME),
        ([NARROW, ("b", "filter", {"where": "dep_delay > 0"}, ["a"])], SAME),
        ([NARROW, ("b", "deduplicate", {"keys": ["origin"], "order_by": ["dep_delay"]}, ["a"])], SAME),
        ([NARROW, ("b", "clean_nan", {"strategy": "drop"}, ["a"])], SAME),
        ([NARROW, ("b", "data_quality", {"rules": [{"rule": "not_null", "column": "origin"}]}, ["a"])], SAME),
        ([NARROW, ("b", "delete_columns", {"columns": ["origin", "carrier"]}, ["a"])], {"dep_delay": {"dep_delay"}}),
        (
            [NARROW, ("b", "select", {"columns": ["dep_delay"], "rename": {"dep_delay": "d"}}, ["a"])],
            {"d": {"dep_delay"}},
        ),
        (
            [NARROW, ("b", "aggregate", {"group_by": ["origin"], "measures": MEASURES}, ["a"])],
            {"origin": {"origin"}, "m": {"dep_delay"}},
        ),
        ([NARROW, HOURLY, ("b", "join", {"keys": ["origin"], "how": "left"}, ["a", "w"])], {**SAME, "temp": {"temp"}}),
        ([NARROW, HOURLY, ("b", "join", {"keys": ["origin"], "how": "semi"}, ["a", "w"])], SAME),
        # Its key may come from either side.
        ([NARROW, HOURLY, ("b", "join", {"keys": ["origin"], "how": "full"}, ["a", "w"])], {}),
        (
            [NARROW, HOURLY, ("b", "lookup", {"column": "origin", "values": ["temp"]}, ["a", "w"])],
            {"dep_delay": {"dep_delay"}, "carrier": {"carrier"}, "temp": {"temp"}},
        ),
        ([NARROW, ("b", "outliers", {"columns": ["dep_delay"], "method": "iqr", "action": "clip"}, ["a"])], {}),
    ],
)  # fmt: skip
def test_the_origins_of_a_step(steps, expected):
    assert origins(*steps) == expected
