"""Arrow IPC files in an object store: written in pieces of bounded size, read back only when they are whole.

This is the part that runs in Spark's Python workers, and in the driver for small frames; it knows nothing of Spark.
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

FILE_BYTES = 128 * 1024 * 1024
"""A file ends after the batch that takes it past this: each task of an executor holds that much in memory."""


def write_files(
    batches: Iterable[pa.RecordBatch], *, prefix: str, schema: pa.Schema, store: ObjectStore, limit: int = FILE_BYTES
) -> Iterator[ArrowFile]:
    """Write the rows of `batches` under `prefix`, yielding each file once it is there; no rows, no file.

    File names are never used twice, so that a task that ran twice, or half, leaves nothing that a manifest names.
    """
    rows = 0
    sink, writer = _opened(schema)
    for batch in batches:
        if batch.num_rows == 0:
            continue
        writer.write_batch(batch.cast(schema))
        rows += batch.num_rows
        if sink.tell() > limit:
            yield _put(sink, writer, rows=rows, prefix=prefix, store=store)
            rows = 0
            sink, writer = _opened(schema)
    if rows:
        yield _put(sink, writer, rows=rows, prefix=prefix, store=store)


def write_empty(*, prefix: str, schema: pa.Schema, store: ObjectStore) -> ArrowFile:
    """Write a file that holds the schema alone, so that a dataset without rows can be opened by anyone."""
    return _put(*_opened(schema), rows=0, prefix=prefix, store=store)


def read_batches(
    file: ArrowFile, *, store: ObjectStore, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read one file's batches, of `columns` alone if they are named, in that order.

    Raises `ObjectMissing` if it is gone, `CloudError` if it is not what the manifest says.
    """
    body = store.get(file.uri)
    if hashlib.sha256(body).hexdigest() != file.sha256:
        raise CloudError(
            f"{file.uri} is not what its manifest says: its SHA-256 differs ({len(body)} bytes of {file.bytes})"
        )
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            yield batch if columns is None else batch.select(list(columns))


def _opened(schema: pa.Schema) -> tuple[io.BytesIO, pa.RecordBatchFileWriter]:
    sink = io.BytesIO()
    return sink, pa.ipc.new_file(sink, schema)


def _put(
    sink: io.BytesIO, writer: pa.RecordBatchFileWriter, *, rows: int, prefix: str, store: ObjectStore
) -> ArrowFile:
    writer.close()
    body = sink.getvalue()
    uri = f"{prefix}{uuid4().hex}.arrow"
    store.put(uri, body)
    return ArrowFile(uri=uri, rows=rows, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
