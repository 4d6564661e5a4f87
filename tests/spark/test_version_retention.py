"""Old versions lose their tag, their snapshot and their files; nothing that somebody needs is removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from glue_jobs import run_stage
from slackwater.aws.dynamodb import run_table
from slackwater.errors import CloudError
from slackwater.runs.record import ActiveRun, DayRecord, Publication, PublishedRun
from slackwater.spark import version_retention
from slackwater.spark.commit import current_snapshot
from slackwater.spark.table import tags_of
from slackwater.spark.version_retention import old_versions, remove_old_versions
from tests.fakes_receiver import Crash
from tests.spark.test_publish import ROWS, a_run, commit_version, rows_of

DAY, HOUR = "2013-03-08", "2013-03-07T05"
OLD, NOW = datetime(2013, 3, 11, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
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
def table(spark, request) -> str:
    """A table whose files are in a folder."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS warehouse.days")
    return f"warehouse.days.{request.node.name}"


@pytest.fixture
def commit(spark, table):
    """Return a function that commits and tags a version."""
    return lambda rows, attempt, date=DAY: commit_version(spark, table, a_run(date, attempt=attempt), rows)


@pytest.fixture
def four_versions(commit):
    for attempt in range(1, 5):
        commit([(*ROWS[0][:2], attempt, None), ROWS[1]], attempt)
    commit(ROWS, 1, "2013-03-09")


def tag(attempt: int, date: str = DAY) -> str:
    return a_run(date, attempt=attempt).tag


def data_files(spark, table) -> set[Path]:
    _, *name = table.split(".")
    return set(Path(spark.conf.get("spark.sql.catalog.warehouse.warehouse"), *name, "data").rglob("*.parquet"))


def files_of_tags(spark, table) -> set[Path]:
    """Return the data files that the tagged versions read."""
    return {
        Path(row[0].removeprefix("file:"))
        for version in tags_of(spark, table)
        for row in spark.sql(f"SELECT file_path FROM {table}.files VERSION AS OF '{version}'").collect()
    }


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
    assert data_files(spark, table) < files
    assert data_files(spark, table) == files_of_tags(spark, table)
    (value,) = spark.sql(f"SELECT flights FROM {table} VERSION AS OF '{tag(1)}' WHERE carrier = 'UA'").collect()
    assert value[0] == 1
    assert remove(spark, table) == []


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


def test_a_job_that_ends_between_the_two_commits_leaves_its_snapshots_to_the_next_publication(
    spark, table, commit, monkeypatch
):
    for attempt in range(1, 4):
        commit([(*ROWS[0][:2], attempt, None)], attempt)
    numbers, load_table = count(1), version_retention.load_table

    def before_commit():
        if next(numbers) == 2:
            raise Crash("before the commit of the snapshots")

    monkeypatch.setattr(version_retention, "load_table", lambda *args: Interrupted(load_table(*args), before_commit))
    with pytest.raises(Crash):
        remove(spark, table, day_record(published=3, notified=3))
    assert tags_of(spark, table) == {tag(1), tag(3)}
    assert (spark.table(f"{table}.snapshots").count(), len(data_files(spark, table))) == (3, 3)
    assert remove(spark, table, day_record(published=3, notified=3)) == [2]
    assert spark.table(f"{table}.snapshots").count() == 2
    assert data_files(spark, table) == files_of_tags(spark, table)


def test_days_that_are_published_meanwhile_make_no_tag_unreadable(spark, table, four_versions, commit, monkeypatch):
    numbers, load_table = count(1), version_retention.load_table

    def before_commit():
        # The first commit, of the tags, is repeated because of the conflict; the third one is that of the snapshots.
        if (number := next(numbers)) in {1, 3}:
            commit(ROWS, number + 1, "2013-03-09")

    monkeypatch.setattr(version_retention, "load_table", lambda *args: Interrupted(load_table(*args), before_commit))
    assert remove(spark, table) == [2, 3]
    tags = tags_of(spark, table)
    assert {tag(2), tag(3)}.isdisjoint(tags)
    assert {tag(1), tag(4), tag(1, "2013-03-09"), tag(4, "2013-03-09")} <= tags
    for name in tags:
        assert spark.sql(f"SELECT * FROM {table} VERSION AS OF '{name}'").collect()
    assert spark.table(f"{table}.snapshots").count() == len(tags)


class FakeTable:
    """A table with tags and snapshots only, as Iceberg's Java object and as its metadata.

    `commits` are pairs of a run and the time of its commit; `untagged` are the attempts that have no tag.
    """

    def __init__(self, *commits, untagged=()):
        self.metadata = {
            "last-sequence-number": len(commits),
            "snapshots": [
                {
                    "snapshot-id": number,
                    "timestamp-ms": int(at.timestamp() * 1000),
                    "summary": {"slackwater.date": run.date, "slackwater.attempt": str(run.attempt)}
                    | ({"slackwater.through": run.through.isoformat()} if run.through else {}),
                }
                for number, (run, at) in enumerate(commits, start=1)
            ],
            "refs": {
                run.tag: {"snapshot-id": number, "type": "tag"}
                for number, (run, _) in enumerate(commits, start=1)
                if run.attempt not in untagged
            }
            | {"main": {"snapshot-id": len(commits), "type": "branch"}},
        }

    manageSnapshots = expireSnapshots = lambda self: self  # noqa: N815 - names of Iceberg

    def removeTag(self, tag):  # noqa: N802
        del self.metadata["refs"][tag]
        return self

    def expireOlderThan(self, timestamp):  # noqa: N802
        assert timestamp == 0, "no snapshot is removed because of its age"
        return self

    def expireSnapshotId(self, snapshot_id):  # noqa: N802
        assert snapshot_id not in {ref["snapshot-id"] for ref in self.metadata["refs"].values()}, "Iceberg refuses this"
        self.metadata["snapshots"] = [one for one in self.metadata["snapshots"] if one["snapshot-id"] != snapshot_id]
        return self

    def commit(self):
        pass

    @property
    def snapshots(self):
        return [snapshot["snapshot-id"] for snapshot in self.metadata["snapshots"]]


@pytest.fixture
def remove_from(monkeypatch):
    """Return a function that removes old versions from a `FakeTable`, and returns their dates and attempts."""

    def remove(fake, day_of=day_record, *, before=NOW):
        monkeypatch.setattr(version_retention, "load_table", lambda spark, table: fake)
        monkeypatch.setattr(version_retention, "table_metadata", lambda spark, table: fake.metadata)
        removed = remove_old_versions(None, "c.d.t", replaced_before=before, day_of=day_of)
        return [(version.date, version.attempt) for version in removed]

    return remove


def commits(*attempts, date=DAY):
    """Pairs for `FakeTable`: attempt N commits on day N."""
    return [(a_run(date, attempt=attempt), OLD + timedelta(attempt)) for attempt in attempts]


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
@pytest.mark.parametrize("untagged", [(), (2, 3)])
def test_versions_that_somebody_needs_stay(remove_from, untagged, day, expected):
    table = FakeTable(*commits(1, 2, 3, 4), untagged=untagged)
    assert remove_from(table, lambda date: day) == [(DAY, attempt) for attempt in expected]
    assert table.snapshots == [number for number in range(1, 5) if number not in expected]
    assert set(table.metadata["refs"]) == {"main", *(tag(n) for n in table.snapshots if n not in untagged)}


@pytest.mark.parametrize(
    ("published", "notified", "expected"),
    [(2, 2, [1, 2]), (1, 1, [1]), (3, 3, [1, 2, 3]), (3, 1, []), (3, 2, [1])],
)
def test_versions_of_an_hour_end_also_without_their_tags_once_people_know_them(
    remove_from, published, notified, expected
):
    table = FakeTable(*commits(1, 2, 3, date=HOUR), *commits(4), untagged=(1, 2, 3))
    assert remove_from(table, lambda _: day_record(HOUR, published=published, notified=notified)) == [
        (HOUR, attempt) for attempt in expected
    ]


def test_the_age_of_a_version_counts_from_the_version_that_replaced_it(remove_from):
    table, third = FakeTable(*commits(1, 2, 3, 4)), OLD + timedelta(3)
    assert remove_from(table, before=third) == []
    assert remove_from(table, before=third + timedelta(milliseconds=1)) == [(DAY, 2)]


def test_the_age_of_a_commit_without_a_tag_counts_from_the_next_commit_of_its_day(remove_from):
    other_day = [(a_run("2013-03-09", attempt=1), OLD + timedelta(3))]
    table = FakeTable(*commits(1, 2), *other_day, *commits(4), untagged=(2,))
    assert remove_from(table, before=OLD + timedelta(4)) == []
    assert remove_from(table, before=OLD + timedelta(4, milliseconds=1)) == [(DAY, 2)]


def test_the_age_of_a_commit_that_came_after_a_later_attempt_is_its_own(remove_from):
    table = FakeTable(*commits(1, 4), (a_run(DAY, attempt=3), OLD + timedelta(5)), *commits(6, date="2013-03-09"))
    del table.metadata["refs"][tag(3)]
    assert remove_from(table, before=OLD + timedelta(5)) == []
    assert remove_from(table, before=OLD + timedelta(5, milliseconds=1)) == [(DAY, 3)]


def test_the_current_snapshot_and_those_of_other_writers_stay_without_a_tag(remove_from):
    table = FakeTable(*commits(1, 2, 3), untagged=(2, 3))
    del table.metadata["snapshots"][1]["summary"]["slackwater.date"]
    assert remove_from(table) == []
    assert table.snapshots == [1, 2, 3]


def test_one_publication_removes_a_limited_number(remove_from, monkeypatch):
    monkeypatch.setattr(version_retention, "REMOVED_AT_ONCE", 1)
    table = FakeTable(*commits(1, 2, 3, 4))
    assert [remove_from(table) for _ in range(3)] == [[(DAY, 2)], [(DAY, 3)], []]


def test_days_that_block_their_versions_do_not_keep_those_of_other_days(remove_from, monkeypatch):
    monkeypatch.setattr(version_retention, "READ_AT_ONCE", 1)
    dates = [f"2013-03-0{number}" for number in range(1, 6)]
    table = FakeTable(*(commit for date in dates for commit in commits(1, 2, 3, 4, date=date)))
    read, removed = [], []

    def day_of(date):
        read.append(date)
        return day_record(date, active=date != dates[-1])

    for _ in dates:
        removed += remove_from(table, day_of)
        table.metadata["last-sequence-number"] += 1
    assert (sorted(read), removed) == (dates, [(dates[-1], 2), (dates[-1], 3)])


def test_tags_of_other_systems_and_the_order_of_attempts(remove_from):
    table = FakeTable(*commits(2, 9, 10))
    table.metadata["refs"] |= {name: {"snapshot-id": 2, "type": "tag"} for name in ("release", "2013-03-08-by-hand")}
    # As strings, 10 would come before 2.
    assert [version.attempt for version in old_versions(table.metadata, replaced_before=NOW)] == [9]


DAYS_AGO = [30, 20, 10, 1]
"""When the versions 1 to 4 of the day were committed; a version is replaced when the next one is committed."""


@pytest.fixture
def job(monkeypatch):
    """Return a function that runs the job's work with fakes of Spark and AWS; `events` is what has happened, in order.

    The fake of a stage's job publishes only the stage `last`.
    """
    today = datetime.now(UTC)
    fake = FakeTable(*((a_run(DAY, attempt=n), today - timedelta(ago)) for n, ago in enumerate(DAYS_AGO, start=1)))
    events = []

    class Table:
        def __init__(self, dynamodb, name):
            self.name = name

        def day(self, pipeline, date):
            events.append((self.name, pipeline, date))
            return day_record(date)

    def run_stage_job(spark, job, *, stores, secrets, on_published):
        events.append("rollback" if job.restore else f"stage {job.stage}")
        if job.stage == "last":
            on_published()

    monkeypatch.setattr(version_retention, "load_table", lambda spark, table: fake)
    monkeypatch.setattr(version_retention, "table_metadata", lambda spark, table: events.append(table) or fake.metadata)
    monkeypatch.setattr(version_retention, "log", lambda message, **fields: events.append((message, *fields.items())))
    monkeypatch.setattr(run_table, "DynamoRunTable", Table)
    monkeypatch.setattr(run_stage, "Clients", lambda config: lambda service: service)
    monkeypatch.setattr(run_stage, "run_stage_job", run_stage_job)

    def work(stage, *options):
        run = a_run(DAY, attempt=4).model_dump_json()
        common = ["--project", "p", "--catalog-table", "c.d.t", "--run", run, "--run-table", "runs"]
        run_stage.work(None, run_stage.parse([*common, "--stage", stage, *options]))
        return events

    work.table = fake
    return work


@pytest.mark.parametrize(
    ("days", "left"), [("0", [1, 2, 3, 4]), ("11", [1, 2, 3, 4]), ("9", [1, 3, 4]), ("2", [1, 3, 4])]
)
def test_the_job_of_the_last_stage_removes_versions_that_were_replaced_so_many_days_ago(job, days, left):
    events = job("last", "--version-days", days)
    assert job.table.snapshots == left
    removed = [] if len(left) == 4 else [("runs", "daily_delays", DAY), events[-1]]
    assert events == ["stage last", *([] if days == "0" else ["`c`.`d`.`t`", *removed])]


def provisional(attempt, *, ago):
    """A pair for `FakeTable`: attempt N commits a provisional version of the day, so many minutes ago."""
    at = datetime.now(UTC) - timedelta(minutes=ago)
    return a_run(DAY, attempt=attempt).model_copy(update={"through": at}), at


@pytest.fixture
def publish_live(job, monkeypatch):
    """Return a function that runs the work of attempt 4 of a job, over a table with such commits."""

    def publish(*commits, day, through, days="0", untagged=()):
        job.table.metadata = FakeTable(*commits, untagged=untagged).metadata
        monkeypatch.setattr(run_table.DynamoRunTable, "day", lambda self, pipeline, date: day)
        run = commits[3][0].model_copy(update={"through": NOW if through else None}).model_dump_json()
        common = ["--project", "p", "--catalog-table", "c.d.t", "--run", run, "--run-table", "runs", "--stage", "last"]
        run_stage.work(None, run_stage.parse([*common, "--version-days", days]))
        return sorted(set(job.table.metadata["refs"]) - {"main"}), job.table.snapshots

    return publish


@pytest.fixture
def four():
    """Four provisional versions: version 1 was replaced 100 minutes ago, and version 2 half an hour ago.

    Their times count from the start of the test, since a whole test run takes longer than these minutes.
    """
    return [provisional(number, ago=ago) for number, ago in enumerate([200, 100, 30, 0], start=1)]


LIVE_DAY = DayRecord(pipeline="daily_delays", date=DAY)


def test_a_provisional_version_takes_the_tags_of_those_before_it_and_snapshots_some_time_later(publish_live, four):
    assert publish_live(*four, day=LIVE_DAY, through=True) == ([tag(4)], [2, 3, 4])


def test_the_last_run_of_a_day_takes_the_tag_of_the_provisional_version_too(publish_live, four):
    last = a_run(DAY, attempt=4), datetime.now(UTC)
    assert publish_live(*four[:3], last, day=LIVE_DAY, through=False, days="9") == ([tag(4)], [2, 3, 4])


def test_a_first_version_that_was_provisional_stays_when_late_data_replaces_it(publish_live, four):
    late = a_run(DAY, attempt=4), datetime.now(UTC)
    tags, _ = publish_live(*four[:3], late, day=day_record(published=3, notified=3), through=False, days="9")
    assert tag(3) in tags


def test_a_commit_without_a_tag_that_nothing_has_replaced_stays(publish_live, four):
    other = a_run("2013-03-09", attempt=5), datetime.now(UTC)
    assert publish_live(*four[:3], four[3], other, day=LIVE_DAY, through=True, untagged=(4,))[1] == [2, 3, 4, 5]


def test_no_other_stage_removes_versions_and_a_rollback_does(job):
    assert job("first", "--version-days", "9") == ["stage first"]
    assert job("last", "--restore", "2013-03-08-tag", "--version-days", "9")[1] == "rollback"
    assert job.table.snapshots == [1, 3, 4]


def test_an_error_of_the_removal_is_logged_and_does_not_fail_the_job(job, monkeypatch):
    def unavailable(spark, table):
        raise CloudError("the catalog cannot be reached")

    monkeypatch.setattr(version_retention, "table_metadata", unavailable)
    (*_, logged) = job("last", "--version-days", "9")
    expected = ("error", "CloudError"), ("reason", "the catalog cannot be reached")
    assert logged == ("old versions were not removed", *expected)
