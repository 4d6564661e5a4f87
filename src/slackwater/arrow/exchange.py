"""Writing a frame as an Arrow dataset, and reading one back: `write_frame`, `read_frame`.

Frames of a day's size go through the driver: starting Python workers takes longer than all else about them. Large
ones are written and read by the executors, one file per partition at least, and only their addresses reach the
driver. Both ways leave the same files and the same manifest.
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
from slackwater.arrow.reference import ArrowFile, ArrowManifest, ArrowReference, StepCount
from slackwater.arrow.schema import arrow_schema_of, decode_schema, encode_schema, spark_schema_of
from slackwater.arrow.session import settings
from slackwater.storage import ObjectStore

StoreFactory = Callable[[], ObjectStore]
"""Makes the store in whichever process needs it: what it holds open cannot be sent to Spark's workers, it can."""

DRIVER_BYTES = 32 * 1024 * 1024
"""Datasets of at most so many bytes are read through the driver, and results of inputs of at most so many written."""

DRIVER_ROWS = 50_000
"""Rows of a result that the driver takes; a small input may still grow on its way."""

_FILES = "uri string not null, rows long not null, bytes long not null, sha256 string not null"
_ROWS = "rows"
_BATCHES = {
    # Below this very number Spark 4.0 asks for a batch's size after each row: 13 times slower (docs/decisions/0002).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}


def counted(frame: DataFrame, step: str) -> DataFrame:
    """Return `frame`, its rows being counted as they pass, without another Spark action."""
    return frame.observe(step, sf.count(sf.lit(1)).alias(_ROWS))


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
    """Write `frame` as Arrow IPC files under `prefix` and return the manifest, which is not written yet.

    `input_bytes` is the size of all that the frame is made from. The manifest's `steps` hold what `counted` saw.
    Files of tasks that failed or ran twice may lie under `prefix`: the manifest does not name them.
    Raises `DefinitionError` for a column that Arrow cannot carry.
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
        steps=_counts(executed),
        earlier=tuple(earlier),
    )


def read_frame(
    spark: SparkSession, manifest: ArrowManifest, *, stores: StoreFactory, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return the rows of exactly the manifest's files, of `columns` alone if they are named, in that order.

    A file that is gone or is not what the manifest says fails the frame with an error that names it: now for a small
    dataset, when the frame is computed for a large one. Raises `KeyError` for a column that is not there.
    """
    schema = decode_schema(manifest.arrow_schema)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    if manifest.bytes <= DRIVER_BYTES:
        return _read_by_driver(spark, manifest.files, schema=schema, stores=stores, columns=columns)
    return _read_by_executors(spark, manifest.files, schema=schema, stores=stores, columns=columns)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame without rows; of an empty list Spark would make one by starting Python workers."""
    return _frame_of(spark, [], arrow_schema_of(schema))


def store_dataset(manifest: ArrowManifest, prefix: str, *, store: ObjectStore, seconds: float) -> ArrowReference:
    """Write `<prefix>manifest.json` and then `<prefix>reference.json`, each by one PUT, and return the reference."""
    address = f"{prefix}manifest.json"
    store.put(address, manifest.model_dump_json().encode())
    reference = ArrowReference(
        manifest=address, rows=manifest.rows, bytes=manifest.bytes, files=len(manifest.files), seconds=round(seconds, 3)
    )
    store.put(f"{prefix}reference.json", reference.model_dump_json().encode())
    return reference


def load_manifest(uri: str, *, store: ObjectStore) -> ArrowManifest:
    """Read the manifest at `uri`. Raises `ObjectMissing`."""
    return ArrowManifest.model_validate_json(store.get(uri))


def _write_by_driver(
    frame: DataFrame, prefix: str, *, schema: pa.Schema, stores: StoreFactory, file_bytes: int
) -> tuple[list[ArrowFile], DataFrame] | None:
    """Write through the driver, unless there are too many rows for it."""
    bounded = frame.limit(DRIVER_ROWS + 1)
    table = bounded.toArrow()
    if table.num_rows > DRIVER_ROWS:
        return None
    files = write_files(table.to_batches(), prefix=prefix, schema=schema, store=stores(), limit=file_bytes)
    return list(files), bounded


def _write_by_executors(
    frame: DataFrame, prefix: str, *, schema: pa.Schema, stores: StoreFactory, file_bytes: int
) -> tuple[list[ArrowFile], DataFrame]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _store_of(stores)
        for file in write_files(batches, prefix=prefix, schema=schema, store=store, limit=file_bytes):
            yield pa.RecordBatch.from_pylist([file.model_dump()])

    written = _map_in_arrow(frame, write, _FILES)
    with settings(frame.sparkSession, _BATCHES):
        files = [ArrowFile(**row.asDict()) for row in written.collect()]
    return sorted(files, key=lambda file: file.uri), written


def _read_by_driver(
    spark: SparkSession,
    files: Sequence[ArrowFile],
    *,
    schema: pa.Schema,
    stores: StoreFactory,
    columns: Sequence[str] | None,
) -> DataFrame:
    store = stores()
    batches = [batch for file in files for batch in read_batches(file, store=store, columns=columns)]
    return _frame_of(spark, batches, schema)


def _frame_of(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    # PySpark 4.0 cannot make a frame of a table without chunks.
    table = pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])
    return spark.createDataFrame(table, schema=spark_schema_of(schema))


def _read_by_executors(
    spark: SparkSession,
    files: Sequence[ArrowFile],
    *,
    schema: pa.Schema,
    stores: StoreFactory,
    columns: Sequence[str] | None,
) -> DataFrame:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _store_of(stores)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_batches(files[number], store=store, columns=columns)

    return _map_in_arrow(spark.range(0, len(files), 1, len(files)), read, spark_schema_of(schema))


def _map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Do what `DataFrame.mapInArrow` does, which insists on pandas (105 MB of the job's archive) and never uses it."""
    mapped = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    inner: Any = frame
    column: Any = mapped(*(frame[quoted(name)] for name in frame.columns))
    return DataFrame(inner._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


@lru_cache(maxsize=1)
def _store_of(stores: StoreFactory) -> ObjectStore:
    """Make the store once per worker process rather than once per task."""
    return stores()


def _counts(executed: DataFrame) -> tuple[StepCount, ...]:
    """Return what the steps of a frame that has been computed saw pass; a step that Spark left out is not there."""
    inner: Any = executed
    observed = inner._jdf.queryExecution().observedMetrics()
    names = observed.keysIterator()
    counts = []
    while names.hasNext():
        name = names.next()
        counts.append(StepCount(step=name, rows_out=observed.apply(name).getLong(0)))
    return tuple(counts)
