"""Parses a Parquet file, whose columns have their own types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from slackwater.errors import DataError
from slackwater.receiver.formats.blocks import MAX_RECORD_BYTES, ParsedRows, check_columns, rows_as_json
from slackwater.sources.definition import Source

# Decoded bytes, values and rows of a batch: they bound the memory for any file.
_BATCH_BYTES, _BATCH_VALUES, _BATCH_ROWS = 8 * 2**20, 2**18, 2**14
# Rows that are read to get a dictionary.
_FEW_ROWS = 64
# With `pre_buffer`, Arrow would hold whole row groups in memory; with `buffer_size`, it reads them in parts.
_IN_PARTS: Mapping[str, Any] = {"pre_buffer": False, "buffer_size": 2**20}
# Bytes of a decoded value, by Parquet's type.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


def parse_parquet(path: Path, source: Source, *, name: str) -> Iterator[ParsedRows]:
    """Parse a Parquet file, batch by batch. `name` is the name of the file in errors.

    Raises `DataError` when the file is not Parquet, lacks a required column, or has a row of more than
    `MAX_RECORD_BYTES`.
    """
    with open_parquet(path, name) as file:
        check_columns(file.schema_arrow.names, source, name=name, part="schema")
        for table in read_batches(file, path, name):
            yield ParsedRows(table, partial(_locate, table), columns=table.column_names)


def _locate(table: pa.Table, indexes: pa.ChunkedArray) -> tuple[pa.Array, None]:
    return pa.array(rows_as_json(table, indexes.to_pylist()), pa.string()), None


def open_parquet(path: Path, name: str) -> pq.ParquetFile:
    """Open a Parquet file. Raises `DataError` when it is not Parquet."""
    with _translated_errors(name):
        # As nanoseconds, INT96 timestamps outside the years 1677 to 2262 would overflow without an error.
        return pq.ParquetFile(path, **_IN_PARTS, coerce_int96_timestamp_unit="us")


def read_batches(file: pq.ParquetFile, path: Path, name: str) -> Iterator[pa.Table]:
    """Yield the file's rows in tables of about `_BATCH_BYTES`, with types that compute functions support.

    Raises `DataError` when one row has more than `MAX_RECORD_BYTES`.
    """
    with _translated_errors(name):
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_rows(file, path, group), row_groups=[group]):
                table = pa.table([simplify(column) for column in batch.columns], names=batch.schema.names)
                for part in _halves(table):
                    if part.nbytes > MAX_RECORD_BYTES:
                        raise DataError(f"{name}: a row has more than {MAX_RECORD_BYTES:,} bytes: send smaller values")
                    yield part


def batch_rows(file: pq.ParquetFile, path: Path, group: int) -> int:
    """Return how many rows of a row group are decoded together.

    A file has a repeated value once, in a dictionary, but decoding repeats it in each row. So the rows are counted as
    if each had the longest value of the dictionary.
    """
    metadata = file.metadata.row_group(group)
    rows: int = max(metadata.num_rows, 1)
    values: int = 0
    decoded: int = 0
    for index in range(metadata.num_columns):
        chunk, column = metadata.column(index), file.schema.column(index)
        values += chunk.num_values
        width = _WIDTHS.get(chunk.physical_type, column.length)
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page:
            # No value is longer than all values of the dictionary, so most dictionaries need not be read.
            width = chunk.total_uncompressed_size
            if width * min(_BATCH_ROWS, rows) > _BATCH_BYTES:
                width = longest_in_dictionary(path, group, chunk.path_in_schema, file.metadata)
        decoded += max(chunk.total_uncompressed_size, chunk.num_values * width)
    return max(1, min(_BATCH_ROWS, _BATCH_VALUES * rows // max(values, 1), _BATCH_BYTES * rows // max(decoded, 1)))


def longest_in_dictionary(path: Path, group: int, column: str, metadata: pq.FileMetaData) -> int:
    """Return the bytes of the longest value in the dictionary of a column of strings in a row group."""
    with pq.ParquetFile(path, **_IN_PARTS, metadata=metadata, read_dictionary=[column]) as file:
        # Arrow reads the dictionary, as a whole, with the first value: that of a later row if lists are empty.
        for batch in file.iter_batches(_FEW_ROWS, row_groups=[group], columns=[column]):
            array = batch.column(0)
            while types.is_nested(array.type):  # with one leaf, because the other columns are not read
                array = array.field(0) if types.is_struct(array.type) else array.values
            if len(array.dictionary):
                longest: int = pc.max(pc.binary_length(array.dictionary)).as_py()
                return longest
    return 0


def _halves(table: pa.Table) -> Iterator[pa.Table]:
    """Split a table of rows that are longer than the average of their row group."""
    if table.num_rows <= 1 or table.nbytes <= 2 * _BATCH_BYTES:
        yield table
    else:
        middle = table.num_rows // 2
        yield from _halves(table.slice(0, middle))
        yield from _halves(table.slice(middle))


def simplify(column: pa.Array) -> pa.Array:
    """Convert a column to a type that Arrow's compute functions support; UUIDs become strings."""
    if types.is_dictionary(column.type):  # each slice would count, and be read, with the whole dictionary
        column = column.dictionary_decode()
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        column = column.storage
    target = simple_type(column.type)
    return column if column.type == target else column.cast(target, safe=False)


def simple_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to which `simplify` converts: plain strings and bytes instead of views and fixed sizes."""
    if types.is_string_view(data_type):
        return pa.string()
    if types.is_binary_view(data_type) or types.is_fixed_size_binary(data_type):
        return pa.binary()
    if types.is_struct(data_type):
        return pa.struct([_simple_nested_field(field) for field in data_type])
    if types.is_map(data_type):
        return pa.map_(_simple_nested_field(data_type.key_field), _simple_nested_field(data_type.item_field))
    if types.is_fixed_size_list(data_type):
        return pa.list_(_simple_nested_field(data_type.value_field), data_type.list_size)
    return pa.list_(_simple_nested_field(data_type.value_field)) if types.is_nested(data_type) else data_type


def _simple_nested_field(field: pa.Field) -> pa.Field:
    """Return a field of a nested column with a type that converts to Python values.

    Python has no nanoseconds, and timezones other than UTC need a timezone database, which Lambda's image lacks.
    """
    data_type = field.type
    if types.is_timestamp(data_type):
        return field.with_type(pa.timestamp("us", "UTC" if data_type.tz else None))
    if types.is_time64(data_type):
        return field.with_type(pa.time64("us"))
    return field.with_type(pa.duration("us") if types.is_duration(data_type) else simple_type(data_type))


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{name}: not readable as Parquet: {error}: send it again, or set `format` to its format"
        ) from error
