"""Arrow IPC files in an object store: written in files of bounded size, and verified when they are read.

This code runs in Spark's Python workers, and in the driver for small frames. It does not need pyspark.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from uuid import uuid4

import pyarrow as pa

from slackwater.arrow.reference import ArrowFile
from slackwater.errors import CloudError
from slackwater.storage import ObjectStore

# A file ends after the batch that makes it larger than this. Each task of an executor holds one file in memory.
FILE_BYTES = 128 * 1024 * 1024


def write_files(
    batches: Iterable[pa.RecordBatch], *, prefix: str, schema: pa.Schema, store: ObjectStore, limit: int = FILE_BYTES
) -> Iterator[ArrowFile]:
    """Write the rows of `batches` under `prefix`, and yield each file after it is stored; no file without rows.

    A file ends after the batch that makes it larger than `limit` bytes. File names are unique: the files of a task that
    failed, or that Spark ran twice, are files that no manifest names.
    """
    rows = 0
    sink, writer = _open_writer(schema)
    for batch in batches:
        if batch.num_rows == 0:
            continue
        # Spark's batches may declare other details than the schema, such as which columns are never null.
        writer.write_batch(batch.cast(schema))
        rows += batch.num_rows
        if sink.tell() > limit:
            yield _store_file(sink, writer, rows=rows, prefix=prefix, store=store)
            rows = 0
            sink, writer = _open_writer(schema)
    if rows:
        yield _store_file(sink, writer, rows=rows, prefix=prefix, store=store)


def write_empty(*, prefix: str, schema: pa.Schema, store: ObjectStore) -> ArrowFile:
    """Write a file with the schema and no rows, so that any Arrow library can open a dataset without rows."""
    return _store_file(*_open_writer(schema), rows=0, prefix=prefix, store=store)


def read_batches(
    file: ArrowFile, *, store: ObjectStore, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file; with `columns`, only these columns, in this order.

    Raises `ObjectMissing` if the file is missing, and `CloudError` if its content differs from the manifest.
    """
    body = store.get(file.uri)
    if hashlib.sha256(body).hexdigest() != file.sha256:
        raise CloudError(
            f"{file.uri} differs from its manifest: it has another SHA-256 ({len(body)} bytes, expected {file.bytes})"
        )
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            yield batch if columns is None else batch.select(list(columns))


def _open_writer(schema: pa.Schema) -> tuple[io.BytesIO, pa.RecordBatchFileWriter]:
    """Return a buffer, and a writer of the Arrow IPC file format that writes to it."""
    sink = io.BytesIO()
    return sink, pa.ipc.new_file(sink, schema)


def _store_file(
    sink: io.BytesIO, writer: pa.RecordBatchFileWriter, *, rows: int, prefix: str, store: ObjectStore
) -> ArrowFile:
    """Close the writer, store the file under a new name, and return its entry of the manifest."""
    writer.close()
    body = sink.getvalue()
    uri = f"{prefix}{uuid4().hex}.arrow"
    store.put(uri, body)
    return ArrowFile(uri=uri, rows=rows, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
