"""`outliers`, compared with numpy."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import numpy as np
import pytest

from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, refused

pytestmark = pytest.mark.usefixtures("interpreted")

NAN, INF = math.nan, math.inf


def limits(values: list[float | None], method: str, threshold: float) -> tuple[float, float]:
    """The limits of one column or group, as numpy computes them. NaN if there are none."""
    finite = np.array([value for value in values if value is not None and math.isfinite(value)])
    if not len(finite):
        return NAN, NAN
    if method == "z_score":
        spread = threshold * finite.std(ddof=1) if len(finite) > 1 else NAN
        return finite.mean() - spread, finite.mean() + spread
    if method == "iqr":
        first, third = np.quantile(finite, [0.25, 0.75])
        return first - threshold * (third - first), third + threshold * (third - first)
    mad = np.median(np.abs(finite - np.median(finite))) or NAN
    return np.median(finite) - threshold * mad / 0.6745, np.median(finite) + threshold * mad / 0.6745


@pytest.fixture(scope="module")
def data() -> list[tuple[str | None, float | None, int | None]]:
    """Skewed groups: most rows are in `big`; `one` has one row, `same` equal values, `none` no value."""
    chance = random.Random(5)  # noqa: S311 - data, no secret
    rows = [("big", chance.gauss(0, 1) * chance.choice([1, 1, 1, 9]), chance.randint(0, 20)) for _ in range(200)]
    rows += [(None, chance.gauss(50, 1), chance.randint(90, 99)) for _ in range(20)] + [(None, 99.0, 3)]
    rows += [("big", NAN, None), ("big", INF, 1000), (None, -INF, None), ("big", None, -1000)]
    rows += [("one", 5.0, 5), *[("same", 1.0, 7)] * 3, ("same", 2.0, 7), ("none", None, None), ("none", NAN, None)]
    return rows


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(("method", "threshold"), [("z_score", 3.0), ("iqr", 1.5), ("mad", 3.5)])
def test_outliers_are_those_of_numpy(spark, data, method, threshold):
    frame = frame_of(spark, data, "`gr.oup` string, `x ü` double, n int").repartition(3)
    result = applied("outliers", frame, columns=["x ü", "n"], method=method, action="flag", group_by=["gr.oup"])
    assert result.table.column_names == ["gr.oup", "x ü", "n", "x ü_outlier", "n_outlier"]
    assert len(result.rows) == len(data)
    for name, index in (("x ü", 1), ("n", 2)):
        by_group = {
            group: limits([row[index] for row in data if row[0] == group], method, threshold)
            for group in {row[0] for row in data}
        }
        expected = sum(
            row[index] is not None and bool(row[index] < low or row[index] > high)
            for row in data
            for low, high in [by_group[row[0]]]
        )
        for row in result.rows:
            low, high = by_group[row["gr.oup"]]
            assert row[f"{name}_outlier"] == (row[name] is not None and bool(row[name] < low or row[name] > high))
        assert result.effect[f"outliers.{name}"] == expected > 0


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize("method", ["z_score", "iqr", "mad"])
def test_rows_are_dropped_or_clipped(spark, data, method):
    values = [row[1] for row in data]
    frame = frame_of(spark, data, "g string, x double, n int")
    low, high = limits(values, method, 2)
    inside = [value for value in values if not (value is not None and (value < low or value > high))]
    dropped = applied("outliers", frame, columns=["x"], method=method, threshold=2, action="drop")
    assert repr(dropped.column("x")) == repr(inside)
    count = len(values) - len(inside)
    assert dropped.effect == {"outliers.x": count, "rows_dropped": count}
    clipped = applied("outliers", frame, columns=["x"], method=method, threshold=2, action="clip")
    expected = [NAN if value is None else min(max(value, low), high) for value in values]
    assert [NAN if x is None else x for x in clipped.column("x")] == pytest.approx(expected, nan_ok=True)
    assert clipped.effect == {"outliers.x": count}


@pytest.mark.usefixtures("generated")
def test_clipped_values_keep_their_type(spark):
    rows = [(i, i, Decimal(i) / 10, float(i)) for i in [*range(1, 11), 50, -50]]
    frame = frame_of(spark, rows, "i int, l bigint, d decimal(6,1), f float")
    low, high = limits([row[0] for row in rows], "iqr", 1.5)
    assert (low, high) == (-5.5, 16.5)
    result = applied("outliers", frame, columns=["i", "l", "d", "f"], method="iqr", action="clip")
    assert result.frame.schema == frame.schema
    (top,), (bottom,) = ([row for row, (i, *_) in zip(result.rows, rows, strict=True) if i == v] for v in (50, -50))
    assert (top["i"], top["l"], bottom["i"]) == (math.floor(high), math.floor(high), math.ceil(low))
    assert (top["d"], bottom["d"]) == (Decimal("1.6"), Decimal("-0.5"))
    assert top["f"] == pytest.approx(high)
    assert result.column("l")[:10] == list(range(1, 11))


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("data_type", "values", "parameters"),
    [
        ("int", [1, 2, 2, 1], {"method": "z_score", "threshold": 0.01}),
        ("tinyint", [126, 127], {"method": "z_score", "threshold": 0.01}),
        ("decimal(3,1)", [Decimal("99.8"), Decimal("99.9")], {"method": "mad", "threshold": 0.01}),
        ("decimal(3,1)", [Decimal("-99.8"), Decimal("-99.9")], {"method": "iqr", "threshold": 0.01}),
    ],
)
def test_limits_of_clip_do_not_cross(spark, data_type, values, parameters):
    """No value of the type is between the limits: the nearest ones outside of them are the values themselves."""
    frame = frame_of(spark, [(value,) for value in values], f"v {data_type}")
    result = applied("outliers", frame, columns=["v"], action="clip", **parameters)
    assert (result.column("v"), result.effect["outliers.v"]) == (values, len(values))


@pytest.mark.parametrize(
    ("method", "action"),
    [("z_score", "flag"), ("z_score", "drop"), ("z_score", "clip"), ("iqr", "flag"), ("mad", "flag")],
)
def test_the_value_of_one_row_is_no_outlier(spark, method, action):
    row = (7, None, -1, 0.5, None, NAN, INF, Decimal("99.9"), None, Decimal("-0.1"))
    types = [*["int"] * 3, *["double"] * 4, *["decimal(3,1)"] * 3]
    frame = frame_of(spark, [row], ", ".join(f"c{index} {kind}" for index, kind in enumerate(types)))
    result = applied("outliers", frame, columns=frame.columns, method=method, action=action)
    (found,) = result.rows
    assert [repr(found[name]) for name in frame.columns] == list(map(repr, row))
    assert not any(found[name] for name in found if name.endswith("_outlier"))


@pytest.mark.parametrize("method", ["z_score", "iqr", "mad"])
def test_without_limits_there_are_no_outliers(spark, method):
    frame = frame_of(spark, [(None, INF), (None, NAN), (NAN, -INF)], "a double, b double")
    result = applied("outliers", frame, columns=["a", "b"], method=method, action="drop")
    assert len(result.rows) == 3
    assert result.effect == {"outliers.a": 0, "outliers.b": 0, "rows_dropped": 0}


def test_equal_values_are_no_outliers_although_their_mean_is_rounded(spark):
    cases = [(value, kind) for value in ("0.1", "1e2", "-0.7") for kind in ("double", "decimal(5, 1)", "float")]
    columns = [f"CAST('{value}' AS {kind}) AS `{value} as {kind}`" for value, kind in cases]
    frame = spark.range(3).selectExpr(*columns)
    expected = frame.toArrow().to_pylist()
    for action in ("drop", "clip"):
        result = applied("outliers", frame, columns=frame.columns, method="z_score", action=action)
        assert result.rows == expected


def test_an_empty_frame_stays_empty(spark):
    frame = frame_of(spark, [], "a double")
    empty = applied("outliers", frame, columns=["a"], method="mad", action="clip")
    assert (empty.rows, empty.effect) == ([], {"outliers.a": 0})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": ["s"]}, "columns: numbers are needed, and s is string"),
        ({"columns": ["x"]}, "columns: rows has a column X_outlier already"),
        ({"columns": ["s"], "group_by": ["t"]}, "group_by.0: no column 't' in rows"),
        ({"columns": ["x", "X"]}, "columns: a column is named twice (x)"),
    ],
)
def test_what_does_not_fit_is_refused(spark, parameters, message):
    frame = frame_of(spark, [], "x double, s string, X_outlier int")
    assert refused("outliers", frame, method="iqr", action="flag", **parameters).startswith(message)
