"""What formats with columns have in common: which columns a file must have, and how a row of them is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from slackwater.errors import DataError
from slackwater.receiver.parsing.arrow_to_python import python_values
from slackwater.receiver.parsing.columns import is_text
from slackwater.receiver.parsing.derived_columns import as_texts
from slackwater.sources.definition import Source


def expect_usable(columns: Sequence[str], source: Source, *, name: str, what: str) -> None:
    """Raise `DataError` for two columns of one name, and where one is missing that every event needs.

    `name` is what errors call the file, and `what` where its columns are named: its header.
    """
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise DataError(f"{name}: two columns of one name: {', '.join(twice)}")
    missing = sorted({source.fields[field].origin or field for field in source.needed} - set(columns))
    if missing:
        raise DataError(f"{name}: its {what} lacks {', '.join(missing)} (it has: {', '.join(columns)})")


def rows_as_json(table: pa.Table, places: Sequence[int]) -> list[str]:
    """Return those rows of typed columns, each as a JSON object."""
    found = table.take(pa.array(places, pa.int64()))
    columns = [_shown(column.combine_chunks()) for column in found.columns]
    return [as_json(dict(zip(found.column_names, row, strict=True))) for row in zip(*columns, strict=True)]


def as_json(row: Mapping[str, object]) -> str:
    """Return a row's values by the columns' names; what JSON does not have is shown as text."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str)


def _shown(array: pa.Array) -> list[object]:
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        raw = array.cast(pa.large_binary()).to_pylist()
        return [text if text is None else text.decode(errors="backslashreplace") for text in raw]
    if types.is_temporal(array.type) or types.is_decimal(array.type):
        array = as_texts(array)
    values, unreadable = python_values(array)
    for place in unreadable:
        values[place] = array.slice(place, 1).to_string(skip_new_lines=True)
    return values
