"""Comparing two published versions of a day: the rows that differ, on real Iceberg tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from slackwater.arrow.dataset import load_manifest
from slackwater.errors import DataError
from slackwater.late.changes.pairs import comparison_uri
from slackwater.late.comparison import (
    MAX_STRING_LENGTH,
    Comparison,
    Totals,
)
from slackwater.runs.inputs.difference import Change
from slackwater.spark.commit import current_snapshot, overwrite_day
from slackwater.spark.publish import with_partition
from tests.spark.compared_day import DAY, JOB, OTHER_DAY, PREFIX, ROWS, SCHEMA, counts, metric
from tests.spark.frames import frame_of

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.mark.usefixtures("way")
def test_added_removed_and_changed_rows_are_reported_with_both_values(day, store):
    comparison = day.of(ROWS, [("EWR", "UA", 4, 1.5), ("LGA", "DL", 5, -2.0), ("SWF", "MQ", 7, 0.5)])
    assert counts(comparison) == (3, 3, 1, 1, 1)
    producer = load_manifest(comparison.all_rows.manifest, store=store).producer
    assert (comparison.correlation_id, producer.correlation_id) == (JOB.correlation_id, JOB.correlation_id)
    assert comparison.key == ("origin", "carrier")
    assert [(row.change, row.key, row.values) for row in comparison.examples] == [
        (Change.CHANGED, {"origin": "EWR", "carrier": "UA"}, {"flights": (3, 4)}),
        (Change.REMOVED, {"origin": "JFK", "carrier": "B6"}, {"flights": (2, None), "delay": (None, None)}),
        (Change.ADDED, {"origin": "SWF", "carrier": "MQ"}, {"flights": (None, 7), "delay": (None, 0.5)}),
    ]
    flights, delay = comparison.metrics
    assert (flights.metric, flights.total, flights.before, flights.after) == ("flights", Totals.SUM, 10, 16)
    assert [(mover.key["origin"], mover.before, mover.after) for mover in flights.movers] == [
        ("SWF", None, 7), ("JFK", 2, None), ("EWR", 3, 4),
    ]  # fmt: skip
    assert (delay.total, delay.before, delay.after) == (Totals.SUM, -0.5, 0.0)
    assert [(mover.key["origin"], mover.before, mover.after) for mover in delay.movers] == [("SWF", None, 0.5)]
    assert day.stored_rows(comparison)[2] == {
        "date": DAY, "origin": "SWF", "carrier": "MQ", "change": "added", "flights_before": None, "flights_after": 7,
        "delay_before": None, "delay_after": 0.5,
    }  # fmt: skip
    assert Comparison.model_validate_json(store.get(comparison_uri(PREFIX))) == comparison


def test_identical_versions_differ_in_nothing(day, store):
    comparison = day.of(ROWS, ROWS[::-1])
    assert counts(comparison) == (3, 3, 0, 0, 0)
    assert (comparison.examples, comparison.all_rows) == ((), None)
    assert not any(one.moved or one.movers for one in comparison.metrics)
    assert not list(store.list(f"{PREFIX}rows/"))


def test_other_days_of_the_table_are_not_compared(spark, day):
    day.publish(ROWS)
    other = with_partition(frame_of(spark, [("EWR", "UA", 99, 9.0)], SCHEMA), str(OTHER_DAY))
    overwrite_day(other, day.table, str(OTHER_DAY), {}, inspected=current_snapshot(spark, day.table))
    day.publish(ROWS[:2])
    assert counts(day.compare()) == (3, 2, 0, 1, 0)


def test_a_version_may_be_empty_or_one_row(day):
    empty, one, other = (day.publish(rows) for rows in ([], ROWS[:1], [("EWR", "UA", 4, 1.5)]))
    for before, after, expected, flights in (
        (empty, one, (0, 1, 1, 0, 0), (None, 3)),
        (one, other, (1, 1, 0, 0, 1), (3, 4)),
        (other, empty, (1, 0, 0, 1, 0), (4, None)),
        (empty, empty, (0, 0, 0, 0, 0), (None, None)),
    ):
        day.name_versions(before, after)
        comparison = day.run(JOB)
        assert counts(comparison) == expected
        assert (metric(comparison, "flights").before, metric(comparison, "flights").after) == flights


@pytest.mark.usefixtures("generated")
def test_every_type_is_compared_by_value(day):
    """One row for each way to differ, beside one that is the same in everything."""
    schema = (
        "origin string, carrier string, price decimal(20,2), seen date, at timestamp, local timestamp_ntz, ok boolean, "
        "raw binary, notes array<string>, location struct<x: double, name: string>, tags map<string, double>, "
        "small float"
    )
    instant = datetime(2013, 3, 8, 7, 30, 0, 500_000, tzinfo=UTC)
    base: dict[str, Any] = {
        "price": Decimal("12345678901234567.89"), "seen": DAY, "at": instant, "local": datetime(2013, 3, 8, 2, 30),
        "ok": True, "raw": b"\x00\xff", "notes": ["a", None], "location": (1.0, "x"), "tags": {"a": 1.0, "b": None},
        "small": 0.1,
    }  # fmt: skip
    other: dict[str, Any] = {
        "price": Decimal("12345678901234567.90"), "seen": OTHER_DAY, "at": instant + timedelta(microseconds=1),
        "local": datetime(2013, 3, 8, 2, 31), "ok": False, "raw": b"\x00\xfe", "notes": ["a"],
        "location": (1.0, None), "tags": {"a": 1.0, "c": None}, "small": 0.2,
    }  # fmt: skip
    expected: dict[str, Any] = {
        "price": ("12345678901234567.89", "12345678901234567.90"), "seen": ("2013-03-08", "2013-03-09"),
        "at": ("2013-03-08T07:30:00.5Z", "2013-03-08T07:30:00.500001Z"),
        "local": ("2013-03-08T02:30:00", "2013-03-08T02:31:00"), "ok": (True, False), "raw": ("00ff", "00fe"),
        "notes": ('["a",null]', '["a"]'), "location": ('{"x":1.0,"name":"x"}', '{"x":1.0,"name":null}'),
        "tags": ('{"a":1.0,"b":null}', '{"a":1.0,"c":null}'), "small": (0.1, 0.2),
    }  # fmt: skip
    before = [(name, "x", *base.values()) for name in ["", *base]]
    after = [(name, "x", *{**base, **({name: other[name]} if name else {})}.values()) for name in ["", *base]]
    after[0] = (*after[0][:-2], {"b": None, "a": 1.0}, after[0][-1])  # a map has no order
    comparison = day.of(before, after, schema)
    assert counts(comparison) == (11, 11, 0, 0, 10)
    assert {row.key["origin"]: row.values for row in comparison.examples} == {
        name: {name: pair} for name, pair in expected.items()
    }
    price = metric(comparison, "price")
    assert (price.total, price.movers[0].key["origin"]) == (Totals.SUM, "price")
    assert [one.metric for one in comparison.metrics] == ["price", "small"]
    assert len(day.stored_rows(comparison)) == 10


@pytest.mark.usefixtures("generated")
def test_floating_point_values_are_equal_within_the_tolerance(day):
    """By themselves and inside of other values: each row holds one case in one column."""
    nan, inf = math.nan, math.inf
    same = [
        (0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1), (1e300, 1e300 * (1 + 1e-12)), (nan, nan), (inf, inf), (0.0, -0.0),
        (None, None), (-5e-310, -5e-310),
    ]  # fmt: skip
    unlike = [
        (1.0, 1.0 + 1e-8), (nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf), (nan, inf), (None, 0.0),
        (nan, None), (0.0, 1e-300), (1e308, -1e308),
    ]  # fmt: skip
    wraps: list[Callable[[Any], Any]] = [
        lambda value: value, lambda value: [1.0, value], lambda value: (value,), lambda value: {"a": value, "b": 1.0},
    ]  # fmt: skip
    schema = "origin string, carrier int, a double, b array<double>, c struct<x: double>, d map<string, double>"
    cases = [(column, index, pair) for column in range(4) for index, pair in enumerate([*same, *unlike])]

    def rows(side: int) -> list[tuple[Any, ...]]:
        nothing = [None] * 4
        return [
            ("abcd"[column], index, *nothing[:column], wraps[column](pair[side]), *nothing[column + 1 :])
            for column, index, pair in cases
        ]

    comparison = day.of(rows(0), rows(1), schema)
    assert [(row.key["origin"], row.key["carrier"]) for row in comparison.examples] == [
        ("abcd"[column], index) for column, index, _ in cases if index >= len(same)
    ]
    assert all(list(row.values) == [row.key["origin"]] for row in comparison.examples)


def test_a_value_that_is_not_finite_is_a_string_in_a_row_and_not_part_of_a_total(day, store):
    rows = [("a", "x", 1, math.nan), ("b", "x", 1, math.inf), ("c", "x", 1, 2.0)]
    comparison = day.of(rows, [("a", "x", 1, -math.inf), ("b", "x", 1, 3.0), ("c", "x", 1, math.nan)])
    assert [row.values["delay"] for row in comparison.examples] == [
        ("NaN", "-Infinity"), ("Infinity", 3.0), (2.0, "NaN"),
    ]  # fmt: skip
    delay = metric(comparison, "delay")
    assert (delay.before, delay.after) == (2.0, 3.0)
    assert [(mover.before, mover.after) for mover in delay.movers] == [(None, 3.0), (2.0, None)]

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(store.get(comparison_uri(PREFIX)), parse_constant=refuse)


def test_a_column_that_the_earlier_version_lacks_counts_as_null(day):
    after = [(*row, weight) for row, weight in zip(ROWS, (1, None, 2), strict=True)]
    comparison = day.of(ROWS, after, SCHEMA, f"{SCHEMA}, weight int")
    assert counts(comparison) == (3, 3, 0, 0, 2)
    assert [row.values for row in comparison.examples] == [{"weight": (None, 1)}, {"weight": (None, 2)}]
    weight = metric(comparison, "weight")
    assert (weight.before, weight.after, len(weight.movers)) == (None, 3, 2)


def test_a_column_that_was_dropped_or_widened_since_is_compared_too(spark, day):
    day.publish([("EWR", "UA", 3, 1.5)], "origin string, carrier string, flights int, delay double")
    spark.sql(f"ALTER TABLE {day.table} ALTER COLUMN flights TYPE bigint")
    spark.sql(f"ALTER TABLE {day.table} DROP COLUMN delay")
    day.publish(
        [
            (
                "EWR",
                "UA",
                2**40,
            )
        ],
        "origin string, carrier string, flights bigint",
    )
    comparison = day.compare()
    assert comparison.examples[0].values == {"flights": (3, 2**40), "delay": (1.5, None)}


def test_keys_may_hold_any_string_and_are_shown_in_order(day):
    names = ["", " ", "Zürich", "東京", "a'b`c\"d\\", "a\nb", "x" * 1000, "🛫"]
    schema = "origin string, carrier string, `flights, all.of them` bigint"
    comparison = day.of([(name, "UA", 1) for name in names], [(name, "UA", 2) for name in names], schema)
    assert comparison.rows.changed == len(names)
    shown = [row.key["origin"] for row in comparison.examples]
    assert shown == [f"{'x' * (MAX_STRING_LENGTH - 3)}..." if len(name) > 100 else name for name in sorted(names)]
    assert comparison.examples[0].values == {"flights, all.of them": (1, 2)}
    assert {row["origin"] for row in day.stored_rows(comparison)} == set(names)


def test_the_day_may_be_the_only_key_and_the_only_column(day):
    day.key = ("date",)
    comparison = day.of([(1,)], [(2,)], "flights int")
    assert (comparison.key, comparison.examples[0].key, comparison.rows.changed) == ((), {}, 1)
    day.key = ("date", "flights")
    comparison = day.compare()
    assert (counts(comparison), comparison.metrics) == ((1, 1, 1, 1, 0), ())


def test_columns_named_like_those_of_the_comparison_are_kept_apart(day):
    day.key = ("date", "change")
    schema = "change string, delay bigint, delay_before bigint, delay_before_before bigint"
    comparison = day.of([("a", 1, 2, 3)], [("a", 4, 5, 6)], schema)
    (row,) = day.stored_rows(comparison)
    assert list(row) == [
        "date", "change", "change_", "delay_before", "delay_after", "delay_before_before", "delay_before_after",
        "delay_before_before_before", "delay_before_before_after",
    ]  # fmt: skip
    assert list(row.values())[1:] == ["a", "changed", 1, 4, 2, 5, 3, 6]


def test_a_key_that_does_not_identify_the_rows_of_an_earlier_version_is_refused(day):
    day.publish([("EWR", "UA", 1, 0.0), ("EWR", "B6", 1, 0.0)])
    day.publish([("EWR", "UA", 2, 0.0)])
    day.key = ("date", "origin")
    with pytest.raises(DataError, match=r"attempt 1 has keys \(date, origin\) that occur more than once"):
        day.compare()
    day.key = ("date", "terminal")
    with pytest.raises(DataError, match=r"publish\.key names terminal, which neither version has"):
        day.compare()
