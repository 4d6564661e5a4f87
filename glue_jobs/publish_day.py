"""EMR Serverless entry point: audit one day's rows and publish them to an Iceberg table by one commit."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, ShortType

from slackwater.arrow.exchange import StoreFactory, load_manifest, read_frame
from slackwater.arrow.names import quoted
from slackwater.aws.objects import s3_store
from slackwater.errors import AuditFailed
from slackwater.project import Project
from slackwater.runs.record import Publication, failure_uri, version_tag
from slackwater.steps.spark.job import log, run_job
from slackwater.steps.spark.table import (
    find_commit,
    overwrite_day,
    prepare_table,
    refuse_if_fewer,
    refuse_if_overtaken,
    tag,
)


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
    parser.add_argument("--fewer-rows", choices=("refuse", "allow"), default="refuse", help="than stand published")
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
        rows = audit(frame, pipeline.publish.key)
        prepare_table(spark, table, frame)
        refuse_if_overtaken(spark, table, identity)
        if options.fewer_rows == "refuse":
            refuse_if_fewer(spark, table, options.date, rows=rows)
        overwrite_day(frame, table, options.date, identity)
        done = find_commit(spark, table, identity)
        if done is None:
            raise AuditFailed(f"{table} does not show the snapshot that was just committed for {options.date}")
    else:
        log("this attempt had committed before", snapshot_id=done.snapshot_id)
    name = version_tag(date=str(options.date), run_id=options.run_id, attempt=options.attempt)
    tag(spark, table, name, done.snapshot_id)
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
