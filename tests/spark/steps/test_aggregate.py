"""`aggregate` and `deduplicate`, compared with pandas and the standard library."""

from __future__ import annotations

import math
import random
from datetime import datetime
from decimal import Decimal

import pandas as pd
import pytest

from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, described, refused

pytestmark = pytest.mark.usefixtures("interpreted")

MEASURES = {
    "rows": {"function": "count"},
    "values ü": {"function": "count", "column": "x"},
    "different": {"function": "count_distinct", "column": "x"},
    "total": {"function": "sum", "column": "x"},
    "least": {"function": "min", "column": "x"},
    "most": {"function": "max", "column": "x"},
    "mean": {"function": "mean", "column": "x"},
    "spread": {"function": "stddev", "column": "x"},
    "middle": {"function": "median", "column": "x"},
    "p.90": {"function": "quantile", "column": "x", "q": 0.9},
    "opened": {"function": "first", "column": "x", "order_by": "at"},
    "closed": {"function": "last", "column": "x", "order_by": "at"},
}


@pytest.fixture(scope="module")
def rows() -> list[tuple[str | None, int | None, float | None, int]]:
    """Keys, times and values with gaps, repeated times, and one key with most of the rows."""
    chance = random.Random(3)  # noqa: S311 - data, no secret
    return [
        (
            chance.choice(["big"] * 9 + ["a", "ü", None]),
            chance.choice([None, *range(40)]),
            chance.choice([None, round(chance.gauss(0, 9), 1), 5.0]),
            number,
        )
        for number in range(400)
    ]


@pytest.mark.usefixtures("generated")
def test_measures_are_those_of_pandas(spark, rows):
    frame = frame_of(spark, rows, "`gr.oup` string, at int, x double, n int").repartition(3)
    result = applied("aggregate", frame, group_by=["gr.oup"], measures=MEASURES)
    assert result.table.column_names == ["gr.oup", *MEASURES]
    expected = {}
    for key, group in pd.DataFrame(rows, columns=["k", "at", "x", "n"]).groupby("k", dropna=False):
        x, timed = group["x"], group[group["at"].notna()]
        first, last = (timed[timed["at"] == at]["x"] for at in (timed["at"].min(), timed["at"].max()))
        expected[None if pd.isna(key) else key] = [
            len(group),
            x.count(),
            x.nunique(),
            x.sum(),
            x.min(),
            x.max(),
            x.mean(),
            x.std(),
            x.median(),
            x.quantile(0.9),
            # Of rows at one time, null is the smallest value.
            math.nan if first.isna().any() else first.min(),
            last.max(),
        ]
    computed = {row.pop("gr.oup"): [math.nan if v is None else v for v in row.values()] for row in result.rows}
    assert computed.keys() == expected.keys()
    for key, values in computed.items():
        assert values == pytest.approx(expected[key], nan_ok=True), key


@pytest.mark.usefixtures("generated")
def test_without_groups_there_is_one_row(spark):
    frame = frame_of(spark, [(1, None)], "at int, x double")
    nothing = {name: 0 if name in ("rows", "values ü", "different") else None for name in MEASURES}
    assert applied("aggregate", frame.where("at > 1"), measures=MEASURES).rows == [nothing]
    assert applied("aggregate", frame, measures=MEASURES).rows == [nothing | {"rows": 1}]
    assert applied("aggregate", frame.where("at > 1"), group_by=["at"], measures=MEASURES).rows == []


@pytest.mark.usefixtures("generated")
def test_types_of_measures(spark):
    large = Decimal("9999999999.99")
    frame = frame_of(spark, [(large, 2**62, math.nan), (large, 1, 1.0)], "d decimal(12,2), n bigint, x double")
    measures = {
        f"{function}_{column}": {"function": function, "column": column}
        for function in ("sum", "mean", "max", "median")
        for column in ("d", "n", "x")
    }
    (row,) = applied("aggregate", frame, measures=measures).rows
    assert row["sum_d"] == large * 2
    assert (row["mean_d"], row["max_d"]) == (large, large)
    assert (row["sum_n"], row["mean_n"]) == (2**62 + 1, 2**61)
    assert [math.isnan(row[f"{name}_x"]) for name in ("sum", "mean", "max")] == [True] * 3
    overflow, _ = described(
        "aggregate", frame.selectExpr("n * 1 AS n").union(frame.select("n")), measures={"s": measures["sum_n"]}
    )
    with pytest.raises(
        Exception, match=r"aggregate: measures\.s: n: the sum has too many digits: cast the column to decimal"
    ):
        overflow.collect()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"group_by": ["m"]}, "group_by: m is map<string,int>, by which rows cannot be compared"),
        (
            {"measures": {"a": {"function": "mean", "column": "k"}}},
            "measures.a.column: numbers are needed, and k is str",
        ),
        ({"measures": {"a": {"function": "max", "column": "m"}}}, "measures.a.column: m is map<string,int>"),
        (
            {"measures": {"a": {"function": "last", "column": "k", "order_by": "t"}}},
            "measures.a.order_by: no column 't' in rows",
        ),
    ],
)
def test_aggregate_refuses_what_does_not_fit(spark, parameters, message):
    frame = frame_of(spark, [], "k string, m map<string,int>")
    assert refused("aggregate", frame, **{"measures": {"n": {"function": "count"}}, **parameters}).startswith(message)


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize("keep", ["latest", "earliest"])
def test_one_row_of_each_key_is_kept(spark, rows, keep):
    schema = "`k.ey` string, at int, x double, n int"
    result = applied(
        "deduplicate", frame_of(spark, rows, schema).repartition(3), keys=["k.ey"], order_by=["at"], keep=keep
    )
    assert result.table.column_names == ["k.ey", "at", "x", "n"]

    def rank(row: tuple) -> list:
        """How early a row comes; null comes last."""
        sign = -1 if keep == "latest" else 1
        return [(value is None, sign * (value or 0)) for value in row[1:]]

    expected = {min((row for row in rows if row[0] == key), key=rank) for key in {row[0] for row in rows}}
    assert {tuple(row.values()) for row in result.rows} == expected
    assert result.effect == {}


@pytest.mark.usefixtures("generated")
def test_equal_zeros_and_rows_without_an_order(spark):
    """NaN is the largest number, a null comes last in both directions, and -0.0 equals 0.0."""
    rows = [(0.0, 1.0, "a"), (-0.0, 2.0, "b"), (1.0, -0.0, "c"), (1.0, 0.0, "d"), (2.0, math.nan, "e")]
    rows += [(2.0, math.inf, "f"), (3.0, None, "g"), (3.0, math.nan, "h"), (4.0, None, "i"), (4.0, None, "j")]
    frame = frame_of(spark, rows, "k double, o double, s string").repartition(3)
    for keep, kept in (("latest", "bdehj"), ("earliest", "acfhi")):
        result = applied("deduplicate", frame, keys=["k"], order_by=["o"], keep=keep)
        found = {row["s"]: (row["k"], row["o"]) for row in result.rows}
        assert "".join(sorted(found)) == kept
        assert {s: repr(values) for s, values in found.items()} == {s: repr((k, o)) for k, o, s in rows if s in kept}


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize("function", ["sum", "mean"])
def test_a_decimal_that_overflows_names_its_measure(spark, function):
    most = Decimal("9" * 38)
    frame = frame_of(spark, [("a", most), ("a", most), ("b", None), ("c", Decimal(7))], "k string, d decimal(38,0)")
    measures = {"m": {"function": function, "column": "d"}}
    result = applied("aggregate", frame.where("k <> 'a'"), group_by=["k"], measures=measures)
    assert {row["k"]: row["m"] for row in result.rows} == {"b": None, "c": 7}
    overflow, _ = described("aggregate", frame, group_by=["k"], measures=measures)
    with pytest.raises(Exception, match=r"aggregate: measures\.m: d: the sum has too many digits"):
        overflow.collect()


@pytest.mark.usefixtures("generated")
def test_keys_of_all_types(spark):
    at = datetime(2013, 3, 10, 2, 30)
    rows = [
        (math.nan, Decimal("1.0"), at, [1], 1),
        (math.nan, Decimal("1.0"), at, [1], 2),
        (None, Decimal("1.0"), at, [1], 3),
        (None, Decimal("1.0"), at, [1], None),
        (1.0, Decimal("1.1"), at, [1, 2], None),
    ]
    frame = frame_of(spark, rows, "x double, d decimal(5,1), t timestamp_ntz, a array<int>, v int")
    keys = ["x", "d", "t", "a"]
    assert sorted(applied("deduplicate", frame, keys=keys, order_by=["v"]).column("v"), key=str) == [2, 3, None]
    assert applied("deduplicate", frame.where("v > 9"), keys=keys, order_by=["v"]).rows == []
