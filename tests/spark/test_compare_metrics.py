"""The totals of two published versions, checked against DuckDB, and a large comparison."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from slackwater.late.comparison import (
    MAX_MOVERS,
    MAX_ROWS,
)
from tests.fakes_spark import FolderStore
from tests.spark.compared_day import DAY, JOB, SCHEMA, Day, a_day, counts, metric

pytestmark = pytest.mark.usefixtures("interpreted")


NUMBERS = {
    "small": "smallint", "large": "bigint", "cents": "decimal(9,4)", "price": "decimal(38,2)", "ratio": "float",
    "delay": "double", "empty": "double",
}  # fmt: skip
BEFORE = [
    ("a", 7, 2**63 - 1, "0.1000", "-123456789012345678901.23", 0.5, 1e-3, math.nan),
    ("b", -7, 2**63 - 1, "0.2000", "123456789012345678901.24", -0.5, math.nan, None),
    ("c", 32767, -(2**63), "-99999.9999", None, math.inf, 1e6, -math.inf),
    ("d", 32767, 5, None, "0.01", None, -1e6, None),
    ("e", None, None, "0.3000", "7.00", 0.25, None, None),
    ("f", 0, 1, "5.0000", "1.10", -math.inf, 3.0, None),
]
AFTER = [
    ("a", 7, 2**63 - 2, "0.1000", "-123456789012345678901.24", 0.5, math.inf, None),
    ("b", -9, 2**63 - 1, "0.7000", "123456789012345678901.24", math.nan, -2.5, None),
    ("d", 32767, -5, "-1.0000", "99999999999999999999999.99", 3.5, -1e6, None),
    ("e", 12, None, None, None, 0.125, 1e6, None),
    ("f", 0, 1, "5.0000", "1.10", 4.0, -3.0, math.nan),
    ("g", 32767, 2**62, "0.0001", "-3.33", -8.0, 2.5, None),
]


@pytest.fixture(scope="module")
def numbers(spark, tmp_path_factory) -> Day:
    """A day with two versions of numbers of all types; `versions[2:]` are empty."""
    store = FolderStore(tmp_path_factory.mktemp("objects"))
    day = a_day(spark, store, partial(FolderStore, store.root))
    day.key = ("date", "name")
    schema = ", ".join(["name string", *(f"{name} {data_type}" for name, data_type in NUMBERS.items())])
    for rows in (BEFORE, AFTER, [], []):
        day.publish([(*row[:3], *(text and Decimal(text) for text in row[3:5]), *row[5:]) for row in rows], schema)
    return day


@pytest.mark.parametrize("aggregation", ["sum", "mean", "min", "max"])
def test_declared_totals_of_all_numbers_agree_with_duckdb(numbers, aggregation):
    """With negative values, NaN, infinities, nulls, a column without values, and a sum beyond 64 bits."""
    numbers.metrics = dict.fromkeys(reversed(NUMBERS), aggregation) | {"small": "none"}
    numbers.name_versions(*numbers.versions[:2])
    comparison = numbers.run(JOB)
    assert [(one.metric, one.total) for one in comparison.metrics] == [
        (name, aggregation) for name in reversed(NUMBERS) if name != "small"
    ]
    connection = duckdb.connect()
    wide = {**NUMBERS, "large": "hugeint"}  # the negative of the smallest bigint is no bigint
    for name, rows in (("b", BEFORE), ("a", AFTER)):
        columns = ", ".join(f"{column} {data_type}" for column, data_type in wide.items())
        connection.sql(f"CREATE TABLE {name} (name varchar, {columns})")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    function = "avg" if aggregation == "mean" else aggregation
    for one in comparison.metrics:
        assert one.exact == (one.metric in ("large", "cents", "price"))
        total = f"{function}({one.metric}) FILTER (isfinite({one.metric}::double))"
        pair = [connection.sql(f"SELECT {total} FROM {side}").fetchall()[0][0] for side in "ba"]
        expected = [None if value is None else float(value) for value in pair]
        is_rounded = aggregation == "mean" or not one.exact
        assert [one.before, one.after] == (pytest.approx(expected) if is_rounded else expected), one.metric
        of = {side: f"CASE WHEN isfinite({side}.{one.metric}::double) THEN {side}.{one.metric} END" for side in "ba"}
        size = {
            "sum": f"nullif(abs(coalesce({of['a']}, 0) - coalesce({of['b']}, 0)), 0)",
            "mean": f"nullif(abs({of['a']} - {of['b']}), 0)",
            "min": f"-least({of['a']}, {of['b']})",
            "max": f"greatest({of['a']}, {of['b']})",
        }[aggregation]
        largest = connection.sql(
            f"""
            SELECT name, {of["b"]}, {of["a"]} FROM b FULL JOIN a USING (name)
            WHERE b.{one.metric} IS DISTINCT FROM a.{one.metric} AND {size} IS NOT NULL
            ORDER BY ({size})::double DESC, name LIMIT {MAX_MOVERS}
            """
        ).fetchall()
        movers = [(mover.key["name"], mover.before, mover.after) for mover in one.movers]
        assert movers == [(key, *(value and float(value) for value in values)) for key, *values in largest]


def test_declared_totals_of_a_day_without_rows_are_none(numbers):
    numbers.metrics = {"large": "sum", "cents": "mean", "price": "max", "delay": "min", "ratio": "sum", "small": "mean"}
    for index, is_none in ((1, (False, True)), (2, (True, True))):
        numbers.name_versions(*numbers.versions[index : index + 2])
        for one in numbers.run(JOB).metrics:
            assert (one.before is None, one.after is None) == is_none, one.metric


def test_a_sum_beyond_38_digits_is_rounded_and_one_beyond_a_double_is_none(day):
    day.metrics = {"price": "sum", "fares": "sum"}
    rows = [(name, "x", Decimal(6 * 10**37), 1e308) for name in "abc"]
    price, fares = day.of(rows, rows[:1], "origin string, carrier string, price decimal(38,0), fares double").metrics
    assert (price.before, price.after) == (pytest.approx(1.8e38), 6e37)
    assert (fares.before, fares.after) == (None, 1e308)


def test_metrics_of_columns_that_a_version_lacks_have_no_total_there(spark, day):
    """Of a column that was dropped, renamed or added, of one that exists nowhere, and of one without numbers."""
    day.publish([("EWR", "UA", 3, 1.5, 9, "n")], f"{SCHEMA}, fares int, note string")
    spark.sql(f"ALTER TABLE {day.table} RENAME COLUMN delay TO delay_mean")
    spark.sql(f"ALTER TABLE {day.table} DROP COLUMN fares")
    schema = "origin string, carrier string, flights bigint, delay_mean double, note string, seats int"
    day.publish([("EWR", "UA", 4, 2.5, "m", 70)], schema)
    names = ("seats", "delay", "delay_mean", "fares", "nowhere", "note")
    day.metrics = {**dict.fromkeys(names, "max"), "flights": "none"}
    comparison = day.compare()
    assert comparison.examples[0].values["flights"] == (3, 4), "rows have all columns"
    assert [(one.metric, one.before, one.after, len(one.movers)) for one in comparison.metrics] == [
        ("seats", None, 70, 1), ("delay", 1.5, None, 1), ("delay_mean", None, 2.5, 1), ("fares", 9, None, 1),
        ("nowhere", None, None, 0), ("note", None, None, 0),
    ]  # fmt: skip
    day.metrics = {"nowhere": "sum", "flights": "none"}
    assert [one.metric for one in day.compare().metrics] == ["nowhere"]


@pytest.mark.usefixtures("generated")
def test_a_large_comparison_agrees_with_duckdb(day):
    """More rows than a summary holds, in both directions, and every number computed a second time."""
    maker = random.Random(11)  # noqa: S311 - data, no secret
    schema = "origin string, carrier string, flights int, delay double, price decimal(9,2)"

    def value(number: int) -> tuple[Any, ...]:
        name = (f"k{number % 97}", f"c{number // 97}")
        numbers = (maker.randint(0, 99), maker.choice([None, maker.random()]), Decimal(maker.randint(0, 999)) / 100)
        return (*name, *numbers)

    before = [value(number) for number in range(900)]
    kept = [row for row in before if maker.random() < 0.9]
    after = [value(int(r[0][1:]) + 97 * int(r[1][1:])) if maker.random() < 0.4 else r for r in kept]
    after += [value(number) for number in range(900, 960)]
    day.hour = "flights"  # its values below 24 count as hours
    comparison = day.of(before, after, schema)
    frames = {}
    for name, rows in (("b", before), ("a", after)):
        columns = list(zip(*rows, strict=True))
        names = ["origin", "carrier", "flights", "delay", "price"]
        frames[name] = pa.table({key: pa.array(list(column)) for key, column in zip(names, columns, strict=True)})
    connection = duckdb.connect()
    for name, frame in frames.items():
        connection.register(name, frame)
    connection.sql(
        """
        CREATE TABLE paired AS
        SELECT coalesce(b.origin, a.origin) AS origin, coalesce(b.carrier, a.carrier) AS carrier,
               CASE WHEN b.origin IS NULL THEN 'added' WHEN a.origin IS NULL THEN 'removed'
                    WHEN (b.flights, b.delay, b.price) IS DISTINCT FROM (a.flights, a.delay, a.price) THEN 'changed'
               END AS change,
               b.flights AS flights_before, a.flights AS flights_after, b.delay AS delay_before,
               a.delay AS delay_after, b.price AS price_before, a.price AS price_after
        FROM b FULL JOIN a ON b.origin = a.origin AND b.carrier = a.carrier
        """
    )
    changes = dict(connection.sql("SELECT change, count(*) FROM paired GROUP BY change").fetchall())
    assert counts(comparison) == (900, len(after), changes["added"], changes["removed"], changes["changed"])
    assert comparison.rows.differing > MAX_ROWS
    assert len(comparison.examples) == MAX_ROWS
    differing = connection.sql("SELECT * FROM paired WHERE change IS NOT NULL ORDER BY origin, carrier")
    expected = [dict(zip(differing.columns, row, strict=True)) for row in differing.fetchall()]
    stored = sorted(day.stored_rows(comparison), key=lambda row: (row["origin"], row["carrier"]))
    assert [{name: row[name] for name in differing.columns} for row in stored] == expected
    assert comparison.all_rows.rows == comparison.rows.differing
    shown = [(row.key["origin"], row.key["carrier"], row.change.value) for row in comparison.examples]
    assert shown == [(row["origin"], row["carrier"], row["change"]) for row in expected[:MAX_ROWS]]
    for name in ("flights", "delay", "price"):
        pair = connection.sql(f"SELECT sum({name}_before), sum({name}_after) FROM paired").fetchall()[0]
        one = metric(comparison, name)
        assert (one.before, one.after) == pytest.approx([float(value) for value in pair])
        by_hour = [
            dict(
                connection.sql(
                    f"""
                    SELECT CASE WHEN flights_{side} < 24 THEN flights_{side} END AS hour, sum({name}_{side}) FROM paired
                    WHERE flights_{side} IS NOT NULL GROUP BY hour
                    """
                ).fetchall()
            )
            for side in ("before", "after")
        ]
        assert [hour.hour for hour in one.hours] == [*(f"{DAY}T{hour:02}:00" for hour in range(24)), None]
        for index, hour in enumerate(one.hours):
            sums = [side.get(index if hour.hour else None) for side in by_hour]
            expected_sums = [None if value is None else pytest.approx(float(value)) for value in sums]
            assert [hour.before, hour.after] == expected_sums
        largest = connection.sql(
            f"""
            SELECT origin, carrier FROM (
                SELECT origin, carrier, abs(coalesce({name}_after, 0) - coalesce({name}_before, 0)) AS size
                FROM paired WHERE change IS NOT NULL
            ) WHERE size > 0 ORDER BY size DESC, origin, carrier LIMIT {MAX_MOVERS}
            """
        ).fetchall()
        assert [tuple(mover.key.values()) for mover in one.movers] == largest
