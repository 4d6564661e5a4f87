"""A small job that uses what jobs use.

- `slackwater.local.jars` runs it on a local cloud and archives the classes that it loads.
- `training_job.py FOLDER` is the first program of a pre-initialised driver (`drivers.py`): it works on files in this
  folder, so that the JVM has loaded and compiled Spark's classes before it gets a job. At the end it writes `ready`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_ICEBERG = "org.apache.iceberg"


def train(root: str, catalog: dict[str, str], *, whole: bool) -> None:
    """Write and read files, aggregate, join, and write an Iceberg table; all files are below the URI `root`.

    If `whole` is set, use each file format and Arrow, too.
    """
    builder = SparkSession.builder.appName("training").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.extensions", f"{_ICEBERG}.spark.extensions.IcebergSparkSessionExtensions")
    builder = builder.config("spark.sql.catalog.training", f"{_ICEBERG}.spark.SparkCatalog")
    for name, value in {"warehouse": f"{root}/warehouse", **catalog}.items():
        builder = builder.config(f"spark.sql.catalog.training.{name}", value)
    session = builder.getOrCreate()
    rows = session.range(100).select(
        F.lit("2013-03-08").cast("date").alias("date"),
        (F.col("id") % 7).cast("string").alias("key"),
        F.col("id").cast("double").alias("value"),
        F.current_timestamp().alias("at"),
    )
    for file_format in ("parquet", "json", "csv") if whole else ("parquet",):
        rows.write.mode("overwrite").format(file_format).save(f"{root}/{file_format}")
        session.read.format(file_format).load(f"{root}/{file_format}").count()
    observation = Observation("rows")
    observed = session.read.parquet(f"{root}/parquet").observe(observation, F.count(F.lit(1)).alias("rows"))
    if whole:
        observed = observed.mapInArrow(lambda batches: batches, rows.schema)
    means = (
        observed.join(rows.select("key", F.lit(1).alias("one")).distinct(), on="key", how="left")
        .groupBy("date", "key")
        .agg(F.mean("value").alias("mean"), F.expr("percentile(value, 0.9)").alias("p90"), F.max("at").alias("at"))
    )
    means.collect()
    if whole:
        means.toArrow()
        session.createDataFrame(means.toArrow()).groupBy("key").agg(F.mean("mean")).toArrow()
    session.sql("CREATE NAMESPACE IF NOT EXISTS training.training")
    means.writeTo("training.training.means").using("iceberg").partitionedBy("date").createOrReplace()
    means.writeTo("training.training.means").overwrite(F.col("date") == F.lit("2013-03-08").cast("date"))
    session.table("training.training.means").orderBy("key").collect()
    create_clients(session)
    session.stop()


def create_clients(session: SparkSession) -> None:
    """Create the clients of S3 and Glue, and send no request: a driver without a job has no credentials."""
    jvm: Any = session._jvm
    context: Any = session._jsc
    hadoop = jvm.org.apache.hadoop
    hadoop.fs.FileSystem.newInstance(jvm.java.net.URI("s3://training/"), context.hadoopConfiguration()).close()
    jvm.software.amazon.awssdk.services.glue.GlueClient.create().close()


def main() -> None:
    """Train; with a folder as the argument, train on files in it."""
    if len(sys.argv) == 1:
        train("s3://training", {"type": "glue", "io-impl": f"{_ICEBERG}.aws.s3.S3FileIO"}, whole=True)
        return
    folder = Path(sys.argv[1])
    train(folder.as_uri(), {"type": "hadoop"}, whole=False)
    (folder / "ready").touch()


if __name__ == "__main__":
    main()
