"""Read the inputs of the input manifest as DataFrames.

`FrozenInputs` reads raw objects (`read_source`), published days (`read_published`) and tables of other systems
(`read_iceberg`).
The driver reads a small source itself; executors read all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, IllegalArgumentException
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
from slackwater.errors import DefinitionError, InputError, ObjectInvalid, ObjectMissing
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.period import Period, is_hour, period_of
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT, raw_schema
from slackwater.sources.fields import FieldType
from slackwater.sources.first_by_id import is_first_of_its_id
from slackwater.sources.partitions import Partition
from slackwater.spark.table import quoted_table, rows_of_version
from slackwater.storage import ObjectStore

# The driver reads a source of at most this size: Spark's own reader takes longer to start (docs/decisions/0027). Rows
# are bounded as well, because columns of equal values take almost no bytes.
SMALL_BYTES, SMALL_ROWS = 2 * 1024 * 1024, 100_000
# Threads of the driver that read objects.
_READERS = 8
# Columns with the position of an event: the object, and the row in it.
_OBJECT, _ROW = "_object", "_row"
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


@dataclass(frozen=True)
class FrozenInputs:
    """The inputs of a run: what its input manifest lists."""

    spark: SparkSession
    project: Project
    manifest: InputManifest
    store: ObjectStore

    def read(self, name: str) -> DataFrame:
        """Return the rows of a source or a table of the pipeline.

        Raises what `read_source`, `read_published` and `read_iceberg` raise, for a table with its name, and
        `DefinitionError` for a source that the pipeline does not list.
        """
        pipeline, objects = self.project.pipeline(self.manifest.pipeline), self.manifest.of_source(name)
        if name in pipeline.tables:
            try:
                if name in pipeline.foreign_tables:
                    (snapshot,) = objects
                    return read_iceberg(self.spark, snapshot)
                return read_published(self.spark, objects)
            except (InputError, ObjectMissing) as error:
                raise type(error)(f"tables.{name}: {error}") from error
        if name not in pipeline.sources:
            raise DefinitionError(f"source: {name} is not one of the pipeline's sources: add it to `sources`")
        return read_source(
            self.spark,
            self.project.source(name),
            [item.uri for item in objects],
            input_bytes=self.size([name]),
            day=None if self._is_whole(name) else self._day,
            store=self.store,
            first_received={item.uri: item.first_received_at for item in objects if item.first_received_at},
        )

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes of the objects of these inputs."""
        return sum(item.bytes for name in names for item in self.manifest.of_source(name))

    def known_rows(self, name: str) -> int | None:
        """Return how many rows `read` returns; None where only Spark can count them."""
        is_source = name in self.project.pipeline(self.manifest.pipeline).sources
        # Events with ids are counted: Spark leaves out duplicates, and computes them once if several steps read them.
        if is_source and not self.project.source(name).id_column and self._is_whole(name):
            return sum(item.rows for item in self.manifest.of_source(name))
        return None

    @property
    def _day(self) -> Period:
        return period_of(self.manifest.date, self.project.pipeline(self.manifest.pipeline).timezone)

    def _is_whole(self, source: str) -> bool:
        """Return whether all events of the source's objects are of the day."""
        partitions = {Partition(item.date, item.hour) for item in self.manifest.of_source(source)}
        return all(map(self._day.contains, partitions))


def read_source(
    spark: SparkSession,
    source: Source,
    uris: Sequence[str],
    *,
    input_bytes: int,
    day: Period | None,
    store: ObjectStore,
    first_received: Mapping[str, datetime] | None = None,
) -> DataFrame:
    """Return the events of exactly the objects at `uris`: those of the day, or all of them if it is None.

    `input_bytes` is the size of all objects. The columns are the source's own, in order: the receiver's columns
    (`_event_time`, `_received_at`, ...) are dropped. If the source has an id column, each id counts once in its
    partition; `first_received` are the times at which the first contents of changed files were received, by the URIs of
    their objects (`slackwater.sources.first_by_id`). Without objects the frame is empty. Raises `ObjectMissing` if an
    object no longer exists.
    """
    if not uris:
        # From an empty list, Spark would create it with Python workers.
        return frame_of(spark, [], arrow_schema_of(source_schema(source)))
    by_driver = input_bytes <= SMALL_BYTES and has_small_way(spark)
    events = _read_by_driver(spark, source, uris, store) if by_driver else None
    if events is None:
        events = _read_by_executors(spark, source, uris)
    if source.id_column:
        # Duplicates are dropped before the events of other days: where a day begins or ends within an hour, the first
        # event of an id may belong to the other day, and then its duplicates do not count in this one.
        events = _drop_duplicates(events, source.id_column, first_received or {})
    if day:
        event_time = sf.col(EVENT_TIME)
        events = events.where((event_time >= sf.lit(day.start)) & (event_time < sf.lit(day.end)))
    return events.select(*source.columns)


def read_published(spark: SparkSession, objects: Sequence[InputObject]) -> DataFrame:
    """Return the rows of published days, each from the version that its tag names.

    A column that a version lacks is null in its rows. Raises `ObjectMissing` if a version no longer exists, and
    `InputError` without a day, because the columns are unknown then.
    """
    if not objects:
        raise InputError("none of the days that this table needs is published, so its columns are unknown")
    frames = []
    for item in objects:
        table = quoted_table(item.uri.rpartition("/date=")[0])
        try:
            frames.append(rows_of_version(spark, table, item.tag or "", item.date))
        except (AnalysisException, IllegalArgumentException) as error:
            missing = _no_longer_exists(f"{table} VERSION AS OF '{item.tag}'")
            if is_hour(item.date):
                pipeline, _, hour = (item.file or "").rpartition(" ")
                command = f"slackwater run {pipeline} --date {hour} --force"
                raise ObjectMissing(f"{missing} (versions of hours end): run the hour again ({command})") from error
            raise missing from error
    # Pairs of pairs: Spark analyses each union with all that is below it, and a week has 168 hours.
    while len(frames) > 1:
        frames = [reduce(_union, frames[first : first + 2]) for first in range(0, len(frames), 2)]
    return frames[0]


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def read_iceberg(spark: SparkSession, item: InputObject) -> DataFrame:
    """Return the rows of an Iceberg table of another system, at the snapshot that was frozen.

    Raises `ObjectMissing` if the snapshot or the table no longer exists.
    """
    try:
        return spark.read.option("versionAsOf", item.tag).table(quoted_table(item.uri))
    except (AnalysisException, IllegalArgumentException) as error:
        raise ObjectMissing(
            f"the snapshot {item.tag} of {item.file} is in the input manifest of this run, but no longer exists: run "
            "the day again, which reads the current snapshot, and let the table keep snapshots for longer than a run "
            "takes (Iceberg's history.expire.max-snapshot-age-ms)"
        ) from error


def _read_by_driver(spark: SparkSession, source: Source, uris: Sequence[str], store: ObjectStore) -> DataFrame | None:
    """Return all events of the objects, as `_read_by_executors` does; None if there are too many for the driver."""
    names = _stored_schema(source).names

    def open_object(uri: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(pa.BufferReader(store.get(uri)))
        except ObjectMissing as error:
            raise _no_longer_exists(uri) from error
        except pa.ArrowInvalid as error:
            raise ObjectInvalid(f"{uri} is not a Parquet file: {error}") from error

    with ThreadPoolExecutor(_READERS) as readers:
        files = list(readers.map(open_object, uris))
    if sum(file.metadata.num_rows for file in files) > SMALL_ROWS:
        return None
    schema = pa.schema([field for field in raw_schema(source) if field.name in names])
    tables = [schema.empty_table()]
    for uri, file in zip(uris, files, strict=True):
        events = file.read(columns=names)
        if source.id_column:
            events = events.append_column(_OBJECT, pa.repeat(_name_of(uri), len(events)))
            events = events.append_column(_ROW, pa.array(range(len(events)), pa.int64()))
        tables.append(events)
    # Objects that were written before a column was defined lack it.
    events = pa.concat_tables(tables, promote_options="default")
    return frame_of(spark, events.to_batches(), events.schema)


def _read_by_executors(spark: SparkSession, source: Source, uris: Sequence[str]) -> DataFrame:
    """Return all events of the objects, with the columns of `_stored_schema`.

    If the source has an id column, `_object` and `_row` are the position of each event.
    """
    try:
        # With a schema Spark reads no file to infer one, and the columns are the same for every day.
        events = spark.read.schema(_stored_schema(source)).parquet(*uris)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise _no_longer_exists((error.getMessageParameters() or {}).get("path", "an object")) from error
    if not source.id_column:
        return events
    metadata = {_OBJECT: "_metadata.file_name", _ROW: "_metadata.row_index"}
    return events.select("*", *(sf.col(column).alias(name) for name, column in metadata.items()))


def _stored_schema(source: Source) -> StructType:
    """Return the columns of raw objects that decide which events count: the source's own, times, and generated ids."""
    schema = source_schema(source).add(EVENT_TIME, TimestampType()).add(RECEIVED_AT, TimestampType())
    return schema.add(GENERATED_ID, StringType()) if source.id_column == GENERATED_ID else schema


def _no_longer_exists(uri: str) -> ObjectMissing:
    return ObjectMissing(f"{uri} is in the input manifest of this run, but no longer exists")


def _name_of(uri: str) -> str:
    """Return the name of an object, as `_metadata.file_name` does."""
    return uri.rpartition("/")[2]


def _drop_duplicates(events: DataFrame, id_column: str, first_received: Mapping[str, datetime]) -> DataFrame:
    """Return the first received event of each id and partition, and all events without an id."""
    # `date_trunc` would use the timezone of the session, but partitions are UTC hours.
    hour = f"floor(unix_seconds({EVENT_TIME}) / 3600)"
    # Objects of one name are of one content, in several hours.
    times = {_name_of(uri): at for uri, at in first_received.items()}
    entries = (f"'{name}', timestamp_micros({(at - _EPOCH) // _MICROSECOND})" for name, at in times.items())
    is_first = is_first_of_its_id(
        quoted(id_column),
        partition=[hour],
        position=[_OBJECT, _ROW],
        first_received=f"map({', '.join(entries)})[{_OBJECT}]" if times else "",
    )
    return events.withColumn("_is_first", sf.expr(is_first)).where("_is_first")
