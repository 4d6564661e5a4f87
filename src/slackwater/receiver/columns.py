"""Columns of values read as their field's type, a column at a time where its values are as they should be.

What is not goes through `slackwater.receiver.values`, one by one: the two agree, and only the slow one knows reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.schema import ARROW_TYPES
from slackwater.receiver.source import FieldType
from slackwater.receiver.values import Unreadable, Value, read_value

_PLAIN = {
    FieldType.INT64: r"^-?[0-9]{1,18}$",
    FieldType.DOUBLE: r"^-?[0-9]{1,200}(\.[0-9]{1,100})?$",
    FieldType.BOOLEAN: r"^(true|false)$",
    FieldType.TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$",
    FieldType.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}
"""Texts that Arrow reads just as `read_value` does, unless it refuses the whole column."""
_NATIVE: dict[FieldType, frozenset[type]] = {
    FieldType.INT64: frozenset({int}),
    FieldType.DOUBLE: frozenset({int, float}),
    FieldType.BOOLEAN: frozenset({bool}),
}
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and the last moment of the years 1 to 9999, UTC."""
_DAYS = (-719_162, 2_932_896)


class Column(NamedTuple):
    """Values of one field, null where there is none or where it could not be read."""

    array: pa.Array
    faults: dict[int, str]
    """Why the value in that place could not be read."""


@dataclass(frozen=True)
class Reader:
    """Reads columns by the rules of one source."""

    null_values: tuple[str, ...]
    zone: ZoneInfo | None

    def values(self, values: Sequence[object], kind: FieldType) -> Column:
        """Read what JSON gave."""
        kinds = set(map(type, values)) - {type(None)}
        try:
            if kinds <= {str}:
                return self.texts(pa.array(values, pa.string()), kind)
            if kinds <= _NATIVE.get(kind, frozenset()):
                array = pa.array(values, ARROW_TYPES[kind])
                if kind is not FieldType.DOUBLE or pc.all(pc.is_finite(array)).as_py() is not False:
                    return Column(array, {})
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass  # One value in it is not as it should be: the slow way finds out which, and why.
        return self._one_by_one(values, kind)

    def texts(self, texts: pa.Array, kind: FieldType) -> Column:
        """Read what a text file gave: an Arrow array of strings."""
        if self.null_values:
            nulls = pc.is_in(texts, value_set=pa.array(self.null_values, pa.string()))
            texts = pc.if_else(nulls, pa.scalar(None, pa.string()), texts)
        if kind is FieldType.STRING:
            return Column(texts, {})
        plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN[kind]), True)
        array = _cast(pc.if_else(plain, texts, pa.scalar(None, pa.string())), kind)
        if array is None:
            return self._one_by_one(texts.to_pylist(), kind)
        if pc.all(plain).as_py() is not False:
            return Column(array, {})
        odd = self._one_by_one(texts.filter(pc.invert(plain)).to_pylist(), kind)
        places = pc.indices_nonzero(pc.invert(plain)).to_pylist()
        merged = pc.replace_with_mask(array, pc.invert(plain), odd.array)
        return Column(merged, {places[index]: reason for index, reason in odd.faults.items()})

    def _one_by_one(self, values: Iterable[object], kind: FieldType) -> Column:
        read: list[Value | None] = []
        faults: dict[int, str] = {}
        known: dict[str, Value] = {}
        for index, value in enumerate(values):
            read.append(None)
            if value is None or (isinstance(value, str) and value in self.null_values):
                continue
            try:
                read[index] = self._read(value, kind, known)
            except Unreadable as error:
                faults[index] = str(error)
        return Column(_array(read, kind), faults)

    def _read(self, value: object, kind: FieldType, known: dict[str, Value]) -> Value:
        """Read a value; a text seen before, such as an hour that many events share, is not read again."""
        if not isinstance(value, str):
            return read_value(value, kind, self.zone)
        if value not in known:
            known[value] = read_value(value, kind, self.zone)
        return known[value]


def _cast(texts: pa.Array, kind: FieldType) -> pa.Array | None:
    """Return the texts as `kind`, or None when one of them is not what its form promises: the 30th of February."""
    try:
        array = texts.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid:
        return None
    if kind is FieldType.TIMESTAMP and not _within(array.cast(pa.int64()), _FIRST, _LAST):
        return None
    if kind is FieldType.DATE and not _within(array.cast(pa.int32()), *_DAYS):
        return None
    if kind is FieldType.DOUBLE and pc.all(pc.is_finite(array)).as_py() is False:
        return None
    return array


def _within(numbers: pa.Array, first: int, last: int) -> bool:
    found: dict[str, Any] = pc.min_max(numbers).as_py()
    return found["min"] is None or (found["min"] >= first and found["max"] <= last)


def _array(values: list[Value | None], kind: FieldType) -> pa.Array:
    if kind is FieldType.TIMESTAMP:
        return pa.array(values, pa.int64()).cast(ARROW_TYPES[kind])
    return pa.array(values, ARROW_TYPES[kind])
