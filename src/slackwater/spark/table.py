"""Spark's operations on a pipeline's warehouse table: schema changes, the commit of a day, and the tag of a version."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from slackwater.arrow.names import quoted
from slackwater.errors import AuditFailed, Superseded
from slackwater.runs.record import Run
from slackwater.spark.job import log

TABLE_PROPERTIES = {
    "format-version": "2",
    # Several days are published at the same time: Iceberg retries a commit that lost the race on the new table state.
    "commit.retry.num-retries": "30",
    "commit.retry.max-wait-ms": "5000",
}
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


# The snapshot property with the digest of a day's rows.
CONTENT = "slackwater.content"


@dataclass(frozen=True)
class Commit:
    """The commit of a day, as the table's snapshot records it."""

    snapshot_id: str
    rows: int
    """Rows that it has added."""
    replaced: int
    """Rows that it has deleted."""
    content: str
    """Digest of the rows; see `Publication.content`."""


def quoted_table(catalog_table: str) -> str:
    """Return `catalog.database.table` with each part quoted for Spark SQL.

    >>> quoted_table("glue.warehouse.daily_delays")
    '`glue`.`warehouse`.`daily_delays`'
    """
    return ".".join(quoted(part) for part in catalog_table.split("."))


def snapshot_identity(run: Run) -> dict[str, str]:
    """Return the snapshot properties that identify the run and attempt that committed."""
    return {
        "slackwater.pipeline": run.pipeline,
        "slackwater.date": run.date,
        "slackwater.run-id": run.run_id,
        "slackwater.attempt": str(run.attempt),
        "slackwater.correlation-id": run.correlation_id,
    }


def prepare_table(spark: SparkSession, table: str, frame: DataFrame) -> None:
    """Create the table, partitioned by date, or add the frame's new columns to it.

    Raises `AuditFailed` if the frame lacks a column of the table, or has it with another type.
    """
    if not spark.catalog.tableExists(table):
        create_table(spark, table, frame.schema)
    # Spark and Iceberg match column names without regard to case.
    existing = {field.name.lower(): field.dataType.simpleString() for field in _current_schema(spark, table)}
    new = {field.name.lower(): field.dataType.simpleString() for field in frame.schema}
    missing = sorted(set(existing) - set(new))
    if missing:
        raise AuditFailed(f"{table} has columns that the rows to publish lack: {', '.join(missing)}")
    for name, data_type in existing.items():
        if new[name] != data_type:
            raise AuditFailed(f"column {name} of {table} is {data_type}; the rows to publish have it as {new[name]}")
    add_columns(spark, table, frame.schema)


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


def create_table(spark: SparkSession, table: str, schema: StructType) -> None:
    """Create the table without rows. Another job may do the same at the same time."""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in TABLE_PROPERTIES.items())
    columns = _column_list(schema)
    statement = f"CREATE TABLE {table} ({columns}) USING iceberg PARTITIONED BY (date) TBLPROPERTIES ({properties})"
    try:
        spark.sql(statement)
    except Exception:  # catalogs raise different errors when another job has created the table first
        if not spark.catalog.tableExists(table):
            raise


def _column_list(schema: StructType) -> str:
    """Return the columns as SQL for CREATE or ALTER TABLE, all nullable: a later run may have nulls in any of them."""
    return StructType([StructField(field.name, field.dataType) for field in schema]).toDDL()


def refuse_if_superseded(spark: SparkSession, table: str, identity: Mapping[str, str]) -> None:
    """Raise `Superseded` if a later attempt has published the day: its inputs are newer than those of this job.

    `identity` are the snapshot properties of this job's commit.
    """
    # This happens when a job outlives its execution: the next execution takes over the day with a later attempt.
    snapshots = _snapshots_of(spark, table, identity, ("slackwater.pipeline", "slackwater.date"))
    latest = max((int(snapshot["summary"]["slackwater.attempt"]) for snapshot in snapshots), default=0)
    if latest > int(identity["slackwater.attempt"]):
        raise Superseded(
            f"attempt {latest} has published {identity['slackwater.date']} already; "
            f"this is attempt {identity['slackwater.attempt']}, with older inputs"
        )


def refuse_if_fewer(spark: SparkSession, table: str, day: date, *, rows: int, percent: float) -> None:
    """Raise `AuditFailed` if `rows`, which would replace the published rows, are less than `percent` of them."""
    published = files_of_day(spark, table, day).rows
    if published is None:
        spark.catalog.refreshTable(table)
        published = spark.table(table).where(sf.col("date") == sf.lit(day)).count()
    # Decimals are exact: in floating point, 111 of 1,000 rows would be below 11.1 percent.
    if 100 * rows < Decimal(str(percent)) * published:
        raise AuditFailed(
            f"{rows} rows would replace the {published} rows that are published for {day}, less than "
            f"publish.audit.min_rows_percent {percent:g}"
        )


@dataclass(frozen=True)
class DayFiles:
    """The data files of a day."""

    bytes: int
    rows: int | None
    """None if only reading the files shows it: when another writer has deleted single rows, or partitions otherwise."""


def files_of_day(spark: SparkSession, table: str, day: date, *, tag: str | None = None) -> DayFiles:
    """Return what Iceberg's metadata says of the day's files in the version `tag`, by default in the current one.

    No data file is read. Raises Py4JJavaError if there is no such tag.
    """
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    # Like Spark, which `prepare_table` relies on, without regard to case.
    scan = load_table(spark, table).newScan().caseSensitive(False)
    scan = scan.filter(iceberg.expressions.Expressions.equal("date", day.isoformat()))
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
            # What remains of the filter is `true` for a file that has rows of this day only.
            exact = exact and task.deletes().isEmpty() and task.residual().toString() == "true"
    finally:
        tasks.close()
    return DayFiles(bytes=size, rows=rows if exact else None)


def tags_of(spark: SparkSession, table: str) -> frozenset[str]:
    """Return the names of the table's tags."""
    refs = table_metadata(spark, table).get("refs", {})
    return frozenset(name for name, ref in refs.items() if ref["type"] == "tag")


def rows_of_version(spark: SparkSession, table: str, tag: str, day: date) -> DataFrame:
    """Return the rows that a day has in the version `tag`, with the columns of the version."""
    return spark.read.option("versionAsOf", tag).table(table).where(sf.col("date") == sf.lit(day))


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


def _snapshots_of(
    spark: SparkSession, table: str, identity: Mapping[str, str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the table's snapshots whose properties `names` have the values of `identity`, the oldest first."""
    snapshots = [
        snapshot
        for snapshot in table_metadata(spark, table).get("snapshots", [])
        if all(snapshot["summary"].get(name) == identity[name] for name in names)
    ]
    return sorted(snapshots, key=lambda snapshot: snapshot["timestamp-ms"])


def current_snapshot(spark: SparkSession, table: str) -> str | None:
    """Return the id of the table's current snapshot; None if nothing was ever committed."""
    main = table_metadata(spark, table).get("refs", {}).get("main")
    return None if main is None else str(main["snapshot-id"])


def overwrite_day(
    frame: DataFrame, table: str, day: date, identity: Mapping[str, str], *, inspected: str | None
) -> None:
    """Replace the day's rows by the frame's rows (also by none) in one commit with `identity` as its properties.

    `inspected` is the table's snapshot on which the decision to commit is based. If another job has added or removed
    files of the day since, Iceberg refuses the commit; see `CONFLICT_MESSAGES`.
    """
    writer = frame.writeTo(table).option("isolation-level", "serializable")
    # Without a snapshot to start from, Iceberg checks every commit since the table was created.
    if inspected is not None:
        writer = writer.option("validate-from-snapshot-id", inspected)
    for name, value in identity.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    # With a filter, because a dynamic overwrite would keep the old rows of a day whose new result is empty.
    writer.overwrite(sf.col("date") == sf.lit(day))


def withdraw_if_superseded(
    spark: SparkSession, table: str, day: date, identity: Mapping[str, str], commit: Commit
) -> None:
    """Remove the committed rows and raise `Superseded` if a later attempt has published the day before.

    `identity` are the snapshot properties of this job's commit.
    """
    # Iceberg's own check compares files: it misses a later attempt with no rows for a day that had no rows.
    try:
        refuse_if_superseded(spark, table, identity)
    except Superseded:
        try:
            overwrite_day(spark.table(table).where("false"), table, day, {}, inspected=commit.snapshot_id)
        except Exception as error:
            # A conflict means that the later attempt has replaced the committed rows itself.
            if not is_conflict(error):
                raise
        raise


def find_commit(spark: SparkSession, table: str, identity: Mapping[str, str]) -> Commit | None:
    """Return the commit of the run and attempt that `identity` names, or None if it has not committed."""
    if not spark.catalog.tableExists(table):
        return None
    names = ("slackwater.pipeline", "slackwater.date", "slackwater.run-id", "slackwater.attempt")
    snapshot = next(iter(_snapshots_of(spark, table, identity, names)), None)
    if snapshot is None:
        return None
    return Commit(
        snapshot_id=str(snapshot["snapshot-id"]),
        rows=int(snapshot["summary"].get("added-records", 0)),
        replaced=int(snapshot["summary"].get("deleted-records", 0)),
        content=snapshot["summary"].get(CONTENT, ""),
    )


def create_tag(spark: SparkSession, table: str, name: str, snapshot_id: str) -> None:
    """Tag a snapshot, so that this version stays readable when old snapshots are expired.

    A tag of that name that exists is kept: a repeated job creates the same one.
    """
    statement = f"ALTER TABLE {table} CREATE TAG IF NOT EXISTS {quoted(name)} AS OF VERSION {int(snapshot_id)}"

    def create() -> None:
        spark.catalog.refreshTable(table)
        spark.sql(statement)

    retry_on_conflict(create)
