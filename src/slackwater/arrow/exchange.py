"""Write a DataFrame as an Arrow dataset, and read one back: `write_frame`, `read_frame`.

The driver writes and reads frames of a day's usual size, because starting Python workers takes longer than the work.
Executors write and read large frames, at least one file for each partition, and only descriptions of the files reach
the driver. Both ways write the same type of files and manifest (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from slackwater.arrow.files import FILE_BYTES, read_batches, write_empty, write_files
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import (
    ArrowFile,
    ArrowManifest,
    ArrowReference,
    StepCount,
    manifest_uri,
    reference_uri,
)
from slackwater.arrow.schema import arrow_schema_of, decode_schema, encode_schema, spark_schema_of
from slackwater.arrow.session import temporary_settings
from slackwater.storage import ObjectStore

# Creates the store in the process that needs it: open connections cannot be sent to Spark's workers, a factory can.
StoreFactory = Callable[[], ObjectStore]

# The driver reads datasets of at most this size, and writes results whose inputs have at most this size.
DRIVER_BYTES = 32 * 1024 * 1024

# The driver writes results of at most this many rows, because a small input may still grow in a join.
DRIVER_ROWS = 50_000

_FILE_COLUMNS = "uri string not null, rows long not null, bytes long not null, sha256 string not null"
_ROW_COUNT = "rows"
_BATCH_SETTINGS = {
    # With any smaller number Spark computes a batch's size after each row: 4 to 13 times slower (docs/decisions/0002).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}


def observe_rows(frame: DataFrame, step: str) -> DataFrame:
    """Return the frame such that Spark counts its rows under the name `step` whenever it computes the frame."""
    return frame.observe(step, sf.count(sf.lit(1)).alias(_ROW_COUNT))


def write_frame(
    frame: DataFrame,
    prefix: str,
    *,
    producer: str,
    stores: StoreFactory,
    input_bytes: int,
    earlier: Sequence[str] = (),
    file_bytes: int = FILE_BYTES,
) -> ArrowManifest:
    """Write `frame` as Arrow IPC files under `prefix`, and return the manifest, which is not stored yet.

    `producer` and `earlier` are fields of the manifest. `input_bytes` is the size of everything that the frame is
    computed from; it decides whether the driver or the executors write. The manifest's `steps` are the numbers of rows
    that `observe_rows` counted. Tasks that failed or ran twice may leave files that the manifest does not name.
    Raises `DefinitionError` for a column that `arrow_schema_of` refuses.
    """
    schema = arrow_schema_of(frame.schema)
    written = None
    if input_bytes <= DRIVER_BYTES:
        written = _write_by_driver(frame, prefix, schema=schema, stores=stores, file_bytes=file_bytes)
    if written is None:
        written = _write_by_executors(frame, prefix, schema=schema, stores=stores, file_bytes=file_bytes)
    files, executed = written
    if not files:
        files = [write_empty(prefix=prefix, schema=schema, store=stores())]
    return ArrowManifest(
        producer=producer,
        arrow_schema=encode_schema(schema),
        files=tuple(files),
        steps=_observed_counts(executed),
        earlier=tuple(earlier),
    )


def read_frame(
    spark: SparkSession, manifest: ArrowManifest, *, stores: StoreFactory, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of exactly the manifest's files; with `columns`, only these columns, in this order.

    Raises `KeyError` for an unknown column, `ObjectMissing` for a missing file, and `CloudError` for a file that
    differs from the manifest. The files of a large dataset are read later, when Spark computes the frame: then Spark
    raises an error of its own, whose message contains the error.
    """
    schema = decode_schema(manifest.arrow_schema)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    if manifest.bytes <= DRIVER_BYTES:
        store = stores()
        batches = [batch for file in manifest.files for batch in read_batches(file, store=store, columns=columns)]
        return _frame_of(spark, batches, schema)
    return _read_by_executors(spark, manifest.files, schema=schema, stores=stores, columns=columns)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame without rows. Spark would start Python workers to create one from an empty list."""
    return _frame_of(spark, [], arrow_schema_of(schema))


def store_dataset(manifest: ArrowManifest, prefix: str, *, store: ObjectStore, seconds: float) -> ArrowReference:
    """Store the manifest and then the reference under `prefix`, each by one PUT, and return the reference.

    `seconds` is how long the dataset took to compute and write.
    """
    uri = manifest_uri(prefix)
    # The reference is written last, so that the manifest and all files exist whenever it does.
    store.put(uri, manifest.model_dump_json().encode())
    reference = ArrowReference(
        manifest=uri, rows=manifest.rows, bytes=manifest.bytes, files=len(manifest.files), seconds=round(seconds, 3)
    )
    store.put(reference_uri(prefix), reference.model_dump_json().encode())
    return reference


def load_manifest(uri: str, *, store: ObjectStore) -> ArrowManifest:
    """Read the manifest at `uri`. Raises `ObjectMissing`."""
    return ArrowManifest.model_validate_json(store.get(uri))


def _write_by_driver(
    frame: DataFrame, prefix: str, *, schema: pa.Schema, stores: StoreFactory, file_bytes: int
) -> tuple[list[ArrowFile], DataFrame] | None:
    """Write with the driver, and return the files and the executed frame; None if there are too many rows for it."""
    # One row more than the driver writes shows that there are too many, without a Spark action that counts them.
    bounded = frame.limit(DRIVER_ROWS + 1)
    table = bounded.toArrow()
    if table.num_rows > DRIVER_ROWS:
        return None
    files = write_files(table.to_batches(), prefix=prefix, schema=schema, store=stores(), limit=file_bytes)
    return list(files), bounded


def _write_by_executors(
    frame: DataFrame, prefix: str, *, schema: pa.Schema, stores: StoreFactory, file_bytes: int
) -> tuple[list[ArrowFile], DataFrame]:
    """Write with the executors, and return the files and the executed frame."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _cached_store(stores)
        for file in write_files(batches, prefix=prefix, schema=schema, store=store, limit=file_bytes):
            yield pa.RecordBatch.from_pylist([file.model_dump()])

    written = _map_in_arrow(frame, write, _FILE_COLUMNS)
    with temporary_settings(frame.sparkSession, _BATCH_SETTINGS):
        files = [ArrowFile(**row.asDict()) for row in written.collect()]
    # Tasks end in any order; the order in the manifest does not depend on it.
    return sorted(files, key=lambda file: file.uri), written


def _frame_of(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """Return the batches as a frame on the driver."""
    table = pa.Table.from_batches(batches) if batches else schema.empty_table()
    return spark.createDataFrame(table, schema=spark_schema_of(schema))


def _read_by_executors(
    spark: SparkSession,
    files: Sequence[ArrowFile],
    *,
    schema: pa.Schema,
    stores: StoreFactory,
    columns: Sequence[str] | None,
) -> DataFrame:
    """Return a frame for which each task reads one file."""

    def read(indexes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _cached_store(stores)
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                yield from read_batches(files[index], store=store, columns=columns)

    return _map_in_arrow(spark.range(0, len(files), 1, len(files)), read, spark_schema_of(schema))


def _map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Apply a Python function to the frame's Arrow batches in the executors; `schema` is that of the result."""
    # `DataFrame.mapInArrow` does the same, but requires pandas, which it does not use: 105 MB of the job's archive.
    mapped = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    inner: Any = frame
    column: Any = mapped(*(frame[quoted(name)] for name in frame.columns))
    return DataFrame(inner._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


@lru_cache(maxsize=1)
def _cached_store(stores: StoreFactory) -> ObjectStore:
    """Return the store of this worker process, which runs many tasks."""
    return stores()


def _observed_counts(executed: DataFrame) -> tuple[StepCount, ...]:
    """Return the numbers of rows that `observe_rows` counted, after Spark has computed the frame.

    A step that Spark did not have to compute is missing.
    """
    inner: Any = executed
    metrics = inner._jdf.queryExecution().observedMetrics()
    names = metrics.keysIterator()
    counts = []
    while names.hasNext():
        name = names.next()
        counts.append(StepCount(step=name, rows_out=metrics.apply(name).getLong(0)))
    return tuple(counts)
