"""Convert Arrow columns to strings and to Python values; only the values that cannot be converted are rejected."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.rejections import NOT_UTF8, Rejection, RejectionRule

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
