"""Publishing a day: the audit, one Iceberg commit, never a second one, and no other day is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import count
from typing import Any

import pytest
from pyspark.sql import DataFrame

from slackwater.arrow.dataset import load_manifest, store_dataset
from slackwater.arrow.exchange import read_frame, write_frame
from slackwater.arrow.reference import reference_uri
from slackwater.errors import AuditFailed, ObjectMissing, Superseded
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.record import Publication, Run
from slackwater.spark import commit as committing
from slackwater.spark import publish as publishing
from slackwater.spark import table as warehouse
from slackwater.spark.commit import current_snapshot, find_commit, overwrite_day, snapshot_identity
from slackwater.spark.stage import run_stage_job
from slackwater.spark.table import files_of_period, quoted_table, tags_of
from tests.fakes_spark import PRODUCER
from tests.spark.failed_job import hold_of_failed_job
from tests.spark.frames import frame_of
from tests.spark.nyc import MANIFEST_URI, Day
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = "origin string, carrier string, flights bigint, delay double"
ROWS = [("EWR", "UA", 3, 1.5), ("JFK", "B6", 2, None)]
DAY = date(2013, 3, 8)
_numbers = count()


@pytest.fixture
def table(spark) -> str:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.days")
    return f"memory.days.daily_delays_{next(_numbers)}"


@pytest.fixture
def publish(spark, store, stores, table):
    def run(rows: Any, day: str = "2013-03-08", *, schema: str = SCHEMA, **more: Any) -> Publication:
        return publishing.publish_day(spark, **job(rows, day, schema=schema, **more))

    def job(
        rows: Any,
        day: str = "2013-03-08",
        *,
        schema: str = SCHEMA,
        run_id: str = "r" * 32,
        attempt: int = 1,
        min_rows_percent: float | None = 100,
    ) -> dict[str, Any]:
        """Stage the rows, and return the arguments with which they are published."""
        identity = a_run(day, run_id=run_id, attempt=attempt)
        frame = frame_of(spark, rows, schema)
        manifest = write_frame(
            frame, f"{identity.prefix}last/", producer=PRODUCER, stores=stores, input_bytes=0
        ).manifest
        reference = store_dataset(manifest, f"{identity.prefix}last/", store=store, seconds=0)
        return {
            "run": identity, "rows": lambda: read_rows(reference.manifest), "key": ("date", "origin", "carrier"),
            "catalog_table": table, "min_rows_percent": min_rows_percent, "store": store,
        }  # fmt: skip

    def read_rows(manifest: str) -> DataFrame:
        return read_frame(spark, load_manifest(manifest, store=store), stores=stores)

    def commit(rows: Any, day: str = "2013-03-08", *, run_id: str = "r" * 32, attempt: int = 1) -> None:
        commit_version(spark, table, a_run(day, run_id=run_id, attempt=attempt), rows)

    run.job, run.commit, run.store = job, commit, store
    return run


def commit_version(spark, table, run: Run, rows: Any) -> None:
    """Commit and tag the rows, as another job leaves them: without the staging and the audit of a publication."""
    day, identity = run.date, snapshot_identity(run)
    frame = publishing.with_partition(frame_of(spark, rows, SCHEMA), day)
    warehouse.prepare_table(spark, table, frame, ["date"])
    overwrite_day(frame, table, day, identity, inspected=current_snapshot(spark, table))
    warehouse.create_tag(spark, table, run.tag, find_commit(spark, table, identity).snapshot_id)


def a_run(day: str, *, run_id: str = "r" * 32, attempt: int = 1) -> Run:
    return Run(
        pipeline="daily_delays", date=day, run_id=run_id, attempt=attempt, correlation_id="c-1", manifest=MANIFEST_URI,
        prefix=f"s3://exchange/runs/daily_delays/{day}/{run_id}/{attempt}/", files=0, rows=0, bytes=0,
    )  # fmt: skip


def publish_at_once(spark, jobs: list[dict[str, Any]]) -> list[Publication]:
    """Publish by a thread for each job."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(lambda job: publishing.publish_day(spark, **job), jobs))


def rows_of(spark, table) -> list[tuple[Any, ...]]:
    # Sorted here: Spark would run two more jobs.
    return sorted((tuple(row) for row in spark.table(table).collect()), key=lambda row: row[:3])


def commits(spark, table) -> list[dict[str, str]]:
    """Return the summaries of the snapshots that publications have committed, in order."""
    summaries = [snapshot["summary"] for snapshot in warehouse.table_metadata(spark, table)["snapshots"]]
    return [summary for summary in summaries if "slackwater.run-id" in summary]


@pytest.mark.usefixtures("generated")
def test_the_first_day_creates_the_table_and_its_snapshot_and_tag_name_the_run(spark, store, publish, table):
    publication = publish(ROWS)
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row) for row in ROWS]
    assert (publication.rows, publication.replaced, publication.table) == (2, 0, table)
    body = store.get(f"s3://exchange/runs/daily_delays/2013-03-08/{'r' * 32}/1/publication.json")
    assert Publication.model_validate_json(body) == publication
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert properties["format-version"] == "2"
    partitions = spark.table(f"{table}.partitions").select("partition.*", "record_count").collect()
    assert [tuple(partition) for partition in partitions] == [(date(2013, 3, 8), 2)]
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


def test_the_metadata_is_that_of_icebergs_own_tables(spark, publish, table):
    """Other tests read tags and snapshots by `tags_of` and `table_metadata`, which need no Spark job."""
    publish(ROWS)
    publish.commit(NEWER, "2013-03-09")
    refs = spark.table(f"{table}.refs").collect()
    assert sorted(ref["type"] for ref in refs) == ["BRANCH", "TAG", "TAG"]
    assert tags_of(spark, table) == {ref["name"] for ref in refs if ref["type"] == "TAG"}
    metadata = warehouse.table_metadata(spark, table)
    assert {name: ref["snapshot-id"] for name, ref in metadata["refs"].items()} == {
        ref["name"]: ref["snapshot_id"] for ref in refs
    }
    snapshots = spark.table(f"{table}.snapshots").selectExpr("*", "unix_millis(committed_at) AS ms").collect()
    assert len(snapshots) == 2
    assert [
        (item["snapshot-id"], item.get("parent-snapshot-id"), item["timestamp-ms"], item["summary"])
        for item in metadata["snapshots"]
    ] == [
        (row["snapshot_id"], row["parent_id"], row["ms"], {**row["summary"], "operation": row["operation"]})
        for row in sorted(snapshots, key=lambda row: row["ms"])
    ]


@pytest.mark.usefixtures("generated")
def test_a_day_published_again_is_replaced_and_the_old_version_stays(spark, publish, table):
    publish(ROWS)
    publish.commit(ROWS, "2013-03-09")
    again = publish([("LGA", "DL", 9, 0.0)], attempt=2, min_rows_percent=None)
    assert (again.rows, again.replaced) == (1, 2)
    assert rows_of(spark, table) == [
        (date(2013, 3, 8), "LGA", "DL", 9, 0.0),
        *((date(2013, 3, 9), *row) for row in ROWS),
    ]
    old = spark.read.option("versionAsOf", f"2013-03-08-{'r' * 12}-1").table(table)
    assert old.where("date = '2013-03-08'").count() == 2


def test_an_empty_result_leaves_no_stale_row(spark, publish, table):
    publish.commit(ROWS)
    publish.commit(ROWS, "2013-03-09")
    emptied = publish([], attempt=2, min_rows_percent=None)
    assert (emptied.rows, emptied.replaced) == (0, 2)
    assert {row[0] for row in rows_of(spark, table)} == {date(2013, 3, 9)}
    assert publish([], attempt=3).replaced == 0


def test_fewer_rows_than_published_are_refused_unless_allowed(spark, publish, table):
    publish.commit(ROWS)
    publish.commit(ROWS, "2013-03-09")
    with pytest.raises(AuditFailed, match=r"1 rows would replace the 2 .* publish.audit.min_rows_percent 100") as error:
        publish(ROWS[:1], attempt=2)
    hold = hold_of_failed_job(error.value)
    assert (hold.rule, hold.reason) == ("audit", f"AuditFailed: {error.value}")
    assert len(rows_of(spark, table)) == 4
    assert publish(ROWS[:1], attempt=3, min_rows_percent=None).rows == 1
    assert publish(ROWS, attempt=4).replaced == 1


def test_rows_that_another_writer_has_deleted_do_not_count_as_published(spark, publish, table):
    publish.commit([*ROWS, ("LGA", "DL", 9, 0.0)])
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {table} WHERE carrier = 'DL'")
    files = files_of_period(spark, table, str(DAY))
    assert (files.rows, files.bytes > 0) == (None, True)
    with pytest.raises(AuditFailed, match="1 rows would replace the 2 "):
        publish(ROWS[:1], attempt=2)
    assert publish(ROWS, attempt=3).rows == 2


def test_the_files_of_a_day_are_those_of_a_version(spark, publish, table):
    first = publish(ROWS)
    empty = files_of_period(spark, table, "1999-01-01")
    publish.commit([*ROWS, ("LGA", "DL", 9, 0.0)], attempt=2)
    assert (empty.rows, empty.bytes) == (0, 0)
    assert files_of_period(spark, table, str(DAY)).rows == len(ROWS) + 1
    files = spark.sql(f"SELECT file_size_in_bytes AS size FROM {table}.files").collect()
    assert files_of_period(spark, table, str(DAY)).bytes == sum(file.size for file in files)
    (tag,) = tags_of(spark, table) - {name for name in tags_of(spark, table) if name.endswith("-2")}
    assert files_of_period(spark, table, str(DAY), tag=tag).rows == first.rows == len(ROWS)


def test_a_first_day_may_be_empty(spark, publish, table):
    assert publish([]).rows == 0
    assert rows_of(spark, table) == []


def test_an_attempt_that_died_after_its_commit_does_not_commit_again(spark, store, publish, table):
    first = publish(ROWS)
    store.delete([f"s3://exchange/runs/daily_delays/2013-03-08/{'r' * 32}/1/publication.json"])
    spark.sql(f"ALTER TABLE {table} DROP TAG `2013-03-08-{'r' * 12}-1`")
    again = publish(ROWS)
    assert again.model_copy(update={"seconds": first.seconds}) == first
    assert len(commits(spark, table)) == 1
    assert len(tags_of(spark, table)) == 1


def test_days_published_concurrently_lose_no_rows(spark, publish, table):
    """The table does not exist yet either: both create it."""
    days = [f"2013-03-{day:02}" for day in range(1, 4)]
    jobs = [publish.job(ROWS, day) for day in days]
    done = publish_at_once(spark, jobs)
    assert [publication.rows for publication in done] == [2] * 3
    assert sorted({str(row[0]) for row in rows_of(spark, table)}) == days
    assert len(rows_of(spark, table)) == 6


def test_days_published_concurrently_may_add_the_same_column(spark, publish, table):
    publish.commit(ROWS)
    days = [f"2013-04-{day:02}" for day in range(1, 3)]
    wider = [(*row, 1) for row in ROWS]
    jobs = [publish.job(wider, day, schema=f"{SCHEMA}, more int") for day in days]
    publish_at_once(spark, jobs)
    assert spark.table(table).columns == ["date", "origin", "carrier", "flights", "delay", "more"]
    assert sorted(row[-1] or 0 for row in rows_of(spark, table)) == [0] * 2 + [1] * 4


def test_one_of_two_concurrent_publications_of_a_day_remains(spark, publish, table):
    publish.commit(ROWS, "2013-03-01")
    jobs = [publish.job([("EWR", "UA", number, 0.0)], run_id=f"{number}" * 32) for number in range(2)]
    publish_at_once(spark, jobs)
    assert len([row for row in rows_of(spark, table) if row[0] == date(2013, 3, 8)]) == 1


def test_only_a_tag_that_loses_a_race_is_retried(monkeypatch):
    monkeypatch.setattr(warehouse.time, "sleep", lambda seconds: None)
    tries: list[int] = []

    def change(error: Exception, losses: int) -> None:
        tries.append(1)
        if len(tries) <= losses:
            raise error

    lost = RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required")
    warehouse.retry_on_conflict(lambda: change(lost, 3))
    assert len(tries) == 4
    tries.clear()
    with pytest.raises(RuntimeError, match="AccessDenied"):
        warehouse.retry_on_conflict(lambda: change(RuntimeError("AccessDenied"), 9))
    assert len(tries) == 1
    tries.clear()
    with pytest.raises(RuntimeError, match="CommitFailedException"):
        warehouse.retry_on_conflict(lambda: change(lost, 999))


def test_a_stale_table_in_the_session_loses_no_rows(spark, publish, table):
    """The frame that overwrites is planned before another day's commit, and committed after it."""
    publish.commit(ROWS)
    planned = publishing.with_partition(frame_of(spark, ROWS, SCHEMA), "2013-03-08")
    inspected = current_snapshot(spark, table)
    assert spark.table(table).count() == 2
    publish.commit(ROWS, "2013-03-09")
    overwrite_day(planned, table, "2013-03-08", {}, inspected=inspected)
    assert len(rows_of(spark, table)) == 4


@pytest.mark.parametrize(
    "case",
    [
        (
            [*ROWS, ("JFK", "B6", 7, 0.0)],
            SCHEMA,
            r'1 keys .* \{"date":"2013-03-08","origin":"JFK","carrier":"B6"\} occurs 2 times',
        ),
        ([*ROWS, (None, "B6", 7, 0.0)], SCHEMA, r"1 of 3 rows to publish have a null in their key"),
        (
            [("UA", 3)],
            "carrier string, flights bigint",
            r"publish.key names origin, .*they have: date, carrier, flights",
        ),
        ([("x", "y", "z")], "origin string, carrier string, Date string", r"have a column 'Date'"),
        ([(*ROWS[0], 1)], f"{SCHEMA}, more int", "1 rows would replace the 2 rows that are published"),
    ],
)
@pytest.mark.usefixtures("generated")
def test_invalid_rows_are_refused_and_the_table_is_unchanged(spark, publish, table, case):
    rows, schema, message = case
    publish.commit(ROWS)
    with pytest.raises(AuditFailed, match=message):
        publish(rows, schema=schema, attempt=2)
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row) for row in ROWS]
    assert len(commits(spark, table)) == 1


def test_a_new_column_is_added_and_is_null_before(spark, publish, table):
    publish.commit(ROWS)
    publish([("EWR", "UA", 1, 0.0, ["x"])], "2013-03-09", schema=f"{SCHEMA}, notes array<string>")
    assert spark.table(table).columns == ["date", "origin", "carrier", "flights", "delay", "notes"]
    assert [row[-1] for row in rows_of(spark, table)] == [None, None, ["x"]]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("origin string, carrier string, flights int, delay double", "column flights .* is bigint; .* as int"),
        ("origin string, carrier string, flights bigint", "has columns that the rows to publish lack: delay"),
    ],
)
def test_a_change_that_is_not_an_addition_is_refused(spark, publish, table, schema, message):
    publish.commit(ROWS)
    with pytest.raises(AuditFailed, match=message) as error:
        publish([row[: schema.count(",") + 1] for row in ROWS], schema=schema, attempt=2)
    assert len(commits(spark, table)) == 1
    hold = hold_of_failed_job(error.value)
    assert (hold.rule, hold.reason) == ("audit", f"AuditFailed: {error.value}")


def test_rows_that_lack_a_column_are_refused_with_the_sql_that_keeps_it(spark, publish, table):
    publish([(*ROWS[0], 1)], schema=f"{SCHEMA}, `net price` int")
    with pytest.raises(AuditFailed) as error:
        publish(ROWS, "2013-03-09", schema=SCHEMA.replace("delay", "mean_delay"))
    assert str(error.value) == (
        f"{quoted_table(table)} has columns that the rows to publish lack: delay, net price. The published days keep "
        "them, so add them to the rows, in SQL: CAST(NULL AS double) AS delay, CAST(NULL AS int) AS `net price` "
        "(to rename or remove a column: docs/pipelines.md#a-column-that-is-renamed-or-removed)"
    )
    both = f"{SCHEMA}, `net price` int, mean_delay double"
    publish([(*row[:3], None, None, row[3]) for row in ROWS], "2013-03-09", schema=both)
    assert spark.table(table).columns[-3:] == ["delay", "net price", "mean_delay"]


def test_columns_are_matched_by_name_and_small_numbers_widen(spark, publish, table):
    schema = "carrier string, flights tinyint, origin string, more smallint"
    publish([("UA", 1, "EWR", 2)], schema=schema)
    publish([("EWR", 4, "UA", 3)], "2013-03-09", schema="origin string, more smallint, carrier string, flights tinyint")
    rows = spark.table(table).select("date", "origin", "carrier", "flights", "more").orderBy("date").collect()
    assert [tuple(row)[1:] for row in rows] == [("EWR", "UA", 1, 2), ("EWR", "UA", 3, 4)]


def test_an_attempt_that_was_superseded_does_not_publish_its_older_inputs(spark, publish, table):
    publish.commit(ROWS, run_id="n" * 32, attempt=2)
    before = spark.table(table).collect()
    with pytest.raises(AuditFailed, match="attempt 2 has published 2013-03-08 already; this is attempt 1"):
        publish(ROWS[:1], run_id="o" * 32, attempt=1)
    assert spark.table(table).collect() == before
    assert publish(ROWS[:1], "2013-03-09", attempt=1).rows == 1


NEWER = [("LGA", "DL", 9, 0.0), ("LGA", "UA", 1, 0.0)]


@pytest.fixture
def before_commit(monkeypatch) -> Callable[[Callable[[], object]], list[object]]:
    """Return a function that makes the next publication call `action` after its checks and before its commit.

    It returns a list that gets an item for each commit that is tried.
    """

    def prepare(action: Callable[[], object]) -> list[object]:
        pending, tried = [action], list[object]()

        def act_and_overwrite(*arguments: Any, **options: Any) -> None:
            tried.append(arguments)
            if pending:
                pending.pop()()
            overwrite_day(*arguments, **options)

        monkeypatch.setattr(committing, "overwrite_day", act_and_overwrite)
        return tried

    return prepare


def published_by(spark, table) -> list[str]:
    """Return the attempts that have committed, in order."""
    return [summary["slackwater.attempt"] for summary in commits(spark, table)]


@pytest.mark.parametrize(
    "case",
    [(None, NEWER), (ROWS, NEWER), (ROWS, []), ([], [])],
    ids=["a new table", "new rows", "no rows any more", "still no rows"],
)
def test_a_later_attempt_that_commits_between_the_checks_and_the_commit_is_not_replaced(
    spark, publish, table, before_commit, case
):
    before, newer = case
    if before is not None:
        publish.commit(before, attempt=1)
    before_commit(lambda: publish.commit(newer, run_id="n" * 32, attempt=3))
    with pytest.raises(Superseded, match="attempt 3 has published 2013-03-08 already; this is attempt 2, with"):
        publish(ROWS, run_id="o" * 32, attempt=2, min_rows_percent=None)
    assert [row[1:] for row in rows_of(spark, table)] == newer
    refused = a_run("2013-03-08", run_id="o" * 32, attempt=2)
    assert refused.tag not in tags_of(spark, table)
    with pytest.raises(ObjectMissing):
        publish.store.get(publication_uri(refused.prefix))


def test_a_later_attempt_that_commits_right_after_is_not_withdrawn(spark, publish, table, monkeypatch):
    withdraw = publishing.withdraw_if_superseded

    def publish_first(*arguments: Any) -> None:
        monkeypatch.setattr(publishing, "withdraw_if_superseded", withdraw)
        publish.commit(NEWER, run_id="n" * 32, attempt=3)
        withdraw(*arguments)

    monkeypatch.setattr(publishing, "withdraw_if_superseded", publish_first)
    with pytest.raises(Superseded, match="attempt 3 has published 2013-03-08 already"):
        publish(ROWS, attempt=2)
    assert [row[1:] for row in rows_of(spark, table)] == NEWER


def test_an_earlier_attempt_that_commits_between_the_checks_and_the_commit_is_replaced(
    spark, publish, table, before_commit
):
    tried = before_commit(lambda: publish.commit(ROWS, run_id="o" * 32, attempt=1))
    assert publish(NEWER, run_id="n" * 32, attempt=2).replaced == 2
    assert [row[1:] for row in rows_of(spark, table)] == NEWER
    assert (len(tried), published_by(spark, table)) == (2, ["1", "2"])


def test_more_rows_that_appear_between_the_checks_and_the_commit_are_not_replaced_by_fewer(
    spark, publish, table, before_commit
):
    before_commit(lambda: publish.commit(NEWER, run_id="o" * 32, attempt=1))
    with pytest.raises(AuditFailed, match="1 rows would replace the 2 rows that are published for 2013-03-08"):
        publish(ROWS[:1], run_id="n" * 32, attempt=2)
    assert [row[1:] for row in rows_of(spark, table)] == NEWER


def test_two_jobs_of_an_attempt_at_the_same_time_commit_once(spark, publish, table, before_commit):
    others = []
    before_commit(lambda: others.append(publish(ROWS)))
    publication = publish(ROWS)
    assert [publication.model_copy(update={"seconds": other.seconds}) for other in others] == others
    assert published_by(spark, table) == ["1"]


@pytest.mark.parametrize("before", [None, ROWS], ids=["no table", "a day with rows"])
def test_another_day_that_commits_between_the_checks_and_the_commit_is_no_conflict(
    spark, publish, table, before_commit, before
):
    if before:
        publish.commit(before)
    tried = before_commit(lambda: publish.commit(NEWER, "2013-03-09", attempt=7))
    publish(NEWER, attempt=2)
    assert [row[0] for row in rows_of(spark, table)] == [date(2013, 3, 8)] * 2 + [date(2013, 3, 9)] * 2
    assert len(tried) == 1


HOUR = datetime(2013, 3, 8, 15, tzinfo=UTC)
FLIGHT = {"carrier": "UA", "origin": "EWR", "time_hour": HOUR, "dep_time": 1000, "dep_delay": 4.0, "arr_delay": 15.0}


@pytest.fixture
def run_jobs(spark, stores, table):
    """Run the jobs of both stages of a day, as the state machine does."""

    def run(day: Day, **options: Any) -> None:
        first = replace(day.job("flights_with_weather"), catalog_table=table, **options)
        last = replace(day.job("delays_by_carrier"), catalog_table=table, **options)
        for job in (first, last):
            run_stage_job(spark, job, stores=stores)

    return run


def a_day(store, *flights: dict[str, Any], attempt: int = 1) -> Day:
    day = Day(store=store, project=two_stage_project(), date="2013-03-08", attempt=attempt)
    return day.with_events("flights", list(flights), name=str(attempt)).freeze()


def test_the_job_of_the_last_stage_publishes_the_day_and_no_other_does(spark, store, stores, table):
    day, published = a_day(store, FLIGHT, {**FLIGHT, "origin": "JFK"}), []

    def on_published():
        published.append(len(rows_of(spark, table)))

    first, last = (
        replace(day.job(name), catalog_table=table) for name in ("flights_with_weather", "delays_by_carrier")
    )
    run_stage_job(spark, first, stores=stores, on_published=on_published)
    assert (published, spark.catalog.tableExists(table)) == ([], False)
    run_stage_job(spark, last, stores=stores, on_published=on_published)
    assert published == [2]
    assert [row[:4] for row in rows_of(spark, table)] == [
        (date(2013, 3, 8), "EWR", "UA", 1),
        (date(2013, 3, 8), "JFK", "UA", 1),
    ]
    publication = Publication.model_validate_json(store.get(publication_uri(day.prefix)))
    assert (publication.rows, publication.table) == (2, table)


@pytest.mark.usefixtures("way")
def test_a_repeated_job_of_the_last_stage_commits_nothing_more(spark, store, table, run_jobs):
    day = a_day(store, FLIGHT)
    run_jobs(day)
    first = store.get(publication_uri(day.prefix))
    store.delete([publication_uri(day.prefix)])
    run_jobs(day)
    again = store.get(publication_uri(day.prefix))
    publications = [
        Publication.model_validate_json(body).model_copy(update={"seconds": 0.0}) for body in (first, again)
    ]
    assert publications[0] == publications[1]
    assert len(commits(spark, table)) == 1


def test_rows_that_fail_the_audit_stay_staged_and_are_not_published(spark, store, table, run_jobs):
    day = a_day(store, {**FLIGHT, "origin": None})
    with pytest.raises(AuditFailed, match="1 of 1 rows to publish have a null in their key"):
        run_jobs(day)
    assert store.get(reference_uri(f"{day.prefix}delays_by_carrier/"))
    assert not spark.catalog.tableExists(table)
    with pytest.raises(ObjectMissing):
        store.get(publication_uri(day.prefix))


def test_the_job_of_the_last_stage_refuses_fewer_rows_unless_they_are_allowed(spark, store, table, run_jobs):
    run_jobs(a_day(store, FLIGHT, {**FLIGHT, "origin": "JFK"}))
    fewer = a_day(store, FLIGHT, attempt=2)
    with pytest.raises(AuditFailed, match="min_rows_percent 100"):
        run_jobs(fewer)
    run_jobs(fewer, run=fewer.job("delays_by_carrier").run.model_copy(update={"accepts_audit": True}))
    assert len(rows_of(spark, table)) == 1


def test_fewer_rows_are_published_down_to_the_percentage_of_the_audit(spark, publish, table):
    publish.commit(ROWS)
    with pytest.raises(AuditFailed, match=r"1 rows would replace the 2 .*\.min_rows_percent 50\.1"):
        publish(ROWS[:1], attempt=2, min_rows_percent=50.1)
    assert publish(ROWS[:1], attempt=3, min_rows_percent=50).rows == 1


def test_a_released_day_has_nulls_in_the_columns_that_its_rows_lack(spark, publish, table):
    publish.commit(ROWS)
    schema, rows = SCHEMA.rpartition(",")[0], [row[:-1] for row in ROWS]
    with pytest.raises(AuditFailed, match="has columns that the rows to publish lack"):
        publish(rows, attempt=2, schema=schema)
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row) for row in ROWS]
    publish(rows, attempt=3, schema=schema, min_rows_percent=None)
    assert rows_of(spark, table) == [(date(2013, 3, 8), *row, None) for row in rows]
