"""`join` and `lookup`: every kind of join compared with DuckDB, and the guards of keys."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pytest

from slackwater.errors import DataError, DefinitionError
from slackwater.steps.registry import registry
from slackwater.steps.spark_errors import explain
from slackwater.steps.transform.lookup import verify
from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, described, refused

pytestmark = pytest.mark.usefixtures("interpreted")

LEFT = [
    (1, "a", "l1"),
    (2, "b", "l2"),
    (2, None, "l3"),
    (None, "a", "l4"),
    (1, "a", "l5"),
    (9, "ü", "l6"),
    (3, "c", "x"),
]
RIGHT = [(1, "a", 10), (2, "b", None), (None, "a", 30), (None, None, 40), (9, "ü", 50), (7, "q", 60)]


@pytest.fixture(scope="module")
def sides(spark) -> dict[str, Any]:
    return {
        "links ü": frame_of(spark, LEFT, "`k.1` int, k2 string, l string").repartition(2),
        "rechts": frame_of(spark, RIGHT, "n int, k2 string, w int"),
    }


KEYS = [{"left": "k.1", "right": "n"}, "k2"]


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("how", "repeated"),
    [(how, False) for how in ("inner", "left", "right", "full", "semi", "anti")]
    + [(how, True) for how in ("inner", "left", "right", "full")],
)
def test_rows_are_those_of_duckdb(spark, sides, how, repeated):
    """With a right key twice, a row becomes two rows."""
    right = RIGHT + [(1, "a", 11)] * repeated
    frames = sides if not repeated else {**sides, "rechts": frame_of(spark, right, sides["rechts"].schema)}
    many = {"many": True} if how not in ("semi", "anti") and (repeated or how == "right") else {}
    result = applied("join", frames, keys=KEYS, how=how, **many)
    added = [] if how in ("semi", "anti") else ["w"]
    assert result.table.column_names == ["k.1", "k2", "l", *added]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE a (k1 INT, k2 TEXT, l TEXT); CREATE TABLE b (k1 INT, k2 TEXT, w INT)")
        connection.executemany("INSERT INTO a VALUES (?, ?, ?)", LEFT)
        connection.executemany("INSERT INTO b VALUES (?, ?, ?)", right)
        columns = ", ".join(["k1", "k2", "l", *added])
        expected = connection.execute(f"SELECT {columns} FROM a {how} JOIN b USING (k1, k2)").fetchall()
        left, right_only = (
            connection.execute(f"SELECT count(*) FROM {one} ANTI JOIN {other} USING (k1, k2)").fetchone()[0]
            for one, other in (("a", "b"), ("b", "a"))
        )
    rows = [tuple(row.values()) for row in result.rows]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    unmatched = {"left_unmatched": left} if how in ("left", "full") else {}
    unmatched |= {"right_unmatched": right_only} if how in ("right", "full") else {}
    assert result.effect == unmatched


@pytest.mark.usefixtures("generated")
def test_nan_equals_nan_and_empty_inputs_join(spark):
    left = frame_of(spark, [(math.nan, 1), (-0.0, 2)], "k double, v int")
    right = frame_of(spark, [(math.nan, "a"), (0.0, "b"), (None, "c")], "k double, w string")
    result = applied("join", {"left": left, "right": right}, keys=["k"], how="left")
    assert sorted((row["v"], row["w"]) for row in result.rows) == [(1, "a"), (2, "b")]
    empty = applied("join", {"left": left.where("v > 5"), "right": right}, keys=["k"], how="full")
    assert sorted(empty.column("w")) == ["a", "b", "c"]
    assert empty.effect == {"left_unmatched": 0, "right_unmatched": 3}


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("inner", 'rechts has 2 rows for one key, such as {"k.1":1,"k2":"a"}'),
        ("left", 'rechts has 2 rows for one key, such as {"k.1":1,"k2":"a"}'),
        ("full", 'rechts has 2 rows for one key, such as {"k.1":1,"k2":"a"}'),
        # Each row of the right input is kept, so a key that the left input has twice repeats it.
        ("right", 'links ü has 2 rows for one key, such as {"k.1":1,"k2":"a"}'),
    ],
)
def test_a_repeated_key_fails(spark, sides, how, fault):
    right = frame_of(spark, [*RIGHT, (None, "a", 31), (1, "a", 11)], sides["rechts"].schema)
    result, _ = described("join", {**sides, "rechts": right}, keys=KEYS, how=how)
    with pytest.raises(Exception, match="rows for one key") as failure:
        result.collect()
    assert explain(failure.value) == (
        DataError.__name__,
        f"join: {fault}; aggregate them in a step before the join, or set `many: true` if a row may become several",
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"keys": ["k2"], "how": "semi", "take": ["w"]}, "take: the result of a semi join has no columns of the right"),
        ({"keys": ["k2"], "how": "anti", "many": True}, "many: a anti join repeats no row"),
        ({"keys": ["k2", {"left": "l", "right": "K2"}], "how": "left"}, "keys: a column is named twice (k2)"),
        ({"keys": KEYS, "how": "left", "take": ["n"]}, "take: n is a key"),
        ({"keys": [{"left": "k.1", "right": "k2"}], "how": "left"}, "keys: k.1 is int in links ü, and k2 is string in"),
        (
            {"keys": [{"left": "k1", "right": "n"}], "how": "left"},
            "keys.0.left: no column 'k1' in links ü (did you mean",
        ),
        ({"keys": [{"left": "k.1", "right": "n"}], "how": "full"}, "take: links ü has a column k2 already: list"),
    ],
)
def test_join_refuses_what_does_not_fit(sides, parameters, message):
    assert refused("join", sides, **parameters).startswith(message)


@pytest.fixture(scope="module")
def carriers(spark) -> dict[str, Any]:
    rows = [(1, "AA", 0.5), (2, "ZZ", None), (3, None, 1.5), (4, "AA", 2.5), (5, "Ä", 3.5)]
    names = [("AA", "American", 1), ("B6", "JetBlue", 2), (None, "nobody", 3), (None, "twice", 4)]
    return {
        "flights": frame_of(spark, rows, "id int, carrier string, x double").repartition(2),
        "airlines": frame_of(spark, names, "code string, `na.me` string, n int"),
    }


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("missing", "names"),
    [
        (None, {1: "American", 2: None, 3: None, 4: "American", 5: None}),
        ("keep", {1: "American", 2: "ZZ", 3: None, 4: "American", 5: "Ä"}),
        ("drop", {1: "American", 3: None, 4: "American"}),
    ],
)
def test_lookup_replaces_a_key(carriers, missing, names):
    result = applied("lookup", carriers, column="carrier", reference_column="code", values=["na.me"], missing=missing)
    assert result.table.column_names == ["id", "na.me", "x"]
    assert {row["id"]: row["na.me"] for row in result.rows} == names
    dropped = {"rows_dropped": 2} if missing == "drop" else {}
    assert result.effect == {"missing": 2, "examples": ["ZZ", "Ä"], **dropped}


def test_a_missing_key_fails_with_examples(carriers):
    parameters = {"column": "carrier", "reference_column": "code", "values": ["na.me", "n"]}
    result = applied("lookup", carriers, **parameters)
    assert result.table.column_names == ["id", "na.me", "n", "x"]
    model = registry()["lookup"].parameters
    with pytest.raises(DataError, match="column: the reference lacks the carrier of 2 rows, such as ZZ, Ä: add them"):
        verify(model(**parameters), result.effect)
    verify(model(**parameters, missing="drop"), result.effect)
    empty = {**carriers, "flights": carriers["flights"].where("id > 9")}
    assert applied("lookup", empty, **parameters).effect == {"missing": 0, "examples": []}


@pytest.mark.usefixtures("generated")
def test_the_reference_has_each_key_once(carriers):
    airlines = carriers["airlines"]
    frames = {**carriers, "airlines": airlines.union(airlines.where("code = 'AA'"))}
    result, _ = described("lookup", frames, column="carrier", reference_column="code", values=["n"])
    with pytest.raises(Exception, match="rows for one key") as failure:
        result.collect()
    assert explain(failure.value) == (
        "DataError",
        'lookup: airlines has 2 rows for one key, such as {"code":"AA"}; keep one of them in a deduplicate step before',
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "column: no column 'carrier' in airlines"),
        ({"reference_column": "n"}, "column: carrier is string in flights, and n is int in airlines"),
        (
            {"reference_column": "code", "values": ["n"], "missing": "keep"},
            "missing: carrier is string in flights, and n is int in airlines",
        ),
    ],
)
def test_lookup_refuses_what_does_not_fit(carriers, parameters, message):
    assert refused("lookup", carriers, **{"column": "carrier", "values": ["n"], **parameters}).startswith(message)
    with pytest.raises(DefinitionError, match="values: flights has a column x already"):
        described(
            "lookup",
            {**carriers, "airlines": carriers["airlines"].withColumnRenamed("n", "X")},
            column="carrier",
            reference_column="code",
            values=["X"],
        )
