"""Settings of a Spark session: temporary ones, and whether small data has a way of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_WAY = "spark.slackwater.smallWay"
"""The property that tests set to `false`: small data is then read and written like large data
(docs/decisions/0027)."""


@contextmanager
def temporary_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session inside the `with` block, and restore them after it.

    `values` are the settings by name. A setting must have a value or a default before.
    """
    original = {key: spark.conf.get(key) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, original_value in original.items():
            # PySpark declares the value as optional. It is never None for the settings that are used here.
            if original_value is not None:
                spark.conf.set(key, original_value)


def has_small_way(spark: SparkSession) -> bool:
    """Return whether small data is read and written in another way than large data."""
    return spark.conf.get(SMALL_WAY, "true") == "true"
