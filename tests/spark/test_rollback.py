"""A rollback publishes the rows of an earlier version by one commit, and leaves all other days as they are."""

from __future__ import annotations

from datetime import date

import pytest

from slackwater.errors import AuditFailed, ObjectMissing
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.record import Publication
from slackwater.spark.publish import earlier_rows, publish_day
from slackwater.spark.table import tags_of
from tests.spark.test_publish import ROWS, a_run, commits, publish, rows_of, table

pytestmark = pytest.mark.usefixtures("interpreted")

__all__ = ["publish", "table"]  # fixtures
DAY, OTHER = "2013-03-08", "2013-03-09"
KEY = ("date", "origin", "carrier")
LATER = [*ROWS, ("LGA", "DL", 7, 0.0)]


@pytest.fixture
def rollback(spark, store, table):
    def run(attempt: int = 3, tag: str | None = None) -> Publication:
        tag = a_run(DAY).tag if tag is None else tag
        return publish_day(
            spark,
            a_run(DAY, attempt=attempt),
            lambda: earlier_rows(spark, table, tag, DAY),
            key=KEY,
            catalog_table=table,
            min_rows_percent=None,
            store=store,
        )

    return run


@pytest.mark.usefixtures("way")
def test_the_day_has_the_rows_of_the_earlier_version_and_a_tag_of_its_own(spark, store, publish, rollback, table):
    first = publish(ROWS)
    publish(LATER, OTHER)
    publish(LATER, attempt=2)
    publication = rollback()
    expected = [(date(2013, 3, 8), *row) for row in ROWS] + [(date(2013, 3, 9), *row) for row in LATER]
    assert rows_of(spark, table) == expected
    # The same rows have the same digest, so a comparison sees that they are equal.
    assert (publication.rows, publication.replaced, publication.content) == (2, 3, first.content)
    assert a_run(DAY, attempt=3).tag in tags_of(spark, table)
    stored = store.get(publication_uri(a_run(DAY, attempt=3).prefix))
    assert Publication.model_validate_json(stored) == publication


def test_a_rollback_of_nested_values_has_the_digest_of_the_version_that_it_repeats(publish, rollback):
    schema = "origin string, carrier string, l array<int>, s struct<a: int NOT NULL> NOT NULL, n smallint"
    first = publish([("LGA", "DL", [1, None], (1,), 7)], schema=schema)
    publish([("LGA", "DL", [1], (1,), 7)], attempt=2, schema=schema)
    assert rollback().content == first.content


def test_a_repeated_job_does_not_commit_twice(spark, publish, rollback, table):
    publish(ROWS)
    publish(LATER, attempt=2)
    first = rollback()
    before = commits(spark, table)
    assert rollback().snapshot_id == first.snapshot_id
    assert commits(spark, table) == before


def test_a_version_without_rows_empties_the_day(spark, publish, rollback, table):
    publish([])
    publish(ROWS, attempt=2)
    assert rollback().rows == 0
    assert rows_of(spark, table) == []


def test_columns_that_were_added_later_are_null(spark, publish, rollback, table):
    publish(ROWS)
    wider = [(*row, 1) for row in LATER]
    publish(wider, attempt=2, schema="origin string, carrier string, flights bigint, delay double, gates int")
    rollback()
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row, None) for row in ROWS]


def test_a_column_that_was_removed_is_named_and_nothing_changes(spark, publish, rollback, table):
    publish(ROWS)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN delay")
    publish([row[:3] for row in LATER], attempt=2, schema="origin string, carrier string, flights bigint")
    before = rows_of(spark, table)
    with pytest.raises(AuditFailed, match=r"does not have the columns delay of the version 2013-03-08-r{12}-1"):
        rollback()
    assert rows_of(spark, table) == before


def test_a_version_that_was_removed_is_refused(publish, rollback):
    publish(ROWS)
    with pytest.raises(ObjectMissing, match=r"no version 2013-03-08-x-9 any more: retention"):
        rollback(tag="2013-03-08-x-9")


def test_a_superseded_rollback_changes_nothing(spark, publish, rollback, table):
    publish(ROWS)
    publish(LATER, attempt=4)
    with pytest.raises(AuditFailed, match="attempt 4 has published 2013-03-08 already"):
        rollback(attempt=3)
    assert len(rows_of(spark, table)) == len(LATER)
