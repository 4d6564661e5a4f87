"""Columns of texts read at once, as far as they are written as most are; `receiver.values` reads the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.timestamps import EPOCH_UNITS, FIRST, LAST
from slackwater.receiver.parsing.timezones import CLOCK, moments_at
from slackwater.receiver.parsing.values import SEPARATORS
from slackwater.sources.event_schema import TIMESTAMP
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO, FieldDefinition, FieldType
from slackwater.sources.strptime_format import strptime_format

_INT64 = "-?[0-9]{1,18}"
_DOUBLE = r"-?[0-9]+(\.[0-9]+)?"
_DAY = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = rf"{_DAY}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?"
_OFFSET = "(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
_EPOCHS = {EPOCH_S: r"-?[0-9]{1,12}(\.[0-9]{1,6})?", EPOCH_MS: r"-?[0-9]{1,15}(\.[0-9]{1,3})?"}
_RANGES = {TIMESTAMP: (FIRST, LAST), CLOCK: (FIRST, LAST), pa.date32(): (-719_162, 2_932_896)}
"""The years 1 to 9999, counted from 1970."""


def read_texts(texts: pa.Array, field: FieldDefinition, zone: ZoneInfo | None) -> pa.Array:
    """Return the values that `read_value` would, by the field's type; null where a text has to be read by itself."""
    return _READERS[field.type](texts, field, zone)


def in_range(array: pa.Array) -> pa.Array:
    """Return days or moments, null where one is not of the years 1 to 9999."""
    first, last = _RANGES[array.type]
    counts = array.cast(pa.int32() if array.type == pa.date32() else pa.int64())
    return between(counts, first, last).cast(array.type)


def between(numbers: pa.Array, first: int, last: int) -> pa.Array:
    """Return the numbers, null where one is not between these two."""
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= first and found["max"] <= last):
        return numbers
    inside = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(inside, numbers, pa.scalar(None, numbers.type))


def finite(doubles: pa.Array) -> pa.Array:
    """Return the doubles, null where one is not finite."""
    # One that is not makes a sum that is not.
    if math.isfinite(pc.sum(doubles).as_py() or 0):
        return doubles
    return pc.if_else(pc.is_finite(doubles), doubles, pa.scalar(None, pa.float64()))


def _number(texts: pa.Array, field: FieldDefinition, _zone: ZoneInfo | None) -> pa.Array:
    if field.is_punctuated:
        texts = _unpunctuated(texts, field.decimal, field.thousands)
    if field.type is FieldType.INT64:
        return _cast(_matching(texts, _INT64), pa.int64())
    return finite(_cast(_matching(texts, _DOUBLE), pa.float64()))


def _unpunctuated(texts: pa.Array, decimal: str, thousands: str) -> pa.Array:
    grouped = f"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    texts = _matching(texts, f"-?({grouped}[0-9]+)({SEPARATORS[decimal]}[0-9]+)?")
    if thousands:
        texts = pc.replace_substring_regex(texts, SEPARATORS[thousands], "")
    return pc.replace_substring(texts, decimal, ".")


def _boolean(texts: pa.Array, _field: FieldDefinition, _zone: ZoneInfo | None) -> pa.Array:
    return pa.nulls(len(texts), pa.bool_())  # So few of them differ that each is read by itself.


def _date(texts: pa.Array, field: FieldDefinition, _zone: ZoneInfo | None) -> pa.Array:
    form = field.formats[0] if field.formats else ISO
    return _cast(_matching(_in_iso(texts, form, with_time=False), _DAY), pa.date32())


def _timestamp(texts: pa.Array, field: FieldDefinition, zone: ZoneInfo | None) -> pa.Array:
    form = field.formats[0] if field.formats else ISO
    if form in EPOCH_UNITS:
        return _since_1970(texts, form)
    texts = _in_iso(texts, form, with_time=True)
    moments = _cast(_matching(texts, _CLOCK + _OFFSET), TIMESTAMP)
    if zone is None or moments.null_count == texts.null_count:
        return moments
    clocks = _cast(_matching(texts, _CLOCK), CLOCK)
    return pc.coalesce(moments, in_range(moments_at(clocks, zone)))


def _since_1970(texts: pa.Array, form: str) -> pa.Array:
    unit = EPOCH_UNITS[form]
    exact = _matching(texts, _EPOCHS[form]).cast(pa.decimal128(18, len(str(unit)) - 1))
    return in_range(pc.multiply(exact, pa.scalar(unit, pa.int64())).cast(pa.int64()).cast(TIMESTAMP))


def _in_iso(texts: pa.Array, form: str, *, with_time: bool) -> pa.Array:
    """Return texts of that form in ISO 8601; null where one is of no such form, or takes more than moving digits."""
    if form == ISO:
        return texts
    rewriting = strptime_format(form).rewriting
    if rewriting is None:
        return pa.nulls(len(texts), pa.string())
    replacement = rewriting.moment if with_time else rewriting.date
    return pc.replace_substring_regex(_matching(texts, rewriting.form), f"^{rewriting.form}$", replacement)


def _matching(texts: pa.Array, form: str) -> pa.Array:
    """Return the texts that are of that form as a whole, and null for the others."""
    return pc.if_else(pc.match_substring_regex(texts, f"^(?:{form})$"), texts, pa.scalar(None, pa.string()))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the texts as `kind`, or nulls when one of them is not what its form promises: the 30th of February."""
    try:
        array = texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(len(texts), kind)
    return in_range(array) if kind in _RANGES else array


_READERS: dict[FieldType, Callable[[pa.Array, FieldDefinition, ZoneInfo | None], pa.Array]] = {
    FieldType.STRING: lambda texts, _field, _zone: texts,
    FieldType.INT64: _number,
    FieldType.DOUBLE: _number,
    FieldType.BOOLEAN: _boolean,
    FieldType.TIMESTAMP: _timestamp,
    FieldType.DATE: _date,
}
