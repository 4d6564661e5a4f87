"""One value read as its field has it, with a reason when it cannot be: the rule that whole columns keep to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from types import MappingProxyType
from zoneinfo import ZoneInfo

from slackwater.receiver.parsing.rejections import InvalidValue, quote_value
from slackwater.receiver.parsing.timestamps import read_date, read_timestamp
from slackwater.sources.fields import FieldDefinition, FieldType

INT64 = range(-(2**63), 2**63)
BLANKS = " \t\n\r\f\v\u00a0"
"""What `trim` takes off a text."""
SEPARATORS = MappingProxyType({",": "[,]", ".": "[.]", "'": "[']", " ": "[ \u00a0\u202f]", "": ""})
"""What stands where a definition has that sign, as a regular expression: a space may be one that does not break."""
_DIGITS = 60
"""Characters of a text that is still read as a whole number."""
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

Value = str | int | float | bool | date
"""A timestamp is its microseconds since 1970, UTC."""


def read_value(value: object, field: FieldDefinition, zone: ZoneInfo | None) -> Value:
    """Return `value` as `field` has it. Only what loses nothing is converted: "517", 517 and 517.0 are the same number.

    A timestamp without an offset is local in `zone`: the earlier of two when clocks are set back. Digits past the
    microsecond are cut off. Raises `InvalidValue`.
    """
    if isinstance(value, dict | list):
        raise InvalidValue(
            f"a {field.type} is expected, not a nested {'object' if isinstance(value, dict) else 'array'}"
        )
    return _READERS[field.type](value, field, zone)


def _string(value: object, _field: FieldDefinition, _zone: ZoneInfo | None) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InvalidValue(f"a string is expected, not {quote_value(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("half of a surrogate pair: not a text that UTF-8 can hold") from error
    return value


def _int64(value: object, field: FieldDefinition, _zone: ZoneInfo | None) -> int:
    number = value
    if isinstance(value, str):
        text = _plain(value, field)
        number = int(text.partition(".")[0]) if _WHOLE.fullmatch(text) and len(value) < _DIGITS else None
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidValue(f"{quote_value(value)} is not a whole number{_such_as(value, field)}")
    if number not in INT64:
        raise InvalidValue(f"{quote_value(value)} is outside what 64 bits hold")
    return number


def _double(value: object, field: FieldDefinition, _zone: ZoneInfo | None) -> float:
    number = _plain(value, field) if isinstance(value, str) else value
    is_number = _NUMBER.fullmatch(number) if isinstance(number, str) else isinstance(number, int | float)
    if not is_number or isinstance(number, bool):
        raise InvalidValue(f"{quote_value(value)} is not a number{_such_as(value, field)}")
    try:
        read = float(number)  # type: ignore[arg-type]
    except OverflowError:
        read = math.inf
    if not math.isfinite(read):
        raise InvalidValue(f"{quote_value(value)} is not a finite number")
    return read


def _plain(text: str, field: FieldDefinition) -> str:
    """Return a number's text without its own punctuation; an empty one when it is no such number."""
    text = text.strip()
    if not field.is_punctuated:
        return text
    found = _punctuated(field.decimal, field.thousands).fullmatch(text)
    if found is None:
        return ""
    whole = re.sub(SEPARATORS[field.thousands], "", found["whole"]) if field.thousands else found["whole"]
    return whole + (f".{found['fraction']}" if found["fraction"] is not None else "") + (found["exponent"] or "")


@cache
def _punctuated(decimal: str, thousands: str) -> re.Pattern[str]:
    grouped = rf"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    return re.compile(
        rf"(?P<whole>[+-]?({grouped}[0-9]*))({SEPARATORS[decimal]}(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?"
    )


def _such_as(value: object, field: FieldDefinition) -> str:
    if not isinstance(value, str) or not field.is_punctuated:
        return ""
    fraction = f"{field.decimal}5" if field.type is FieldType.DOUBLE else ""
    return f" such as 1{field.thousands}234{fraction}"


def _boolean(value: object, field: FieldDefinition, _zone: ZoneInfo | None) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value) if isinstance(value, str | int) else ""
    meaning = _meanings(field.true_values, field.false_values).get(text.casefold())
    if meaning is None:
        raise InvalidValue(f"{quote_value(value)} is neither true nor false")
    return meaning


@cache
def _meanings(true_values: tuple[str, ...], false_values: tuple[str, ...]) -> Mapping[str, bool]:
    true = dict.fromkeys((text.casefold() for text in ("true", *true_values)), True)
    return true | dict.fromkeys((text.casefold() for text in ("false", *false_values)), False)


def _date(value: object, field: FieldDefinition, _zone: ZoneInfo | None) -> date:
    return read_date(value, field.formats)


def _timestamp(value: object, field: FieldDefinition, zone: ZoneInfo | None) -> int:
    return read_timestamp(value, field.formats, zone)


_READERS: dict[FieldType, Callable[[object, FieldDefinition, ZoneInfo | None], Value]] = {
    FieldType.STRING: _string,
    FieldType.INT64: _int64,
    FieldType.DOUBLE: _double,
    FieldType.BOOLEAN: _boolean,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.DATE: _date,
}
