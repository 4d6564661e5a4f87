"""Sessions whose executors are processes of their own, for the processes that test_jobs starts."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession


def session_with_executors(count: int, settings: dict[str, str]) -> SparkSession:
    """Return a session with `count` executors, each with one core, which start like the driver."""
    common = {
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.executor.extraClassPath": os.environ["PYSPARK_SUBMIT_ARGS"].split()[1],
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    return (
        SparkSession.builder.master(f"local-cluster[{count},1,1024]").config(map={**common, **settings}).getOrCreate()
    )
