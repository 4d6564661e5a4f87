"""A plain PySpark script that does the example's day: `day_script.py DATE TABLE FLIGHTS WEATHER`, both with commas."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

QUERY = """
SELECT
  origin, carrier,
  count(*) AS flights,
  count_if(dep_time IS NULL) AS cancelled,
  avg(dep_delay) AS dep_delay_mean,
  percentile(dep_delay, 0.9) AS dep_delay_p90,
  avg(CASE WHEN arr_delay IS NOT NULL THEN CAST(arr_delay <= 15 AS INT) END) AS on_time_share,
  avg(wind_speed) AS wind_speed_mean,
  avg(precip) AS precip_mean
FROM flights_with_weather
GROUP BY origin, carrier
"""


def main() -> None:
    """Join the flights of a day in New York with the weather, aggregate them, and replace the day in the table."""
    day, table, flights, weather = sys.argv[1:]
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    local_date = sf.to_date(sf.from_utc_timestamp("_event_time", "America/New_York"))
    of_day = local_date == sf.lit(day).cast("date")
    observed = (
        spark.read.parquet(*weather.split(",")).where(of_day).select("origin", "time_hour", "wind_speed", "precip")
    )
    joined = (
        spark.read.parquet(*flights.split(",")).where(of_day).join(observed, on=["origin", "time_hour"], how="left")
    )
    joined.createOrReplaceTempView("flights_with_weather")
    result = spark.sql(QUERY).select(sf.lit(day).cast("date").alias("date"), "*")
    if spark.catalog.tableExists(table):
        result.writeTo(table).overwrite(sf.col("date") == sf.lit(day).cast("date"))
    else:
        result.writeTo(table).using("iceberg").partitionedBy("date").create()
    spark.stop()


if __name__ == "__main__":
    main()
