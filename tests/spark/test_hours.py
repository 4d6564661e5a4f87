"""The table of an hourly pipeline: its partitions, what a publication replaces, and which versions end."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import count

import pytest

from slackwater.errors import AuditFailed
from slackwater.runs.record import DayRecord, Publication, PublishedRun
from slackwater.spark.publish import earlier_rows, publish_day
from slackwater.spark.table import files_of_period, rows_of_version, table_metadata, tags_of
from slackwater.spark.version_retention import remove_old_versions
from tests.spark.frames import frame_of
from tests.spark.test_publish import a_run

DAY, NIGHT, NOON, NEXT = "2013-03-10", "2013-03-10T00", "2013-03-10T12", "2013-03-10T13"
SCHEMA = "carrier string, flights long"
LATER = datetime(2030, 1, 1, tzinfo=UTC)
PUBLICATION = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1.0)
_numbers = count()


@pytest.fixture
def table(spark) -> str:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.days")
    return f"memory.days.hourly_{next(_numbers)}"


@pytest.fixture
def publish(spark, store, table):
    def publish(rows, period, *, attempt=1, schema=SCHEMA, key=("date", "hour", "carrier")) -> Publication:
        return publish_day(
            spark,
            a_run(period, attempt=attempt),
            lambda: frame_of(spark, rows, schema),
            key=key,
            catalog_table=table,
            min_rows_percent=100,
            store=store,
        )

    return publish


def rows_of(spark, table):
    return sorted(tuple(row) for row in spark.sql(f"SELECT date, hour, carrier, flights FROM {table}").collect())


def test_each_hour_is_a_partition_that_only_its_own_runs_replace(spark, publish, table):
    publish([("UA", 1), ("DL", 2)], NOON)
    publish([("UA", 3)], NEXT)
    publish([("UA", 4)], NIGHT)
    again = publish([("UA", 5), ("AA", 6)], NOON, attempt=2)
    assert (again.rows, again.replaced) == (2, 2)
    day = date(2013, 3, 10)
    assert rows_of(spark, table) == [
        (day, 0, "UA", 4), (day, 12, "AA", 6), (day, 12, "UA", 5), (day, 13, "UA", 3),
    ]  # fmt: skip
    assert spark.table(table).dtypes[:2] == [("date", "date"), ("hour", "int")]
    (spec,) = table_metadata(spark, table)["partition-specs"]
    assert [(field["name"], field["transform"]) for field in spec["fields"]] == [
        ("date", "identity"), ("hour", "identity"),
    ]  # fmt: skip
    assert files_of_period(spark, table, NOON).rows == 2


def test_an_hour_without_rows_removes_its_own(spark, publish, table, store):
    publish([("UA", 3)], NEXT)
    publish([("UA", 1)], NOON)
    with pytest.raises(AuditFailed, match=r"0 rows would replace the 1 rows that are published for 2013-03-10T12"):
        publish([], NOON, attempt=2)
    run = a_run(NOON, attempt=3)
    publish_day(
        spark, run, lambda: frame_of(spark, [], SCHEMA), key=("date", "hour"), catalog_table=table,
        min_rows_percent=None, store=store,
    )  # fmt: skip
    assert rows_of(spark, table) == [(date(2013, 3, 10), 13, "UA", 3)]


def test_a_version_has_the_rows_of_its_hour(spark, publish, table):
    publish([("UA", 1)], NOON)
    publish([("UA", 3)], NEXT)
    publish([("UA", 2)], NOON, attempt=2)
    first = a_run(NOON).tag
    assert [row["flights"] for row in rows_of_version(spark, table, first, NOON).collect()] == [1]
    earlier = earlier_rows(spark, table, first, NOON)
    assert (earlier.columns, earlier.count()) == (["carrier", "flights"], 1)


def test_a_table_of_hours_gets_no_days(spark, publish, table):
    publish([("UA", 1)], NOON)
    with pytest.raises(AuditFailed, match="has hours, and cannot get days"):
        publish([("UA", 1)], DAY, key=("date", "carrier"))
    assert len(rows_of(spark, table)) == 1


def test_a_table_of_days_with_a_column_hour_of_its_own_gets_no_hours(spark, publish, table):
    publish([("UA", 1)], DAY, key=("date", "hour"), schema="hour string, flights long")
    with pytest.raises(AuditFailed, match="has days, and cannot get hours"):
        publish([("UA", 1)], NOON)
    assert spark.table(table).count() == 1


def test_a_table_of_days_may_be_partitioned_by_a_column_hour_of_its_own(spark, publish, table):
    publish([(5, 1)], DAY, key=("date", "hour"), schema="hour int, flights long")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD hour")
    publish([(6, 2)], DAY, attempt=2, key=("date", "hour"), schema="hour int, flights long")
    assert [tuple(row) for row in spark.sql(f"SELECT hour, flights FROM {table}").collect()] == [(6, 2)]
    with pytest.raises(AuditFailed, match="has days, and cannot get hours"):
        publish([("UA", 1)], NOON)


def test_a_column_that_publishing_adds_is_refused(spark, publish, table):
    with pytest.raises(AuditFailed, match="have a column 'Hour'; publishing adds `hour` itself"):
        publish([("UA", 1)], NOON, schema="carrier string, Hour long")


def test_of_an_hour_all_versions_end_and_its_rows_stay(spark, publish, table):
    for attempt in (1, 2, 3):
        publish([("UA", attempt)], NOON, attempt=attempt)
    publish([("UA", 9)], NEXT)

    def record(period: str) -> DayRecord:
        attempt = 3 if period == NOON else 1
        published = PublishedRun(run=a_run(period, attempt=attempt), publication=PUBLICATION, at=LATER)
        return DayRecord(pipeline="daily_delays", date=period, published=published, notified_attempt=attempt)

    removed = remove_old_versions(spark, table, replaced_before=LATER, day_of=record)
    # That of the other hour is the table's current snapshot.
    assert [(version.date, version.attempt) for version in removed] == [(NOON, 1), (NOON, 2), (NOON, 3)]
    assert tags_of(spark, table) == {a_run(NEXT).tag}
    day = date(2013, 3, 10)
    assert rows_of(spark, table) == [(day, 12, "UA", 3), (day, 13, "UA", 9)]
