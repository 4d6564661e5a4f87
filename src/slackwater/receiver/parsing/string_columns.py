"""Read whole columns of strings: a fast path beside `values`.

A string is read here only if it matches a plain expression (see `patterns`) for which Arrow's cast gives the same value
as `read_value`. Arrow's casts must not be used without that check: they accept strings that a field does not accept
("0x1F" as an integer, "nan" as a double, a date as a timestamp), and one invalid string makes the cast of the whole
column fail. All other strings become null here, and `columns` reads them with `read_value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.patterns import (
    EPOCH_UNITS,
    FIRST_MILLISECONDS,
    MAX_DATE_DAYS,
    MAX_TIMESTAMP_US,
    MIN_DATE_DAYS,
    MIN_TIMESTAMP_US,
    PLAIN_DATE,
    PLAIN_EPOCHS,
    PLAIN_INTEGER,
    PLAIN_LOCAL_TIME,
    PLAIN_NUMBER,
    PLAIN_OFFSET,
    SEPARATORS,
    TIMESTAMP_SHAPE,
    plain_separated_number,
)
from slackwater.receiver.parsing.timezones import LOCAL_TIMESTAMP, to_utc
from slackwater.sources.event_schema import TIMESTAMP
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO, FieldDefinition, FieldType
from slackwater.sources.strptime_format import strptime_format

_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
# The years 1 to 9999.
_LIMITS = {
    TIMESTAMP: (MIN_TIMESTAMP_US, MAX_TIMESTAMP_US),
    LOCAL_TIMESTAMP: (MIN_TIMESTAMP_US, MAX_TIMESTAMP_US),
    pa.date32(): (MIN_DATE_DAYS, MAX_DATE_DAYS),
}


def read_string_column(strings: pa.Array, field: FieldDefinition, timezone: ZoneInfo | None) -> pa.Array:
    """Read strings. Returns a column of the field's type; null where `read_value` has to decide.

    `timezone` is the timezone of timestamps without an offset.
    """
    return _READERS[field.type](strings, field, timezone)


def null_outside_calendar(array: pa.Array) -> pa.Array:
    """Return dates or timestamps in microseconds, with null for those outside the years 1 to 9999."""
    minimum, maximum = _LIMITS[array.type]
    numbers = array.cast(pa.int32() if array.type == pa.date32() else pa.int64())
    return null_outside(numbers, minimum, maximum).cast(array.type)


def null_outside(numbers: pa.Array, minimum: int, maximum: int) -> pa.Array:
    """Return the numbers with null for those below `minimum` or above `maximum`."""
    # Nearly always all numbers are inside, and finding the extremes is faster than building a new array.
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is None or (extremes["min"] >= minimum and extremes["max"] <= maximum):
        return numbers
    inside = pc.and_(pc.greater_equal(numbers, minimum), pc.less_equal(numbers, maximum))
    return pc.if_else(inside, numbers, pa.scalar(None, numbers.type))


def null_non_finite(doubles: pa.Array) -> pa.Array:
    """Return the doubles with null for NaN and infinity."""
    # A sum with NaN or infinity is never finite, and is computed faster than a mask.
    if math.isfinite(pc.sum(doubles).as_py() or 0):
        return doubles
    return pc.if_else(pc.is_finite(doubles), doubles, pa.scalar(None, pa.float64()))


def read_numbers(strings: pa.Array, field: FieldDefinition, _timezone: ZoneInfo | None) -> pa.Array:
    """Read numbers, with the field's separators if it has any."""
    if field.has_separators:
        strings = null_unless_match(strings, plain_separated_number(field.decimal, field.thousands))
        if field.thousands:
            strings = pc.replace_substring_regex(strings, SEPARATORS[field.thousands], "")
        strings = pc.replace_substring(strings, field.decimal, ".")
    if field.type is FieldType.INT64:
        return cast_or_null(null_unless_match(strings, PLAIN_INTEGER), pa.int64())
    return null_non_finite(cast_or_null(null_unless_match(strings, PLAIN_NUMBER), pa.float64()))


def read_dates(strings: pa.Array, field: FieldDefinition, _timezone: ZoneInfo | None) -> pa.Array:
    """Read dates by the field's first format."""
    iso = rewrite_to_iso(strings, field.formats[0] if field.formats else ISO, with_time=False)
    return cast_or_null(null_unless_match(iso, PLAIN_DATE), pa.date32())


def read_timestamps(strings: pa.Array, field: FieldDefinition, timezone: ZoneInfo | None) -> pa.Array:
    """Read timestamps by the field's first format."""
    format_ = field.formats[0] if field.formats else ISO
    if field.has_mixed_epochs and format_ in EPOCH_UNITS:
        return pc.coalesce(*(_read_epochs(strings, epoch, is_mixed=True) for epoch in (EPOCH_S, EPOCH_MS)))
    if format_ in EPOCH_UNITS:
        return _read_epochs(strings, format_)
    iso = rewrite_to_iso(strings, format_, with_time=True)
    timestamps = cast_or_null(null_unless_match(iso, PLAIN_LOCAL_TIME + PLAIN_OFFSET), TIMESTAMP)
    # Without a timezone, or if all are read already, no string without an offset remains that can be read.
    if timezone is None or timestamps.null_count == iso.null_count:
        return timestamps
    local_times = cast_or_null(null_unless_match(iso, PLAIN_LOCAL_TIME), LOCAL_TIMESTAMP)
    return pc.coalesce(timestamps, null_outside_calendar(to_utc(local_times, timezone)))


def _read_epochs(strings: pa.Array, format_: str, *, is_mixed: bool = False) -> pa.Array:
    """Read numbers since 1970; if seconds and milliseconds are mixed, only those whose size says this format."""
    unit = EPOCH_UNITS[format_]
    # Decimals, because a double would round the microseconds. The scale is the number of digits after the point.
    exact = null_unless_match(strings, PLAIN_EPOCHS[format_]).cast(pa.decimal128(18, len(str(unit)) - 1))
    if is_mixed:
        has_format = pc.equal(are_seconds(exact), format_ == EPOCH_S)
        exact = pc.if_else(has_format, exact, pa.scalar(None, exact.type))
    microseconds = pc.multiply(exact, pa.scalar(unit, pa.int64())).cast(pa.int64())
    return null_outside_calendar(microseconds.cast(TIMESTAMP))


def are_seconds(numbers: pa.Array) -> pa.Array:
    """Return which of mixed epochs are seconds; the others are milliseconds."""
    limit = pa.scalar(FIRST_MILLISECONDS, pa.int64())
    return pc.and_(pc.less(numbers, limit), pc.greater(numbers, pc.negate(limit)))


def are_local_times(strings: pa.Array) -> bool:
    """Whether all strings are plain ISO 8601 timestamps without an offset."""
    return bool(cast_or_null(null_unless_match(strings, PLAIN_LOCAL_TIME), LOCAL_TIMESTAMP).null_count == 0)


def read_alike_timestamps(strings: pa.Array) -> pa.Array | None:
    """Read ISO 8601 timestamps that are all written alike, as programs do; None if one is not.

    Those without an offset become local times. One pass over the characters of all strings is faster than a regular
    expression, and a hash, for each string.
    """
    data, count = strings.buffers()[2], len(strings) - strings.null_count
    if not count or strings.offset or data.size % count:
        return None
    length = data.size // count
    if pc.min_max(pc.binary_length(strings)).as_py() != {"min": length, "max": length}:
        return None
    shapes = data.to_pybytes().translate(_DIGITS_TO_ZEROS)
    shape = TIMESTAMP_SHAPE.fullmatch(shapes[:length])
    if not shape or shapes != shape[0] * count:
        return None
    # Arrow checks the ranges of all numbers, also of those in offsets.
    timestamps = cast_or_null(strings, TIMESTAMP if shape["offset"] else LOCAL_TIMESTAMP)
    return timestamps if timestamps.null_count == strings.null_count else None


def rewrite_to_iso(strings: pa.Array, format_: str, *, with_time: bool) -> pa.Array:
    """Rewrite strings of a strptime format to ISO 8601: timestamps if `with_time`, otherwise dates.

    Null where a string does not match the format, or in all rows if reordering digits is not enough for the format.
    """
    if format_ == ISO:
        return strings
    rewrite = strptime_format(format_).iso_rewrite
    if rewrite is None:
        return pa.nulls(len(strings), pa.string())
    matching = null_unless_match(strings, rewrite.expression)
    replacement = rewrite.timestamp if with_time else rewrite.date
    return pc.replace_substring_regex(matching, f"^{rewrite.expression}$", replacement)


def null_unless_match(strings: pa.Array, expression: str) -> pa.Array:
    """Return the strings with null for those that do not match `expression`, in RE2's syntax, as a whole."""
    matches = pc.match_substring_regex(strings, f"^(?:{expression})$")
    return pc.if_else(matches, strings, pa.scalar(None, pa.string()))


def cast_or_null(strings: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast the strings; all become null if one has no value although its expression matches, such as 30 February."""
    try:
        array = strings.cast(data_type)
    except pa.ArrowInvalid:
        return pa.nulls(len(strings), data_type)
    return null_outside_calendar(array) if data_type in _LIMITS else array


_READERS: dict[FieldType, Callable[[pa.Array, FieldDefinition, ZoneInfo | None], pa.Array]] = {
    FieldType.STRING: lambda strings, _field, _timezone: strings,
    FieldType.INT64: read_numbers,
    FieldType.DOUBLE: read_numbers,
    # A fast path gains nothing: a column has few distinct booleans, and `columns` reads each distinct string once.
    FieldType.BOOLEAN: lambda strings, _field, _timezone: pa.nulls(len(strings), pa.bool_()),
    FieldType.TIMESTAMP: read_timestamps,
    FieldType.DATE: read_dates,
}
