"""Shared by the parsers of file formats: parsed rows, the check of a file's columns, and rejected rows as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from slackwater.errors import DataError
from slackwater.receiver.parsing.arrow_to_python import is_string_type, to_json_values
from slackwater.receiver.parsing.event_checks import NO_KNOWN_REJECTIONS
from slackwater.receiver.parsing.rejections import Rejection, list_names
from slackwater.sources.definition import Source

# Columns of a file, as in Excel: each needs memory in every block, whatever its values.
MAX_COLUMNS = 2**14


class ParsedRows(NamedTuple):
    """Some rows of a file that are parsed, and not checked yet. The position of a row is its index in `events`."""

    events: Sequence[object] | pa.Table
    """As in `check_events`."""
    locate: Callable[[pa.ChunkedArray], tuple[pa.Array, pa.Array | None]]
    """Returns the text and the line of each row at some positions, which are in order; None without lines."""
    rejections: Mapping[int, Rejection] = NO_KNOWN_REJECTIONS
    """As in `check_events`."""
    is_clean: bool = False
    """As in `check_events`."""


def check_columns(columns: Sequence[str], source: Source | None, *, name: str, part: str) -> None:
    """Raise `DataError` when there are too many columns, two have the same name, or a required one is missing.

    Without a source, no column is required. `name` is the name of the file in errors, and `part` its part that names
    the columns, such as "header".
    """
    if len(columns) > MAX_COLUMNS:
        raise DataError(f"{name}: its {part} has {len(columns):,} columns: send at most {MAX_COLUMNS:,}")
    duplicates = sorted(column for column, count in Counter(columns).items() if count > 1)
    if duplicates:
        raise DataError(f"{name}: two columns have the same name: {list_names(duplicates)}")
    required = {source.partner_name(field) for field in source.required_fields} if source else set()
    missing = sorted(required - set(columns))
    if missing:
        raise DataError(f"{name}: its {part} lacks {', '.join(missing)} (it has: {list_names(columns)})")


def rows_as_json(table: pa.Table, indices: Sequence[int]) -> list[str]:
    """Return the rows at `indices`, each as a JSON object. Bytes that are not UTF-8 are escaped with backslashes."""
    rows = table.take(pa.array(indices, pa.int64()))
    columns: list[list[object]] = []
    for chunked in rows.columns:
        array = chunked.combine_chunks()
        values, rejections = to_json_values(array)
        for index in rejections:
            values[index] = _show(array.slice(index, 1))
        columns.append(values)
    return [row_as_json(dict(zip(rows.column_names, row, strict=True))) for row in zip(*columns, strict=True)]


def row_as_json(row: Mapping[str, object]) -> str:
    """Return a row as a JSON object; values without a JSON type become strings."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str)


def _show(array: pa.Array) -> object:
    """Return the only value of an array as a string, for a value that has no Python type."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_string_type(array.type):
        return array.cast(pa.large_binary())[0].as_py().decode(errors="backslashreplace")
    return array.to_string(skip_new_lines=True)
