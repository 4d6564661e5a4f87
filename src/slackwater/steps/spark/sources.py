"""Reading a source's part of the input manifest as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
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
from slackwater.errors import ObjectMissing
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT
from slackwater.sources.fields import FieldType

_TYPES: dict[FieldType, DataType] = {
    FieldType.STRING: StringType(),
    FieldType.INT64: LongType(),
    FieldType.DOUBLE: DoubleType(),
    FieldType.BOOLEAN: BooleanType(),
    FieldType.TIMESTAMP: TimestampType(),
    FieldType.DATE: DateType(),
}


def source_schema(source: Source) -> StructType:
    """Return the source's columns in order; every one may be null, as older objects may lack it."""
    schema = StructType()
    for name, kind in source.columns.items():
        schema.add(name, _TYPES[kind])
    return schema


def read_source(
    spark: SparkSession, source: Source, uris: Sequence[str], *, start: datetime, end: datetime
) -> DataFrame:
    """Return the events of exactly those objects that happened in `[start, end)`: the declared fields, in order.

    The receiver's own columns (`_event_time`, `_received_at`, ...) are not what a partner sent, so steps do not see
    them. Of a source with an id column each id counts once in its partition (`slackwater.runs.duplicates`). No objects make
    an empty frame. Raises `ObjectMissing` for an object that is gone.
    """
    schema = source_schema(source)
    if not uris:
        return empty_frame(spark, schema)
    stored = StructType(schema.fields).add(EVENT_TIME, TimestampType()).add(RECEIVED_AT, TimestampType())
    if source.id_column == GENERATED_ID:
        stored.add(GENERATED_ID, StringType())
    try:
        events = spark.read.schema(stored).parquet(*uris)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        gone = (error.getMessageParameters() or {}).get("path", "an object")
        raise ObjectMissing(f"{gone} stands in the input manifest of this run but is gone") from error
    if source.id_column:
        # Before other hours' events are left out: where a day ends within an hour, a copy may be the other day's.
        events = _without_copies(events, source.id_column)
    moment = sf.col(EVENT_TIME)
    return events.where((moment >= sf.lit(start)) & (moment < sf.lit(end))).select(*schema.names)


def _without_copies(events: DataFrame, id_column: str) -> DataFrame:
    """Return the event of each id and partition that was received first, and all events without an id.

    What has no id is told by its place in its object, so that it stays spread over Spark's tasks.
    """
    # Not truncated as a date: that would go by the session's time zone, and partitions are hours of UTC.
    hour = sf.floor(sf.unix_seconds(EVENT_TIME) / 3600)
    placed = events.select(
        "*", sf.col("_metadata.file_name").alias("_object"), sf.col("_metadata.row_index").alias("_row")
    )
    nameless = sf.when(sf.col(id_column).isNull(), sf.struct("_object", "_row"))
    alike = Window.partitionBy(hour, id_column, nameless).orderBy(RECEIVED_AT, "_object", "_row")
    return placed.withColumn("_nth", sf.row_number().over(alike)).where("_nth = 1")
