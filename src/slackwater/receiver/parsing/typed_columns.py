"""Columns that came with a type of their own, from Parquet or from JSON's numbers, read at once as far as they fit."""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.string_columns import between, finite, in_range, read_texts
from slackwater.receiver.parsing.timestamps import EPOCH_UNITS, FIRST, LAST
from slackwater.receiver.parsing.timezones import CLOCK, moments_at
from slackwater.sources.event_schema import ARROW_TYPES, TIMESTAMP
from slackwater.sources.fields import FieldDefinition, FieldType

_MICROSECONDS = 10**6
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a second, by Arrow's units."""


class Native(NamedTuple):
    """What could be read at once, and what is left."""

    values: pa.Array
    """By the field's type; null where the value has to be read by itself."""
    originals: pa.Array
    """What to read then."""
    faults: dict[int, str]
    """Why neither will do."""


def read_native(array: pa.Array, field: FieldDefinition, zone: ZoneInfo | None) -> Native:
    """Read a column that holds no texts, and is no dictionary."""
    kind, wanted = array.type, ARROW_TYPES[field.type]
    if types.is_integer(kind):
        return Native(_integers(array, field), array, {})
    if types.is_floating(kind):
        doubles = array.cast(pa.float64())
        return Native(_doubles(doubles, field), doubles, {})
    if types.is_decimal(kind):
        texts = array.cast(pa.string())
        return Native(read_texts(texts, field, zone), texts, {})
    if types.is_boolean(kind):
        return Native(array if kind == wanted else pa.nulls(len(array), wanted), array, {})
    return _read_moments(array, field, zone)


def _read_moments(array: pa.Array, field: FieldDefinition, zone: ZoneInfo | None) -> Native:
    """Read timestamps and days; whatever else the column holds fits no field."""
    kind, wanted = array.type, ARROW_TYPES[field.type]
    if types.is_date(kind) and field.type is FieldType.DATE:
        days = in_range(array.cast(pa.date32()))
        return Native(days, days, _outside(days, array))
    if types.is_timestamp(kind) and field.type is FieldType.TIMESTAMP:
        clocks = _clocks(array)
        values = clocks.cast(pa.int64()).cast(TIMESTAMP) if kind.tz else _local(clocks, zone)
        return Native(values, clocks, _outside(clocks, array))
    if types.is_timestamp(kind) and field.type is FieldType.DATE and not kind.tz:
        clocks = _clocks(array)
        return Native(_midnights(clocks), clocks, _outside(clocks, array))
    nothing = pa.nulls(len(array), wanted)
    return Native(nothing, nothing, _at(array.is_valid(), f"a {field.type} is expected, not {kind}"))


def _integers(numbers: pa.Array, field: FieldDefinition) -> pa.Array:
    if field.type is FieldType.DOUBLE:
        return numbers.cast(pa.float64(), safe=False)
    if field.type is FieldType.STRING:
        return numbers.cast(pa.string())
    wanted = ARROW_TYPES[field.type]
    try:
        if field.type is FieldType.INT64:
            return numbers.cast(wanted)
        if field.formats and field.formats[0] in EPOCH_UNITS:
            unit = EPOCH_UNITS[field.formats[0]]
            return in_range(pc.multiply_checked(numbers.cast(pa.int64()), unit).cast(TIMESTAMP))
    except pa.ArrowInvalid:  # One of them is too large.
        pass
    return pa.nulls(len(numbers), wanted)


def _doubles(numbers: pa.Array, field: FieldDefinition) -> pa.Array:
    if field.type is FieldType.DOUBLE:
        return finite(numbers)
    wanted = ARROW_TYPES[field.type]
    try:
        if field.type is FieldType.INT64:
            return numbers.cast(wanted)
        if field.formats and field.formats[0] in EPOCH_UNITS:
            return read_texts(numbers.cast(pa.string()), field, None)  # A double's shortest text has its exact digits.
    except pa.ArrowInvalid:  # One of them is not whole.
        pass
    return pa.nulls(len(numbers), wanted)


def _clocks(moments: pa.Array) -> pa.Array:
    """Return timestamps of any unit in microseconds, without their zone; null outside of the years 1 to 9999."""
    ticks = _TICKS[moments.type.unit]
    counts = moments.cast(pa.int64())
    if ticks > _MICROSECONDS:
        return pc.floor_temporal(counts.cast(pa.timestamp("ns")), unit="microsecond").cast(CLOCK)
    counts = between(counts, FIRST * ticks // _MICROSECONDS, LAST * ticks // _MICROSECONDS)
    return counts.cast(pa.timestamp(moments.type.unit)).cast(CLOCK)


def _midnights(clocks: pa.Array) -> pa.Array:
    days = clocks.cast(pa.date32())
    return pc.if_else(pc.equal(days.cast(CLOCK), clocks), days, pa.scalar(None, pa.date32()))


def _local(clocks: pa.Array, zone: ZoneInfo | None) -> pa.Array:
    return pa.nulls(len(clocks), TIMESTAMP) if zone is None else in_range(moments_at(clocks, zone))


def _outside(read: pa.Array, array: pa.Array) -> dict[int, str]:
    return _at(pc.and_(array.is_valid(), read.is_null()), "outside of the years 1 to 9999")


def _at(mask: pa.Array, reason: str) -> dict[int, str]:
    return dict.fromkeys(pc.indices_nonzero(mask).to_pylist(), reason)
