"""Reading a source's part of the input manifest as a frame."""

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
from slackwater.errors import ObjectMissing
from slackwater.receiver.source import FieldType, Source

EVENT_TIME = "_event_time"
_TYPES: dict[FieldType, DataType] = {
    FieldType.STRING: StringType(),
    FieldType.INT64: LongType(),
    FieldType.DOUBLE: DoubleType(),
    FieldType.BOOLEAN: BooleanType(),
    FieldType.TIMESTAMP: TimestampType(),
    FieldType.DATE: DateType(),
}


def source_schema(source: Source) -> StructType:
    """Return the source's declared fields in order; every one may be null, as older objects may lack it."""
    schema = StructType()
    for name, field in source.fields.items():
        schema.add(name, _TYPES[field.type])
    return schema


def read_source(
    spark: SparkSession, source: Source, uris: Sequence[str], *, start: datetime, end: datetime
) -> DataFrame:
    """Return the events of exactly those objects that happened in `[start, end)`: the declared fields, in order.

    The receiver's own columns (`_event_time`, `_received_at`, `_batch_id`, `_extra`) are not what a partner sent, so
    steps do not see them. No objects make an empty frame. Raises `ObjectMissing` for an object that is gone.
    """
    schema = source_schema(source)
    if not uris:
        return empty_frame(spark, schema)
    stored = StructType(schema.fields).add(EVENT_TIME, TimestampType())
    try:
        events = spark.read.schema(stored).parquet(*uris)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        gone = (error.getMessageParameters() or {}).get("path", "an object")
        raise ObjectMissing(f"{gone} stands in the input manifest of this run but is gone") from error
    moment = sf.col(EVENT_TIME)
    return events.where((moment >= sf.lit(start)) & (moment < sf.lit(end))).select(*schema.names)
