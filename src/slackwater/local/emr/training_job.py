"""A small job that uses what jobs use; `slackwater.local.jars` archives the classes that it loads."""

from __future__ import annotations

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

ROOT = "s3://training"


def main() -> None:
    """Write and read each file format, aggregate, join, use Arrow, write an Iceberg table."""
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
    for file_format in ("parquet", "json", "csv"):
        rows.write.mode("overwrite").format(file_format).save(f"{ROOT}/{file_format}")
        session.read.format(file_format).load(f"{ROOT}/{file_format}").count()
    observation = Observation("rows")
    means = (
        session.read.parquet(f"{ROOT}/parquet")
        .observe(observation, F.count(F.lit(1)).alias("rows"))
        .mapInArrow(lambda batches: batches, rows.schema)
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
