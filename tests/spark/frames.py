"""Frames of Python rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """Return rows as a frame of this schema.

    They are sent to Spark as Arrow, as jobs send the rows of a small day. From a list, `createDataFrame` makes a frame
    whose rows pass through Python workers in each query.
    """
    columns: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if rows:
        table = LocalDataToArrowConversion.convert(list(rows), columns, use_large_var_types=False)
    else:
        table = to_arrow_schema(columns).empty_table()
    frame: DataFrame = spark.createDataFrame(table, columns)
    return frame
