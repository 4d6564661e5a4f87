"""EMR Serverless entry point: audit one day's rows and publish them to an Iceberg table by one commit."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, ShortType, StructField, StructType

from slackwater.arrow.exchange import StoreFactory, load_manifest, read_frame
from slackwater.arrow.names import quoted
from slackwater.aws.objects import s3_store
from slackwater.errors import AuditFailed
from slackwater.project import Project
from slackwater.runs.record import Publication, failure_uri
from slackwater.steps.spark.job import log, run_job

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


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="address of project.json")
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--date", required=True, type=date.fromisoformat)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--prefix", required=True, help="where this attempt writes")
    parser.add_argument("--correlation-id", required=True)
    parser.add_argument("--upstream", required=True, metavar="STAGE=MANIFEST", help="the rows to publish")
    parser.add_argument("--catalog-table", required=True, help="catalog.database.table")
    return parser.parse_args(arguments)


def publish_day(spark: SparkSession, options: argparse.Namespace, *, stores: StoreFactory) -> Publication:
    """Publish the day and return the publication, which is written last.

    A run and attempt that has committed before, and died before it could say so, is found by its snapshot: nothing
    is committed twice. Raises `AuditFailed` if the rows are not fit; the table is untouched then.
    """
    before = time.monotonic()
    store = stores()
    pipeline = Project.model_validate_json(store.get(options.project)).pipeline(options.pipeline)
    table = ".".join(quoted(part) for part in options.catalog_table.split("."))
    identity = identity_of(options)
    done = find_commit(spark, table, identity)
    if done is None:
        manifest = load_manifest(options.upstream.partition("=")[2], store=store)
        frame = with_date(read_frame(spark, manifest, stores=stores), options.date)
        audit(frame, pipeline.publish.key)
        prepare_table(spark, table, frame)
        refuse_if_overtaken(spark, table, identity)
        overwrite_day(frame, table, options.date, identity)
        done = find_commit(spark, table, identity)
        if done is None:
            raise AuditFailed(f"{table} does not show the snapshot that was just committed for {options.date}")
    else:
        log("this attempt had committed before", snapshot_id=done.snapshot_id)
    tag(spark, table, f"{options.date}-{options.run_id[:12]}-{options.attempt}", done.snapshot_id)
    publication = Publication(
        table=options.catalog_table,
        snapshot_id=done.snapshot_id,
        rows=done.rows,
        replaced=done.replaced,
        seconds=round(time.monotonic() - before, 3),
    )
    store.put(f"{options.prefix}publish/reference.json", publication.model_dump_json().encode())
    log("day published", **publication.model_dump())
    return publication


def identity_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties by which a snapshot says whose it is."""
    return {
        "slackwater.pipeline": options.pipeline,
        "slackwater.date": str(options.date),
        "slackwater.run-id": options.run_id,
        "slackwater.attempt": str(options.attempt),
        "slackwater.correlation-id": options.correlation_id,
    }


def with_date(frame: DataFrame, day: date) -> DataFrame:
    """Put the column `date` first. Raises `AuditFailed` if the rows have one already."""
    clashing = [name for name in frame.columns if name.lower() == "date"]
    if clashing:
        raise AuditFailed(
            f"the rows to publish have a column {clashing[0]!r}; publishing adds `date` itself: rename it"
        )
    narrow = {field.name for field in frame.schema if isinstance(field.dataType, (ByteType, ShortType))}
    # Iceberg's smallest whole number has 32 bits.
    columns = [sf.col(quoted(n)).cast(IntegerType()) if n in narrow else sf.col(quoted(n)) for n in frame.columns]
    return frame.select(sf.lit(day).alias("date"), *(c.alias(n) for c, n in zip(columns, frame.columns, strict=True)))


def audit(frame: DataFrame, key: Sequence[str]) -> int:
    """Count the rows, in one pass. Raises `AuditFailed` unless the key's columns are there, not null, and unique."""
    missing = [name for name in key if name not in frame.columns]
    if missing:
        raise AuditFailed(
            f"publish.key names {', '.join(missing)}, which the rows to publish do not have "
            f"(they have: {', '.join(frame.columns)})"
        )
    columns = [sf.col(quoted(name)) for name in key]
    times = sf.col("times")
    some_null = sf.lit(False)
    for column in columns:
        some_null = some_null | column.isNull()
    groups = frame.groupBy(*columns).agg(sf.count(sf.lit(1)).alias("times"))
    found = groups.agg(
        sf.coalesce(sf.sum(times), sf.lit(0)).alias("rows"),
        sf.coalesce(sf.sum(sf.when(some_null, times)), sf.lit(0)).alias("nulls"),
        sf.count_if(times > 1).alias("doubled"),
        sf.to_json(sf.max_by(sf.struct(*columns), times), {"ignoreNullFields": "false"}).alias("example"),
        sf.max(times).alias("most"),
    ).first()
    if found is None:
        raise AuditFailed("the audit of the rows to publish gave no answer")
    if found["nulls"]:
        raise AuditFailed(
            f"{found['nulls']} of {found['rows']} rows to publish have a null in their key ({', '.join(key)})"
        )
    if found["doubled"]:
        raise AuditFailed(
            f"{found['doubled']} keys ({', '.join(key)}) stand more than once in the rows to publish: "
            f"{found['example']} stands {found['most']} times"
        )
    return int(found["rows"])


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    context = {"correlation_id": options.correlation_id, "pipeline": options.pipeline, "date": str(options.date)}
    return run_job(
        "publish_day",
        lambda spark: publish_day(spark, options, stores=s3_store),
        context={**context, "run_id": options.run_id},
        tell=lambda failure: s3_store().put(failure_uri(options.prefix), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
