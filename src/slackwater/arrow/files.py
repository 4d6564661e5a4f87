"""Arrow IPC files in an object store: written in files of bounded size, and verified when they are read.

This code runs in Spark's Python workers, and in the driver for small frames. It does not need pyspark.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pyarrow as pa
import xxhash

from slackwater.arrow.messages import buffer_counts, column_bounds, decode_columns, metadata_length
from slackwater.arrow.reference import ArrowBatch, ArrowFile, Codec
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.storage import ObjectStore

# A file ends after the batch that makes it larger than this. Each task of an executor holds one file in memory.
FILE_BYTES = 128 * 1024 * 1024

# Ranges with a gap of at most this size are read by one request, up to this size of a request.
_GAP_BYTES = 64 * 1024
_REQUEST_BYTES = 16 * 1024 * 1024
_REQUESTS_AT_ONCE = 8

# "ARROW1" and two bytes of padding, before the schema.
_MAGIC_BYTES = 8

Range = tuple[int, int]
"""Start and end of bytes in a file."""


def write_files(
    batches: Iterable[pa.RecordBatch],
    *,
    prefix: str,
    schema: pa.Schema,
    store: ObjectStore,
    limit: int = FILE_BYTES,
    codec: Codec | None = None,
) -> Iterator[ArrowFile]:
    """Write the rows of `batches` under `prefix`, and yield each file after it is stored; no file without rows.

    A file ends after the batch that makes it larger than `limit` bytes. File names are unique: the files of a task that
    failed, or that Spark ran twice, are files that no manifest names.
    """
    file = _FileWriter(schema, codec)
    for batch in batches:
        if batch.num_rows == 0:
            continue
        file.append(batch)
        if file.size > limit:
            yield file.store(prefix, store)
            file = _FileWriter(schema, codec)
    if file.rows:
        yield file.store(prefix, store)


def write_empty(*, prefix: str, schema: pa.Schema, store: ObjectStore) -> ArrowFile:
    """Write a file with the schema and no rows, so that any Arrow library can open a dataset without rows."""
    return _FileWriter(schema, None).store(prefix, store)


def read_batches(
    file: ArrowFile,
    *,
    schema: pa.Schema,
    store: ObjectStore,
    columns: Sequence[str] | None = None,
    whole_bytes: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file with this schema; with `columns`, only these columns, in the order of the schema.

    Only the bytes of these columns are read, unless the file has at most `whole_bytes`. Raises `ObjectMissing` if the
    file is missing, and `ObjectInvalid` if the content that was read differs from the manifest.
    """
    indexes = range(len(schema)) if columns is None else sorted({schema.get_field_index(name) for name in columns})
    try:
        if columns is not None and len(indexes) < len(schema) and file.bytes > whole_bytes:
            yield from _read_columns(file, schema, list(indexes), store)
            return
        body = store.get(file.uri)
    except ObjectMissing as error:
        raise ObjectMissing(
            f"{file.uri} does not exist: it was removed by retention (setting intermediate_days), or deleted "
            "(run the day again with --force to write it again)"
        ) from error
    _verify(file, "it", body, expected=file.checksum)
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            yield batch if columns is None else batch.select(list(indexes))


class _FileWriter:
    """One file while it is written, in memory."""

    def __init__(self, schema: pa.Schema, codec: Codec | None) -> None:
        self._schema = schema
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_file(self._sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec))
        self.rows = 0
        """Rows that are written."""
        self._ends: list[int] = []
        """Where each batch ends."""

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return self._sink.tell()

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch. Its fields may declare other details than the schema, such as which are never null."""
        if batch.schema.types == self._schema.types:
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        else:
            batch = batch.cast(self._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self._ends.append(self.size)

    def store(self, prefix: str, store: ObjectStore) -> ArrowFile:
        """Finish the file, store it under a new name, and return its entry of the manifest."""
        self._writer.close()
        body = self._sink.getvalue()
        uri = f"{prefix}{uuid4().hex}.arrow"
        store.put(uri, body)
        content = memoryview(body)
        batches = list(self._batches(content))
        metadata = [content[batch.offset :][: batch.metadata_bytes] for batch in batches]
        counts = buffer_counts(self._schema)
        columns = [xxhash.xxh3_64() for _ in counts]
        for batch, message in zip(batches, metadata, strict=True):
            bounds, start = column_bounds(message, counts), batch.offset + batch.metadata_bytes
            for index, column in enumerate(columns):
                column.update(content[start + bounds[index] : start + bounds[index + 1]])
        return ArrowFile(
            uri=uri,
            rows=self.rows,
            bytes=len(body),
            checksum=xxhash.xxh3_64_hexdigest(body),
            batches=tuple(batches),
            metadata_checksum=_checksum(metadata),
            column_checksums=tuple(column.hexdigest() for column in columns),
        )

    def _batches(self, content: memoryview) -> Iterator[ArrowBatch]:
        # The schema is the first message. It has no body.
        start = _MAGIC_BYTES + metadata_length(content[_MAGIC_BYTES:])
        for end in self._ends:
            metadata_bytes = metadata_length(content[start:])
            yield ArrowBatch(start, metadata_bytes, end - start - metadata_bytes)
            start = end


def _read_columns(
    file: ArrowFile, schema: pa.Schema, columns: Sequence[int], store: ObjectStore
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with these columns, in ascending order, of which the bytes alone are read."""
    metadata = _read_ranges(
        file, [(batch.offset, batch.offset + batch.metadata_bytes) for batch in file.batches], store
    )
    _verify(file, "the metadata of its batches", *metadata, expected=file.metadata_checksum)
    counts = buffer_counts(schema)
    ranges: list[Range] = []
    for batch, message in zip(file.batches, metadata, strict=True):
        bounds, start = column_bounds(message, counts), batch.offset + batch.metadata_bytes
        ranges += [(start + bounds[index], start + bounds[index + 1]) for index in columns]
    contents = _read_ranges(file, ranges, store)
    for position, index in enumerate(columns):
        name, expected = schema.field(index).name, file.column_checksums[index]
        _verify(file, f"column {name!r}", *contents[position :: len(columns)], expected=expected)
    batches = [contents[start : start + len(columns)] for start in range(0, len(contents), len(columns))]
    yield from decode_columns(schema, zip(metadata, batches, strict=True), columns)


def _read_ranges(file: ArrowFile, ranges: Sequence[Range], store: ObjectStore) -> list[memoryview]:
    """Return the bytes of each range, which are in ascending order. Ranges near each other are read by one request."""
    requests: list[Range] = []
    request_of = []
    for start, end in ranges:
        if requests and start - requests[-1][1] <= _GAP_BYTES and end - requests[-1][0] <= _REQUEST_BYTES:
            requests[-1] = (requests[-1][0], max(end, requests[-1][1]))
        else:
            requests.append((start, end))
        request_of.append(len(requests) - 1)

    def read(request: Range) -> memoryview:
        start, end = request
        return memoryview(store.get_range(file.uri, start, end - start) if end > start else b"")

    if len(requests) == 1:
        contents = [read(requests[0])]
    else:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            contents = list(pool.map(read, requests))
    return [
        contents[request][start - requests[request][0] : end - requests[request][0]]
        for request, (start, end) in zip(request_of, ranges, strict=True)
    ]


def _verify(file: ArrowFile, part: str, *content: bytes | memoryview, expected: str) -> None:
    """Raise `ObjectInvalid` if the content of a part of the file has another checksum than the manifest says."""
    if _checksum(content) != expected:
        raise ObjectInvalid(f"{file.uri} differs from its manifest: {part} has another checksum: run the day again")


def _checksum(parts: Iterable[bytes | memoryview]) -> str:
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
