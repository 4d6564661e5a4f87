"""Write a DataFrame as an Arrow dataset, and read one back: `write_frame`, `read_frame`.

The driver writes and reads frames of a day's usual size, because starting Python workers takes longer than the work.
Executors write and read large frames, at least one file for each partition, and only descriptions of the files reach
the driver. Both ways write the same type of files and manifest (docs/decisions/0002).
"""

from __future__ import annotations

import gc
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from slackwater.arrow.files import FILE_BYTES, read_batches, write_empty, write_files
from slackwater.arrow.messages import decode_schema, encode_schema
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import (
    ArrowFile,
    ArrowManifest,
    Codec,
    Producer,
)
from slackwater.arrow.schema import arrow_schema_of, has_nullable_struct, spark_schema_of
from slackwater.arrow.session import has_small_way, temporary_settings
from slackwater.errors import DefinitionError
from slackwater.storage import ObjectStore

# Creates the store in the process that needs it: open connections cannot be sent to Spark's workers, a factory can.
StoreFactory = Callable[[], ObjectStore]

# The driver reads datasets of at most this size, and writes results whose inputs have at most this size.
DRIVER_BYTES = 32 * 1024 * 1024

# The driver writes results of at most this many rows, because a small input may still grow in a join.
DRIVER_ROWS = 50_000

_FILE_COLUMNS = "file string not null"

# The executors read a file of at most this size whole, also for a few of its columns: more requests would take longer
# than more bytes.
WHOLE_FILE_BYTES = 4 * 1024 * 1024

# A task reads files of about this size together, counting only the columns that it reads: the start of a task takes
# 0.1 s, as long as reading 100 MB.
TASK_BYTES = 16 * 1024 * 1024

# Rows of a batch, if each value has a fixed size. Spark's default, 10,000, bounds the size of a batch of long strings.
_FIXED_SIZE_BATCH_ROWS = 65_536
_NARROW = 16


class WrittenFrame(NamedTuple):
    """A frame that was written, and what Spark observed while it computed the frame."""

    manifest: ArrowManifest
    observed: Mapping[str, Mapping[str, Any]]
    """By the name of each `DataFrame.observe`, the values by theirs. What Spark did not have to compute is missing."""


def write_frame(
    frame: DataFrame,
    prefix: str,
    *,
    producer: Producer,
    stores: StoreFactory,
    input_bytes: int,
    parents: Sequence[str] = (),
    codec: Codec | None = None,
    file_bytes: int = FILE_BYTES,
) -> WrittenFrame:
    """Write `frame` as Arrow IPC files under `prefix`, and return the manifest, which is not stored yet.

    `producer`, `parents` and `codec` are fields of the manifest. `input_bytes` is the size of everything that the frame
    is computed from; it decides whether the driver or the executors write. Tasks that failed or ran twice may leave
    files that the manifest does not name. Raises `DefinitionError` for a column that `arrow_schema_of` refuses.
    """
    schema = arrow_schema_of(frame.schema)
    write = partial(write_files, prefix=prefix, schema=schema, limit=file_bytes, codec=codec)
    written = None
    if input_bytes <= DRIVER_BYTES and has_small_way(frame.sparkSession) and not has_nullable_struct(schema):
        written = _write_by_driver(frame, write, stores)
    files, executed = written or _write_by_executors(frame, schema, write, stores)
    if not files:
        files = [write_empty(prefix=prefix, schema=schema, store=stores())]
    manifest = ArrowManifest(
        producer=producer,
        created_at=datetime.now(UTC),
        codec=codec,
        arrow_schema=encode_schema(schema),
        files=tuple(files),
        parents=tuple(parents),
    )
    return WrittenFrame(manifest, observed_values(executed))


def read_frame(
    spark: SparkSession, manifest: ArrowManifest, *, stores: StoreFactory, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of exactly the manifest's files. With `columns`, read only these columns.

    The frame has all columns of the manifest, so that a query that names one does not fail. A query that needs the
    values of a column that is not read fails when Spark computes it: `columns_read` returns the columns that it needs.

    Raises `KeyError` for an unknown column, `ObjectMissing` for a missing file, and `CloudError` for a file that
    differs from the manifest. The files of a large dataset are read later, when Spark computes the frame: then Spark
    raises an error of its own, whose message contains the error.
    """
    schema = decode_schema(manifest.arrow_schema)
    if not is_large(spark, manifest) and not has_nullable_struct(schema):
        store = stores()
        batches = [batch for file in manifest.files for batch in read_batches(file, schema=schema, store=store)]
        return frame_of(spark, batches, schema)
    if columns is None:
        return _read_by_executors(spark, manifest.files, schema=schema, stores=stores)
    # Without a column, a frame has no rows to count.
    read = [schema.field(name).name for name in columns] or schema.names[:1]
    frame = _read_by_executors(spark, manifest.files, schema=schema, stores=stores, columns=read)
    # One cast for each type: a call of the JVM for each of 1,000 columns takes longer than the read.
    error = sf.raise_error(sf.lit(f"the query needs a column that was not read; these were: {', '.join(read)}"))
    unread = {field.dataType: error.cast(field.dataType) for field in spark_schema_of(schema).fields}
    return frame.select(
        *(
            frame[quoted(field.name)] if field.name in read else unread[field.dataType].alias(field.name)
            for field in spark_schema_of(schema).fields
        )
    )


def is_large(spark: SparkSession, manifest: ArrowManifest) -> bool:
    """Return whether the dataset is too large for the driver. Then reading fewer columns saves time."""
    return manifest.bytes > DRIVER_BYTES or not has_small_way(spark)


def _write_by_driver(
    frame: DataFrame, write: Callable[..., Iterator[ArrowFile]], stores: StoreFactory
) -> tuple[list[ArrowFile], DataFrame] | None:
    """Write with the driver, and return the files and the executed frame; None if there are too many rows for it."""
    # One row more than the driver writes shows that there are too many, without a Spark action that counts them.
    bounded = frame.limit(DRIVER_ROWS + 1)
    table = bounded.toArrow()
    if table.num_rows > DRIVER_ROWS:
        return None
    return list(write(table.to_batches(), store=stores())), bounded


def _write_by_executors(
    frame: DataFrame, schema: pa.Schema, write: Callable[..., Iterator[ArrowFile]], stores: StoreFactory
) -> tuple[list[ArrowFile], DataFrame]:
    """Write with the executors, and return the files and the executed frame."""

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in write(batches, store=_cached_store(stores)):
            yield pa.RecordBatch.from_pydict({"file": [file.model_dump_json()]})

    written = map_in_arrow(frame, write_partition, _FILE_COLUMNS)
    with temporary_settings(frame.sparkSession, batch_settings(schema)):
        files = [ArrowFile.model_validate_json(row.file) for row in written.collect()]
    # Tasks end in any order; the order in the manifest does not depend on it.
    return sorted(files, key=lambda file: file.uri), written


def arrow_bytes(frame: DataFrame, *, rows: int) -> int | None:
    """Return the bytes of a frame's rows in record batches of Arrow; None if Arrow lacks a type of them.

    `rows` is the number of rows: the driver measures few rows itself.
    """
    try:
        schema = arrow_schema_of(frame.schema)
    except DefinitionError:
        return None
    if rows <= DRIVER_ROWS and has_small_way(frame.sparkSession) and not has_nullable_struct(schema):
        return sum(int(pa.ipc.get_record_batch_size(batch)) for batch in frame.toArrow().combine_chunks().to_batches())

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"bytes": [sum(map(pa.ipc.get_record_batch_size, batches))]})

    with temporary_settings(frame.sparkSession, batch_settings(schema)):
        return sum(int(row.bytes) for row in map_in_arrow(frame, sizes, "bytes long not null").collect())


def batch_settings(schema: pa.Schema) -> dict[str, str]:
    """Return Spark's settings with which the executors write columns of this schema."""
    # With any smaller number Spark computes a batch's size after each row: 4 to 13 times slower (docs/decisions/0002).
    settings = {"spark.sql.execution.arrow.maxBytesPerBatch": "2147483647"}
    if len(schema) <= _NARROW and all(pa.types.is_primitive(field.type) for field in schema):
        settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = str(_FIXED_SIZE_BATCH_ROWS)
    return settings


def frame_of(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """Return batches of this schema, which the driver holds, as a frame."""
    # PySpark 4.1.1 drops the rows after an empty batch that is not the first one.
    with_rows = [batch for batch in batches if batch.num_rows]
    table = pa.Table.from_batches(with_rows) if with_rows else schema.empty_table()
    return spark.createDataFrame(table, schema=spark_schema_of(schema))


def _read_by_executors(
    spark: SparkSession,
    files: Sequence[ArrowFile],
    *,
    schema: pa.Schema,
    stores: StoreFactory,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return a frame with these columns, in the order of the schema. Each task reads one file after the other."""
    share = 1.0 if columns is None else len(columns) / len(schema)
    tasks = min(len(files), math.ceil(share * sum(file.bytes for file in files) / TASK_BYTES)) or 1
    # The largest first, so that no task begins a large file when the others have finished.
    ordered = sorted(files, key=lambda file: (-file.bytes, file.uri))
    entries = [[file.model_dump_json() for file in ordered[task::tasks]] for task in range(tasks)]
    whole_bytes = WHOLE_FILE_BYTES

    def read(indexes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _cached_store(stores)
        for batch in indexes:
            for entry in chain.from_iterable(entries[task] for task in batch.column(0).to_pylist()):
                file = ArrowFile.model_validate_json(entry)
                yield from read_batches(file, schema=schema, store=store, columns=columns, whole_bytes=whole_bytes)

    selected = schema if columns is None else pa.schema([field for field in schema if field.name in columns])
    return map_in_arrow(spark.range(0, tasks, 1, tasks), read, spark_schema_of(selected))


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Apply a Python function to the frame's Arrow batches in the executors; `schema` is that of the result."""
    # `DataFrame.mapInArrow` does the same, but requires pandas, which it does not use: 105 MB of the job's archive.

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batches)
        _forget_archives()
        _exempt_from_collection()

    mapped = UserDefinedFunction(task, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    inner: Any = frame
    column: Any = mapped(*(frame[quoted(name)] for name in frame.columns))
    return DataFrame(inner._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _forget_archives() -> None:
    """Remove the finders of zip archives, such as Spark's own, from this worker process. Imports add them again.

    Before each task, Spark's worker invalidates the caches of all finders, and that of an archive then reads the names
    of all its files again: 0.1 s for each task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@lru_cache(maxsize=1)
def _exempt_from_collection() -> None:
    """Exempt the objects of imported modules from garbage collection, once in this worker process.

    After each task, Spark's worker runs a full collection, which visits all objects: 0.05 s for each task.
    """
    gc.freeze()


@lru_cache(maxsize=1)
def _cached_store(stores: StoreFactory) -> ObjectStore:
    """Return the store of this worker process, which runs many tasks."""
    return stores()


def observed_values(executed: DataFrame) -> dict[str, dict[str, Any]]:
    """Return the values that Spark observed when it computed the frame, by the name of each observation."""
    inner: Any = executed
    metrics = inner._jdf.queryExecution().observedMetrics()
    names = metrics.keysIterator()
    values = {}
    while names.hasNext():
        name = names.next()
        values[name] = json.loads(metrics.apply(name).json())
    return values
