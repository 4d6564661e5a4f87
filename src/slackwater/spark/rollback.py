"""Publish an earlier version of a day again: read its rows under their tag, and commit them like those of any run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from slackwater.arrow.exchange import StoreFactory
from slackwater.arrow.names import quoted
from slackwater.errors import AuditFailed, ObjectMissing
from slackwater.project.project import Project
from slackwater.runs.record import Publication, Run
from slackwater.spark.job import log
from slackwater.spark.publish import commit_day, snapshot_identity, store_publication, with_date
from slackwater.spark.stage import StageJob
from slackwater.spark.table import find_commit, quoted_table, tags_of


def run_rollback_job(spark: SparkSession, job: StageJob, *, stores: StoreFactory) -> Publication:
    """Publish the version `job.restore` of the day again, and return the publication. No step of the pipeline runs.

    Raises `ObjectMissing`, `AuditFailed` or `Superseded`.
    """
    pipeline = Project.model_validate_json(stores().get(job.project)).pipeline(job.run.pipeline)
    return restore_version(
        spark, job.run, tag=job.restore, key=pipeline.publish.key, catalog_table=job.catalog_table, stores=stores
    )


def restore_version(
    spark: SparkSession, run: Run, *, tag: str, key: Sequence[str], catalog_table: str, stores: StoreFactory
) -> Publication:
    """Publish the rows that the run's day has in the version `tag`, and return the publication, which is written last.

    `key` is the pipeline's `publish.key`, and `catalog_table` is `catalog.database.table`. The version may have fewer
    rows than the day has now, and columns that were added later are null. A repeated job does not commit twice.

    Raises `ObjectMissing` if there is no such version, and `AuditFailed` if the table lacks a column of it, or if its
    rows fail the audit, and `Superseded` if a later attempt has published the day; then this job has changed no
    row of the table.
    """
    began, table, identity = time.monotonic(), quoted_table(catalog_table), snapshot_identity(run)
    commit = find_commit(spark, table, identity)
    if commit is None:
        if tag not in tags_of(spark, table):
            raise ObjectMissing(f"{table} has no version {tag} any more: retention or somebody else has removed it")
        day = date.fromisoformat(run.date)
        frame = version_rows(spark, table, tag, day)
        # With None, the version may have fewer rows than the day has now, and lack columns that were added later.
        commit = commit_day(spark, frame, table, identity, key=key, min_rows_percent=None)
    else:
        log("an earlier job of this attempt has committed", snapshot_id=commit.snapshot_id)
    return store_publication(spark, run, commit, catalog_table=catalog_table, began=began, store=stores())


def version_rows(spark: SparkSession, table: str, tag: str, day: date) -> DataFrame:
    """Return the rows of a day in a version, with the columns of the version.

    Raises `AuditFailed` for columns that the table does not have any more.
    """
    version = spark.read.option("versionAsOf", tag).table(table)
    spark.catalog.refreshTable(table)
    # Spark and Iceberg match column names without regard to case.
    present = {name.lower() for name in spark.table(table).columns}
    removed = [name for name in version.columns if name.lower() not in present]
    if removed:
        raise AuditFailed(
            f"{table} does not have the columns {', '.join(removed)} of the version {tag} any more, so it cannot be "
            f"published again: add them to the table, or read the version (slackwater query --version)"
        )
    columns = [sf.col(quoted(name)) for name in version.columns if name.lower() != "date"]
    # `with_date`, as for the rows of a stage: equal rows then have the same digest.
    return with_date(version.where(sf.col("date") == sf.lit(day)).select(*columns), day)
