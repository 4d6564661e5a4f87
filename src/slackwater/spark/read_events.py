"""Read the events of a source as DataFrames, from objects of their own and from packed ones.

The driver reads a small source itself; executors read all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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

from slackwater.arrow.exchange import frame_of
from slackwater.arrow.names import quoted
from slackwater.arrow.schema import arrow_schema_of
from slackwater.arrow.session import has_small_way
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.runs.packing.event_files import EventFile
from slackwater.runs.packing.index import OBJECT, ROW
from slackwater.runs.period import Period
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT, raw_schema
from slackwater.sources.fields import FieldType
from slackwater.sources.first_by_id import is_first_of_its_id
from slackwater.sources.first_events import first_events
from slackwater.storage import ObjectStore

# The driver reads a source of at most this size: Spark's own reader takes longer to start (docs/decisions/0027). Rows
# are bounded as well, because columns of equal values take almost no bytes.
SMALL_BYTES, SMALL_ROWS = 2 * 1024 * 1024, 100_000
# Threads of the driver that read objects.
_READERS = 8
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

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
    spark: SparkSession,
    source: Source,
    files: Sequence[EventFile],
    *,
    day: Period | None,
    store: ObjectStore,
    first_received: Mapping[str, datetime] | None = None,
) -> DataFrame:
    """Return the events of exactly these files: those of the day, or all of them if it is None.

    The columns are the source's own, in order: the receiver's columns (`_event_time`, `_received_at`, ...) are dropped.
    If the source has an id column, each id counts once in its partition; `first_received` are the times at which the
    first contents of changed files were received, by the URIs of their objects (`slackwater.sources.first_by_id`).
    Without files the frame is empty. Raises `ObjectMissing` if one no longer exists.
    """
    if not files:
        # From an empty list, Spark would create it with Python workers.
        return frame_of(spark, [], arrow_schema_of(source_schema(source)))
    # Objects of one name are of one content, in several hours.
    received = {_name_of(uri): at for uri, at in (first_received or {}).items()}
    by_driver = sum(file.size for file in files) <= SMALL_BYTES and has_small_way(spark)
    few = _read_by_driver(source, files, store) if by_driver else None
    # Duplicates are dropped before the events of other days: where a day begins or ends within an hour, the first event
    # of an id may belong to the other day, and then its duplicates do not count in this one.
    if few is not None:
        if source.id_column:
            few = first_events(few, source.id_column, position=[OBJECT, ROW], first_received=received)
        if day:
            few = few.filter((pc.field(EVENT_TIME) >= day.start) & (pc.field(EVENT_TIME) < day.end))
        few = few.select([*source.columns])
        return frame_of(spark, few.to_batches(), few.schema)
    events = _read_by_executors(spark, source, files)
    if source.id_column:
        events = _drop_duplicates(events, source.id_column, received)
    if day:
        event_time = sf.col(EVENT_TIME)
        events = events.where((event_time >= sf.lit(day.start)) & (event_time < sf.lit(day.end)))
    return events.select(*source.columns)


def _read_by_driver(source: Source, files: Sequence[EventFile], store: ObjectStore) -> pa.Table | None:
    """Return all events of the files, as `_read_by_executors` does; None if there are too many for the driver."""
    names = _stored_schema(source).names

    def open_file(file: EventFile) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(pa.BufferReader(store.get(file.uri)))
        except ObjectMissing as error:
            raise no_longer_exists(file.uri) from error
        except pa.ArrowInvalid as error:
            raise ObjectInvalid(f"{file.uri} is not a Parquet file: {error}") from error

    with ThreadPoolExecutor(_READERS) as readers:
        opened = list(readers.map(open_file, files))
    if sum(parquet.metadata.num_rows for parquet in opened) > SMALL_ROWS:
        return None
    schema = pa.schema([field for field in raw_schema(source) if field.name in names])
    tables = [schema.empty_table()]
    for file, parquet in zip(files, opened, strict=True):
        events = parquet.read(columns=[*names, *((OBJECT, ROW) if file.is_packed else ())])
        if file.members is not None:
            events = events.filter(pc.is_in(events[OBJECT], value_set=pa.array(file.members)))
        if source.id_column and not file.is_packed:
            events = events.append_column(OBJECT, pa.repeat(_name_of(file.uri), len(events)))
            events = events.append_column(ROW, pa.array(range(len(events)), pa.int64()))
        elif not source.id_column and file.is_packed:
            events = events.drop_columns([OBJECT, ROW])
        tables.append(events)
    # Objects that were written before a column was defined lack it.
    return pa.concat_tables(tables, promote_options="default")


def _read_by_executors(spark: SparkSession, source: Source, files: Sequence[EventFile]) -> DataFrame:
    """Return all events of the files, with the columns of `_stored_schema`.

    If the source has an id column, `OBJECT` and `ROW` are the position of each event.
    """
    schema = _stored_schema(source)
    frames = []
    if own := [file.uri for file in files if not file.is_packed]:
        events = _parquet(spark, schema, own)
        if source.id_column:
            metadata = {OBJECT: "_metadata.file_name", ROW: "_metadata.row_index"}
            events = events.select("*", *(sf.col(column).alias(name) for name, column in metadata.items()))
        frames.append(events)
    whole = [file.uri for file in files if file.is_packed and file.members is None]
    parts = [(file.uri, list(file.members)) for file in files if file.members is not None]
    for uris, members in [*([(whole, None)] if whole else []), *(([uri], names) for uri, names in parts)]:
        columns = StructType([*schema.fields]).add(OBJECT, StringType()).add(ROW, LongType())
        events = _parquet(spark, columns, uris)
        if members is not None:
            events = events.where(sf.col(OBJECT).isin(members))
        frames.append(events if source.id_column else events.drop(OBJECT, ROW))
    return reduce(DataFrame.unionByName, frames)


def _parquet(spark: SparkSession, schema: StructType, uris: Sequence[str]) -> DataFrame:
    try:
        # With a schema Spark reads no file to infer one, and the columns are the same for every day.
        return spark.read.schema(schema).parquet(*uris)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise no_longer_exists((error.getMessageParameters() or {}).get("path", "an object")) from error


def _stored_schema(source: Source) -> StructType:
    """Return the columns of raw objects that decide which events count: the source's own, times, and generated ids."""
    schema = source_schema(source).add(EVENT_TIME, TimestampType()).add(RECEIVED_AT, TimestampType())
    return schema.add(GENERATED_ID, StringType()) if source.id_column == GENERATED_ID else schema


def no_longer_exists(uri: str) -> ObjectMissing:
    """Return the error for an input that was frozen, and does not exist any more."""
    return ObjectMissing(f"{uri} is in the input manifest of this run, but no longer exists")


def _name_of(uri: str) -> str:
    """Return the name of an object, as `_metadata.file_name` does."""
    return uri.rpartition("/")[2]


def _drop_duplicates(events: DataFrame, id_column: str, first_received: Mapping[str, datetime]) -> DataFrame:
    """Return the first received event of each id and partition, and all events without an id: see `first_events`."""
    # `date_trunc` would use the timezone of the session, but partitions are UTC hours.
    hour = f"floor(unix_seconds({EVENT_TIME}) / 3600)"
    entries = (f"'{name}', timestamp_micros({(at - _EPOCH) // _MICROSECOND})" for name, at in first_received.items())
    is_first = is_first_of_its_id(
        quoted(id_column),
        partition=[hour],
        position=[OBJECT, ROW],
        first_received=f"map({', '.join(entries)})[{OBJECT}]" if first_received else "",
    )
    return events.withColumn("_is_first", sf.expr(is_first)).where("_is_first")
