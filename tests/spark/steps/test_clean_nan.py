"""`clean_nan`, compared with pandas and the standard library."""

from __future__ import annotations

import math
import random
import statistics
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import pandas as pd
import pytest

from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, refused

pytestmark = pytest.mark.usefixtures("interpreted")

NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """300 rows, a fifth of them without a value; most rows are in one group."""
    chance = random.Random(13)  # noqa: S311 - data, no secret
    return pd.DataFrame(
        {
            "group": [chance.choice(["a"] * 8 + ["b", None]) for _ in range(300)],
            "at": range(300),
            "zahl ü": [None if chance.random() < 0.2 else round(chance.gauss(10, 5), 2) for _ in range(300)],
            "whole": [None if chance.random() < 0.2 else chance.randint(-5, 5) for _ in range(300)],
            "word": [None if chance.random() < 0.2 else chance.choice("xyyz") for _ in range(300)],
        }
    )


@pytest.fixture(scope="module")
def frame(spark, table):
    rows = [tuple(None if pd.isna(value) else value for value in row) for row in table.itertuples(index=False)]
    rows = [(group, at, zahl, None if whole is None else int(whole), word) for group, at, zahl, whole, word in rows]
    schema = "group string, at int, `zahl ü` double, whole int, word string"
    return frame_of(spark, [*rows[::2], *rows[-1::-2]], schema).repartition(3)


def in_order(result, name: str) -> list:
    return [row[name] for row in sorted(result.rows, key=lambda row: row["at"])]


def rounded(number: float | Fraction) -> int:
    """Half up, which is away from zero, as in SQL."""
    return math.floor(abs(number) + Fraction(1, 2)) * (1 if number >= 0 else -1)


@pytest.mark.usefixtures("generated")
def test_statistics_are_those_of_pandas(frame, table):
    for strategy in ("mean", "median"):
        result = applied("clean_nan", frame, strategy=strategy)
        value = table["zahl ü"].agg(strategy)
        assert in_order(result, "zahl ü") == pytest.approx(table["zahl ü"].fillna(value).tolist())
        whole = table["whole"].fillna(rounded(table["whole"].agg(strategy)))
        assert in_order(result, "whole") == whole.tolist()
        # Strings have neither, and `at` has no gaps.
        assert in_order(result, "word") == [None if pd.isna(word) else word for word in table["word"]]
        gaps = table[["at", "zahl ü", "whole"]].isna().sum()
        assert result.effect == {f"filled.{name}": count for name, count in gaps.items()}
        assert result.frame.schema == frame.schema


@pytest.mark.usefixtures("generated")
def test_columns_have_strategies_of_their_own(frame, table):
    result = applied(
        "clean_nan",
        frame,
        strategy="mode",
        columns={"zahl ü": "drop", "group": {"constant": "?"}, "whole": "mean"},
    )
    kept = table[table["zahl ü"].notna()]
    assert in_order(result, "zahl ü") == kept["zahl ü"].tolist()
    assert in_order(result, "group") == kept["group"].fillna("?").tolist()
    assert in_order(result, "whole") == kept["whole"].fillna(rounded(kept["whole"].mean())).tolist()
    assert in_order(result, "word") == kept["word"].fillna(kept["word"].mode()[0]).tolist()
    assert result.effect == {
        **{f"filled.{name}": int(kept[name].isna().sum()) for name in ("group", "at", "whole", "word")},
        "rows_dropped": len(table) - len(kept),
    }


@pytest.mark.usefixtures("generated")
def test_forward_fills_each_group_in_order(frame, table):
    columns = {"zahl ü": "forward", "whole": "drop"}
    result = applied("clean_nan", frame, columns=columns, order_by=["at"], group_by=["group"])
    kept = table[table["whole"].notna()].copy()
    expected = kept.groupby("group", dropna=False)["zahl ü"].ffill()
    assert [value if value is not None else NAN for value in in_order(result, "zahl ü")] == pytest.approx(
        expected.tolist(), nan_ok=True
    )
    filled = int(kept["zahl ü"].isna().sum() - expected.isna().sum())
    assert result.effect == {"filled.zahl ü": filled, "rows_dropped": len(table) - len(kept)}

    result = applied("clean_nan", frame, strategy="forward", order_by=["at"], group_by=[])
    assert in_order(result, "word") == table["word"].ffill().tolist()
    assert in_order(result, "whole") == table["whole"].ffill().tolist()


def test_forward_is_the_same_for_rows_at_the_same_time(spark):
    rows = [(1, 5.0, "a"), (1, None, "b"), (1, 7.0, "c"), (1, NAN, "d"), (2, None, "e"), (None, 9.0, "f")]
    results = [
        sorted(
            applied(
                "clean_nan",
                frame_of(spark, order, "at int, v double, name string").repartition(2),
                columns={"v": "forward"},
                order_by=["at"],
                group_by=[],
            ).rows,
            key=lambda row: row["name"],
        )
        for order in (rows, rows[::-1])
    ]
    assert results[0] == results[1]
    # Null comes first in both: the row without a time before the others, `b` before `a`. NaN comes last.
    assert [row["v"] for row in results[0]] == [5.0, 9.0, 7.0, 7.0, 7.0, 9.0]


STRATEGIES = {"mean": "mean", "median": "median", "mode": "mode", "constant": {"constant": -2}}


@pytest.mark.usefixtures("generated")
def test_nan_and_infinities(spark):
    values = [1.0, NAN, INF, 4.0, None, -INF, INF, 1.0]
    frame = frame_of(spark, [(at, value) for at, value in enumerate(values)], "at int, v double")
    columns = {f"{name}_{kind}": strategy for name, strategy in STRATEGIES.items() for kind in ("double", "float")}
    frame = frame.selectExpr("at", *(f"CAST(v AS {name.partition('_')[2]}) AS {name}" for name in columns))
    result = applied("clean_nan", frame, columns=columns)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    fills = {"mean": statistics.mean(finite), "median": statistics.median(finite), "mode": 1.0, "constant": -2.0}
    for name in columns:
        fill = fills[name.partition("_")[0]]
        assert in_order(result, name) == [fill if v is None or math.isnan(v) else v for v in values]
    assert result.effect == {f"filled.{name}": 2 for name in columns}
    assert applied("clean_nan", frame, columns={"mean_float": "drop"}).column("at") == [0, 2, 3, 5, 6, 7]


@pytest.mark.usefixtures("generated")
def test_nothing_to_fill_with(spark):
    strategies = ("mean", "median", "mode")
    frame = frame_of(spark, [(None, NAN, None), (None, None, None)], "i int, d double, n decimal(20,2)")
    frame = frame.selectExpr(*(f"{name} AS {name}_{strategy}" for name in frame.columns for strategy in strategies))
    columns = {name: name.partition("_")[2] for name in frame.columns}
    nothing = {f"filled.{name}": 0 for name in columns}
    result = applied("clean_nan", frame, columns=columns)
    assert repr(result.rows) == repr(frame.toArrow().to_pylist())
    assert result.effect == nothing
    empty = applied("clean_nan", frame.where("i_mean > 0"), columns=columns)
    assert (empty.rows, empty.effect) == ([], nothing)


@pytest.mark.usefixtures("generated")
def test_decimals_and_integers_are_exact(spark):
    large = Decimal("12345678901234567890.12")
    rows = [
        (Decimal("0.01"), large, 2**53 + 1),
        (Decimal("0.02"), large + Decimal("0.04"), 2**53 + 3),
        (Decimal("0.02"), -large, None),
        (None, None, 2**53 + 8),
        (Decimal("0.01"), large, None),
    ]
    frame = frame_of(spark, rows, "price decimal(9,2), `big sum` decimal(22,2), n bigint")
    frame = frame.selectExpr("*", *(f"`{name}` AS `{name} ~`" for name in frame.columns))
    columns = {name: "median" if "~" in name else "mean" for name in frame.columns}
    result = applied("clean_nan", frame, columns=columns)
    assert result.frame.schema == frame.schema
    # Half up: the mean and the median of the prices are 0.015, the mean of the large ones ends in .07.
    assert result.column("price")[3] == result.column("price ~")[3] == Decimal("0.02")
    assert result.column("big sum")[3] == (large * 2 + Decimal("0.04")) / 4 == Decimal("6172839450617283945.07")
    assert result.column("big sum ~")[3] == large
    assert result.column("n") == [2**53 + 1, 2**53 + 3, 2**53 + 4, 2**53 + 8, 2**53 + 4]
    # The median of bigint is a double.
    assert result.column("n ~")[2] in (2**53 + 2, 2**53 + 4)
    single = applied("clean_nan", frame.where("price IS NULL OR `big sum` < 0"), columns=columns)
    assert [row["big sum ~"] for row in single.rows] == [-large, -large]


@pytest.mark.parametrize(
    ("code", "precision", "scale"),
    [
        ("interpreted", 15, 15),
        # A median that is computed as a double loses digits.
        ("generated", 16, 2),
        ("interpreted", 28, 28),
        ("interpreted", 29, 0),
        ("interpreted", 38, 0),
        ("interpreted", 38, 37),
        ("interpreted", 38, 38),
    ],
)
def test_means_and_medians_of_decimals_are_rounded_once(spark, request, code, precision, scale):
    request.getfixturevalue(code)
    chance = random.Random(precision + scale)  # noqa: S311 - data, no secret
    most = 10**precision - 1
    numbers = [
        [chance.choice([most, -most, chance.randint(-most, most), chance.randint(-9, 9)]) for _ in range(count)]
        for count in (1, 2, 2, 3, 5, 6)
    ]
    # Only the digits matter: `Decimal` would round a quotient of 38 digits.
    data = [tuple(None if i >= len(n) else Decimal(f"{n[i]}E-{scale}") for n in numbers) * 2 for i in range(7)]
    columns = {f"{strategy} {index}": strategy for strategy in ("mean", "median") for index in range(len(numbers))}
    frame = frame_of(spark, data, ", ".join(f"`{name}` decimal({precision},{scale})" for name in columns))
    *_, filled = applied("clean_nan", frame, columns=columns).rows
    exact = [getattr(statistics, strategy)(map(Fraction, n)) for strategy in ("mean", "median") for n in numbers]
    assert list(filled.values()) == [Decimal(f"{rounded(value)}E-{scale}") for value in exact]


@pytest.mark.usefixtures("generated")
def test_means_of_many_values_are_rounded_once(spark):
    """Just below a half: rounded to four more digits first, they would be the half."""
    frame = spark.range(25_001, numPartitions=1).selectExpr(
        "CAST(IF(id < 12499, 1, IF(id < 25000, 0, NULL)) AS INT) AS n"
    )
    frame = frame.selectExpr("n", "CAST(n / 100.0 AS DECIMAL(9,2)) AS d")
    assert applied("clean_nan", frame, strategy="mean").rows[-1] == {"n": 0, "d": Decimal("0.00")}


def test_one_row(spark):
    types = {"i": "int", "x": "double", "d": "decimal(5,2)", "s": "string"}
    strategies = {name: ["mean", "median", "mode", "forward"] for name in "ixd"} | {"s": ["mode", "forward"]}
    copies = {f"{name}_{strategy}": (name, strategy) for name in types for strategy in strategies[name]}
    columns = {copy: strategy for copy, (_, strategy) in copies.items()}
    for row in ((7, 0.5, Decimal("1.25"), "a"), (None, None, None, None), (7, INF, None, "")):
        frame = frame_of(spark, [(*row, 1)], f"{', '.join(f'{name} {kind}' for name, kind in types.items())}, at int")
        frame = frame.selectExpr("at", *(f"{name} AS {copy}" for copy, (name, _) in copies.items()))
        result = applied("clean_nan", frame, columns=columns, order_by=["at"], group_by=[])
        values = dict(zip(types, row, strict=True))
        assert result.rows == [{"at": 1, **{copy: values[name] for copy, (name, _) in copies.items()}}]
        assert result.effect == {f"filled.{copy}": 0 for copy in copies}


def test_constants_of_all_types(spark):
    schema = "s string, b boolean, i tinyint, x float, n decimal(4,2), d date, t timestamp, l timestamp_ntz"
    frame = frame_of(spark, [(None,) * 8], schema)
    constants = {
        "s": "ü",
        "b": False,
        "i": -128,
        "x": 0.1,
        "n": 12.34,
        "d": "2013-03-10",
        "t": "2013-03-10T01:00:00+01:00",
        "l": "2013-03-10 02:30",
    }
    columns = {name: {"constant": value} for name, value in constants.items()}
    (row,) = applied("clean_nan", frame, columns=columns).rows
    assert row == {
        "s": "ü",
        "b": False,
        "i": -128,
        "x": pytest.approx(0.1),
        "n": Decimal("12.34"),
        "d": date(2013, 3, 10),
        "t": datetime(2013, 3, 10, tzinfo=UTC),
        "l": datetime(2013, 3, 10, 2, 30),
    }
    # YAML reads dates and timestamps without quotes as such.
    dates = {"d": date(2013, 3, 10), "t": datetime(2013, 3, 10, 1), "l": datetime(2013, 3, 10, 2, 30), "s": date.min}
    columns = {name: {"constant": value} for name, value in dates.items()}
    (row,) = applied("clean_nan", frame, columns=columns).rows
    assert [row[name] for name in dates] == [dates["d"], dates["t"].replace(tzinfo=UTC), dates["l"], "0001-01-01"]
    result = applied("clean_nan", frame, strategy={"constant": 0})
    assert {name for name, value in result.rows[0].items() if value is not None} == {"i", "x", "n"}


def test_constants_at_the_limits_of_a_type(spark):
    cases = [
        ("decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
        ("decimal(38,37)", -9, Decimal(f"-9.{'0' * 37}")),
        ("decimal(38,38)", 0.1, Decimal(f"0.1{'0' * 37}")),
        ("timestamp", "2013-03-10T00:00+19:00", datetime(2013, 3, 9, 5, tzinfo=UTC)),
    ]
    names = {data_type: f"c{index}" for index, (data_type, _, _) in enumerate(cases)}
    frame = frame_of(spark, [(None,) * 4], ", ".join(f"{name} {data_type}" for data_type, name in names.items()))
    constants = {names[data_type]: {"constant": constant} for data_type, constant, _ in cases}
    expected = {names[data_type]: value for data_type, _, value in cases}
    assert applied("clean_nan", frame, columns=constants).rows == [expected]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": {"word": "mean"}}, "columns.word: mean needs numbers, and the column is string"),
        ({"columns": {"tags": "mode"}}, "columns.tags: mode needs strings, numbers"),
        ({"columns": {"word": {"constant": 0}}}, "columns.word: 0 is not a value of type string"),
        ({"columns": {"whole": {"constant": 2**31}}}, "columns.whole: 2147483648 does not fit int"),
        ({"columns": {"whole": {"constant": 0.5}}}, "columns.whole: 0.5 is not a value of type int"),
        ({"columns": {"price": {"constant": 0.005}}}, "columns.price: 0.005 does not fit decimal(4,2)"),
        ({"columns": {"price": {"constant": 100}}}, "columns.price: 100 does not fit decimal(4,2)"),
        ({"columns": {"price": {"constant": 1e30}}}, "columns.price: 1e+30 does not fit decimal(4,2)"),
        ({"columns": {"long": {"constant": 10**38}}}, "columns.long: 1000"),
        ({"columns": {"long": {"constant": 0.5}}}, "columns.long: 0.5 is not a value of type decimal(38,0)"),
        ({"columns": {"t": {"constant": "0001-01-01T00:00+14:00"}}}, "columns.t: '0001-01-01T00:00+14:00' is not a"),
        (
            {"columns": {"t": {"constant": datetime(2013, 3, 10)}, "whole": {"constant": date(2013, 3, 10)}}},
            "columns.whole: '2013-03-10' is not a value of type int",
        ),
        ({"strategy": {"constant": True}}, "strategy: it fits none of the columns"),
        (
            {"columns": {"whole": "forward"}, "order_by": ["whole"], "group_by": []},
            "columns.whole: it orders or groups the rows",
        ),
        (
            {"strategy": "forward", "order_by": ["tags"], "group_by": []},
            "order_by: tags is map<string,int>, by which rows cannot be compared",
        ),
        ({"strategy": "forward", "order_by": ["at"], "group_by": []}, "order_by.0: no column 'at' in rows"),
    ],
)
def test_what_does_not_fit_is_refused(spark, parameters, message):
    frame = frame_of(
        spark, [], "word string, whole int, price decimal(4,2), tags map<string,int>, long decimal(38,0), t timestamp"
    )
    assert refused("clean_nan", frame, **parameters).startswith(message)
