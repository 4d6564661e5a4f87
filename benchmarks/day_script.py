"""A plain PySpark script that does the example's day: `day_script.py DATE FLIGHTS WEATHER TABLE [checks]`.

FLIGHTS and WEATHER are URIs, separated by commas. With `checks` it also checks what the pipeline checks: the rules of
its step `data_quality`, one row of weather for each hour, the key of the result, and the number of published rows.
"""

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


RULES = {
    "distance": "coalesce(distance BETWEEN 1 AND 6000, true)",
    "origin": "coalesce(origin IN ('EWR', 'JFK', 'LGA'), true)",
    "dep_delay": "coalesce(dep_delay BETWEEN -120 AND 1440, true)",
}


def main() -> None:
    """Join the flights of a day in New York with the weather, aggregate them, and replace the day in the table."""
    day, flights, weather, table, *checks = sys.argv[1:]
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    local_date = sf.to_date(sf.from_utc_timestamp("_event_time", "America/New_York"))
    of_day = local_date == sf.lit(day).cast("date")
    observed = (
        spark.read.parquet(*weather.split(",")).where(of_day).select("origin", "time_hour", "wind_speed", "precip")
    )
    departed = spark.read.parquet(*flights.split(",")).where(of_day)
    if checks:
        failed = departed.agg(
            *(sf.count_if(sf.expr(f"NOT ({rule})")).alias(name) for name, rule in RULES.items())
        ).first()
        print("rows that fail a rule:", failed)
        if failed["distance"]:
            raise ValueError(f"{failed['distance']} flights have an impossible distance")
        if not observed.groupBy("origin", "time_hour").count().where("count > 1").isEmpty():
            raise ValueError("an hour has weather more than once")
    joined = departed.join(observed, on=["origin", "time_hour"], how="left")
    joined.createOrReplaceTempView("flights_with_weather")
    result = spark.sql(QUERY).select(sf.lit(day).cast("date").alias("date"), "*")
    if checks:
        result = result.cache()
        rows = result.count()
        if result.select("date", "origin", "carrier").distinct().count() < rows:
            raise ValueError("a key occurs more than once")
        of_table = sf.col("date") == sf.lit(day).cast("date")
        if spark.catalog.tableExists(table) and spark.table(table).where(of_table).count() > rows:
            raise ValueError("more rows are published now")
    if spark.catalog.tableExists(table):
        result.writeTo(table).overwrite(sf.col("date") == sf.lit(day).cast("date"))
    else:
        result.writeTo(table).using("iceberg").partitionedBy("date").create()
    spark.stop()


if __name__ == "__main__":
    main()
