"""Tables of other systems, written by Iceberg itself: which snapshot is frozen, and reading it after later changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from msgspec import structs

from slackwater.errors import ObjectMissing
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.inputs.difference import input_changes
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.period import day_of
from slackwater.spark.inputs import read_iceberg

pytestmark = pytest.mark.usefixtures("interpreted")

NAME, DAY = "finance.rates", date(2013, 3, 10)


@pytest.fixture
def rates(spark):
    """The table with two snapshots: of one row, and of two."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS warehouse.finance")
    spark.sql(
        f"CREATE OR REPLACE TABLE warehouse.{NAME} (k string, rate double) USING iceberg "
        "TBLPROPERTIES ('write.delete.mode'='merge-on-read', 'write.metadata.compression-codec'='gzip')"
    )
    for row in ("('a', 1.5)", "('b', 2.5)"):
        spark.sql(f"INSERT INTO warehouse.{NAME} VALUES {row}")
    yield f"warehouse.{NAME}"
    spark.sql(f"DROP TABLE IF EXISTS warehouse.{NAME} PURGE")


class Folder:
    """The catalog and the store of the table's folder, whose path `/a/b` stands for `s3://a/b`."""

    def __init__(self, spark):
        self.metadata = Path(spark.conf.get("spark.sql.catalog.warehouse.warehouse"), *NAME.split("."), "metadata")

    def metadata_uri(self, database, table):
        version = (self.metadata / "version-hint.text").read_text()
        return f"s3:/{self.metadata / f'v{version}.gz.metadata.json'}"

    def get_range(self, uri, start, length):
        return Path(uri.removeprefix("s3:/")).read_bytes()[start : start + length]


def freeze(spark, known=None):
    """Return what a run freezes now; `known` is what the published one has read."""
    folder = Folder(spark)
    definition = {
        "pipeline": "p",
        "tables": {"rates": {"iceberg": NAME, "location": f"s3:/{folder.metadata.parent}"}},
        "steps": {"end": {"step": "sql", "depends_on": ["rates"]}},
        "publish": {"step": "end", "key": ["date"]},
    }
    known_objects = {known.uri: known} if known else {}
    tables, day = ForeignTables(folder, folder), day_of(DAY, "UTC")
    (frozen,) = tables.inputs(Pipeline.model_validate(definition), day, known_objects)
    return frozen


def compact(spark):
    spark.sql(f"CALL warehouse.system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))")


def expire(spark):
    """Expire all snapshots but the current one."""
    spark.sql(f"CALL warehouse.system.expire_snapshots(table => '{NAME}', older_than => now(), retain_last => 1)")


def rows(frame):
    return sorted(map(tuple, frame.collect()))


def test_the_frozen_snapshot_has_the_totals_that_iceberg_reports(spark, rates):
    frozen = freeze(spark)
    files = spark.sql(f"SELECT sum(record_count) AS rows, sum(file_size_in_bytes) AS bytes FROM {rates}.files").first()
    (newest,) = spark.sql(f"SELECT * FROM {rates}.snapshots ORDER BY committed_at DESC LIMIT 1").collect()
    assert (frozen.etag, frozen.rows, frozen.bytes) == (str(newest.snapshot_id), files.rows, files.bytes)
    assert frozen.arrived == newest.committed_at.astimezone(UTC)
    assert frozen.arrived < datetime.now(UTC)


def test_the_frozen_snapshot_is_read_after_later_commits_a_new_schema_and_a_rollback(spark, rates):
    first, frozen = spark.sql(f"SELECT snapshot_id FROM {rates}.snapshots ORDER BY committed_at").first(), freeze(spark)
    expected = [("a", 1.5), ("b", 2.5)]
    assert rows(read_iceberg(spark, frozen)) == expected
    spark.sql(f"ALTER TABLE {rates} ADD COLUMNS (currency string)")
    spark.sql(f"DELETE FROM {rates} WHERE k = 'a'")
    spark.sql(f"INSERT INTO {rates} VALUES ('c', 3.5, 'EUR')")
    assert rows(read_iceberg(spark, frozen)) == expected
    later = freeze(spark)
    assert rows(read_iceberg(spark, later)) == [("b", 2.5, None), ("c", 3.5, "EUR")]
    spark.sql(f"CALL warehouse.system.rollback_to_snapshot('{NAME}', {first.snapshot_id})")
    rolled_back = freeze(spark)
    assert rolled_back.etag == str(first.snapshot_id)
    assert rows(read_iceberg(spark, rolled_back)) == [("a", 1.5)]
    assert rows(read_iceberg(spark, frozen)) == expected, "no ancestor of the current snapshot any more"
    assert rows(read_iceberg(spark, later)) == [("b", 2.5, None), ("c", 3.5, "EUR")]


def test_a_compaction_is_no_other_input_until_rows_change(spark, rates):
    frozen, expected = freeze(spark), [("a", 1.5), ("b", 2.5)]
    compact(spark)
    spark.sql(f"CALL warehouse.system.rewrite_manifests('{NAME}')")
    snapshots = spark.sql(f"SELECT snapshot_id, operation FROM {rates}.snapshots ORDER BY committed_at").collect()
    assert [item.operation for item in snapshots] == ["append", "append", "replace", "replace"]
    again = freeze(spark)
    assert again == structs.replace(frozen, tag=str(snapshots[-1].snapshot_id))
    assert not input_changes([frozen], [again])
    expire(spark)
    assert rows(read_iceberg(spark, again)) == rows(spark.table(rates)) == expected
    # Only a snapshot that replaced files is left, and then only a later one, which names it.
    for _ in range(2):
        latest = freeze(spark, known=again)
        assert not input_changes([frozen], [latest])
        assert rows(read_iceberg(spark, latest)) == expected
        compact(spark)
        expire(spark)
    assert input_changes([frozen], [freeze(spark, known=again)]), "the chain to the frozen snapshot is lost"
    spark.sql(f"DELETE FROM {rates} WHERE k = 'b'")
    changed = freeze(spark)
    assert changed.etag != frozen.etag
    assert rows(read_iceberg(spark, changed)) == [("a", 1.5)]


def test_an_expired_snapshot_and_a_dropped_table_are_named(spark, rates):
    frozen = freeze(spark)
    compact(spark)
    expire(spark)
    message = rf"snapshot {frozen.tag} of finance\.rates is in .* no longer exists: run the day again"
    with pytest.raises(ObjectMissing, match=message):
        read_iceberg(spark, frozen)
    again = freeze(spark)  # only the compaction is left
    assert again.etag != frozen.etag
    assert rows(read_iceberg(spark, again)) == [("a", 1.5), ("b", 2.5)]
    spark.sql(f"DROP TABLE {rates}")
    with pytest.raises(ObjectMissing, match="no longer exists"):
        read_iceberg(spark, again)
