"""Arrow columns as strings and as JSON values, and the unknown fields of events as JSON objects.

Fields that the definition does not list are stored as JSON, dropped, or reject their event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.rejections import NOT_UTF8, Rejection, RejectionRule, list_names, quote_name
from slackwater.sources.definition import Source, UnknownFields

_STRING_TYPES = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)


def is_string_type(data_type: pa.DataType) -> bool:
    """Return whether columns of this type contain strings, or bytes that are read as UTF-8."""
    return any(is_type(data_type) for is_type in _STRING_TYPES)


def decode_strings(array: pa.Array) -> tuple[pa.Array, dict[int, Rejection]]:
    """Convert a column of a string type to Arrow's `string`.

    Returns the column, with null for values that are not UTF-8, and the rejections of those values by index.
    """
    try:
        strings = array.cast(pa.string())
        strings.validate(full=True)  # A cast from `string` to `string` does not check that the bytes are UTF-8.
    except pa.ArrowInvalid:
        strings = pa.array(map(_decode, array.cast(pa.binary()).to_pylist()), pa.string())
        invalid = pc.and_(array.is_valid(), strings.is_null())
        return strings, dict.fromkeys(pc.indices_nonzero(invalid).to_pylist(), NOT_UTF8)
    return strings, {}


def _decode(value: bytes | None) -> str | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None


def format_as_strings(array: pa.Array) -> pa.Array:
    """Format values as JSON does, strings without quotes; dates and timestamps are ISO 8601, in UTC with a Z."""
    data_type = array.type
    if types.is_floating(data_type):
        encoded = array.dictionary_encode()
        return pa.array(map(json.dumps, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)
    if types.is_timestamp(data_type):
        # Remove the timezone first: with one, Arrow's cast reads timezone files, which Lambda's image does not have.
        strings = array.cast(pa.int64()).cast(pa.timestamp(data_type.unit)).cast(pa.string())
        # "2013-03-08 12:00:00.000000" becomes "2013-03-08T12:00:00Z".
        return pc.replace_substring_regex(strings, r"^(\S+) (.*?)(\.0+)?$", rf"\1T\2{'Z' if data_type.tz else ''}")
    return array.cast(pa.string())


def to_json_values(array: pa.Array) -> tuple[list[object], dict[int, Rejection]]:
    """Convert a column of any type to Python values that JSON can represent.

    Dates and times inside lists and structs stay Python objects, which the caller has to convert.
    Returns the values, with None for those that Python cannot represent, and their rejections by index.
    """
    rejections: dict[int, Rejection] = {}
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_string_type(array.type):
        array, rejections = decode_strings(array)
    elif types.is_temporal(array.type) or types.is_decimal(array.type):
        array = format_as_strings(array)
    try:
        return array.to_pylist(), rejections
    except (OverflowError, ValueError):
        pass  # Python cannot represent some value: convert the values one by one to find it.
    values: list[object] = [None] * len(array)
    rejections = {}
    for index, scalar in enumerate(array):
        try:
            values[index] = scalar.as_py()
        except UnicodeDecodeError:
            rejections[index] = NOT_UTF8
        except (OverflowError, ValueError):
            rejections[index] = Rejection(RejectionRule.WRONG_TYPE, "holds a date or time outside the years 1 to 9999")
    return values, rejections


# Levels of nesting of an event; the event itself is the first.
MAX_DEPTH = 32
_SHOWN_CHARACTERS = 40
_SCALAR_TYPES = frozenset({str, int, bool, type(None)})


class ExtraColumn(NamedTuple):
    """The unknown fields of events."""

    array: pa.Array
    """The unknown fields of each event as a JSON object; null where an event has none."""
    rejections: Mapping[int, Rejection]
    """By index, for events whose unknown fields cannot be stored or are not allowed."""


def values_of(objects: Sequence[Mapping[str, Any]], name: str) -> list[object]:
    """Return the value of each object for `name`: that of the key, else of the path `a.b` through objects, or None."""
    try:
        return list(map(itemgetter(name), objects))
    except KeyError:  # An event lacks the field; `get` takes 1.5 times as long as `itemgetter`.
        if "." not in name:
            return [event.get(name) for event in objects]
    path = name.split(".")
    return [event[name] if name in event else _value_at(event, path) for event in objects]


def _value_at(value: object, path: Sequence[str]) -> object:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def collect_from_objects(objects: Sequence[Mapping[str, object]], source: Source) -> ExtraColumn:
    """Collect the unknown fields of JSON objects, or reject their events, as the source defines.

    Of an object from which fields read nested values, the other values are unknown.
    """
    known = frozenset(source.partner_fields)
    if source.unknown_fields is UnknownFields.IGNORE or all(map(known.issuperset, objects)):
        return ExtraColumn(pa.nulls(len(objects), pa.string()), {})
    unknown = ({name: event[name] for name in event if name not in known} for event in objects)
    if paths := {name: name.split(".") for name in known if "." in name}:
        unknown = (_without_paths(fields, event, paths) for fields, event in zip(unknown, objects, strict=True))
    return _collect(unknown, source)


def _without_paths(
    fields: dict[str, object], event: Mapping[str, object], paths: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    for name, path in paths.items():
        if name not in event:
            fields = _without(fields, path)
    return fields


def _without(fields: dict[str, object], path: Sequence[str]) -> dict[str, object]:
    """Return the fields without the value at the path, and without objects that have no other value."""
    key, *rest = path
    if key not in fields:
        return fields
    inner = fields[key] if rest else None
    if isinstance(inner, dict):
        inner = _without(inner, rest)
    if inner in (None, {}):
        return {name: value for name, value in fields.items() if name != key}
    return {**fields, key: inner}


def extra_names(extra: pa.ChunkedArray, *, rows: int) -> list[str]:
    """Return the unknown fields of the first rows that have any, each with at most 40 characters of its name."""
    # To parse the JSON of all rows would take long.
    first = extra.drop_null()[:rows].to_pylist()
    return list(dict.fromkeys(name[:_SHOWN_CHARACTERS] for row in first for name in json.loads(row)))


def collect_from_table(table: pa.Table, source: Source) -> ExtraColumn:
    """Collect the columns of a file that the definition does not list: every row has all of these fields."""
    known = frozenset(source.partner_fields)
    names = [name for name in table.column_names if name not in known]
    if source.unknown_fields is UnknownFields.IGNORE or not names:
        return ExtraColumn(pa.nulls(table.num_rows, pa.string()), {})
    rejections: dict[int, Rejection] = {}
    columns: list[list[object]] = []
    for name in names:
        array = table[name].combine_chunks()
        values, invalid = to_json_values(array)
        for index, rejection in invalid.items():
            rejections.setdefault(index, Rejection(rejection.rule, f"{quote_name(name)}: {rejection.reason}"))
        # Arrow gives a map as a list of pairs. With strings as keys it is an object in JSON.
        if types.is_map(array.type) and is_string_type(array.type.key_type):
            values = [dict(value) if isinstance(value, list) else value for value in values]
        columns.append(values)
    extra = _collect((dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), source)
    return ExtraColumn(extra.array, {**extra.rejections, **rejections})


def _collect(unknown: Iterable[Mapping[str, object]], source: Source) -> ExtraColumn:
    """Collect `unknown`, the unknown fields of each event."""
    strings: list[str | None] = []
    rejections: dict[int, Rejection] = {}
    known = list(source.partner_fields)
    listed = list_names(known)
    for index, fields in enumerate(unknown):
        rejection = None
        if fields and source.unknown_fields is UnknownFields.REJECT:
            name = quote_name(_first_name(fields, known))
            reason = f"{name}: the source has no such field (its fields: {listed})"
            rejection = Rejection(RejectionRule.UNKNOWN_FIELD, reason)
        elif fields:
            rejection = check_nesting(fields)
        if rejection:
            rejections[index] = rejection
        strings.append(None if rejection or not fields else format_as_json(fields))
    return ExtraColumn(pa.array(strings, pa.string()), rejections)


def _first_name(fields: Mapping[str, object], known: Sequence[str]) -> str:
    """Return the name of the first field: its path if one of the `known` names is a path into the same object."""
    name, value = next(iter(fields.items()))
    while isinstance(value, dict) and value and any(path.startswith(f"{name}.") for path in known):
        key, value = next(iter(value.items()))
        name = f"{name}.{key}"
    return name


def check_nesting(fields: Mapping[str, object]) -> Rejection | None:
    """Return why the fields cannot be stored as JSON: NaN, infinity or too many levels. Return None if they can."""
    for name, value in fields.items():
        if type(value) in _SCALAR_TYPES:
            continue
        # Level by level, not recursively: the partner decides the depth, and could exhaust the stack.
        level = [value]
        for _ in range(MAX_DEPTH):
            if any(isinstance(inner, float) and not math.isfinite(inner) for inner in level):
                return Rejection(
                    RejectionRule.NOT_JSON, f"{quote_name(name)}: contains NaN or Infinity, which are not JSON"
                )
            nested = [inner for inner in level if isinstance(inner, dict | list | tuple)]
            if not nested:
                break
            level = [inner for outer in nested for inner in (outer.values() if isinstance(outer, dict) else outer)]
        else:
            return Rejection(RejectionRule.TOO_DEEP, f"{quote_name(name)}: nested more than {MAX_DEPTH} levels deep")
    return None


def format_as_json(fields: Mapping[str, object]) -> str:
    """Return the fields as a JSON object; integers of any size and lone surrogates are preserved."""
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # An integer does not fit into 64 bits, or a string has half of a surrogate pair.
        return json.dumps(fields, default=str, separators=(",", ":"))
