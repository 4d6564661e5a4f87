"""The warehouse table of a pipeline as Spark writes it: one commit for a day, which says whose it is, and its tag."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from slackwater.arrow.names import quoted
from slackwater.errors import AuditFailed
from slackwater.steps.spark.job import log

_TABLE_PROPERTIES = {
    "format-version": "2",
    # Days are published side by side: a commit that lost a race is tried again on the new state of the table.
    "commit.retry.num-retries": "30",
    "commit.retry.max-wait-ms": "5000",
}
_ATTEMPTS = 20
_LOST_RACE = ("CommitFailedException", "FIELD_ALREADY_EXISTS", "name already exists")


@dataclass(frozen=True)
class Commit:
    """What one commit did, as the table's own snapshot says."""

    snapshot_id: str
    rows: int
    replaced: int


def prepare_table(spark: SparkSession, table: str, frame: DataFrame) -> None:
    """Create the table, partitioned by date, or add the columns that are new to it.

    Raises `AuditFailed` if a column of the table is not among the frame's, or is of another type there.
    """
    if not spark.catalog.tableExists(table):
        create_table(spark, table, frame.schema)
    there = {field.name.lower(): field.dataType.simpleString() for field in _schema_now(spark, table)}
    here = {field.name.lower(): field.dataType.simpleString() for field in frame.schema}
    gone = sorted(set(there) - set(here))
    if gone:
        raise AuditFailed(f"{table} has columns that the rows to publish lack: {', '.join(gone)}")
    for name, kind in there.items():
        if here[name] != kind:
            raise AuditFailed(f"column {name} of {table} is {kind}; the rows to publish have it as {here[name]}")
    add_columns(spark, table, frame.schema)


def add_columns(spark: SparkSession, table: str, schema: StructType) -> None:
    """Add the columns that the table lacks; another job may do so at the same time."""

    def add() -> None:
        there = {name.lower() for name in _schema_now(spark, table).names}
        new = StructType([field for field in schema if field.name.lower() not in there])
        if new.fields:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({_columns(new)})")
            log("columns added", table=table, columns=new.names)

    against_others(add)


def against_others(change: Callable[[], object]) -> None:
    """Make a change of a table's metadata, again when another job's commit came in between.

    Iceberg does so itself for commits of rows, but not for columns and tags: they are tried once on the state they saw.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            change()
        except Exception as error:
            if attempt == _ATTEMPTS or not any(sign in str(error) for sign in _LOST_RACE):
                raise
            time.sleep(random.uniform(0, 0.2 * attempt))  # noqa: S311 - so that two losers do not meet again
        else:
            return


def _schema_now(spark: SparkSession, table: str) -> StructType:
    spark.catalog.refreshTable(table)
    return spark.table(table).schema


def create_table(spark: SparkSession, table: str, schema: StructType) -> None:
    """Create the table without rows; another job may do so at the same time."""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _TABLE_PROPERTIES.items())
    statement = (
        f"CREATE TABLE {table} ({_columns(schema)}) USING iceberg PARTITIONED BY (date) TBLPROPERTIES ({properties})"
    )
    try:
        spark.sql(statement)
    except Exception:  # catalogs differ in how they say that someone else was faster
        if not spark.catalog.tableExists(table):
            raise


def _columns(schema: StructType) -> str:
    """Write columns as SQL, all of them nullable, so that a later run may leave one empty."""
    return StructType([StructField(field.name, field.dataType) for field in schema]).toDDL()


def refuse_if_overtaken(spark: SparkSession, table: str, identity: Mapping[str, str]) -> None:
    """Raise `AuditFailed` if a later attempt has published the day: a job that outlived its run has older inputs."""
    attempts = _snapshots_of(spark, table, identity, ("slackwater.pipeline", "slackwater.date")).select(
        sf.max(sf.col("summary")["slackwater.attempt"].cast("int"))
    )
    latest = attempts.first()
    if latest is not None and latest[0] is not None and latest[0] > int(identity["slackwater.attempt"]):
        raise AuditFailed(
            f"attempt {latest[0]} has published {identity['slackwater.date']} already; "
            f"this is attempt {identity['slackwater.attempt']}, over older inputs"
        )


def refuse_if_fewer(spark: SparkSession, table: str, day: date, *, rows: int) -> None:
    """Raise `AuditFailed` if more rows stand published for the day than are to take their place."""
    spark.catalog.refreshTable(table)
    standing = spark.table(table).where(sf.col("date") == sf.lit(day)).count()
    if rows < standing:
        raise AuditFailed(
            f"{rows} rows would take the place of the {standing} that stand published for {day}: if that is right, "
            f"run the day with --allow-fewer"
        )


def _snapshots_of(spark: SparkSession, table: str, identity: Mapping[str, str], names: Sequence[str]) -> DataFrame:
    spark.catalog.refreshTable(table)
    snapshots = spark.table(f"{table}.snapshots")
    for name in names:
        snapshots = snapshots.where(sf.col("summary")[name] == identity[name])
    return snapshots


def overwrite_day(frame: DataFrame, table: str, day: date, identity: Mapping[str, str]) -> None:
    """Replace the day's rows by the frame's, none included, in one commit that says whose it is."""
    writer = frame.writeTo(table)
    for name, value in identity.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.overwrite(sf.col("date") == sf.lit(day))


def find_commit(spark: SparkSession, table: str, identity: Mapping[str, str]) -> Commit | None:
    """Return the commit of this run and attempt, if there is one."""
    if not spark.catalog.tableExists(table):
        return None
    names = ("slackwater.pipeline", "slackwater.date", "slackwater.run-id", "slackwater.attempt")
    snapshots = _snapshots_of(spark, table, identity, names)
    row = snapshots.orderBy("committed_at").first()
    if row is None:
        return None
    summary: dict[str, Any] = row["summary"]
    return Commit(
        snapshot_id=str(row["snapshot_id"]),
        rows=int(summary.get("added-records", 0)),
        replaced=int(summary.get("deleted-records", 0)),
    )


def tag(spark: SparkSession, table: str, name: str, snapshot_id: str) -> None:
    """Name the published version; the tag keeps it when old snapshots are expired."""
    statement = f"ALTER TABLE {table} CREATE TAG IF NOT EXISTS {quoted(name)} AS OF VERSION {int(snapshot_id)}"

    def create() -> None:
        spark.catalog.refreshTable(table)
        spark.sql(statement)

    against_others(create)
