"""Read one value as its field defines it. `read_value` defines which values are accepted, and why others are rejected.

`string_columns` and `typed_columns` are fast paths for whole columns. They read only values for which Arrow gives the
same result, and leave all others to `read_value`. Property tests compare both
(tests/unit/parsing/test_values.py and test_columns.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from zoneinfo import ZoneInfo

from slackwater.receiver.parsing.patterns import INTEGER, MAX_INTEGER_STRING, NUMBER, SEPARATORS, separated_number
from slackwater.receiver.parsing.rejections import InvalidValue, quote_value
from slackwater.receiver.parsing.timestamps import read_date, read_timestamp
from slackwater.sources.fields import INT64_RANGE, FieldDefinition, FieldType

# A timestamp is an integer: microseconds since 1970, UTC.
Value = str | int | float | bool | date


def read_value(value: object, field: FieldDefinition, timezone: ZoneInfo | None) -> Value:
    """Convert a JSON value, or a value of a typed column, to the type of `field`.

    The number 517 may be written "517", 517 or 517.0. `timezone` is the timezone of timestamps without an offset; a
    local time that occurs twice, because clocks are set back, means the earlier instant. Digits after the microsecond
    are dropped.

    Raises `InvalidValue` when the value does not have the field's type.
    """
    if isinstance(value, dict | list):
        nested = "object" if isinstance(value, dict) else "array"
        raise InvalidValue(f"a {field.type} is expected, not a nested {nested}")
    return _READERS[field.type](value, field, timezone)


def read_string(value: object, _field: FieldDefinition, _timezone: ZoneInfo | None) -> str:
    """Read a string, or the digits of a whole number. Raises `InvalidValue`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InvalidValue(f"a string is expected, not {quote_value(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("the string contains half of a surrogate pair, which UTF-8 cannot encode") from error
    return value


def read_int64(value: object, field: FieldDefinition, _timezone: ZoneInfo | None) -> int:
    """Read a whole number that fits into 64 bits. Raises `InvalidValue`."""
    number = value
    if isinstance(value, str):
        digits = remove_separators(value, field)
        # Never `int(float(...))`: a double does not hold all 64-bit integers.
        is_integer = INTEGER.fullmatch(digits) and len(value) < MAX_INTEGER_STRING
        number = int(digits.partition(".")[0]) if is_integer else None
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    # `bool` is a subclass of `int` in Python, but true is not a number.
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidValue(f"{quote_value(value)} is not a whole number{_number_example(value, field)}")
    if number not in INT64_RANGE:
        raise InvalidValue(f"{quote_value(value)} does not fit into 64 bits")
    return number


def read_double(value: object, field: FieldDefinition, _timezone: ZoneInfo | None) -> float:
    """Read a finite number. Raises `InvalidValue`."""
    number = remove_separators(value, field) if isinstance(value, str) else value
    is_number = NUMBER.fullmatch(number) if isinstance(number, str) else isinstance(number, int | float)
    if not is_number or isinstance(number, bool):
        raise InvalidValue(f"{quote_value(value)} is not a number{_number_example(value, field)}")
    try:
        double = float(number)  # type: ignore[arg-type]
    except OverflowError:
        double = math.inf
    if not math.isfinite(double):
        raise InvalidValue(f"{quote_value(value)} is not a finite number")
    return double


def remove_separators(string: str, field: FieldDefinition) -> str:
    """Rewrite a number such as `1.234,5` to `1234.5`; the field names the separators.

    Surrounding whitespace is removed. Returns an empty string when the string does not match the separators.
    """
    string = string.strip()
    if not field.has_separators:
        return string
    match = separated_number(field.decimal, field.thousands).fullmatch(string)
    if match is None:
        return ""
    whole = re.sub(SEPARATORS[field.thousands], "", match["whole"]) if field.thousands else match["whole"]
    return whole + (f".{match['fraction']}" if match["fraction"] is not None else "") + (match["exponent"] or "")


def _number_example(value: object, field: FieldDefinition) -> str:
    """Return an example of a number with the field's separators for a reason; empty if it does not apply to `value`."""
    if not isinstance(value, str) or not field.has_separators:
        return ""
    fraction = f"{field.decimal}5" if field.type is FieldType.DOUBLE else ""
    return f" such as 1{field.thousands}234{fraction}"


def read_boolean(value: object, field: FieldDefinition, _timezone: ZoneInfo | None) -> bool:
    """Read a boolean, or one of the field's strings for true and false, in any case. Raises `InvalidValue`."""
    if isinstance(value, bool):
        return value
    string = str(value) if isinstance(value, str | int) else ""
    boolean = _boolean_values(field.true_values, field.false_values).get(string.casefold())
    if boolean is None:
        raise InvalidValue(f"{quote_value(value)} is neither true nor false")
    return boolean


@cache
def _boolean_values(true_values: tuple[str, ...], false_values: tuple[str, ...]) -> Mapping[str, bool]:
    """Return the boolean of each accepted string, folded to lower case."""
    true = dict.fromkeys((value.casefold() for value in ("true", *true_values)), True)
    return true | dict.fromkeys((value.casefold() for value in ("false", *false_values)), False)


_READERS: dict[FieldType, Callable[[object, FieldDefinition, ZoneInfo | None], Value]] = {
    FieldType.STRING: read_string,
    FieldType.INT64: read_int64,
    FieldType.DOUBLE: read_double,
    FieldType.BOOLEAN: read_boolean,
    FieldType.TIMESTAMP: lambda value, field, timezone: read_timestamp(value, field.formats, timezone),
    FieldType.DATE: lambda value, field, _timezone: read_date(value, field.formats),
}
