"""Frames that Python reads and writes: by the driver if they are small, otherwise by executors.

Starting Python workers takes longer than reading or writing a small frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from slackwater.arrow.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType

_Part = TypeVar("_Part")
# Rows that the driver writes. They may be wide, so there are fewer than in an exchange.
DRIVER_ROWS = 5_000

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    # The default drops microseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""The options of Spark's `to_json` with which load steps write values."""


def converted_columns(frame: DataFrame, convert: Callable[[Column, DataType], Column]) -> list[Column]:
    """Return each column as `convert` makes it of the column and its type, under its own name."""
    from pyspark.sql import functions as sf

    return [convert(sf.col(quoted(field.name)), field.dataType).alias(field.name) for field in frame.schema]


def frame_of_parts(
    spark: SparkSession,
    parts: Sequence[_Part],
    read: Callable[[_Part], Iterator[pa.Table]],
    *,
    size: int = 0,
) -> DataFrame:
    """Return the rows of all parts, in order.

    `read` yields an empty table with the schema, and then the rows of a part in tables of bounded size. `size` is the
    number of bytes of all parts, where it is known. The driver reads them up to `DRIVER_BYTES`. Beyond that, each part
    is read by one task, when Spark computes the frame, and again from its start.
    """
    from slackwater.arrow.exchange import DRIVER_BYTES, frame_of, map_in_arrow
    from slackwater.arrow.schema import spark_schema_of
    from slackwater.arrow.session import has_small_way

    tables: list[pa.Table] = []
    size_read = 0
    for table in chain.from_iterable(map(read, parts)):
        tables.append(table)
        size_read += table.nbytes
        if max(size, size_read) > DRIVER_BYTES or not has_small_way(spark):
            break
    else:
        return frame_of(spark, [batch for table in tables for batch in table.to_batches()], tables[0].schema)

    def read_parts(indexes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                for table in read(parts[index]):
                    yield from table.to_batches()

    schema = spark_schema_of(tables[0].schema)
    return map_in_arrow(spark.range(0, len(parts), 1, len(parts)), read_parts, schema)


def map_batches(
    frame: DataFrame,
    work: Callable[[int, Iterator[pa.RecordBatch]], Iterator[Mapping[str, Any]]],
    columns: str,
    *,
    one_task: bool,
) -> list[Row]:
    """Call `work` with the rows of each partition, and return all that it yields.

    `work` gets the number of the partition, and batches of `nullable_schema` with rows. It yields rows with `columns`,
    a schema of Spark. The driver calls it once for a small frame, and a task for each partition otherwise; with
    `one_task`, there is one partition. A frame without rows may have none.
    """
    from pyspark import TaskContext
    from pyspark.sql import Row

    from slackwater.arrow.exchange import batch_settings, map_in_arrow
    from slackwater.arrow.schema import arrow_schema_of, has_nullable_struct
    from slackwater.arrow.session import has_small_way, temporary_settings

    schema = nullable_schema(frame)

    def filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark's batches may declare other details than the schema, such as which columns are never null.
        return (batch.cast(schema) for batch in batches if batch.num_rows)

    # PySpark cannot convert a struct that may be null in the driver.
    if has_small_way(frame.sparkSession) and not has_nullable_struct(arrow_schema_of(frame.schema)):
        # One row more than the driver writes shows that there are too many, without a Spark action that counts them.
        small = frame.limit(DRIVER_ROWS + 1).toArrow()
        if small.num_rows <= DRIVER_ROWS:
            return [Row(**row) for row in work(0, filled(small.to_batches()))] if small.num_rows else []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for row in work(context.partitionId() if context else 0, filled(batches)):
            yield pa.RecordBatch.from_pylist([dict(row)])

    with temporary_settings(frame.sparkSession, batch_settings(schema)):
        return map_in_arrow(frame.coalesce(1) if one_task else frame, run, columns).collect()


def nullable_schema(frame: DataFrame) -> pa.Schema:
    """Return the Arrow schema of the frame, in which each column and each nested field may be null.

    Arrow's Parquet writer refuses a null struct with a field that is never null. Raises `DefinitionError` as
    `arrow_schema_of` does.
    """
    from slackwater.arrow.schema import arrow_schema_of

    return arrow_schema_of(frame.schema.toNullable())
