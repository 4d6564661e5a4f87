"""Spark's operations on a pipeline's warehouse table: schema changes, metadata, and the tag of a version."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from slackwater.arrow.names import quoted
from slackwater.errors import AuditFailed
from slackwater.runs.period import is_hour, partition_values
from slackwater.spark.job import log

TABLE_PROPERTIES = {
    "format-version": "2",
    # Several days are published at the same time: Iceberg retries a commit that lost the race on the new table state.
    "commit.retry.num-retries": "30",
    "commit.retry.max-wait-ms": "5000",
}
# The property of a table of hours. A table of days may have a column `hour` of its own, and be partitioned by it.
_PERIOD = "slackwater.period"
# Attempts of a change of the table, with pauses of at most 4 seconds.
CONFLICT_ATTEMPTS = 20
# Parts of the messages with which catalogs report that another job has changed the table first (the types of these
# errors differ between catalogs), and Iceberg that another job has changed the rows of a day since its inspection.
CONFLICT_MESSAGES = (
    "CommitFailedException",
    "FIELD_ALREADY_EXISTS",
    "name already exists",
    "Found conflicting files",
    "Found conflicting deleted files",
)


def quoted_table(catalog_table: str) -> str:
    """Return `catalog.database.table` with each part quoted for Spark SQL.

    >>> quoted_table("glue.warehouse.daily_delays")
    '`glue`.`warehouse`.`daily_delays`'
    """
    return ".".join(quoted(part) for part in catalog_table.split("."))


def prepare_table(spark: SparkSession, table: str, frame: DataFrame, partition: Sequence[str]) -> None:
    """Create the table, partitioned by the columns `partition`, or add the frame's new columns to it.

    Raises `AuditFailed` if the frame lacks a column of the table, or has it with another type.
    """
    if not spark.catalog.tableExists(table):
        create_table(spark, table, frame.schema, partition)
    # Spark and Iceberg match column names without regard to case.
    fields = _current_schema(spark, table).fields
    existing = {field.name.lower(): field.dataType.simpleString() for field in fields}
    new = {field.name.lower(): field.dataType.simpleString() for field in frame.schema}
    missing = [field for field in fields if field.name.lower() not in new]
    if missing:
        names = ", ".join(field.name for field in missing)
        nulls = [f"CAST(NULL AS {field.dataType.simpleString()}) AS {_in_sql(field.name)}" for field in missing]
        raise AuditFailed(
            f"{table} has columns that the rows to publish lack: {names}. The published days keep them, so add them to "
            f"the rows, in SQL: {', '.join(nulls)} (to rename or remove a column: "
            "docs/pipelines.md#a-column-that-is-renamed-or-removed)"
        )
    for name, data_type in existing.items():
        if new[name] != data_type:
            raise AuditFailed(
                f"column {name} of {table} is {data_type}; the rows to publish have it as {new[name]}: keep the type, "
                f"in SQL: CAST({_in_sql(name)} AS {data_type}), or give the column another name"
            )
    add_columns(spark, table, frame.schema)


def _in_sql(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else quoted(name)


def with_missing_columns(spark: SparkSession, table: str, frame: DataFrame) -> DataFrame:
    """Return the frame with the columns of the table that it lacks, which are null."""
    if not spark.catalog.tableExists(table):
        return frame
    # Spark and Iceberg match column names without regard to case.
    present = {name.lower() for name in frame.columns}
    missing = [field for field in _current_schema(spark, table) if field.name.lower() not in present]
    return frame.select("*", *(sf.lit(None).cast(field.dataType).alias(field.name) for field in missing))


def add_columns(spark: SparkSession, table: str, schema: StructType) -> None:
    """Add the columns of `schema` that the table lacks. Another job may do the same at the same time."""

    def add() -> None:
        existing = {name.lower() for name in _current_schema(spark, table).names}
        new = StructType([field for field in schema if field.name.lower() not in existing])
        if new.fields:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({_column_list(new)})")
            log("columns added", table=table, columns=new.names)

    retry_on_conflict(add)


def retry_on_conflict(change: Callable[[], object]) -> None:
    """Change a table, and try again when another job has committed a conflicting change in between.

    Raises the error of `change` if it is not a conflict, or after `CONFLICT_ATTEMPTS` attempts.
    """
    # Iceberg itself retries commits of rows (`commit.retry.num-retries`) that do not conflict with other jobs' rows.
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        try:
            change()
        except Exception as error:
            if attempt == CONFLICT_ATTEMPTS or not is_conflict(error):
                raise
            time.sleep(random.uniform(0, 0.2 * attempt))  # noqa: S311 - jitter, so that two jobs do not collide again
        else:
            return


def is_conflict(error: Exception) -> bool:
    """Return whether a change of a table failed because another job has changed the table first."""
    return any(message in str(error) for message in CONFLICT_MESSAGES)


def _current_schema(spark: SparkSession, table: str) -> StructType:
    """Return the table's schema after the latest commit of any job."""
    # The session caches the table: without a refresh it does not see other jobs' commits.
    spark.catalog.refreshTable(table)
    return spark.table(table).schema


def create_table(spark: SparkSession, table: str, schema: StructType, partition: Sequence[str]) -> None:
    """Create the table without rows, partitioned by the columns of a period, also if another job does so just now."""
    own = {_PERIOD: "hour"} if "hour" in partition else {}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in {**TABLE_PROPERTIES, **own}.items())
    columns = _column_list(schema)
    partitioned = f"USING iceberg PARTITIONED BY ({', '.join(partition)})"
    statement = f"CREATE TABLE {table} ({columns}) {partitioned} TBLPROPERTIES ({properties})"
    try:
        spark.sql(statement)
    except Exception:  # catalogs raise different errors when another job has created the table first
        if not spark.catalog.tableExists(table):
            raise


def _column_list(schema: StructType) -> str:
    """Return the columns as SQL for CREATE or ALTER TABLE, all nullable: a later run may have nulls in any of them."""
    return StructType([StructField(field.name, field.dataType) for field in schema]).toDDL()


def refuse_other_period(spark: SparkSession, table: str, period: str) -> None:
    """Raise `AuditFailed` if the table has days and the period is an hour, or the reverse."""
    has_hours = load_table(spark, table).properties().get(_PERIOD) == "hour"
    if has_hours != is_hour(period):
        has, gets = ("hours", "days") if has_hours else ("days", "hours")
        raise AuditFailed(
            f"{table} has {has}, and cannot get {gets}: give the pipeline with another `period` another name"
        )


def is_of(period: str) -> Column:
    """Return the condition that holds for the rows of a period, which is given by its name."""
    return reduce(and_, (sf.col(name) == sf.lit(value) for name, value in partition_values(period).items()))


@dataclass(frozen=True)
class PeriodFiles:
    """The data files of a period."""

    bytes: int
    rows: int | None
    """None if only reading the files shows it: when another writer has deleted single rows, or partitions otherwise."""


def files_of_period(spark: SparkSession, table: str, period: str, *, tag: str | None = None) -> PeriodFiles:
    """Return what Iceberg's metadata says of the period's files in the version `tag`, by default in the current one.

    No data file is read. Raises Py4JJavaError if there is no such tag.
    """
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    # Like Spark, which `prepare_table` relies on, without regard to case.
    scan = load_table(spark, table).newScan().caseSensitive(False)
    for name, value in partition_values(period).items():
        scan = scan.filter(iceberg.expressions.Expressions.equal(name, value if name == "hour" else str(value)))
    if tag is not None:
        scan = scan.useRef(tag)
    size = rows = 0
    exact = True
    tasks = scan.planFiles()
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            task = iterator.next()
            file = task.file()
            size, rows = size + file.fileSizeInBytes(), rows + file.recordCount()
            # What remains of the filter is `true` for a file that has rows of this period only.
            exact = exact and task.deletes().isEmpty() and task.residual().toString() == "true"
    finally:
        tasks.close()
    return PeriodFiles(bytes=size, rows=rows if exact else None)


def tags_of(spark: SparkSession, table: str) -> frozenset[str]:
    """Return the names of the table's tags."""
    refs = table_metadata(spark, table).get("refs", {})
    return frozenset(name for name, ref in refs.items() if ref["type"] == "tag")


def rows_of_version(spark: SparkSession, table: str, tag: str, period: str) -> DataFrame:
    """Return the rows that a period has in the version `tag`, with the columns of the version."""
    return spark.read.option("versionAsOf", tag).table(table).where(is_of(period))


def load_table(spark: SparkSession, table: str) -> Any:
    """Return Iceberg's Java object of the table after the latest commit of any job."""
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    loaded.refresh()
    return loaded


def table_metadata(spark: SparkSession, table: str) -> dict[str, Any]:
    """Return the metadata of the table after the latest commit of any job, as Iceberg's specification defines it."""
    jvm: Any = spark._jvm
    current = load_table(spark, table).operations().current()
    # The metadata tables, such as `snapshots`, show the same, but each query of one is a Spark job.
    metadata: dict[str, Any] = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(current))
    return metadata


def create_tag(spark: SparkSession, table: str, name: str, snapshot_id: str) -> None:
    """Tag a snapshot, so that this version stays readable when old snapshots are expired.

    A tag of that name that exists is kept: a repeated job creates the same one.
    """
    statement = f"ALTER TABLE {table} CREATE TAG IF NOT EXISTS {quoted(name)} AS OF VERSION {int(snapshot_id)}"

    def create() -> None:
        spark.catalog.refreshTable(table)
        spark.sql(statement)

    retry_on_conflict(create)
