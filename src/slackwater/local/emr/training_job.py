"""A small job that touches what jobs touch: the classes it loads are archived, for later jobs to start with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = "s3://training"


def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Give back what comes in."""
    yield from batches


def main() -> None:
    """Write and read each kind of file, aggregate, join, pass through Arrow, publish to Iceberg."""
    catalog = "spark.sql.catalog.training"
    session = (
        SparkSession.builder.config(
            "spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        )
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "glue")
        .config(f"{catalog}.warehouse", f"{ROOT}/warehouse")
        .config(f"{catalog}.io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = session.range(100).select(
        F.lit("2013-03-08").cast("date").alias("date"),
        (F.col("id") % 7).cast("string").alias("key"),
        F.col("id").cast("double").alias("value"),
        F.current_timestamp().alias("at"),
    )
    for kind in ("parquet", "json", "csv"):
        rows.write.mode("overwrite").format(kind).save(f"{ROOT}/{kind}")
        session.read.format(kind).load(f"{ROOT}/{kind}").count()
    counted = Observation("counted")
    means = (
        session.read.parquet(f"{ROOT}/parquet")
        .observe(counted, F.count(F.lit(1)).alias("rows"))
        .mapInArrow(same, rows.schema)
        .join(rows.select("key", F.lit(1).alias("one")).distinct(), on="key", how="left")
        .groupBy("date", "key")
        .agg(F.mean("value").alias("mean"), F.expr("percentile(value, 0.9)").alias("p90"), F.max("at").alias("at"))
    )
    means.collect()
    means.toArrow()
    session.sql("CREATE NAMESPACE IF NOT EXISTS training.training")
    means.writeTo("training.training.means").using("iceberg").partitionedBy("date").createOrReplace()
    means.writeTo("training.training.means").overwrite(F.col("date") == F.lit("2013-03-08").cast("date"))
    session.table("training.training.means").orderBy("key").collect()
    session.stop()


if __name__ == "__main__":
    main()
