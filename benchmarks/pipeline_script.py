"""A plain PySpark script with the five steps of the chain: `pipeline_script.py DATE FLIGHTS WEATHER TABLE`.

`pipeline.py` has the chain. FLIGHTS and WEATHER are URIs, separated by commas. The script checks nothing.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as sf


def main() -> None:
    """Compute the day in New York in one session, and replace it in the table."""
    day, flights, weather, table = sys.argv[1:]
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    of_day = sf.to_date(sf.from_utc_timestamp("_event_time", "America/New_York")) == sf.lit(day).cast("date")
    departed = spark.read.parquet(*flights.split(",")).where(of_day).where("dep_time IS NOT NULL")
    weather_rows = (
        spark.read.parquet(*weather.split(",")).where(of_day).select("origin", "time_hour", "wind_speed", "precip")
    )
    observed = departed.join(weather_rows, on=["origin", "time_hour"], how="left")
    latest_first = Window.partitionBy("carrier", "flight", "time_hour").orderBy(sf.desc_nulls_last("dep_time"))
    latest = observed.withColumn("position", sf.row_number().over(latest_first)).where("position = 1")
    rated = latest.withColumn("late", sf.expr("CAST(dep_delay > 15 AS INT)"))
    result = rated.groupBy("origin", "carrier").agg(
        sf.count("*").alias("flights"),
        sf.avg("late").alias("late_share"),
        sf.percentile("dep_delay", sf.lit(0.9)).alias("dep_delay_p90"),
        sf.avg("wind_speed").alias("wind_speed_mean"),
    )
    result = result.select(sf.lit(day).cast("date").alias("date"), "*")
    if spark.catalog.tableExists(table):
        result.writeTo(table).overwrite(sf.col("date") == sf.lit(day).cast("date"))
    else:
        result.writeTo(table).using("iceberg").partitionedBy("date").create()
    spark.stop()


if __name__ == "__main__":
    main()
