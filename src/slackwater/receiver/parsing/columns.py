"""Read the column of one field: as a whole column where possible, and the remaining values one by one.

`string_columns` and `typed_columns` are the fast paths for whole columns. `values.read_value` defines what is accepted,
and gives the reasons of nearly all rejections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.json_values import decode_strings, is_string_type
from slackwater.receiver.parsing.patterns import TIMESTAMP, WHITESPACE
from slackwater.receiver.parsing.rejections import (
    NO_REJECTIONS,
    REJECTIONS,
    InvalidValue,
    Rejection,
    RejectionRule,
    reject,
    rejections_table,
)
from slackwater.receiver.parsing.string_columns import are_local_times, read_alike_timestamps, read_string_column
from slackwater.receiver.parsing.timestamps import WITHOUT_OFFSET
from slackwater.receiver.parsing.timezones import LOCAL_TIMESTAMP
from slackwater.receiver.parsing.typed_columns import read_typed_column
from slackwater.receiver.parsing.values import Value, read_value
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import ISO, FieldDefinition, FieldType

_ARROW_TYPES_OF_JSON = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class Column(NamedTuple):
    """The values of one field."""

    array: pa.Array
    """Of the field's type; null where an event has no value or an invalid one."""
    rejections: pa.Table
    """Those of invalid values, with the columns of `REJECTIONS`, in any order. The reasons do not name the field."""


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Reads columns with the options of one source."""

    trim: bool
    null_values: tuple[str, ...]
    timezone: ZoneInfo | None
    """The timezone of timestamps without an offset."""
    is_clean: bool = False
    """Whether all strings are UTF-8, trimmed, and null instead of a null value already."""

    def read_values(self, values: Sequence[object], field: FieldDefinition) -> Column:
        """Read parsed JSON values; `None` where an event has no value."""
        data_type = _common_arrow_type(frozenset(map(type, values)) - {type(None)}, field)
        try:
            array = pa.array(values, data_type) if data_type else None
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            array = None  # An integer does not fit into 64 bits, or a string has half of a surrogate pair.
        return self._read_one_by_one(values, field) if array is None else self.read_array(array, field)

    def read_array(self, array: pa.Array, field: FieldDefinition) -> Column:
        """Read a column of any Arrow type; null where an event has no value."""
        if types.is_null(array.type):
            return Column(pa.nulls(len(array), ARROW_TYPES[field.type]), NO_REJECTIONS)
        if types.is_dictionary(array.type):
            return _expand_dictionary(self.read_array(array.dictionary, field), array.indices)
        if is_string_type(array.type):
            strings, invalid = (array, {}) if self.is_clean else decode_strings(array)
            not_utf8 = rejections_table(invalid)
            if field.type is FieldType.STRING:
                return Column(self._clean(strings), not_utf8)
            if (column := self._read_alike_timestamps(strings, field)) is not None:
                return Column(column.array, pa.concat_tables([column.rejections, not_utf8]))
            # Read each distinct string once: the values of a column repeat often.
            encoded = strings.dictionary_encode()
            distinct = self._clean(encoded.dictionary)
            column = self._read_remaining(read_string_column(distinct, field, self.timezone), distinct, field)
            column = _expand_dictionary(column, encoded.indices)
            return Column(column.array, pa.concat_tables([column.rejections, not_utf8]))
        if field.has_separators:  # Separators are for numbers in strings only.
            field = field.model_copy(update={"decimal": ".", "thousands": ""})
        typed = read_typed_column(array, field, self.timezone)
        column = self._read_remaining(typed.values, typed.originals, field)
        return Column(column.array, pa.concat_tables([column.rejections, rejections_table(typed.rejections)]))

    def _read_alike_timestamps(self, strings: pa.Array, field: FieldDefinition) -> Column | None:
        """Read timestamps that are all written alike; None if they are not, or if one may be a null value."""
        is_iso = field.type is FieldType.TIMESTAMP and (*field.formats, ISO)[0] == ISO
        if not is_iso or any(map(TIMESTAMP.match, self.null_values)):
            return None
        timestamps = read_alike_timestamps(strings)
        if timestamps is not None and timestamps.type == LOCAL_TIMESTAMP:
            return reject_local_times(strings) if self._rejects_local_times(field) else None
        return None if timestamps is None else Column(timestamps, NO_REJECTIONS)

    def _clean(self, strings: pa.Array) -> pa.Array:
        """Trim the strings if the source trims, and replace its null values with null."""
        if self.is_clean:
            return strings
        if self.trim:
            strings = pc.utf8_trim(strings, characters=WHITESPACE)
        is_null_value = pc.is_in(strings, value_set=pa.array(self.null_values, pa.string()))
        if not pc.any(is_null_value).as_py():
            return strings
        return pc.if_else(is_null_value, pa.scalar(None, pa.string()), strings)

    def _read_remaining(self, result: pa.Array, originals: pa.Array, field: FieldDefinition) -> Column:
        """Read the values that a fast path has left null in `result` one by one; `originals` are what to read."""
        remaining = pc.and_(originals.is_valid(), result.is_null())
        if not pc.any(remaining).as_py():
            return Column(result, NO_REJECTIONS)
        values = originals.filter(remaining)
        if self._rejects_local_times(field) and types.is_string(values.type) and are_local_times(values):
            column = reject_local_times(values)
        else:
            encoded = values.dictionary_encode()
            distinct = self._read_one_by_one(encoded.dictionary.to_pylist(), field)
            column = _expand_dictionary(distinct, encoded.indices)
        indices = pc.indices_nonzero(remaining).take(column.rejections["index"])
        return Column(
            pc.replace_with_mask(result, remaining, column.array),
            column.rejections.set_column(0, REJECTIONS.field("index"), indices.cast(pa.int64())),
        )

    def _rejects_local_times(self, field: FieldDefinition) -> bool:
        """Whether a timestamp needs an offset, because the source has no timezone for it."""
        return field.type is FieldType.TIMESTAMP and field.formats in {(), (ISO,)} and not self.timezone

    def _read_one_by_one(self, values: Iterable[object], field: FieldDefinition) -> Column:
        """Read each value with `read_value`, after trimming and replacing null values as `_clean` does."""
        results: list[Value | None] = []
        rejections: dict[int, Rejection] = {}
        # Each distinct string is read once.
        known: dict[str, Value] = {}
        for index, original in enumerate(values):
            results.append(None)
            value = original.strip(WHITESPACE) if self.trim and isinstance(original, str) else original
            if value is None or (isinstance(value, str) and value in self.null_values):
                continue
            try:
                if not isinstance(value, str):
                    results[index] = read_value(value, field, self.timezone)
                    continue
                if value not in known:
                    known[value] = read_value(value, field, self.timezone)
                results[index] = known[value]
            except InvalidValue as error:
                rejections[index] = Rejection(RejectionRule.WRONG_TYPE, str(error))
        if field.type is FieldType.TIMESTAMP:
            # `read_value` returns timestamps as integers.
            array = pa.array(results, pa.int64()).cast(ARROW_TYPES[field.type])
        else:
            array = pa.array(results, ARROW_TYPES[field.type])
        return Column(array, rejections_table(rejections))


def reject_local_times(strings: pa.Array) -> Column:
    """Reject a column of ISO 8601 timestamps because they have no offset.

    This is the one mistake that usually all rows of a file have, with a distinct value in each.
    """
    reasons = pc.binary_join_element_wise("'", strings.drop_null(), f"' {WITHOUT_OFFSET}", "")
    rejections = reject(pc.indices_nonzero(strings.is_valid()), reasons, RejectionRule.WRONG_TYPE)
    return Column(pa.nulls(len(strings), ARROW_TYPES[FieldType.TIMESTAMP]), rejections)


def _expand_dictionary(column: Column, indices: pa.Array) -> Column:
    """Return the column of which `column` has the distinct values and `indices` the position of each row's value."""
    array, rejections = column.array.take(indices), column.rejections
    if not rejections.num_rows:
        return Column(array, rejections)
    positions = pc.index_in(indices, value_set=rejections["index"].combine_chunks().cast(indices.type))
    rejected = pc.indices_nonzero(positions.is_valid())
    rejections = rejections.take(positions.drop_null())
    return Column(array, rejections.set_column(0, REJECTIONS.field("index"), rejected.cast(pa.int64())))


def _common_arrow_type(python_types: frozenset[type], field: FieldDefinition) -> pa.DataType | None:
    """Return the Arrow type that can hold JSON values of all these Python types; None if there is no such type."""
    if len(python_types) <= 1:
        return _ARROW_TYPES_OF_JSON.get(next(iter(python_types), str))
    # An integer may become a double only where the field reads 5 and 5.0 alike: not in a string field, for example.
    if python_types == {int, float} and field.type in {FieldType.INT64, FieldType.DOUBLE, FieldType.TIMESTAMP}:
        return pa.float64()
    return None
