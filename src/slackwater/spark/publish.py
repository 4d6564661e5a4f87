"""Publish one day of a pipeline: audit the staged rows, then replace the day in the warehouse by one Iceberg commit."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    MapType,
    ShortType,
    StructType,
    VariantType,
)

from slackwater.arrow.names import quoted
from slackwater.errors import AuditFailed, ObjectMissing
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.period import partition_values
from slackwater.runs.record import Publication, Run
from slackwater.spark.commit import Audited, commit_day, find_commit, snapshot_identity, withdraw_if_superseded
from slackwater.spark.job import log
from slackwater.spark.table import create_tag, quoted_table, rows_of_version, tags_of, with_missing_columns
from slackwater.storage import ObjectStore


def publish_day(
    spark: SparkSession,
    run: Run,
    rows: Callable[[], DataFrame],
    *,
    key: Sequence[str],
    catalog_table: str,
    min_rows_percent: float | None,
    store: ObjectStore,
) -> Publication:
    """Publish the rows of a run's day, and return the publication, which is written last.

    `rows` returns them without the columns of the partition, `key` is the pipeline's `publish.key`, and `catalog_table`
    is `catalog.database.table`. `min_rows_percent` is the least number of rows, in percent of those that the day has
    now; with None, the rows may be fewer and lack columns of the table. A repeated job does not commit twice: if an
    earlier job of this attempt has committed but not written the publication, its commit is used, and `rows` is not
    called.

    Raises what `rows` raises, `AuditFailed` if the rows fail the audit, and `Superseded` if a later attempt has
    published the day; then this job has changed no row of the table.
    """
    began, day = time.monotonic(), run.date
    table, identity = quoted_table(catalog_table), snapshot_identity(run)
    commit = find_commit(spark, table, identity)
    if commit is None:
        frame = with_partition(rows(), day)
        if min_rows_percent is None:
            frame = with_missing_columns(spark, table, frame)
        commit = commit_day(spark, frame, table, identity, audit(frame, key), min_rows_percent=min_rows_percent)
    else:
        log("an earlier job of this attempt has committed", snapshot_id=commit.snapshot_id)
    withdraw_if_superseded(spark, table, day, identity, commit)
    create_tag(spark, table, run.tag, commit.snapshot_id)
    publication = Publication(
        table=catalog_table,
        snapshot_id=commit.snapshot_id,
        rows=commit.rows,
        replaced=commit.replaced,
        seconds=round(time.monotonic() - began, 3),
        content=commit.content,
    )
    # Written after the commit and the tag, so that both exist whenever the publication does.
    store.put(publication_uri(run.prefix), publication.model_dump_json().encode())
    log("day published", **publication.model_dump())
    return publication


def earlier_rows(spark: SparkSession, catalog_table: str, tag: str, day: str) -> DataFrame:
    """Return the rows that a period has in an earlier version, without the columns of its partition.

    Raises `ObjectMissing` if there is no such version, and `AuditFailed` for columns that the table does not have any
    more.
    """
    table = quoted_table(catalog_table)
    if tag not in tags_of(spark, table):
        raise ObjectMissing(f"{table} has no version {tag} any more: retention or somebody else has removed it")
    version = rows_of_version(spark, table, tag, day)
    spark.catalog.refreshTable(table)
    # Spark and Iceberg match column names without regard to case.
    present = {name.lower() for name in spark.table(table).columns}
    removed = [name for name in version.columns if name.lower() not in present]
    if removed:
        raise AuditFailed(
            f"{table} does not have the columns {', '.join(removed)} of the version {tag} any more, so it cannot be "
            f"published again: add them to the table, or read the version (slackwater query --version)"
        )
    added = partition_values(day)
    return version.select(*(sf.col(quoted(name)) for name in version.columns if name.lower() not in added))


def with_partition(frame: DataFrame, period: str) -> DataFrame:
    """Return the frame with the columns of the period's partition in front: `date`, and `hour` of an hour.

    Raises `AuditFailed` if the rows have such a column already.
    """
    values = partition_values(period)
    clashing = [name for name in frame.columns if name.lower() in values]
    if clashing:
        raise AuditFailed(
            f"the rows to publish have a column {clashing[0]!r}; publishing adds `{clashing[0].lower()}` itself: "
            "rename the column"
        )
    # Iceberg's smallest integer type has 32 bits. The columns of the partition come first.
    narrow = {field.name for field in frame.schema if isinstance(field.dataType, (ByteType, ShortType))}
    columns = [sf.col(quoted(n)).cast(IntegerType()) if n in narrow else sf.col(quoted(n)) for n in frame.columns]
    return frame.select(
        *(sf.lit(value).alias(name) for name, value in values.items()),
        *(c.alias(n) for c, n in zip(columns, frame.columns, strict=True)),
    )


def audit(frame: DataFrame, key: Sequence[str]) -> Audited:
    """Check the key of the rows, and return their number and their digest.

    Raises `AuditFailed` if a column of the key is missing or null, if two rows have the same key, and for a variant.
    """
    missing = [name for name in key if name not in frame.columns]
    if missing:
        raise AuditFailed(
            f"publish.key names {', '.join(missing)}, which the rows to publish do not have "
            f"(they have: {', '.join(frame.columns)})"
        )
    columns = [sf.col(quoted(name)) for name in key]
    times = sf.col("times")
    any_null = sf.lit(False)
    for column in columns:
        any_null = any_null | column.isNull()
    # Grouping by the key once gives the number of rows, of nulls and of repeated keys with one shuffle.
    sums = {f"sum_{seed}": sf.sum(hashed) for seed, hashed in enumerate(_row_hashes(frame))}
    groups = frame.groupBy(*columns).agg(
        sf.count(sf.lit(1)).alias("times"), *(column.alias(name) for name, column in sums.items())
    )
    totals = groups.agg(
        *(sf.coalesce(sf.sum(name), sf.lit(0)).cast("string").alias(name) for name in sums),
        sf.coalesce(sf.sum(times), sf.lit(0)).alias("rows"),
        sf.coalesce(sf.sum(sf.when(any_null, times)), sf.lit(0)).alias("nulls"),
        sf.count_if(times > 1).alias("repeated"),
        sf.to_json(sf.max_by(sf.struct(*columns), times), {"ignoreNullFields": "false"}).alias("example"),
        sf.max(times).alias("most"),
    ).first()
    if totals is None:
        raise AuditFailed("the audit of the rows to publish returned no result")
    if totals["nulls"]:
        raise AuditFailed(
            f"{totals['nulls']} of {totals['rows']} rows to publish have a null in their key ({', '.join(key)})"
        )
    if totals["repeated"]:
        raise AuditFailed(
            f"{totals['repeated']} keys ({', '.join(key)}) occur more than once in the rows to publish: "
            f"{totals['example']} occurs {totals['most']} times"
        )
    # Without nullability: rows that are staged and rows of the table may differ in it.
    parts = [frame.schema.simpleString(), *(totals[name] for name in sums)]
    return Audited(int(totals["rows"]), hashlib.sha256("\n".join(parts).encode()).hexdigest())


def _row_hashes(frame: DataFrame) -> list[Column]:
    """Return two hashes of a row, as decimals: their sums over all rows do not depend on the order of the rows."""
    columns = [(sf.col(quoted(field.name)), field.dataType) for field in frame.schema]
    return [
        sf.xxhash64(*(_hash(column, data_type, seed) for column, data_type in columns)).cast("decimal(38, 0)")
        for seed in range(2)
    ]


def _hash(column: Column, data_type: DataType, seed: int) -> Column:
    """Return a hash of a value, which is not null: Spark's leaves nulls and the limits of nested values out.

    Raises `AuditFailed` for a type that tables of Iceberg's format 2 do not have.
    """
    if isinstance(data_type, StructType):
        parts = [_hash(column.getField(field.name), field.dataType, seed) for field in data_type]
    elif isinstance(data_type, ArrayType):
        element = data_type.elementType
        parts = [sf.size(column), sf.transform(column, lambda value: _hash(value, element, seed))]
    elif isinstance(data_type, MapType):
        entry = StructType().add("key", data_type.keyType).add("value", data_type.valueType)
        entries = sf.transform(sf.map_entries(column), lambda value: _hash(value, entry, seed))
        parts = [sf.size(column), sf.array_sort(entries)]
    elif isinstance(data_type, VariantType):
        raise AuditFailed(
            "the rows to publish have a variant, which the published table cannot store: publish to_json of it"
        )
    else:
        parts = [column]
    return sf.xxhash64(sf.lit(seed), column.isNull(), *parts)
