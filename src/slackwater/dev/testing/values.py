"""Values of expected rows, read with the types of the result's columns, and compared with the result's values."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Hashable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import types

_TOLERANCE = 1e-9


class WrongType(ValueError):
    """A value does not fit its column. The message is what the value could be."""


def read_expected(value: Any, data_type: pa.DataType) -> Any:  # noqa: PLR0911 - one branch for each type
    """Return a value of a test as Arrow returns it from a column of this type. Raises `WrongType`."""
    if value is None or types.is_null(data_type):
        return _require(value, value is None, "null: the column has no value in any row")
    if types.is_boolean(data_type):
        return _require(value, isinstance(value, bool), "true or false")
    if types.is_integer(data_type):
        return _require(value, _is_number(value) and isinstance(value, int), "an integer")
    if types.is_floating(data_type):
        number = float(_require(value, _is_number(value), "a number"))
        return struct.unpack("f", struct.pack("f", number))[0] if types.is_float32(data_type) else number
    if types.is_decimal(data_type):
        return _decimal(value)
    if types.is_string(data_type) or types.is_large_string(data_type):
        return _require(value, isinstance(value, str), "a string: write it in quotes")
    if types.is_timestamp(data_type):
        return _timestamp(value, has_offset=data_type.tz is not None)
    if types.is_date(data_type):
        return _date(value)
    if types.is_binary(data_type) or types.is_large_binary(data_type):
        return _bytes(value)
    if types.is_list(data_type) or types.is_large_list(data_type):
        return [
            read_expected(item, data_type.value_type) for item in _require(value, isinstance(value, list), "a list")
        ]
    if types.is_map(data_type):
        entries = _require(value, isinstance(value, dict), "a mapping").items()
        return {
            read_expected(key, data_type.key_type): read_expected(item, data_type.item_type) for key, item in entries
        }
    if types.is_struct(data_type):
        names = [field.name for field in data_type]
        _require(value, isinstance(value, dict) and value.keys() <= set(names), f"a mapping of {', '.join(names)}")
        return {field.name: read_expected(value.get(field.name), field.type) for field in data_type}
    raise WrongType(f"nothing: {data_type} cannot be compared: leave the column out")


def read_actual(value: Any, data_type: pa.DataType) -> Any:
    """Return a value of a column, from `as_py` of Arrow: times in UTC, and maps as dictionaries."""
    if value is None:
        return None
    if types.is_timestamp(data_type) and data_type.tz is not None:
        return value.astimezone(UTC)
    if types.is_list(data_type) or types.is_large_list(data_type):
        return [read_actual(item, data_type.value_type) for item in value]
    if types.is_map(data_type):
        entries = value.items() if isinstance(value, Mapping) else value
        return {read_actual(key, data_type.key_type): read_actual(item, data_type.item_type) for key, item in entries}
    if types.is_struct(data_type):
        return {field.name: read_actual(value[field.name], field.type) for field in data_type}
    return value


def are_equal(expected: Any, actual: Any) -> bool:
    """Return whether two values of one type are equal: doubles with a relative tolerance of 1e-9, others exactly."""
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(expected, actual, rel_tol=_TOLERANCE) or (math.isnan(expected) and math.isnan(actual))
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(are_equal, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(are_equal(expected[key], actual[key]) for key in expected)
    return bool(expected == actual)


def exact_part(value: Any) -> Hashable:
    """Return what of a value must be the same in an equal one: everything but its doubles."""
    if isinstance(value, float):
        return float
    if isinstance(value, list):
        return tuple(map(exact_part, value))
    if isinstance(value, dict):
        return frozenset((exact_part(key), exact_part(item)) for key, item in value.items())
    return value  # type: ignore[no-any-return] # a value of a column


def shown(value: Any) -> str:
    """Return a value with all its digits, for a cell of a table."""
    match value:
        case str():
            return value if value not in ("", "null") else json.dumps(value)
        case None | bool() | int() | float() | list() | dict():
            return json.dumps(value, ensure_ascii=False, default=shown)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return value.hex()
        case _:
            return str(value)


def _require(value: Any, is_valid: bool, expected: str) -> Any:
    if not is_valid:
        raise WrongType(expected)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(value: Any) -> Decimal:
    try:
        if _is_number(value) or isinstance(value, str):
            return Decimal(str(value))
    except InvalidOperation:
        pass
    raise WrongType("a decimal number")


def _timestamp(value: Any, *, has_offset: bool) -> datetime:
    example = "2024-03-04T09:12:00+01:00" if has_offset else "2024-03-04T09:12:00"
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        read = None
    if read is None or (read.tzinfo is not None) != has_offset:
        raise WrongType(f"a timestamp {'with' if has_offset else 'without'} an offset, such as {example}")
    return read.astimezone(UTC) if has_offset else read


def _date(value: Any) -> date:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise WrongType("a date, such as 2024-03-04") from error


def _bytes(value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError) as error:
        raise WrongType("bytes as hexadecimal digits, in quotes") from error
