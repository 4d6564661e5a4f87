"""`data_quality`: what each rule counts, shows, rejects and fails."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from slackwater.errors import DataError, DefinitionError, InputInvalid
from slackwater.runs.period import day_of
from slackwater.steps.transform.data_quality import verify
from tests.spark.failed_job import hold_of_failed_job
from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied, described, refused

pytestmark = pytest.mark.usefixtures("interpreted")

NAN, INF = math.nan, math.inf
DAY = day_of(date(2013, 3, 10), "America/New_York")


def found(result: dict[str, Any]) -> tuple[int, int, list[Any]]:
    return result["checked"], result["failed"], result["examples"]


@pytest.fixture(scope="module")
def flights(spark):
    rows = [
        (1, "AA", 100.0, Decimal("1.50"), "EWR"),
        (2, "B6", NAN, None, "JFK"),
        (3, None, INF, Decimal("-0.01"), "lga"),
        (4, "ÜÜ", None, Decimal("2.01"), None),
        (4, "AA\n", -1.0, Decimal("2.00"), "LGA"),
        (None, "xAAx", 0.0, Decimal("0.00"), "EWR"),
        (None, "", 5.5, Decimal("1.00"), "EWR"),
    ]
    return frame_of(spark, rows, "id int, carrier string, `dis.tance ü` double, price decimal(5,2), origin string")


@pytest.mark.usefixtures("generated")
def test_rules_of_rows(spark, flights):
    reference = frame_of(spark, [("EWR", 1), ("JFK", 2), ("EWR", 3), (None, 4)], "code string, n int")
    rules = [
        {"rule": "not_null", "column": "dis.tance ü"},
        {"rule": "unique", "columns": ["id"]},
        {"rule": "range", "column": "dis.tance ü", "min": 0, "max": 100},
        {"rule": "range", "column": "dis.tance ü", "min": 0},
        {"rule": "range", "column": "price", "min": 0, "max": 2.0},
        {"rule": "regex", "column": "carrier", "pattern": "[A-Z0-9]{2}|xAA"},
        {"rule": "allowed", "column": "origin", "values": ["EWR", "JFK", "LGA"]},
        {"rule": "allowed", "column": "price", "values": [0, 1.5, 2]},
        {"rule": "referential", "columns": ["origin"], "reference_columns": ["code"]},
        {"rule": "unique", "columns": ["id", "carrier"]},
    ]
    frames = {"flights": flights, "airports": reference}
    result = applied("data_quality", frames, rules=[{**rule, "severity": "warn"} for rule in rules], key=["id"])
    assert result.table.num_rows == 7
    assert result.table.column_names == flights.columns
    assert result.effect["rows_rejected"] == 0
    results = result.effect["results"]
    assert [(r["rule"], r["severity"]) for r in results] == [(rule["rule"], "warn") for rule in rules]
    far = "dis.tance ü"
    assert found(results[0]) == (7, 2, [{"id": 2, far: "NaN"}, {"id": 4, far: None}])
    assert found(results[1]) == (5, 2, [{"id": 4}])
    checked, failed, examples = found(results[2])
    assert (checked, failed, examples[:2]) == (6, 3, [{"id": 2, far: "NaN"}, {"id": 4, far: -1.0}])
    assert examples[2:] in ([], [{"id": 3, far: "Infinity"}])
    assert found(results[3])[:2] == (6, 2)
    assert found(results[4]) == (6, 2, [{"id": 3, "price": "-0.01"}, {"id": 4, "price": "2.01"}])
    assert found(results[5])[:2] == (6, 4)
    assert found(results[6]) == (6, 1, [{"id": 3, "origin": "lga"}])
    assert found(results[7])[:2] == (6, 3)
    assert found(results[8])[:2] == (6, 2)
    assert results[8]["columns"] == ["origin"]
    assert found(results[9]) == (4, 0, [])


def test_rejected_rows_are_left_out_and_seen_by_all_rules(flights):
    rules = [
        {"rule": "unique", "columns": ["id"], "severity": "reject"},
        {"rule": "not_null", "column": "id", "severity": "warn"},
        {"rule": "regex", "column": "carrier", "pattern": "..", "severity": "reject"},
        {"rule": "row_count", "min": 7, "max": 7},
    ]
    result = applied("data_quality", flights, rules=rules)
    assert {row["id"]: row["carrier"] for row in result.rows} == {1: "AA", 2: "B6", 3: None}
    assert len(result.rows) == 3
    assert result.effect["rows_rejected"] == 4
    # The third example of the pattern may be one of the others.
    assert [(*found(r)[:2], found(r)[2][:2]) for r in result.effect["results"]] == [
        (5, 2, [{"id": 4}]),
        (7, 2, [{"id": None}]),
        (6, 3, [{"carrier": ""}, {"carrier": "xAAx"}]),
        (7, 0, []),
    ]


@pytest.mark.usefixtures("generated")
def test_counts_are_those_of_duckdb(spark):
    """A skewed key: half of the rows have no key, and a third of the others the same one."""
    chance = random.Random(7)  # noqa: S311 - data, no secret
    rows = [(chance.choice([None, None, 0, *range(1, 40)]), chance.randint(-50, 50)) for _ in range(2000)]
    frame = frame_of(spark, rows, "k int, v int").repartition(3)
    keys = frame_of(spark, [(k,) for k in range(0, 40, 3)], "k int")
    rules = [
        {"rule": "unique", "columns": ["k", "v"], "severity": "reject"},
        {"rule": "range", "column": "v", "min": -40, "max": 40, "severity": "warn"},
        {"rule": "referential", "columns": ["k"], "severity": "reject"},
    ]
    result = applied("data_quality", {"f": frame, "keys": keys}, rules=rules)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE f (k INT, v INT)")
        connection.executemany("INSERT INTO f VALUES (?, ?)", rows)
        unique, inside, known, kept = connection.execute("""
            WITH marked AS (SELECT *, k IS NOT NULL AND count(*) OVER (PARTITION BY k, v) > 1 AS twice,
                                   k % 3 <> 0 AS unknown FROM f)
            SELECT count_if(twice), count_if(v NOT BETWEEN -40 AND 40), count_if(unknown),
                   count_if(NOT twice AND NOT coalesce(unknown, false)) FROM marked""").fetchone()
    assert [r["failed"] for r in result.effect["results"]] == [unique, inside, known]
    assert result.table.num_rows == kept
    assert result.effect["rows_rejected"] == len(rows) - kept
    counts = Counter(rows)
    assert all(row["k"] is None or counts[row["k"], row["v"]] == 1 for row in result.rows)
    assert all(len(r["examples"]) == 3 for r in result.effect["results"])
    again = applied("data_quality", {"f": frame.repartition(1), "keys": keys}, rules=rules)
    assert again.effect == result.effect


@pytest.mark.usefixtures("generated")
def test_without_rows_only_the_rules_of_the_whole_frame_fail(spark, flights):
    rules = [
        {"rule": "not_null", "column": "id", "severity": "reject"},
        {"rule": "unique", "columns": ["id"]},
        {"rule": "range", "column": "price", "max": 0},
        {"rule": "row_count", "min": 1},
        {"rule": "row_count", "max": 5},
        {"rule": "freshness", "column": "at", "hours": 1},
    ]
    empty = flights.where("id > 100").selectExpr("*", "TIMESTAMP '2013-03-10' AS at")
    effect = applied("data_quality", empty, rules=rules, day=DAY).effect
    assert [found(r) for r in effect["results"]] == [
        (0, 0, []),
        (0, 0, []),
        (0, 0, []),
        (0, 1, [{"rows": 0}]),
        (0, 0, []),
        (0, 1, [{"at": None}]),
    ]
    with pytest.raises(DataError) as caught:
        verify(None, effect)
    assert str(caught.value) == (
        'row_count failed: {"rows": 0}; freshness of at failed: {"at": null}. '
        "Correct the source's data, or set the severity of the rule to warn or reject"
    )


@pytest.mark.usefixtures("generated")
def test_freshness_counts_from_the_end_of_the_day(spark):
    # The day of the change to summer time ends at 04:00 UTC.
    newest = datetime(2013, 3, 11, 2, 30, tzinfo=UTC)
    times = [(None, None), (newest, newest.replace(tzinfo=None)), (newest - timedelta(days=1), None)]
    frame = frame_of(spark, times, "at timestamp, l timestamp_ntz")
    rules = [
        {"rule": "freshness", "column": column, "hours": hours, "severity": "warn"}
        for column in ("at", "l")
        for hours in (1.5, 1.49)
    ]
    results = applied("data_quality", frame, rules=rules, day=DAY).effect["results"]
    assert [(r["checked"], r["failed"]) for r in results] == [(2, 0), (2, 1), (1, 0), (1, 1)]
    assert results[1]["examples"] == [{"at": "2013-03-11T02:30:00Z"}]
    assert results[3]["examples"] == [{"l": "2013-03-11T02:30:00"}]
    with pytest.raises(DefinitionError, match=r"rules\.0\.rule: freshness compares with the end of a run's day"):
        described("data_quality", frame, rules=rules)


def test_a_failed_rule_names_counts_and_examples(flights):
    rules = [
        {"rule": "not_null", "column": "origin", "severity": "warn"},
        {"rule": "allowed", "column": "carrier", "values": ["AA", "B6"]},
        {"rule": "unique", "columns": ["id"], "severity": "fail"},
    ]
    effect = applied("data_quality", flights, rules=rules).effect
    with pytest.raises(DataError) as caught:
        verify(None, effect)
    message = str(caught.value)
    assert message.startswith('allowed of carrier failed in 4 of 6 checked rows, such as {"carrier": ""}, ')
    assert 'unique of id failed in 2 of 5 checked rows, such as {"id": 4}. Correct' in message
    assert "not_null" not in message
    hold = hold_of_failed_job(caught.value)
    assert (hold.rule, hold.reason) == ("audit", f"DataError: {message}")


def test_a_rule_may_refuse_the_input_for_all_pipelines(flights):
    rules = [
        {"rule": "allowed", "column": "carrier", "values": ["AA", "B6"]},
        {"rule": "row_count", "max": 6, "severity": "invalidate"},
    ]
    with pytest.raises(InputInvalid, match=r"row_count failed: \{\"rows\": 7\}") as caught:
        verify(None, applied("data_quality", flights, rules=rules).effect)
    assert hold_of_failed_job(caught.value).rule == "audit"


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (r"\Qa.b", ["a.b"]),
        (r"a|\Qa.b", ["a.b"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa\E.b", ["a.b", "axb"]),
        ("(?x) a . b # any", ["a.b", "axb"]),
        ("(?x: a . ) b", []),
        (r"(?x) a \. b # \Q", ["a.b"]),
        ("#", ["#"]),
        ("(?m)^a.b$", ["a.b", "axb"]),
    ],
)
def test_patterns_match_whole_strings_also_with_quotations_and_comments(spark, pattern, matched):
    frame = frame_of(spark, [("a.b",), ("axb",), ("a.b\n",), ("#",), (None,)], "s string")
    rules = [{"rule": "regex", "column": "s", "pattern": pattern, "severity": "reject"}]
    assert applied("data_quality", frame, rules=rules).column("s") == [*matched, None]


def test_examples_are_short(spark):
    frame = frame_of(spark, [("x" * 1_000_000, [1] * 1000)], "s string, a array<int>")
    rules = [{"rule": "regex", "column": "s", "pattern": "y*", "severity": "warn"}]
    (result,) = applied("data_quality", frame, rules=rules, key=["a"]).effect["results"]
    (example,) = result["examples"]
    assert [len(value) for value in example.values()] == [100, 100]
    assert example["s"] == "x" * 97 + "..."


COLUMNS = "id int, s string, at timestamp, m map<string,int>, long decimal(38,0), f float, d double"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"rule": "unique", "columns": ["x"]}, "rules.0.columns.0: no column 'x' in rows"),
        ({"rule": "range", "column": "id", "min": "a"}, "rules.0.min: 'a' is not a value of type int, which id is"),
        (
            {"rule": "range", "column": "at", "max": "March"},
            "rules.0.max: 'March' is not a value of type timestamp, which at is",
        ),
        ({"rule": "allowed", "column": "s", "values": ["a", 1]}, "rules.0.values: 1 is not a value of type string"),
        ({"rule": "range", "column": "id", "min": 10, "max": 1}, "rules.0.max: 1 is less than min, 10"),
        ({"rule": "range", "column": "long", "max": 1.5}, "rules.0.max: 1.5 is not a value of type decimal(38,0)"),
        ({"rule": "allowed", "column": "long", "values": [10**38]}, "rules.0.values: 1000"),
        (
            {"rule": "range", "column": "f", "max": 1e300},
            "rules.0.max: 1e+300 is not a value of type float, which f is",
        ),
        ({"rule": "range", "column": "d", "max": 10**400}, "rules.0.max: 1000"),
        ({"rule": "regex", "column": "id", "pattern": "1"}, "rules.0.column: strings are needed, and id is int"),
        (
            {"rule": "regex", "column": "s", "pattern": "a)|(b"},
            "rules.0.pattern: 'a)|(b' is not a regular expression: ",
        ),
        ({"rule": "freshness", "column": "s", "hours": 1}, "rules.0.column: timestamps are needed, and s is string"),
        ({"rule": "unique", "columns": ["m"]}, "rules.0.columns: m is map<string,int>"),
        ({"rule": "referential", "columns": ["at"]}, "rules.0.columns.0: no column 'at' in other"),
        ({"rule": "referential", "columns": ["m"]}, "rules.0.columns: m is map<string,int>, by which rows cannot"),
        ({"rule": "referential", "columns": ["id"]}, "rules.0.columns: id is int in rows, and id is bigint in other"),
    ],
)
def test_rules_that_do_not_fit_are_refused(spark, rule, message):
    frames = {"rows": frame_of(spark, [], COLUMNS)}
    if rule["rule"] == "referential":
        frames["other"] = frame_of(spark, [], "id bigint, m map<string,int>")
    assert refused("data_quality", frames, rules=[rule], day=DAY).startswith(message)
