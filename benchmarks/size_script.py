"""A plain PySpark script that does the day of `size_project`: `size_script.py DATE CLICKS TABLE`.

CLICKS are URIs, separated by commas. It checks the rules of the pipeline by counting the rows that break them, groups
the others by the pipeline's query, and replaces the day in an Iceberg table.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

REJECTED = "coalesce(NOT clicks BETWEEN 0 AND 1000, false)"
COUNTS = {
    "rejected": REJECTED,
    "without_cost": "cost IS NULL OR isnan(cost)",
    "negative_cost": "cost < 0 OR isnan(cost)",
}
QUERY = """
SELECT campaign, country, count(*) AS events, sum(clicks) AS clicks, sum(cost) AS cost, max(cost) AS dearest
FROM checked
GROUP BY campaign, country
"""


def main() -> None:
    """Check the clicks of a day, group them, and replace the day in the table."""
    day, clicks, table = sys.argv[1:]
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    events = spark.read.parquet(*clicks.split(","))
    counts = events.agg(*(sf.count_if(sf.expr(rule)).alias(name) for name, rule in COUNTS.items())).first()
    print("rows that break a rule:", counts)
    if counts["negative_cost"]:
        raise ValueError(f"{counts['negative_cost']} clicks have a negative cost")
    events.where(f"NOT {REJECTED}").createOrReplaceTempView("checked")
    result = spark.sql(QUERY).select(sf.lit(day).cast("date").alias("date"), "*")
    if spark.catalog.tableExists(table):
        result.writeTo(table).overwrite(sf.col("date") == sf.lit(day).cast("date"))
    else:
        result.writeTo(table).using("iceberg").partitionedBy("date").create()
    spark.stop()


if __name__ == "__main__":
    main()
