"""Messages of Arrow IPC: the schema of a manifest, where each column lies in a record batch, and decoding some columns.

PyArrow decodes columns of a batch only from a file that it reads itself, one buffer after the other. A store that is
asked for byte ranges needs them all at once, and a checksum needs the bytes as they are stored. This module reads the
flatbuffer before the body of a batch: https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

# Field numbers of the tables Message and RecordBatch in Arrow's Message.fbs.
_MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _BATCH_BUFFERS = 2, 3, 2
_PREFIX = struct.Struct("<Ii")
"""Before each message: a marker, and the length of its metadata."""
_ALIGNMENT = 8
_VARIABLE_LENGTH = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_END_OF_STREAM = _PREFIX.pack(0xFFFFFFFF, 0)


def encode_schema(schema: pa.Schema) -> str:
    """Return the serialised schema message in base64, as `ArrowManifest.arrow_schema` stores it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode_schema(encoded: str) -> pa.Schema:
    """Return the schema that `encode_schema` has encoded."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))


def metadata_length(prefix: bytes | memoryview) -> int:
    """Return the length of a message's metadata with its prefix of 8 bytes, given at least the prefix."""
    return _PREFIX.size + int(_PREFIX.unpack_from(prefix)[1])


def buffer_counts(schema: pa.Schema) -> list[int]:
    """Return how many buffers each column has in a record batch."""
    return [_buffers_of(field.type) for field in schema]


def column_bounds(metadata: bytes | memoryview, counts: Sequence[int]) -> list[int]:
    """Return where each column begins in the body of a batch, and the end of the last one.

    `metadata` is the batch's metadata with its prefix, `counts` come from `buffer_counts`. The buffers of a column are
    adjacent, so a column ends where the next one begins.
    """
    vector, _ = _buffers_and_length(metadata)
    starts = vector[::2]
    end = vector[-2] + vector[-1] if vector else 0
    # A writer pads each buffer, the last one too.
    end += -end % _ALIGNMENT
    return [starts[first] if first < len(starts) else end for first in accumulate(counts, initial=0)]


def decode_columns(
    schema: pa.Schema,
    batches: Iterable[tuple[memoryview, Sequence[memoryview]]],
    columns: Sequence[int],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with these columns, in ascending order, from their metadata and the bytes of the columns."""
    counts = buffer_counts(schema)
    stream = [schema.serialize().to_pybytes()]
    for metadata, contents in batches:
        stream += [_moved(metadata, counts, columns), *contents]
    stream.append(_END_OF_STREAM)
    options = pa.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
    with pa.ipc.open_stream(pa.py_buffer(b"".join(stream)), options=options) as reader:
        yield from reader


def _moved(metadata: bytes | memoryview, counts: Sequence[int], columns: Sequence[int]) -> bytes:
    """Return the metadata for a body that has only these columns, one after the other.

    The buffers of the other columns become empty.
    """
    bounds = column_bounds(metadata, counts)
    vector, (at, length_at) = _buffers_and_length(metadata)
    result, position = bytearray(metadata), 0
    firsts = list(accumulate(counts, initial=0))
    placed = [0] * len(vector)
    for column in columns:
        shift = position - bounds[column]
        for index in range(firsts[column], firsts[column + 1]):
            placed[2 * index : 2 * index + 2] = vector[2 * index] + shift, vector[2 * index + 1]
        position += bounds[column + 1] - bounds[column]
    struct.pack_into(f"<{len(placed)}q", result, at, *placed)
    if length_at is not None:
        struct.pack_into("<q", result, length_at, position)
    return bytes(result)


def _buffers_and_length(metadata: bytes | memoryview) -> tuple[tuple[int, ...], tuple[int, int | None]]:
    """Return offset and length of each buffer in one tuple, and the positions of this vector and of the body's length.

    A body of length 0 may have no length in the metadata.
    """
    message = _target(metadata, _PREFIX.size)
    header = _field(metadata, message, _MESSAGE_HEADER)
    batch = _target(metadata, header) if header is not None else None
    buffers = _field(metadata, batch, _BATCH_BUFFERS) if batch is not None else None
    if buffers is None:
        raise ValueError("not the metadata of a record batch")
    vector = _target(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, vector)
    values = struct.unpack_from(f"<{2 * count}q", metadata, vector + 4)
    return values, (vector + 4, _field(metadata, message, _MESSAGE_BODY_LENGTH))


def _target(data: bytes | memoryview, position: int) -> int:
    """Return what the offset at a position points to."""
    return position + int(struct.unpack_from("<I", data, position)[0])


def _field(data: bytes | memoryview, table: int, number: int) -> int | None:
    """Return the position of a table's field, or None if the field has its default value."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0])
    return table + offset if offset else None


def _buffers_of(type_: pa.DataType) -> int:
    """Return how many buffers an array of this type has: those of Spark's types, without dictionaries and views."""
    if pa.types.is_null(type_):
        return 0
    if pa.types.is_struct(type_):
        own = 1
    elif any(is_variable(type_) for is_variable in _VARIABLE_LENGTH):
        own = 3
    else:
        own = 2
    return own + sum(_buffers_of(type_.field(index).type) for index in range(type_.num_fields))
