"""Old versions lose their tag, their snapshot and their files; nothing that somebody needs is removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slackwater.runs.record import ActiveRun, DayRecord, Publication, PublishedRun
from slackwater.steps.spark import version_retention
from slackwater.steps.spark.table import current_snapshot, tags_of
from slackwater.steps.spark.version_retention import old_versions, remove_old_versions
from tests.spark.test_publish import ROWS, a_run, publish, rows_of, table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

__all__ = ["publish", "table"]  # fixtures
DAY = "2013-03-08"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
PUBLICATION = Publication(table="t", snapshot_id="1", rows=2, replaced=0, seconds=1.0)


def day_record(date: str = DAY, *, published: int = 4, notified: int = 4, active: bool = False) -> DayRecord:
    return DayRecord(
        pipeline="daily_delays",
        date=date,
        published=PublishedRun(run=a_run(date, attempt=published), publication=PUBLICATION, at=NOW),
        notified_attempt=notified,
        active=ActiveRun(execution="one", run=a_run(date, attempt=published + 1), since=NOW) if active else None,
    )


@pytest.fixture
def four_versions(publish, table):
    for attempt in range(1, 5):
        publish([(*ROWS[0][:2], attempt, None), ROWS[1]], attempt=attempt)
    publish(ROWS, "2013-03-09")


def tag(attempt: int, date: str = DAY) -> str:
    return a_run(date, attempt=attempt).tag


def data_files(spark, table) -> set[Path]:
    folder = Path(spark.conf.get("spark.sql.catalog.warehouse.warehouse")) / table.removeprefix("warehouse.").replace(
        ".", "/"
    )
    return set((folder / "data").rglob("*.parquet"))


def remove(spark, table, day=None, *, before=NOW):
    removed = remove_old_versions(spark, table, replaced_before=before, day_of=lambda date: day or day_record(date))
    return [version.attempt for version in removed]


def test_replaced_versions_lose_tag_snapshot_and_files_but_the_first_and_the_published_stay(
    spark, table, four_versions
):
    rows, files = rows_of(spark, table), data_files(spark, table)
    main = current_snapshot(spark, table)
    assert remove(spark, table) == [2, 3]
    assert tags_of(spark, table) == {tag(1), tag(4), tag(1, "2013-03-09")}
    assert spark.table(f"{table}.snapshots").count() == 3
    assert (rows_of(spark, table), current_snapshot(spark, table)) == (rows, main)
    left = data_files(spark, table)
    assert left < files
    # What is left is what the three versions read.
    named = {
        row[0].rpartition("/")[2]
        for version in tags_of(spark, table)
        for row in spark.sql(f"SELECT file_path FROM {table}.files VERSION AS OF '{version}'").collect()
    }
    assert {path.name for path in left} == named
    (value,) = spark.sql(f"SELECT flights FROM {table} VERSION AS OF '{tag(1)}' WHERE carrier = 'UA'").collect()
    assert value[0] == 1
    assert remove(spark, table) == []


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (day_record(notified=2), []),
        (day_record(notified=3), [2]),
        (day_record(published=3), [2]),
        (day_record(active=True), []),
        (DayRecord(pipeline="daily_delays", date=DAY), []),
    ],
)
def test_versions_that_somebody_needs_stay(spark, table, four_versions, day, expected):
    assert remove(spark, table, day) == expected
    assert {tag(version) for version in {1, 2, 3, 4} - set(expected)} <= tags_of(spark, table)


def test_the_age_of_a_version_counts_from_the_version_that_replaced_it(spark, table, four_versions):
    committed = {
        row[0]: row[1] for row in spark.sql(f"SELECT snapshot_id, committed_at FROM {table}.snapshots").collect()
    }
    snapshots = dict(spark.sql(f"SELECT name, snapshot_id FROM {table}.refs").collect())
    third = committed[snapshots[tag(3)]].astimezone(UTC)
    assert remove(spark, table, before=third) == []
    assert remove(spark, table, before=third + timedelta(milliseconds=1)) == [2]


def test_one_publication_removes_a_limited_number(spark, table, four_versions, monkeypatch):
    monkeypatch.setattr(version_retention, "REMOVED_AT_ONCE", 1)
    assert [remove(spark, table) for _ in range(3)] == [[2], [3], []]


class Interrupted:
    """A Java object that calls `before_commit` immediately before each commit of it."""

    def __init__(self, java, before_commit):
        self.java, self.before_commit = java, before_commit

    def __getattr__(self, name):
        def call(*arguments):
            if name.startswith("commit"):
                self.before_commit()
            return Interrupted(getattr(self.java, name)(*arguments), self.before_commit)

        return call


def test_days_that_are_published_meanwhile_make_no_tag_unreadable(spark, table, four_versions, publish, monkeypatch):
    commits, load_table = iter(range(1, 100)), version_retention.load_table

    def before_commit():
        # The first commit, of the tags, is repeated because of the conflict; the third one is that of the snapshots.
        if (commit := next(commits)) in {1, 3}:
            publish(ROWS, "2013-03-09", attempt=commit + 1)

    monkeypatch.setattr(version_retention, "load_table", lambda *args: Interrupted(load_table(*args), before_commit))
    assert remove(spark, table) == [2, 3]
    tags = tags_of(spark, table)
    assert {tag(2), tag(3)}.isdisjoint(tags)
    assert {tag(1), tag(4), tag(1, "2013-03-09"), tag(4, "2013-03-09")} <= tags
    for name in tags:
        assert spark.sql(f"SELECT * FROM {table} VERSION AS OF '{name}'").collect()
    assert spark.table(f"{table}.snapshots").count() == len(tags)


def test_tags_of_other_systems_and_the_order_of_attempts():
    old = datetime(2013, 3, 11, tzinfo=UTC)
    tags = {a_run(DAY, attempt=attempt).tag: (attempt, old + timedelta(attempt)) for attempt in (10, 9, 2)}
    tags |= {"release": (99, old), "2013-03-08-by-hand": (98, old)}
    # As strings, 10 would come before 2.
    assert [version.attempt for version in old_versions(tags, replaced_before=NOW)] == [9]
