"""Publishing a day: audit, one Iceberg commit, never twice, never another day's loss."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import count
from typing import Any

import pytest

from glue_jobs import publish_day
from slackwater.arrow.exchange import store_dataset, write_frame
from slackwater.errors import AuditFailed
from slackwater.project import load_project
from slackwater.runs.record import Publication
from slackwater.steps.spark import table as table_writing
from tests.spark.nyc import PROJECT, PROJECT_URI

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SCHEMA = "origin string, carrier string, flights bigint, delay double"
ROWS = [("EWR", "UA", 3, 1.5), ("JFK", "B6", 2, None)]
_numbers = count()


@pytest.fixture
def table(spark) -> str:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS warehouse.days")
    return f"warehouse.days.daily_delays_{next(_numbers)}"


@pytest.fixture
def publish(spark, store, stores, table):
    store.put(PROJECT_URI, load_project(PROJECT).model_dump_json(by_alias=True).encode())

    def run(rows: Any, day: str = "2013-03-08", *, schema: str = SCHEMA, **more: str) -> Publication:
        options = make_options(rows, day, schema=schema, **more)
        return publish_day.publish_day(spark, options, stores=stores)

    def make_options(
        rows: Any,
        day: str = "2013-03-08",
        *,
        schema: str = SCHEMA,
        run_id: str = "r" * 32,
        attempt: str = "1",
        fewer_rows: str = "refuse",
    ) -> argparse.Namespace:
        prefix = f"s3://exchange/runs/daily_delays/{day}/{run_id}/{attempt}/"
        frame = spark.createDataFrame(rows, schema)
        manifest = write_frame(frame, f"{prefix}last/", producer="p", stores=stores, input_bytes=0)
        reference = store_dataset(manifest, f"{prefix}last/", store=store, seconds=0)
        words = ["--project", PROJECT_URI, "--pipeline", "daily_delays", "--date", day, "--run-id", run_id]
        words += ["--attempt", attempt, "--prefix", prefix, "--correlation-id", "c-1"]
        words += ["--upstream", f"delays_by_carrier={reference.manifest}", "--catalog-table", table]
        words += ["--fewer-rows", fewer_rows]
        return publish_day.parse(words)

    run.options = make_options
    return run


def rows_of(spark, table) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.table(table).orderBy("date", "origin", "carrier").collect()]


def snapshots(spark, table) -> int:
    return spark.table(f"{table}.snapshots").where("summary['slackwater.run-id'] IS NOT NULL").count()


def test_a_first_day_makes_the_table(spark, store, publish, table):
    publication = publish(ROWS)
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row) for row in ROWS]
    assert (publication.rows, publication.replaced, publication.table) == (2, 0, table)
    body = store.get(f"s3://exchange/runs/daily_delays/2013-03-08/{'r' * 32}/1/publish/reference.json")
    assert Publication.model_validate_json(body) == publication
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert properties["format-version"] == "2"
    partitions = spark.table(f"{table}.partitions").select("partition.*", "record_count").collect()
    assert [tuple(partition) for partition in partitions] == [(date(2013, 3, 8), 2)]


def test_the_snapshot_says_whose_it_is_and_a_tag_names_it(spark, publish, table):
    publication = publish(ROWS)
    (row,) = spark.table(f"{table}.snapshots").where(f"snapshot_id = {publication.snapshot_id}").collect()
    expected = {
        "pipeline": "daily_delays",
        "date": "2013-03-08",
        "run-id": "r" * 32,
        "attempt": "1",
        "correlation-id": "c-1",
    }
    assert {name: row["summary"][f"slackwater.{name}"] for name in expected} == expected
    (tag,) = spark.table(f"{table}.refs").where("type = 'TAG'").collect()
    assert (tag["name"], str(tag["snapshot_id"])) == (f"2013-03-08-{'r' * 12}-1", publication.snapshot_id)


def test_a_day_published_again_is_replaced_and_the_old_version_stays(spark, publish, table):
    publish(ROWS)
    publish(ROWS, "2013-03-09")
    again = publish([("LGA", "DL", 9, 0.0)], attempt="2", fewer_rows="allow")
    assert (again.rows, again.replaced) == (1, 2)
    assert rows_of(spark, table) == [
        (date(2013, 3, 8), "LGA", "DL", 9, 0.0),
        *((date(2013, 3, 9), *row) for row in ROWS),
    ]
    old = spark.read.option("tag", f"2013-03-08-{'r' * 12}-1").table(table)
    assert old.where("date = '2013-03-08'").count() == 2


def test_an_empty_result_leaves_no_stale_row(spark, publish, table):
    publish(ROWS)
    publish(ROWS, "2013-03-09")
    emptied = publish([], attempt="2", fewer_rows="allow")
    assert (emptied.rows, emptied.replaced) == (0, 2)
    assert {row[0] for row in rows_of(spark, table)} == {date(2013, 3, 9)}
    assert publish([], attempt="3").replaced == 0


def test_fewer_rows_than_stand_published_are_refused_unless_that_is_allowed(spark, publish, table):
    publish(ROWS)
    publish(ROWS, "2013-03-09")
    with pytest.raises(AuditFailed, match=r"1 rows would take the place of the 2 .* run the day with --allow-fewer"):
        publish(ROWS[:1], attempt="2")
    assert len(rows_of(spark, table)) == 4
    assert publish(ROWS[:1], attempt="3", fewer_rows="allow").rows == 1
    assert publish(ROWS, attempt="4").replaced == 1


def test_a_first_day_may_be_empty(spark, publish, table):
    assert publish([]).rows == 0
    assert rows_of(spark, table) == []


def test_an_attempt_that_died_after_its_commit_does_not_commit_again(spark, store, publish, table):
    first = publish(ROWS)
    store.delete([f"s3://exchange/runs/daily_delays/2013-03-08/{'r' * 32}/1/publish/reference.json"])
    spark.sql(f"ALTER TABLE {table} DROP TAG `2013-03-08-{'r' * 12}-1`")
    again = publish(ROWS)
    assert again.model_copy(update={"seconds": first.seconds}) == first
    assert snapshots(spark, table) == 1
    assert spark.table(f"{table}.refs").where("type = 'TAG'").count() == 1


def test_days_published_at_once_lose_nothing(spark, stores, publish, table):
    """The table does not exist yet either: both create it."""
    days = [f"2013-03-{day:02}" for day in range(1, 7)]
    options = [publish.options(ROWS, day) for day in days]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda one: publish_day.publish_day(spark, one, stores=stores), options))
    assert [publication.rows for publication in done] == [2] * 6
    assert sorted({str(row[0]) for row in rows_of(spark, table)}) == days
    assert len(rows_of(spark, table)) == 12


def test_days_published_at_once_may_all_bring_the_same_new_column(spark, stores, publish, table):
    publish(ROWS)
    days = [f"2013-04-{day:02}" for day in range(1, 5)]
    wider = [(*row, 1) for row in ROWS]
    options = [publish.options(wider, day, schema=f"{SCHEMA}, more int") for day in days]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: publish_day.publish_day(spark, one, stores=stores), options))
    assert spark.table(table).columns == ["date", "origin", "carrier", "flights", "delay", "more"]
    assert sorted(row[-1] or 0 for row in rows_of(spark, table)) == [0] * 2 + [1] * 8


def test_one_day_published_twice_at_once_ends_in_one_of_them(spark, stores, publish, table):
    publish(ROWS, "2013-03-01")
    options = [publish.options([("EWR", "UA", number, 0.0)], run_id=f"{number}" * 32) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: publish_day.publish_day(spark, one, stores=stores), options))
    assert len([row for row in rows_of(spark, table) if row[0] == date(2013, 3, 8)]) == 1


def test_a_tag_that_loses_its_race_is_tried_again_and_nothing_else_is(monkeypatch):
    monkeypatch.setattr(table_writing.time, "sleep", lambda seconds: None)
    tries: list[int] = []

    def change(error: Exception, losses: int) -> None:
        tries.append(1)
        if len(tries) <= losses:
            raise error

    lost = RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required")
    table_writing.against_others(lambda: change(lost, 3))
    assert len(tries) == 4
    tries.clear()
    with pytest.raises(RuntimeError, match="AccessDenied"):
        table_writing.against_others(lambda: change(RuntimeError("AccessDenied"), 9))
    assert len(tries) == 1
    tries.clear()
    with pytest.raises(RuntimeError, match="CommitFailedException"):
        table_writing.against_others(lambda: change(lost, 999))


def test_a_stale_table_in_this_session_loses_nothing(spark, publish, table):
    """The frame that overwrites is planned before another day's commit, and committed after it."""
    publish(ROWS)
    planned = publish_day.with_date(spark.createDataFrame(ROWS, SCHEMA), date(2013, 3, 8))
    assert spark.table(table).count() == 2
    publish(ROWS, "2013-03-09")
    table_writing.overwrite_day(planned, table, date(2013, 3, 8), {})
    assert len(rows_of(spark, table)) == 4


@pytest.mark.parametrize(
    "case",
    [
        (
            [*ROWS, ("JFK", "B6", 7, 0.0)],
            SCHEMA,
            r'1 keys .* \{"date":"2013-03-08","origin":"JFK","carrier":"B6"\} stands 2 times',
        ),
        ([*ROWS, (None, "B6", 7, 0.0)], SCHEMA, r"1 of 3 rows to publish have a null in their key"),
        (
            [("UA", 3)],
            "carrier string, flights bigint",
            r"publish.key names origin, .*they have: date, carrier, flights",
        ),
        ([("x", "y", "z")], "origin string, carrier string, Date string", r"have a column 'Date'"),
    ],
)
def test_rows_that_are_not_fit_are_refused_and_the_table_is_untouched(spark, publish, table, case):
    rows, schema, told = case
    publish(ROWS)
    with pytest.raises(AuditFailed, match=told):
        publish(rows, schema=schema, attempt="2")
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row) for row in ROWS]
    assert snapshots(spark, table) == 1


def test_a_new_column_is_added_and_is_null_before(spark, publish, table):
    publish(ROWS)
    publish([("EWR", "UA", 1, 0.0, ["x"])], "2013-03-09", schema=f"{SCHEMA}, notes array<string>")
    assert spark.table(table).columns == ["date", "origin", "carrier", "flights", "delay", "notes"]
    assert [row[-1] for row in rows_of(spark, table)] == [None, None, ["x"]]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("origin string, carrier string, flights int, delay double", "column flights .* is bigint; .* as int"),
        ("origin string, carrier string, flights bigint", "has columns that the rows to publish lack: delay"),
    ],
)
def test_a_change_that_is_not_an_addition_is_refused(spark, publish, table, schema, told):
    publish(ROWS)
    with pytest.raises(AuditFailed, match=told):
        publish([row[: schema.count(",") + 1] for row in ROWS], schema=schema, attempt="2")
    assert snapshots(spark, table) == 1


def test_columns_are_matched_by_name_and_small_numbers_widen(spark, publish, table):
    schema = "carrier string, flights tinyint, origin string, more smallint"
    publish([("UA", 1, "EWR", 2)], schema=schema)
    publish([("EWR", 4, "UA", 3)], "2013-03-09", schema="origin string, more smallint, carrier string, flights tinyint")
    rows = spark.table(table).select("date", "origin", "carrier", "flights", "more").orderBy("date").collect()
    assert [tuple(row)[1:] for row in rows] == [("EWR", "UA", 1, 2), ("EWR", "UA", 3, 4)]


def test_an_attempt_that_was_overtaken_does_not_publish_its_older_inputs(spark, publish, table):
    publish(ROWS, run_id="n" * 32, attempt="2")
    before = spark.table(table).collect()
    with pytest.raises(AuditFailed, match="attempt 2 has published 2013-03-08 already; this is attempt 1"):
        publish(ROWS[:1], run_id="o" * 32, attempt="1")
    assert spark.table(table).collect() == before
    assert publish(ROWS[:1], "2013-03-09", attempt="1").rows == 1
