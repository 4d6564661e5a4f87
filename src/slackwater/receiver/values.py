"""One value read as its field's type, with a reason when it cannot be: the rule that whole columns keep to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.receiver.source import FieldType

INT64 = range(-(2**63), 2**63)
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    r"(?P<second>:[0-9]{2})?(?P<fraction>[.,][0-9]{1,9})?(?P<offset>[Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 60
"""Characters of a value that a reason quotes."""

Value = str | int | float | bool | date
"""A timestamp is its microseconds since 1970, UTC."""


class Unreadable(ValueError):
    """A value is not of its field's type; the message says why."""


def read_value(value: object, kind: FieldType, zone: ZoneInfo | None) -> Value:
    """Return `value` as `kind`. Only what loses nothing is converted: "517", 517 and 517.0 are the same whole number.

    A timestamp without an offset is local in `zone`: the earlier of two when clocks are set back. Digits past the
    microsecond are cut off. Raises `Unreadable`.
    """
    if isinstance(value, dict | list):
        raise Unreadable(f"a {kind} is expected, not a nested {'object' if isinstance(value, dict) else 'array'}")
    return _READERS[kind](value, zone)


def shown(value: object) -> str:
    """Return the value as a reason quotes it, cut short when it is long."""
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _string(value: object, _zone: ZoneInfo | None) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise Unreadable(f"a string is expected, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unreadable("half of a surrogate pair: not a text that UTF-8 can hold") from error
    return value


def _int64(value: object, _zone: ZoneInfo | None) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) and len(value) < _SHOWN:
        value = int(value.strip().partition(".")[0])
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unreadable(f"{shown(value)} is not a whole number")
    if value not in INT64:
        raise Unreadable(f"{shown(value)} is outside what 64 bits hold")
    return value


def _double(value: object, _zone: ZoneInfo | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unreadable(f"{shown(value)} is not a number")
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        raise Unreadable(f"{shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unreadable(f"{shown(value)} is not a finite number")
    return number


def _boolean(value: object, _zone: ZoneInfo | None) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise Unreadable(f"{shown(value)} is neither true nor false")
    return known[value.lower()]


def _date(value: object, _zone: ZoneInfo | None) -> date:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise Unreadable(f"{shown(value)} is not a date (YYYY-MM-DD)")
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise Unreadable(f"{shown(value)} is not a day of the calendar") from error


def _timestamp(value: object, zone: ZoneInfo | None) -> int:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if not isinstance(value, str) or found is None:
        raise Unreadable(f"{shown(value)} is {_what_it_is(value)}, not ISO 8601 such as 2013-03-08T12:00:00Z")
    if found["second"] == ":60":
        raise Unreadable(
            f"{shown(value)} is a leap second, which no timestamp holds: send second 59 or the next minute"
        )
    offset = (found["offset"] or "").upper()
    if not offset and zone is None:
        raise Unreadable(f"{shown(value)} has no offset, and the source names no time zone for it")
    fraction = (found["fraction"] or ".0")[1:7]
    text = f"{found['day']}T{found['minute']}{found['second'] or ':00'}.{fraction:0<6}{offset}"
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if offset else _in_zone(moment, zone)
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except Unreadable:
        raise
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"{shown(value)} is no moment of the years 1 to 9999, UTC") from error


def _in_zone(local: datetime, zone: ZoneInfo | None) -> datetime:
    moment = local.replace(tzinfo=zone)
    if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise Unreadable(f"{local.isoformat()} never was in {zone}: clocks were set forward over it")
    return moment


def _what_it_is(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    if not isinstance(value, str):
        return "no text"
    if _NUMBER.fullmatch(value.strip()):
        return "a number"
    return "a date without a time" if _DATE.fullmatch(value) else "no timestamp"


_READERS: dict[FieldType, Callable[[object, ZoneInfo | None], Value]] = {
    FieldType.STRING: _string,
    FieldType.INT64: _int64,
    FieldType.DOUBLE: _double,
    FieldType.BOOLEAN: _boolean,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.DATE: _date,
}
