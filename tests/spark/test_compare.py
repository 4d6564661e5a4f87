"""Comparing two published versions of a day: checked against other implementations, on real Iceberg tables."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from glue_jobs import compare_day
from slackwater.arrow.dataset import find_reference, load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.errors import CloudError, DataError, InputError, ObjectMissing, VersionRemoved
from slackwater.late.changes.pairs import VersionPair, comparison_uri, job_failure_uri, job_started_uri, pair_uri
from slackwater.late.comparison import (
    MAX_MOVERS,
    MAX_ROWS,
    MAX_STRING_LENGTH,
    Comparison,
    PublishedVersion,
    Totals,
)
from slackwater.project.project import load_project
from slackwater.runs.inputs.difference import Change
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import InputManifest, InputObject, store_manifest
from slackwater.runs.record import version_tag
from slackwater.spark.commit import current_snapshot, find_commit, overwrite_day
from slackwater.spark.compare.comparison import (
    ComparisonJob,
    compare_versions,
    input_differences,
)
from slackwater.spark.publish import with_partition
from slackwater.spark.table import create_tag, prepare_table
from tests.fakes_comparison import version
from tests.fakes_receiver import Crash
from tests.fakes_spark import FolderStore
from tests.spark.frames import frame_of
from tests.spark.nyc import PROJECT_URI
from tests.two_stages import PROJECT

pytestmark = pytest.mark.usefixtures("interpreted")

DAY = date(2013, 3, 8)
OTHER_DAY = date(2013, 3, 9)
NOON = datetime(2013, 3, 9, 12, tzinfo=UTC)
SCHEMA = "origin string, carrier string, flights bigint, delay double"
ROWS = [("EWR", "UA", 3, 1.5), ("JFK", "B6", 2, None), ("LGA", "DL", 5, -2.0)]
PREFIX = f"s3://exchange/comparisons/daily_delays/{DAY}/1-2/"
JOB = ComparisonJob(pipeline="daily_delays", date=str(DAY), prefix=PREFIX, job="j", correlation_id="c")
_numbers = count()


@dataclass
class Day:
    """A table with versions of a day, as publishing leaves them, and the comparison of the first two."""

    spark: Any
    store: Any
    stores: Any
    table: str
    key: tuple[str, ...] = ("date", "origin", "carrier")
    metrics: dict[str, str] = field(default_factory=dict)
    hour: str | None = None
    versions: list[PublishedVersion] = field(default_factory=list)

    def publish(self, rows: Any, schema: str = SCHEMA) -> PublishedVersion:
        attempt = len(self.versions) + 1
        frame = with_partition(frame_of(self.spark, rows, schema), str(DAY))
        identity = {
            "slackwater.pipeline": "daily_delays", "slackwater.date": str(DAY), "slackwater.run-id": "r" * 32,
            "slackwater.attempt": str(attempt),
        }  # fmt: skip
        prepare_table(self.spark, self.table, frame, ["date"])
        inspected = current_snapshot(self.spark, self.table)
        overwrite_day(frame, self.table, str(DAY), identity, inspected=inspected)
        commit = find_commit(self.spark, self.table, identity)
        name = version_tag(date=str(DAY), run_id="r" * 32, attempt=attempt)
        create_tag(self.spark, self.table, name, commit.snapshot_id)
        version = PublishedVersion(
            attempt=attempt, run_id="r" * 32, tag=name, snapshot_id=commit.snapshot_id, published_at=NOON,
            frozen_at=NOON, manifest=f"s3://exchange/manifests/{attempt}.json",
        )  # fmt: skip
        self.versions.append(version)
        return version

    def compare(self) -> Comparison:
        self.name_versions(*self.versions[-2:])
        return self.run(JOB)

    def name_versions(self, before: PublishedVersion, after: PublishedVersion) -> None:
        """Write the project and pair.json, which a comparison job reads. Only the pair declares `metrics`."""
        project = load_project(PROJECT)
        pipeline = project.pipelines["daily_delays"]
        update = {"key": self.key, "hour": self.hour, "metrics": {"no_column": "max"}}
        publish = pipeline.publish.model_copy(update=update)
        keyed = pipeline.model_copy(update={"publish": publish})
        project = project.model_copy(update={"pipelines": {"daily_delays": keyed}})
        self.store.put(PROJECT_URI, project.model_dump_json(by_alias=True).encode())
        pair = VersionPair(
            pipeline="daily_delays", date=str(DAY), before=before, after=after, metrics=self.metrics
        )  # fmt: skip
        self.store.put(pair_uri(PREFIX), pair.model_dump_json().encode())

    def run(self, job: ComparisonJob) -> Comparison:
        return compare_versions(self.spark, job, project=PROJECT_URI, catalog_table=self.table, stores=self.stores)

    def of(self, before: Any, after: Any, schema: str = SCHEMA, later: str = "") -> Comparison:
        self.publish(before, schema)
        self.publish(after, later or schema)
        return self.compare()

    def stored_rows(self, comparison: Comparison) -> list[dict[str, Any]]:
        """All rows that differ, from the Arrow files, in order of key."""
        manifest = load_manifest(comparison.all_rows.manifest, store=self.store)
        rows = [row.asDict() for row in read_frame(self.spark, manifest, stores=self.stores).collect()]
        return sorted(rows, key=lambda row: [str(row[name]) for name in comparison.key])


@pytest.fixture
def day(spark, store, stores) -> Day:
    return a_day(spark, store, stores)


def a_day(spark, store, stores) -> Day:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.days")
    return Day(spark, store, stores, f"memory.days.compared_{next(_numbers)}")


@pytest.fixture(scope="module")
def compared(spark, tmp_path_factory) -> tuple[Day, Comparison]:
    """A day whose second version lacks a row, and the comparison of its versions, without the input manifests."""
    store = FolderStore(tmp_path_factory.mktemp("objects"))
    day = a_day(spark, store, partial(FolderStore, store.root))
    return day, day.of(ROWS, ROWS[:2])


def counts(comparison: Comparison) -> tuple[int, ...]:
    rows = comparison.rows
    return rows.before, rows.after, rows.added, rows.removed, rows.changed


def metric(comparison: Comparison, name: str):
    (match,) = [metric for metric in comparison.metrics if metric.metric == name]
    return match


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


class KilledStore(FolderStore):
    """The store of a job that is killed before it writes the comparison."""

    def put(self, uri, body, **more):
        if uri == comparison_uri(PREFIX):
            raise Crash(f"before {uri}")
        super().put(uri, body, **more)


def test_a_job_that_is_killed_after_it_has_stored_its_rows_is_repaired_by_the_next_one(compared, store):
    day, first = compared
    rows = day.stored_rows(first)
    killed = replace(day, store=store, stores=partial(KilledStore, store.root))
    killed.name_versions(*day.versions)
    with pytest.raises(Crash):
        killed.run(JOB.model_copy(update={"job": "killed"}))
    assert find_reference(f"{PREFIX}rows/", store=store).rows == 1
    with pytest.raises(ObjectMissing):
        store.get(comparison_uri(PREFIX))
    again = replace(killed, stores=partial(FolderStore, store.root)).run(JOB)
    assert Comparison.model_validate_json(store.get(comparison_uri(PREFIX))) == again
    same = {"seconds": 0.0, "all_rows": None, "inputs": ()}
    assert first.model_copy(update=same) == again.model_copy(update=same)
    assert killed.stored_rows(again) == rows


def test_a_version_without_its_tag_or_table_is_reported(spark, day):
    day.publish(ROWS)
    day.publish(ROWS[:1])
    spark.sql(f"ALTER TABLE {day.table} DROP TAG `{day.versions[1].tag}`")
    with pytest.raises(CloudError, match=f"has no tag {day.versions[1].tag} any more: attempt 2 cannot be read"):
        day.compare()
    spark.sql(f"ALTER TABLE {day.table} DROP TAG `{day.versions[0].tag}`")
    with pytest.raises(VersionRemoved, match=r"^version 1 of daily_delays 2013-03-08 was removed by the setting vers"):
        day.compare()
    spark.sql(f"DROP TABLE {day.table}")
    with pytest.raises(CloudError, match="there is no table"):
        day.compare()


def test_a_pair_of_another_day_is_refused(compared):
    day, _ = compared
    day.name_versions(*day.versions)
    with pytest.raises(InputError, match="names versions of daily_delays 2013-03-08, not of daily_delays 2013-03-09"):
        day.run(JOB.model_copy(update={"date": str(OTHER_DAY)}))
    assert day.store.get(job_started_uri(PREFIX, "j")) == b"", "a job that has started counts, however it ends"


def test_a_failure_is_reported_under_the_job_s_own_name(monkeypatch, store):
    monkeypatch.setattr(compare_day, "s3_store", lambda: store)
    monkeypatch.setattr(
        compare_day,
        "run_job",
        lambda name, work, *, context, report_failure: report_failure("CloudError: gone") or 1,
    )
    arguments = ["--project", PROJECT_URI, "--catalog-table", "t", "--comparison"]
    assert compare_day.main([*arguments, JOB.model_dump_json()]) == 1
    assert store.get(job_failure_uri(PREFIX, "j")) == b"CloudError: gone"
    with pytest.raises(SystemExit, match="2"):
        compare_day.main([*arguments, JOB.model_dump_json().replace(str(DAY), "2013-02-30")])


def test_the_input_differences_are_reported_unless_a_manifest_is_missing(compared):
    day, without_manifests = compared

    def keep(attempt: int, *names: str) -> None:
        objects = tuple(
            InputObject(
                uri=f"s3://raw/raw/source=flights/date=2013-03-08/hour=12/{name}.parquet", source="flights",
                date="2013-03-08", hour="12", etag=name, bytes=10, rows=5, arrived=NOON + timedelta(hours=2),
            )
            for name in names
        )  # fmt: skip
        manifest = InputManifest(pipeline="daily_delays", date=str(DAY), frozen_at=NOON, objects=objects)
        store_manifest(day.store, f"s3://exchange/manifests/{attempt}.json", manifest)

    assert without_manifests.inputs == ()
    keep(1, "a")
    keep(2, "a", "b")
    flights, weather = day.compare().inputs
    (change,) = flights.changes
    assert (change.change, change.now.rows, change.arrived) == (Change.ADDED, 5, NOON + timedelta(hours=2))
    assert weather.changes == ()


def test_what_only_one_definition_names_is_no_difference(store):
    item = InputObject(
        uri="s3://raw/raw/source=flights/date=2013-03-08/hour=12/a.parquet", source="flights",
        date="2013-03-08", hour="12", etag="a", bytes=10, rows=5, arrived=NOON,
    )  # fmt: skip
    weather = InputDefinition(timezone="America/New_York", sources=("weather",), tables=())
    both = weather.model_copy(update={"sources": ("flights", "weather")})
    versions = [version(number).model_copy(update={"reads": reads}) for number, reads in ((1, weather), (2, both))]
    for each, objects in zip(versions, ((), (item,)), strict=True):
        manifest = InputManifest(pipeline="daily_delays", date=str(DAY), frozen_at=NOON, objects=objects)
        store_manifest(store, each.manifest, manifest)

    def changed(before: PublishedVersion, after: PublishedVersion) -> list[str]:
        pair = VersionPair(pipeline="daily_delays", date=str(DAY), before=before, after=after)
        return [source.source for source in input_differences(pair, both, store=store) if source.changes]

    assert changed(*versions) == changed(*reversed(versions)) == []
    unknown = versions[0].model_copy(update={"reads": None})
    assert changed(unknown, versions[1]) == ["flights"]
