"""One timestamp or date read by the formats of its field, tried in order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import TypeVar
from zoneinfo import ZoneInfo

from slackwater.receiver.parsing.rejections import InvalidValue, quote_value
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO
from slackwater.sources.strptime_format import OFFSET, LocalTime, read_offset, strptime_format

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and the last moment of the years 1 to 9999, UTC."""
EPOCH_UNITS = {EPOCH_S: 10**6, EPOCH_MS: 10**3}
"""Microseconds in one."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    rf"(?P<second>:[0-9]{{2}})?(?P<fraction>[.,][0-9]{{1,9}})?(?P<offset>{OFFSET})?"
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DOWN = Context(prec=40, rounding=ROUND_FLOOR, traps=[])
_SPOKEN = {
    ISO: "ISO 8601 such as 2013-03-08T12:00:00Z",
    EPOCH_S: "seconds since 1970",
    EPOCH_MS: "milliseconds since 1970",
}
_Read = TypeVar("_Read")


def read_timestamp(value: object, formats: Sequence[str], zone: ZoneInfo | None) -> int:
    """Return the microseconds since 1970, UTC; a time without an offset is local in `zone`. Raises `InvalidValue`."""
    if isinstance(value, datetime):
        return _utc(LocalTime(value.replace(tzinfo=None), value.utcoffset()), value, zone)
    value, formats = _whole(value), formats or (ISO,)
    found = _first(formats, lambda form: _timestamp(value, form, zone))
    if found is None:
        expected = " or ".join(_SPOKEN.get(form, form) for form in formats)
        raise InvalidValue(f"{quote_value(value)} is {_what_it_is(value)}, not {expected}")
    return found


def read_date(value: object, formats: Sequence[str]) -> date:
    """Return the day, as it is written; a moment without an offset is one at midnight. Raises `InvalidValue`."""
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == time():
        return value.date()
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    value, formats = _whole(value), formats or (ISO,)
    found = _first(formats, lambda form: _date(value, form))
    if found is None:
        expected = " or ".join("YYYY-MM-DD" if form == ISO else form for form in formats)
        raise InvalidValue(f"{quote_value(value)} is not a date ({expected})")
    return found


def _whole(value: object) -> object:
    """Return a whole number as such: 5.0 and 5 are the same."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _first(formats: Sequence[str], read: Callable[[str], _Read | None]) -> _Read | None:
    """Return what the first format reads that can; None when the value has none of the forms."""
    refusal: InvalidValue | None = None
    for form in formats:
        try:
            found = read(form)
        except InvalidValue as error:
            refusal = refusal or error
            continue
        if found is not None:
            return found
    if refusal:
        raise refusal
    return None


def _timestamp(value: object, form: str, zone: ZoneInfo | None) -> int | None:
    if form in EPOCH_UNITS:
        return _since_1970(value, EPOCH_UNITS[form])
    try:
        clock = _iso(value) if form == ISO else _by_pattern(value, form)
    except InvalidValue:
        raise
    except (ValueError, OverflowError) as error:
        raise _no_moment(value) from error
    return clock and _utc(clock, value, zone)


def _date(value: object, form: str) -> date | None:
    try:
        if form != ISO:
            clock = _by_pattern(value, form)
            return clock and clock.local.date()
        return date.fromisoformat(value) if isinstance(value, str) and _DATE.fullmatch(value) else None
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"{quote_value(value)} is not a day of the calendar") from error


def _since_1970(value: object, unit: int) -> int | None:
    """Read a number exactly as its digits say: a float by the shortest text that it has."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not _NUMBER.fullmatch(str(value).strip()):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise _no_moment(value) from error
    moment = _DOWN.multiply(number, Decimal(unit))
    if not FIRST <= moment < LAST + 1:
        raise _no_moment(value)
    return math.floor(moment)


def _iso(value: object) -> LocalTime | None:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    if found["second"] == ":60":
        raise InvalidValue(
            f"{quote_value(value)} is a leap second, which no timestamp holds: send second 59 or the next minute"
        )
    fraction = (found["fraction"] or ".0")[1:7]
    local = datetime.fromisoformat(f"{found['day']}T{found['minute']}{found['second'] or ':00'}.{fraction:0<6}")
    return LocalTime(local, read_offset(found["offset"]))


def _by_pattern(value: object, form: str) -> LocalTime | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return strptime_format(form).read(str(value))


def _utc(clock: LocalTime, value: object, zone: ZoneInfo | None) -> int:
    moment = (clock.local.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    if clock.offset is None and zone is None:
        raise InvalidValue(f"{quote_value(value)} has no offset, and the source names no time zone for it")
    try:
        offset = _offset_in(clock.local, zone) if clock.offset is None else clock.offset
    except OverflowError as error:
        raise _no_moment(value) from error
    moment -= offset // _MICROSECOND
    if not FIRST <= moment <= LAST:
        raise _no_moment(value)
    return moment


def _offset_in(local: datetime, zone: ZoneInfo | None) -> timedelta:
    moment = local.replace(tzinfo=zone)
    if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise InvalidValue(f"{local.isoformat()} never was in {zone}: clocks were set forward over it")
    return moment.utcoffset() or timedelta()


def _no_moment(value: object) -> InvalidValue:
    return InvalidValue(f"{quote_value(value)} is no moment of the years 1 to 9999, UTC")


def _what_it_is(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    if not isinstance(value, str | date):
        return "no text"
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return "a number"
    return "a date without a time" if _DATE.fullmatch(str(value)) else "no timestamp"
