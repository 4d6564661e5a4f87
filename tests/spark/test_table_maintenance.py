"""pyiceberg maintains a table that Spark publishes: Spark reads every version, and its publications win."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from shutil import copyfile

import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.aws import table_maintenance
from slackwater.spark.commit import current_snapshot, overwrite_day, snapshot_identity
from slackwater.spark.publish import with_partition
from slackwater.spark.table import is_conflict, rows_of_version, table_metadata, tags_of
from tests.fakes_aws import DictGlue
from tests.spark.frames import frame_of
from tests.spark.test_publish import ROWS, SCHEMA, a_run, commit_version, rows_of

DAY, OTHER = "2013-03-08", "2013-03-09"
_numbers = count()
MANY = [(origin, carrier, number, 0.5) for number in range(30) for origin, carrier, *_ in ROWS]


class Maintained:
    """A table of Spark's catalog of folders, which pyiceberg opens through Glue in a dictionary."""

    def __init__(self, spark, table):
        self.spark, self.table = spark, table
        _, *name = table.split(".")
        self.folder = Path(spark.conf.get("spark.sql.catalog.warehouse.warehouse"), *name)

    def load(self):
        """Return pyiceberg's table at the metadata that Spark has committed last."""
        metadata = self.folder / "metadata"
        version = (metadata / "version-hint.text").read_text()
        glue = DictGlue(f"file://{self.folder.parent}")
        parameters = {"table_type": "ICEBERG", "metadata_location": f"file://{metadata}/v{version}.metadata.json"}
        glue.tables["t"] = {"Name": "t", "DatabaseName": "db", "VersionId": "0", "Parameters": parameters}
        return GlueCatalog("c", client=glue).load_table("db.t")

    def rewrite(self):
        """Rewrite small files; Spark's catalog then has pyiceberg's metadata as its next version."""
        table = self.load()
        files = table_maintenance._rewrite_small_files(table)
        if files:
            metadata = self.folder / "metadata"
            version = int((metadata / "version-hint.text").read_text()) + 1
            copyfile(table.metadata_location.removeprefix("file://"), metadata / f"v{version}.metadata.json")
            (metadata / f".v{version}.metadata.json.crc").unlink(missing_ok=True)
            (metadata / "version-hint.text").write_text(str(version))
            (metadata / ".version-hint.text.crc").unlink(missing_ok=True)
        return files


@pytest.fixture
def maintained(spark) -> Maintained:
    """A day of 20 files that an earlier version has replaced, and another day."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS warehouse.maintained")
    table = f"warehouse.maintained.t{next(_numbers)}"
    commit_version(spark, table, a_run(DAY, attempt=1), ROWS)
    # Spark writes one file for each task.
    frame = with_partition(frame_of(spark, MANY, SCHEMA), DAY).repartition(20)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.distribution-mode' = 'none')")
    run = a_run(DAY, attempt=2)
    overwrite_day(frame, table, DAY, snapshot_identity(run), inspected=current_snapshot(spark, table))
    spark.sql(f"ALTER TABLE {table} CREATE TAG `{run.tag}`")
    commit_version(spark, table, a_run(OTHER, attempt=1), ROWS)
    return Maintained(spark, table)


def versions(spark, table):
    return {
        tag: sorted(map(tuple, rows_of_version(spark, table, tag, day).collect()), key=str)
        for tag in tags_of(spark, table)
        for day in (DAY, OTHER)
    }


def test_spark_reads_the_same_rows_of_every_version_and_publishes_on(spark, maintained):
    table = maintained.table
    rows, before = rows_of(spark, table), versions(spark, table)
    history = [item for item in table_metadata(spark, table)["snapshots"] if "slackwater.date" in item["summary"]]
    assert spark.table(f"{table}.files").count() == 22
    assert maintained.rewrite() == 20
    spark.catalog.refreshTable(table)
    assert spark.table(f"{table}.files").count() == 3
    assert rows_of(spark, table) == rows
    assert versions(spark, table) == before
    after = [item for item in table_metadata(spark, table)["snapshots"] if "slackwater.date" in item["summary"]]
    assert json.dumps(after) == json.dumps(history)
    commit_version(spark, table, a_run(DAY, attempt=3), ROWS)
    assert spark.table(table).count() == 2 * len(ROWS)
    assert versions(spark, table).items() >= before.items()


@pytest.mark.parametrize("day", [DAY, OTHER])
def test_a_publication_that_has_inspected_the_table_before_tries_again_or_does_not_notice(spark, maintained, day):
    table, inspected = maintained.table, current_snapshot(spark, maintained.table)
    assert maintained.rewrite() == 20
    spark.catalog.refreshTable(table)
    frame = with_partition(frame_of(spark, ROWS, SCHEMA), day)
    identity = snapshot_identity(a_run(day, attempt=9))
    if day == DAY:
        with pytest.raises(Exception, match="Found conflicting") as refused:
            overwrite_day(frame, table, day, identity, inspected=inspected)
        assert is_conflict(refused.value)
        inspected = current_snapshot(spark, table)
    overwrite_day(frame, table, day, identity, inspected=inspected)
    assert spark.table(table).where(f"date = '{day}'").count() == len(ROWS)
