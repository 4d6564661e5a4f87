"""Read a source's objects of the input manifest as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from slackwater.arrow.exchange import empty_frame
from slackwater.arrow.names import quoted
from slackwater.errors import ObjectMissing
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT
from slackwater.sources.fields import FieldType
from slackwater.sources.first_by_id import is_first_of_its_id

_TYPES: dict[FieldType, DataType] = {
    FieldType.STRING: StringType(),
    FieldType.INT64: LongType(),
    FieldType.DOUBLE: DoubleType(),
    FieldType.BOOLEAN: BooleanType(),
    FieldType.TIMESTAMP: TimestampType(),
    FieldType.DATE: DateType(),
}


def source_schema(source: Source) -> StructType:
    """Return the Spark schema of the source's columns, in order.

    Every column is nullable, because objects that were written before it was defined lack it.
    """
    schema = StructType()
    for name, data_type in source.columns.items():
        schema.add(name, _TYPES[data_type])
    return schema


def read_source(
    spark: SparkSession, source: Source, uris: Sequence[str], *, start: datetime, end: datetime
) -> DataFrame:
    """Return the events of exactly the objects at `uris` with an event time in `[start, end)`.

    The columns are the source's own, in order: the receiver's columns (`_event_time`, `_received_at`, ...) are dropped.
    If the source has an id column, each id counts once in its partition. Without objects the frame is empty.
    Raises `ObjectMissing` if an object no longer exists.
    """
    schema = source_schema(source)
    if not uris:
        return empty_frame(spark, schema)
    stored = StructType(schema.fields).add(EVENT_TIME, TimestampType()).add(RECEIVED_AT, TimestampType())
    if source.id_column == GENERATED_ID:
        stored.add(GENERATED_ID, StringType())
    # With a schema Spark reads no file to infer one, and the columns are the same for every day.
    try:
        events = spark.read.schema(stored).parquet(*uris)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        missing = (error.getMessageParameters() or {}).get("path", "an object")
        raise ObjectMissing(f"{missing} is in the input manifest of this run, but no longer exists") from error
    if source.id_column:
        # Duplicates are dropped before the events of other days: where a day begins or ends within an hour, the first
        # event of an id may belong to the other day, and then its duplicates do not count in this one.
        events = drop_duplicates(events, source.id_column)
    event_time = sf.col(EVENT_TIME)
    return events.where((event_time >= sf.lit(start)) & (event_time < sf.lit(end))).select(*schema.names)


def drop_duplicates(events: DataFrame, id_column: str) -> DataFrame:
    """Return the first received event of each id and partition, and all events without an id."""
    # `date_trunc` would use the timezone of the session, but partitions are UTC hours.
    hour = f"floor(unix_seconds({EVENT_TIME}) / 3600)"
    located = events.select(
        "*", sf.col("_metadata.file_name").alias("_object"), sf.col("_metadata.row_index").alias("_row")
    )
    is_first = is_first_of_its_id(quoted(id_column), partition=[hour], position=["_object", "_row"])
    return located.withColumn("_is_first", sf.expr(is_first)).where("_is_first")
