"""Columns of numerals read at once, where Arrow reads them just as a field does."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition, FieldType

_CHARACTERS = {FieldType.INT64: b"0123456789-", FieldType.DOUBLE: b"0123456789-.eE"}
"""A text of nothing else Arrow reads as `slackwater.receiver.parsing.values` does, or not at all: no blanks, 0x1F or nan."""
_ZEROS = b"0" * 40
"""A text of sixty digits is no whole number to a field; Arrow reads it if all but nineteen are zeros before them."""


def read_numerals(texts: pa.Array, field: FieldDefinition) -> pa.Array:
    """Return texts as numbers of the field, which has no form of its own for them; unchanged where one may be none."""
    raw = texts.buffers()[2]
    characters = raw.to_pybytes() if raw else b""
    if characters.translate(None, _CHARACTERS[field.type]) or _ZEROS in characters:
        return texts
    try:
        numbers = texts.cast(ARROW_TYPES[field.type])
    except pa.ArrowInvalid:
        return texts
    if field.type is FieldType.DOUBLE and pc.all(pc.is_finite(numbers)).as_py() is False:
        return texts
    return numbers
