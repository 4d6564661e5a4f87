"""A small job that uses what jobs use: `slackwater.local.jars` runs it on a local cloud, and archives its classes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_ROOT = "s3://training"
_ICEBERG = "org.apache.iceberg"
_CATALOG = "spark.sql.catalog.training"


def main() -> None:
    """Write and read files, aggregate, join, use Arrow, and write an Iceberg table."""
    conf: dict[str, Any] = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": f"{_ICEBERG}.spark.extensions.IcebergSparkSessionExtensions",
        _CATALOG: f"{_ICEBERG}.spark.SparkCatalog",
        f"{_CATALOG}.type": "glue",
        f"{_CATALOG}.io-impl": f"{_ICEBERG}.aws.s3.S3FileIO",
        f"{_CATALOG}.warehouse": f"{_ROOT}/warehouse",
    }
    session = SparkSession.builder.appName("training").config(map=conf).getOrCreate()
    rows = session.range(100).select(
        F.lit("2013-03-08").cast("date").alias("date"),
        (F.col("id") % 7).cast("string").alias("key"),
        F.col("id").cast("double").alias("value"),
        F.current_timestamp().alias("at"),
    )
    for file_format in ("parquet", "json", "csv"):
        rows.write.mode("overwrite").format(file_format).save(f"{_ROOT}/{file_format}")
        session.read.format(file_format).load(f"{_ROOT}/{file_format}").count()
    observation = Observation("rows")
    observed = session.read.parquet(f"{_ROOT}/parquet").observe(observation, F.count(F.lit(1)).alias("rows"))
    means = (
        observed.mapInArrow(lambda batches: batches, rows.schema)
        .join(rows.select("key", F.lit(1).alias("one")).distinct(), on="key", how="left")
        .groupBy("date", "key")
        .agg(F.mean("value").alias("mean"), F.expr("percentile(value, 0.9)").alias("p90"), F.max("at").alias("at"))
    )
    means.collect()
    session.createDataFrame(means.toArrow()).groupBy("key").agg(F.mean("mean")).toArrow()
    session.sql("CREATE NAMESPACE IF NOT EXISTS training.training")
    means.writeTo("training.training.means").using("iceberg").partitionedBy("date").createOrReplace()
    means.writeTo("training.training.means").overwrite(F.col("date") == F.lit("2013-03-08").cast("date"))
    session.table("training.training.means").orderBy("key").collect()
    session.stop()


if __name__ == "__main__":
    main()
