"""Read one timestamp or date by the formats of its field, for `values.read_value`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import partial
from typing import TypeVar
from zoneinfo import ZoneInfo

from slackwater.receiver.parsing.patterns import (
    DATE,
    EPOCH_UNITS,
    FIRST_MILLISECONDS,
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    NUMBER,
    TIMESTAMP,
)
from slackwater.receiver.parsing.rejections import InvalidValue, quote_value
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO
from slackwater.sources.strptime_format import ParsedTime, parse_offset, strptime_format

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Digits after the microsecond are dropped, so round down. 40 digits are enough for any timestamp within the limits, and
# bound the work for strings of many digits. Without traps, huge exponents raise no error here: the limits reject them.
_FLOOR = Context(prec=40, rounding=ROUND_FLOOR, traps=[])
_FORMAT_DESCRIPTIONS = {
    ISO: "ISO 8601 such as 2013-03-08T12:00:00Z",
    EPOCH_S: "seconds since 1970",
    EPOCH_MS: "milliseconds since 1970",
}
WITHOUT_OFFSET = "has no offset, and the source has no `timestamp.timezone` for it"
"""Why a timestamp without an offset is rejected if the source has no timezone; its value comes first."""
_Result = TypeVar("_Result")


def read_timestamp(value: object, formats: Sequence[str], timezone: ZoneInfo | None) -> int:
    """Return the timestamp in microseconds since 1970, UTC; `formats` are tried in order, and none means ISO 8601.

    `timezone` is the timezone of timestamps without an offset. Raises `InvalidValue` when the value has none of the
    formats, lies outside the years 1 to 9999, or has no offset and `timezone` is None.
    """
    if isinstance(value, datetime):
        return to_utc_microseconds(ParsedTime(value.replace(tzinfo=None), value.utcoffset()), value, timezone)
    mixed_epochs = {EPOCH_S, EPOCH_MS} <= set(formats)
    read = partial(read_timestamp_as, timezone=timezone, mixed_epochs=mixed_epochs)
    return _try_formats(value, formats, read, _not_a_timestamp)


def read_date(value: object, formats: Sequence[str]) -> date:
    """Return the date as written: an offset does not change it. A naive datetime must be midnight.

    `formats` are tried in order, and none means YYYY-MM-DD.
    Raises `InvalidValue` when the value has none of the formats or is not a date of the calendar.
    """
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == time():
        return value.date()
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return _try_formats(value, formats, read_date_as, _not_a_date)


def _try_formats(
    value: object,
    formats: Sequence[str],
    read: Callable[[object, str], _Result | None],
    describe: Callable[[object, Sequence[str]], str],
) -> _Result:
    """Return the result of the first format that can read the value.

    Raises the first `InvalidValue` of a format that matches but has no valid value, or one that `describe` words if no
    format matches.
    """
    # 20130308.0 is written like 20130308 in a format such as %Y%m%d.
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    first_error: InvalidValue | None = None
    for format_ in formats or (ISO,):
        try:
            result = read(value, format_)
        except InvalidValue as error:
            first_error = first_error or error
            continue
        if result is not None:
            return result
    raise first_error or InvalidValue(describe(value, formats or (ISO,)))


def read_timestamp_as(
    value: object, format_: str, timezone: ZoneInfo | None, *, mixed_epochs: bool = False
) -> int | None:
    """Return microseconds since 1970, UTC; None when the value does not have the format.

    With `mixed_epochs`, either format of epochs reads seconds and milliseconds, by the size of the number. Raises
    `InvalidValue` when the value has the format, but is not a valid timestamp.
    """
    if format_ in EPOCH_UNITS:
        return _read_epoch(value, None if mixed_epochs else format_)
    try:
        parsed = parse_iso(value) if format_ == ISO else parse_pattern(value, format_)
    except InvalidValue:
        raise
    except (ValueError, OverflowError) as error:
        raise _out_of_range(value) from error
    return parsed and to_utc_microseconds(parsed, value, timezone)


def read_date_as(value: object, format_: str) -> date | None:
    """Return the date; None when the value does not have the format.

    Raises `InvalidValue` when the value has the format, but there is no such date.
    """
    try:
        if format_ != ISO:
            parsed = parse_pattern(value, format_)
            return parsed and parsed.local.date()
        return date.fromisoformat(value) if isinstance(value, str) and DATE.fullmatch(value) else None
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"{quote_value(value)} is not a date of the calendar") from error


def _read_epoch(value: object, format_: str | None) -> int | None:
    """Read a number since 1970 as microseconds; None if it is no number. Without a format, its size says the unit.

    A float is read by its shortest decimal digits, so there are no rounding errors. Raises `InvalidValue` when the
    timestamp is outside the years 1 to 9999.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not NUMBER.fullmatch(str(value).strip()):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise _out_of_range(value) from error
    format_ = format_ or (EPOCH_S if number.copy_abs() < FIRST_MILLISECONDS else EPOCH_MS)
    timestamp = _FLOOR.multiply(number, Decimal(EPOCH_UNITS[format_]))
    if not MIN_TIMESTAMP_US <= timestamp < MAX_TIMESTAMP_US + 1:
        raise _out_of_range(value)
    return math.floor(timestamp)


def parse_iso(value: object) -> ParsedTime | None:
    """Parse ISO 8601; None when the value has another format.

    Raises `InvalidValue` for a leap second, and `ValueError` when there is no such date or time.
    """
    match = TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    if match["second"] == ":60":
        raise InvalidValue(
            f"{quote_value(value)} is a leap second, which timestamps cannot represent: "
            f"send second 59 or the next minute"
        )
    # Six digits of the fraction, which may have one to nine.
    fraction = (match["fraction"] or ".0")[1:7]
    local = datetime.fromisoformat(f"{match['date']}T{match['minute']}{match['second'] or ':00'}.{fraction:0<6}")
    return ParsedTime(local, parse_offset(match["offset"]))


def parse_pattern(value: object, pattern: str) -> ParsedTime | None:
    """Parse a string, or an integer such as 20130308, by a pattern of strptime directives; None when it does not match.

    Raises `ValueError` when there is no such date or time.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return strptime_format(pattern).parse(str(value))


def to_utc_microseconds(parsed: ParsedTime, value: object, timezone: ZoneInfo | None) -> int:
    """Return microseconds since 1970, UTC; `timezone` is used if the parsed time has no offset.

    Raises `InvalidValue`, which quotes `value`, when there is neither an offset nor a timezone, the local time does
    not exist in the timezone, or the timestamp is outside the years 1 to 9999.
    """
    if parsed.offset is None and timezone is None:
        raise InvalidValue(f"{quote_value(value)} {WITHOUT_OFFSET}")
    try:
        offset = parsed.offset
        if offset is None:
            aware = parsed.local.replace(tzinfo=timezone)
            # `zoneinfo` has an offset even for a local time that clocks skip. Only converting it back shows that there
            # is no such time.
            if aware.astimezone(UTC).astimezone(timezone).replace(tzinfo=None) != parsed.local:
                raise InvalidValue(
                    f"{parsed.local.isoformat()} does not exist in {timezone}: clocks were set forward past it"
                )
            offset = aware.utcoffset() or timedelta()
    except OverflowError as error:
        raise _out_of_range(value) from error
    timestamp = (parsed.local.replace(tzinfo=UTC) - _EPOCH - offset) // _MICROSECOND
    if not MIN_TIMESTAMP_US <= timestamp <= MAX_TIMESTAMP_US:
        raise _out_of_range(value)
    return timestamp


def _out_of_range(value: object) -> InvalidValue:
    return InvalidValue(f"{quote_value(value)} is not a valid timestamp (years 1 to 9999, UTC)")


def _not_a_date(value: object, formats: Sequence[str]) -> str:
    expected = " or ".join("YYYY-MM-DD" if format_ == ISO else format_ for format_ in formats)
    return f"{quote_value(value)} is not a date ({expected})"


def _not_a_timestamp(value: object, formats: Sequence[str]) -> str:
    expected = " or ".join(_FORMAT_DESCRIPTIONS.get(format_, format_) for format_ in formats)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and NUMBER.fullmatch(value.strip())):
        kind = "a number"
    elif isinstance(value, str | date):
        kind = "a date without a time" if DATE.fullmatch(str(value)) else "not a timestamp"
    else:
        kind = "not a string"
    return f"{quote_value(value)} is {kind}; expected: {expected}"
