"""Read whole columns that are not strings, from Parquet files or JSON numbers: a fast path beside `values`.

A value is converted here only if the result is certainly that of `read_value`. All other values become null, and
`columns` reads them with `read_value`.
"""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.patterns import EPOCH_UNITS, MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule
from slackwater.receiver.parsing.string_columns import (
    are_seconds,
    null_non_finite,
    null_outside,
    null_outside_calendar,
    read_string_column,
)
from slackwater.receiver.parsing.timezones import LOCAL_TIMESTAMP, to_utc
from slackwater.sources.event_schema import ARROW_TYPES, TIMESTAMP
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, FieldDefinition, FieldType

_MICROSECONDS = 10**6
# Ticks in one second, by Arrow's time units.
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class TypedColumn(NamedTuple):
    """The result of the fast path for one column."""

    values: pa.Array
    """The values that are read, with the field's type; null where a value is not read."""
    originals: pa.Array
    """What to pass to `read_value` where `values` is null; null where there is no value, or it is rejected."""
    rejections: dict[int, Rejection]
    """By index, for values that `read_value` cannot read either."""


def read_typed_column(array: pa.Array, field: FieldDefinition, timezone: ZoneInfo | None) -> TypedColumn:
    """Read a column of any Arrow type except strings, dictionaries and null.

    `timezone` is the timezone of timestamps without an offset.
    """
    data_type, target = array.type, ARROW_TYPES[field.type]
    if types.is_integer(data_type):
        return TypedColumn(read_integers(array, field), array, {})
    if types.is_floating(data_type):
        doubles = array.cast(pa.float64())
        return TypedColumn(read_doubles(doubles, field), doubles, {})
    if types.is_decimal(data_type):
        strings = array.cast(pa.string())
        return TypedColumn(read_string_column(strings, field, timezone), strings, {})
    if types.is_boolean(data_type):
        return TypedColumn(array if data_type == target else pa.nulls(len(array), target), array, {})
    return read_temporal_column(array, field, timezone)


def read_temporal_column(array: pa.Array, field: FieldDefinition, timezone: ZoneInfo | None) -> TypedColumn:
    """Read a column of dates, or of timestamps of any unit, with or without a timezone.

    All values of any other type are rejected: no field accepts, for example, a list. `timezone` is the timezone of
    timestamps without one.
    """
    data_type, target = array.type, ARROW_TYPES[field.type]
    if types.is_date(data_type) and field.type is FieldType.DATE:
        dates = null_outside_calendar(array.cast(target))
        return TypedColumn(dates, dates, _reject_nulled(dates, array))
    is_date = field.type is FieldType.DATE and types.is_timestamp(data_type) and not data_type.tz
    if not is_date and not (types.is_timestamp(data_type) and field.type is FieldType.TIMESTAMP):
        nulls = pa.nulls(len(array), target)
        return TypedColumn(nulls, nulls, _reject(array.is_valid(), f"a {field.type} is expected, not {data_type}"))
    # Arrow stores timestamps with a timezone in UTC, and those without one as local time.
    times = to_microseconds(array)
    if is_date:
        dates = times.cast(target)
        # Only midnight stands for a date; `read_value` gives the reason for any other time.
        values = pc.if_else(pc.equal(dates.cast(LOCAL_TIMESTAMP), times), dates, pa.scalar(None, target))
    elif data_type.tz:
        values = times.cast(pa.int64()).cast(TIMESTAMP)
    else:
        values = null_outside_calendar(to_utc(times, timezone)) if timezone else pa.nulls(len(times), TIMESTAMP)
    return TypedColumn(values, times, _reject_nulled(times, array))


def read_integers(integers: pa.Array, field: FieldDefinition) -> pa.Array:
    """Read a column of integers of any size; null where `read_value` has to decide."""
    if field.type is FieldType.DOUBLE:
        # The checked cast fails on integers beyond 2**53; `read_value` rounds them, as this cast does.
        return integers.cast(pa.float64(), safe=False)
    if field.type is FieldType.STRING:
        return integers.cast(pa.string())
    target = ARROW_TYPES[field.type]
    try:
        if field.type is FieldType.INT64:
            return integers.cast(target)
        if field.formats and field.formats[0] in EPOCH_UNITS:
            numbers, unit = integers.cast(pa.int64()), pa.scalar(EPOCH_UNITS[field.formats[0]])
            if field.has_mixed_epochs:
                unit = pc.if_else(are_seconds(numbers), EPOCH_UNITS[EPOCH_S], EPOCH_UNITS[EPOCH_MS])
            return null_outside_calendar(pc.multiply_checked(numbers, unit).cast(TIMESTAMP))
    except pa.ArrowInvalid:  # One integer does not fit into 64 bits.
        pass
    return pa.nulls(len(integers), target)


def read_doubles(doubles: pa.Array, field: FieldDefinition) -> pa.Array:
    """Read a column of doubles; null where `read_value` has to decide."""
    if field.type is FieldType.DOUBLE:
        return null_non_finite(doubles)
    target = ARROW_TYPES[field.type]
    try:
        if field.type is FieldType.INT64:
            return doubles.cast(target)
        if field.formats and field.formats[0] in EPOCH_UNITS:
            # `read_value` also reads a double by its shortest decimal digits.
            return read_string_column(doubles.cast(pa.string()), field, None)
    except pa.ArrowInvalid:  # One double has a fraction, or does not fit into 64 bits.
        pass
    return pa.nulls(len(doubles), target)


def to_microseconds(timestamps: pa.Array) -> pa.Array:
    """Convert timestamps of any unit to microseconds without a timezone; null outside the years 1 to 9999.

    Digits after the microsecond are dropped, also before 1970: the result is never later than the timestamp.
    """
    ticks = _TICKS[timestamps.type.unit]
    numbers = timestamps.cast(pa.int64())
    if ticks > _MICROSECONDS:
        # 64 bits of nanoseconds cover the years 1677 to 2262, so the limits need no check.
        return pc.floor_temporal(numbers.cast(pa.timestamp("ns")), unit="microsecond").cast(LOCAL_TIMESTAMP)
    # Check the limits in the original unit, because the cast to microseconds could overflow.
    minimum, maximum = MIN_TIMESTAMP_US * ticks // _MICROSECONDS, MAX_TIMESTAMP_US * ticks // _MICROSECONDS
    return null_outside(numbers, minimum, maximum).cast(pa.timestamp(timestamps.type.unit)).cast(LOCAL_TIMESTAMP)


def _reject_nulled(result: pa.Array, array: pa.Array) -> dict[int, Rejection]:
    """Reject values that were set to null because they are outside the calendar."""
    return _reject(pc.and_(array.is_valid(), result.is_null()), "is outside the years 1 to 9999")


def _reject(mask: pa.Array, reason: str) -> dict[int, Rejection]:
    """Reject the values at which `mask` is true."""
    rejection = Rejection(RejectionRule.WRONG_TYPE, reason)
    return dict.fromkeys(pc.indices_nonzero(mask).to_pylist(), rejection)
