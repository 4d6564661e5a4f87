"""Columns of values read as their fields have them: together as far as they are alike, one by one where they are not.

The two ways agree. Only the slow one, `slackwater.receiver.parsing.values`, knows reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.rejections import InvalidValue
from slackwater.receiver.parsing.string_columns import read_texts
from slackwater.receiver.parsing.typed_columns import read_native
from slackwater.receiver.parsing.values import BLANKS, Value, read_value
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition, FieldType

NOT_UTF8 = "not UTF-8"
_ARROW_KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class Column(NamedTuple):
    """Values of one field, null where there is none or where it could not be read."""

    array: pa.Array
    faults: Mapping[int, str]
    """Why the value in that place could not be read."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads columns by the rules of one source."""

    trim: bool
    null_values: tuple[str, ...]
    zone: ZoneInfo | None

    def values(self, values: Sequence[object], field: FieldDefinition) -> Column:
        """Read what JSON gave."""
        kind = _arrow_type(frozenset(map(type, values)) - {type(None)}, field)
        try:
            array = pa.array(values, kind) if kind else None
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            array = None  # One of them is too large, or half of a surrogate pair.
        return self._one_by_one(values, field) if array is None else self.array(array, field)

    def array(self, array: pa.Array, field: FieldDefinition) -> Column:
        """Read a column of any Arrow type."""
        if types.is_null(array.type):
            return Column(pa.nulls(len(array), ARROW_TYPES[field.type]), {})
        if types.is_dictionary(array.type):
            return _spread(self.array(array.dictionary, field), array.indices)
        if is_text(array.type):
            texts, broken = decoded(array)
            column = self._texts(texts, field)
            return Column(column.array, {**column.faults, **broken})
        if field.is_punctuated:  # Which is for numbers that are texts.
            field = field.model_copy(update={"decimal": ".", "thousands": ""})
        native = read_native(array, field, self.zone)
        column = self._completed(native.values, native.originals, field)
        return Column(column.array, {**column.faults, **native.faults})

    def _texts(self, texts: pa.Array, field: FieldDefinition) -> Column:
        if field.type is FieldType.STRING:
            return Column(self._cleaned(texts), {})
        encoded = texts.dictionary_encode()
        distinct = self._cleaned(encoded.dictionary)
        column = self._completed(read_texts(distinct, field, self.zone), distinct, field)
        return _spread(column, encoded.indices)

    def _cleaned(self, texts: pa.Array) -> pa.Array:
        if self.trim:
            texts = pc.utf8_trim(texts, characters=BLANKS)
        nothing = pc.is_in(texts, value_set=pa.array(self.null_values, pa.string()))
        return pc.if_else(nothing, pa.scalar(None, pa.string()), texts) if pc.any(nothing).as_py() else texts

    def _completed(self, read: pa.Array, originals: pa.Array, field: FieldDefinition) -> Column:
        """Read one by one what has not been read at once."""
        left = pc.and_(originals.is_valid(), read.is_null())
        if not pc.any(left).as_py():
            return Column(read, {})
        encoded = originals.filter(left).dictionary_encode()
        slow = _spread(self._one_by_one(encoded.dictionary.to_pylist(), field), encoded.indices)
        places = pc.indices_nonzero(left).to_pylist()
        return Column(
            pc.replace_with_mask(read, left, slow.array),
            {places[index]: reason for index, reason in slow.faults.items()},
        )

    def _one_by_one(self, values: Iterable[object], field: FieldDefinition) -> Column:
        read: list[Value | None] = []
        faults: dict[int, str] = {}
        known: dict[str, Value] = {}
        for index, value in enumerate(values):
            read.append(None)
            text = value.strip(BLANKS) if self.trim and isinstance(value, str) else value
            if text is None or (isinstance(text, str) and text in self.null_values):
                continue
            try:
                read[index] = self._read(text, field, known)
            except InvalidValue as error:
                faults[index] = str(error)
        return Column(_array(read, field.type), faults)

    def _read(self, value: object, field: FieldDefinition, known: dict[str, Value]) -> Value:
        """Read a value; a text seen before, such as an hour that many events share, is not read again."""
        if not isinstance(value, str):
            return read_value(value, field, self.zone)
        if value not in known:
            known[value] = read_value(value, field, self.zone)
        return known[value]


def is_text(kind: pa.DataType) -> bool:
    """Whether columns of this type hold texts: strings, or bytes that should be some."""
    return any(
        is_one(kind) for is_one in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def decoded(array: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return texts as strings, and in which places there is none since the bytes are not UTF-8."""
    try:
        texts = array.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        whole = [_decoded(raw) for raw in array.cast(pa.binary()).to_pylist()]
        texts = pa.array(whole, pa.string())
        places = pc.indices_nonzero(pc.and_(array.is_valid(), texts.is_null())).to_pylist()
        return texts, dict.fromkeys(places, NOT_UTF8)
    return texts, {}


def _decoded(raw: bytes | None) -> str | None:
    try:
        return raw.decode() if raw is not None else None
    except UnicodeDecodeError:
        return None


def _spread(column: Column, indices: pa.Array) -> Column:
    """Return a column whose distinct values stand in those places."""
    array = column.array.take(indices)
    if not column.faults:
        return Column(array, {})
    faulty = pc.indices_nonzero(pc.is_in(indices, value_set=pa.array(column.faults, indices.type)))
    codes = indices.take(faulty).to_pylist()
    return Column(array, {place: column.faults[code] for place, code in zip(faulty.to_pylist(), codes, strict=True)})


def _arrow_type(kinds: frozenset[type], field: FieldDefinition) -> pa.DataType | None:
    """Return the Arrow type of JSON values that are of these Python types; None where they have none in common."""
    if len(kinds) <= 1:
        return _ARROW_KINDS.get(next(iter(kinds), str))
    if kinds == {int, float} and field.type in {FieldType.INT64, FieldType.DOUBLE, FieldType.TIMESTAMP}:
        return pa.float64()
    return None


def _array(values: list[Value | None], kind: FieldType) -> pa.Array:
    if kind is FieldType.TIMESTAMP:
        return pa.array(values, pa.int64()).cast(ARROW_TYPES[kind])
    return pa.array(values, ARROW_TYPES[kind])
