"""Reads and checks a Parquet file, whose columns have their own types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from slackwater.errors import DataError
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_table
from slackwater.receiver.parsing.formats.tables import check_columns, rows_as_json
from slackwater.sources.definition import Source

# Approximate uncompressed bytes of a batch, and its largest number of rows: they bound the memory for any file.
_BATCH_BYTES = 8 * 2**20
_BATCH_ROWS = 2**16


def read_parquet(path: Path, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a Parquet file, batch by batch. `name` is the name of the file in errors.

    Raises `DataError` when the file is not Parquet, or lacks a required column.
    """
    with _translated_errors(name):
        # As nanoseconds, INT96 timestamps outside the years 1677 to 2262 would overflow without an error. With
        # `pre_buffer`, Arrow would hold whole row groups in memory; with `buffer_size`, it reads them in parts.
        opened = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20, coerce_int96_timestamp_unit="us")
    with opened as file:
        check_columns(file.schema_arrow.names, source, name=name, part="schema")
        first_index = 0
        for table in read_batches(file, name):
            checked = check_table(table, source, received_at=received_at)
            texts = rows_as_json(table, [event.index for event in checked.rejected])
            rejected = [
                replace(event, index=first_index + event.index, text=text)
                for event, text in zip(checked.rejected, texts, strict=True)
            ]
            yield CheckedEvents(checked.table, rejected)
            first_index += table.num_rows


def read_batches(file: pq.ParquetFile, name: str) -> Iterator[pa.Table]:
    """Yield the file's rows in tables of about `_BATCH_BYTES`, with types that compute functions support."""
    metadata = file.metadata
    file_bytes = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(file_bytes, 1)))
    with _translated_errors(name):
        for batch in file.iter_batches(rows):
            yield pa.table([simplify(column) for column in batch.columns], names=batch.schema.names)


def simplify(column: pa.Array) -> pa.Array:
    """Convert a column to a type that Arrow's compute functions support; UUIDs become strings."""
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        column = column.storage
    target = simple_type(column.type)
    return column if column.type == target else column.cast(target, safe=False)


def simple_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to which `simplify` converts: views and bytes of a fixed size become plain strings and bytes."""
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
