"""The digest of a day's rows, and reading the days that other pipelines have published."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from slackwater.errors import AuditFailed, InputError, ObjectMissing
from slackwater.runs.inputs.manifest import InputObject
from slackwater.spark.commit import current_snapshot, overwrite_day
from slackwater.spark.inputs import read_published
from slackwater.spark.publish import _row_hashes, audit, with_partition
from slackwater.spark.table import create_tag, prepare_table, quoted_table
from tests.spark.frames import frame_of

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = """
    k string, n bigint, d double, e decimal(10, 2), b boolean, y date, t timestamp, l array<int>,
    s struct<a: int>, m map<string, int>, r binary
"""
INSTANT = datetime(2013, 3, 10, 12, tzinfo=UTC)
ROWS = [
    ("a", 1, 1.5, Decimal("1.00"), True, date(2013, 3, 10), INSTANT, [1, None], (1,), {"x": 1}, b"1"),
    ("b", None, float("nan"), None, None, None, None, [], None, {}, b""),
    ("ü", -(2**63), float("inf"), Decimal("-99999999.99"), False, date.min, INSTANT, None, (None,), None, None),
]
OTHERS = (
    "z",
    2,
    2.5,
    Decimal("2.00"),
    False,
    date(2013, 3, 11),
    datetime(2013, 3, 11, tzinfo=UTC),
    [2],
    (2,),
    {"y": 1},
    b"2",
)


@pytest.fixture(scope="module")
def content(spark):
    def content(rows, schema=SCHEMA, partitions=1):
        frame = frame_of(spark, rows, schema).repartition(partitions)
        return audit(with_partition(frame, "2013-03-10"), ["date", "k"]).content

    return content


@pytest.fixture(scope="module")
def digest(content) -> str:
    return content(ROWS)


@pytest.mark.usefixtures("generated")
def test_equal_rows_have_equal_digests_in_any_order_and_partition(content, digest):
    assert {content(ROWS), content(ROWS[::-1]), content(ROWS, partitions=3), content(ROWS[1:] + ROWS[:1])} == {digest}
    assert len(digest) == 64


def hashes_of(spark, rows, schema):
    """Return the hashes of each row, whose sums are the digest."""
    frame = frame_of(spark, rows, schema).coalesce(1)
    return [tuple(row) for row in frame.select(*_row_hashes(frame)).collect()]


def test_any_other_value_has_another_hash(spark):
    changed = [*enumerate(OTHERS), *((column, None) for column in range(1, len(OTHERS)))]
    rows = [ROWS[0], *((*ROWS[0][:column], value, *ROWS[0][column + 1 :]) for column, value in changed)]
    assert len(set(hashes_of(spark, rows, SCHEMA))) == len(rows)


def test_fewer_rows_more_rows_and_other_columns_have_other_digests(content, digest):
    names = ["k string, n int", "k string, n bigint", "k string, o int"]
    digests = [content([], name) for name in names] + [content([("a", 1)], name) for name in names]
    digests += [digest, content(ROWS[:2]), content([])]
    assert len(set(digests)) == len(digests)


def test_values_that_change_places_have_another_digest(content):
    schema = "k string, n int, o int"
    assert content([("a", 1, 2), ("b", 3, 4)], schema) != content([("a", 2, 1), ("b", 4, 3)], schema)
    assert content([("a", 1, 2), ("b", 3, 4)], schema) != content([("a", 3, 2), ("b", 1, 4)], schema)


NULLABLE = "k string, a int, b int, l array<int>, p array<array<int>>, s struct<x: int, y: string>, m map<string, int>"


PAIRS = [
    (("k", 1, None, None, None, None, None), ("k", None, 1, None, None, None, None)),
    (("k", 1, 1, None, None, None, None), ("k", 1, 1, [], None, None, None)),
    (("k", 1, 1, [None, 1], None, None, None), ("k", 1, 1, [1], None, None, None)),
    (("k", 1, 1, [1], [[1], [2]], None, None), ("k", 1, 1, [1], [[1, 2], []], None, None)),
    (("k", 1, 1, [1], [None], None, None), ("k", 1, 1, [1], [[]], None, None)),
    (("k", 1, 1, [1], [], (None, None), None), ("k", 1, 1, [1], [], None, None)),
    (("k", 1, 1, [1], [], (1, "y"), {}), ("k", 1, 1, [1], [], (1, "y"), None)),
    (("k", 1, 1, [1], [], (1, "y"), {"a": None}), ("k", 1, 1, [1], [], (1, "y"), {})),
]
"""Rows that differ in nulls and limits of nested values only."""


def test_nulls_and_empty_values_have_other_hashes(spark):
    ones, others = (hashes_of(spark, rows, NULLABLE) for rows in zip(*PAIRS, strict=True))
    assert not [row for row, one, other in zip(PAIRS, ones, others, strict=True) if one == other]


def test_maps_with_the_same_entries_have_equal_digests(content):
    schema = "k string, m map<string, int>"
    assert content([("k", {"a": 1, "b": 2})], schema) == content([("k", {"b": 2, "a": 1})], schema)


NUMBERS = st.none() | st.integers(0, 1)
TEXTS = st.none() | st.sampled_from(["", "a", "ab"])
INSTANTS = st.none() | st.integers(0, 2).map(lambda micros: INSTANT.replace(microsecond=micros))
DETAILS = st.none() | st.tuples(NUMBERS, st.none() | st.lists(INSTANTS, max_size=2))
MAPS = st.none() | st.dictionaries(st.sampled_from("ab"), st.none() | st.lists(NUMBERS, max_size=2), max_size=2)
COUNTS = st.none() | st.dictionaries(st.sampled_from("ab"), NUMBERS, max_size=2)
TYPES = {
    "n int, o int": [NUMBERS, NUMBERS],
    "t string, u string": [TEXTS, TEXTS],
    "d double": [st.none() | st.sampled_from([0.0, 1.0, float("inf")])],
    "e decimal(10, 2)": [st.none() | st.sampled_from([Decimal("0.00"), Decimal("0.10")])],
    "b boolean, r binary": [st.none() | st.booleans(), st.none() | st.binary(max_size=2)],
    "y date, i timestamp": [st.none() | st.just(date(2013, 3, 10)), INSTANTS],
    "l array<array<int>>": [st.none() | st.lists(st.none() | st.lists(NUMBERS, max_size=2), max_size=2)],
    "s struct<a: int, b: array<timestamp>>": [DETAILS],
    "m map<string, array<int>>": [MAPS],
    "f float": [st.none() | st.sampled_from([0.0, 1.5, float("-inf")])],
    "v tinyint, w smallint, x bigint": [NUMBERS, NUMBERS, st.none() | st.sampled_from([0, 2**62, -(2**63)])],
    "z timestamp_ntz": [st.none() | st.integers(0, 2).map(lambda micros: datetime(2013, 3, 10, 12, 0, 0, micros))],
    "g decimal(38, 10)": [st.none() | st.sampled_from([Decimal(0), Decimal("1E-10"), Decimal("9" * 28 + ".5")])],
    "h array<struct<a: int, b: string>>": [st.none() | st.lists(st.none() | st.tuples(NUMBERS, TEXTS), max_size=2)],
    "p struct<m: map<string, int>>": [st.none() | st.tuples(COUNTS)],
}


VALUES = list(chain.from_iterable(TYPES.values()))
CHANGES = st.integers(0, len(VALUES) - 1).flatmap(lambda column: st.tuples(st.just(column), VALUES[column]))


# It does not shrink examples: each one is a Spark job. Hypothesis gives up longer lists of so many values.
@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(cases=st.lists(st.tuples(st.tuples(*VALUES), CHANGES, CHANGES), min_size=40, max_size=120))
def test_rows_with_other_values_of_any_type_have_other_hashes(spark, cases):
    rows, others = [row for row, _, _ in cases], []
    for row, *changes in cases:
        values = list(row)
        for column, value in changes:
            values[column] = value
        others.append(tuple(values))
    hashes = hashes_of(spark, [*rows, *others], ", ".join(TYPES))
    same = [hashes[index] == hashes[len(rows) + index] for index in range(len(rows))]
    # A map is the same in any order.
    assert same == [row == other for row, other in zip(rows, others, strict=True)]


@pytest.mark.parametrize("value", ["parse_json('[1]')", "array(named_struct('v', parse_json('1')))"])
def test_a_variant_is_refused(spark, value):
    with pytest.raises(AuditFailed, match=r"which the published table cannot store: publish to_json of it"):
        audit(spark.sql(f"SELECT 'a' AS k, {value} AS v"), ["k"])


@pytest.fixture
def publish(spark):
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.days")

    def publish(table, rows, schema, *, day, tag):
        frame = with_partition(frame_of(spark, rows, schema), day)
        name = quoted_table(table)
        prepare_table(spark, name, frame, ["date", "hour"] if "T" in day else ["date"])
        overwrite_day(frame, name, day, {}, inspected=current_snapshot(spark, name))
        create_tag(spark, name, tag, current_snapshot(spark, name))
        return InputObject(
            uri=f"{table}/date={day}",
            source="days",
            date=day,
            hour="00",
            etag="e",
            bytes=0,
            rows=len(rows),
            arrived=INSTANT,
            tag=tag,
        )

    return publish


def rows_of(frame):
    return sorted(map(tuple, frame.select("date", "k", *frame.columns[2:]).collect()))


def test_each_day_is_read_in_the_version_that_was_frozen(spark, publish):
    table = "memory.days.read_days"
    monday = publish(table, [("a", 1)], "k string, n int", day="2013-03-11", tag="monday-1")
    publish(table, [("a", 2)], "k string, n int", day="2013-03-11", tag="monday-2")
    tuesday = publish(table, [("b", 3, 0.5)], "k string, n int, x double", day="2013-03-12", tag="tuesday-1")
    publish(table, [], "k string, n int, x double", day="2013-03-12", tag="tuesday-2")
    first, second = date(2013, 3, 11), date(2013, 3, 12)
    assert rows_of(read_published(spark, [monday])) == [(first, "a", 1)]
    assert rows_of(read_published(spark, [monday, tuesday])) == [(first, "a", 1, None), (second, "b", 3, 0.5)]


def test_each_hour_is_read_in_the_version_that_was_frozen_and_one_that_has_ended_names_the_remedy(spark, publish):
    table = "memory.days.read_hours"
    first = publish(table, [("a", 1)], "k string, n int", day="2013-03-11T22", tag="h22-1")
    publish(table, [("a", 2)], "k string, n int", day="2013-03-11T22", tag="h22-2")
    second = publish(table, [("b", 3)], "k string, n int", day="2013-03-11T23", tag="h23-1")
    publish(table, [], "k string, n int", day="2013-03-11T23", tag="h23-2")
    rows = read_published(spark, [first, second]).select("date", "hour", "k", "n").collect()
    assert sorted(map(tuple, rows)) == [(date(2013, 3, 11), 22, "a", 1), (date(2013, 3, 11), 23, "b", 3)]
    ended = structs.replace(first, tag="h22-0", file="hourly 2013-03-11T22")
    with pytest.raises(ObjectMissing, match="slackwater run hourly --date 2013-03-11T22 --force"):
        read_published(spark, [ended])


def test_a_version_that_is_gone_is_named(spark, publish):
    day = publish("memory.days.gone_days", [("a", 1)], "k string, n int", day="2013-03-11", tag="one")
    with pytest.raises(ObjectMissing, match=r"gone_days` VERSION AS OF 'two' is in the input manifest"):
        read_published(spark, [structs.replace(day, tag="two")])
    with pytest.raises(ObjectMissing, match="no_days` VERSION AS OF"):
        read_published(spark, [structs.replace(day, uri="memory.days.no_days/date=2013-03-11")])


def test_without_any_published_day_the_columns_are_unknown(spark):
    with pytest.raises(InputError, match="none of the days that this table needs is published"):
        read_published(spark, [])
