"""A Parquet file read into checked rows: its columns are of types of their own."""

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
from slackwater.receiver.parsing.formats.tables import expect_usable, rows_as_json
from slackwater.sources.definition import Source

_BATCH = 8 * 2**20
"""Bytes of a batch, about."""
_ROWS = 2**16
"""Rows of a batch at most."""
_UUID = "arrow.uuid"


def read_parquet(path: Path, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a file, batch by batch; `name` is what errors call it.

    Raises `DataError` for a file that is no Parquet, and for one without a column that every event needs.
    """
    with _readable(name):
        # In microseconds, moments of all years fit: nanoseconds would wrap around without a word.
        opened = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20, coerce_int96_timestamp_unit="us")
    with opened as file:
        expect_usable(file.schema_arrow.names, source, name=name, what="schema")
        index = 0
        for table in _tables(file, name):
            checked = check_table(table, source, received_at=received_at)
            texts = rows_as_json(table, [item.index for item in checked.rejected])
            rejected = [
                replace(item, index=index + item.index, text=text)
                for item, text in zip(checked.rejected, texts, strict=True)
            ]
            yield CheckedEvents(checked.table, rejected)
            index += table.num_rows


def _tables(file: pq.ParquetFile, name: str) -> Iterator[pa.Table]:
    with _readable(name):
        for batch in file.iter_batches(_rows_at_once(file.metadata)):
            columns = [_plain(column) for column in batch.columns]
            yield pa.table(columns, names=batch.schema.names)


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    fitting: int = _BATCH * metadata.num_rows // max(size, 1)
    return max(1, min(_ROWS, fitting))


def _plain(column: pa.Array) -> pa.Array:
    """Return a column by a type that Arrow's functions know; a UUID is its text."""
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == _UUID:
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        column = column.storage
    wanted = _plain_type(column.type)
    return column if column.type == wanted else column.cast(wanted, safe=False)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    return _plain_nest(kind) if types.is_nested(kind) else kind


def _plain_nest(kind: pa.DataType) -> pa.DataType:
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return pa.list_(_plain_field(kind.value_field))


def _plain_field(field: pa.Field) -> pa.Field:
    """Return a field of a nested column: one becomes Python's values, which have no zone's name and no nanoseconds."""
    kind = field.type
    if types.is_timestamp(kind):
        return field.with_type(pa.timestamp("us", "UTC" if kind.tz else None))
    if types.is_time64(kind):
        return field.with_type(pa.time64("us"))
    return field.with_type(pa.duration("us") if types.is_duration(kind) else _plain_type(kind))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: not readable as Parquet: {error}: send it again, or name its format") from error
