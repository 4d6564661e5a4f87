"""Collect the fields that the definition does not list: they are stored as JSON, dropped, or reject their event."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa
from pyarrow import types

from slackwater.receiver.parsing.arrow_to_python import is_string_type, to_json_values
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule, list_names, quote_name
from slackwater.sources.definition import Source, UnknownFields

# Levels of nesting of an event; the event itself is the first.
MAX_DEPTH = 32
_SCALAR_TYPES = frozenset({str, int, bool, type(None)})


class ExtraColumn(NamedTuple):
    """The unknown fields of events."""

    array: pa.Array
    """The unknown fields of each event as a JSON object; null where an event has none."""
    rejections: Mapping[int, Rejection]
    """By index, for events whose unknown fields cannot be stored or are not allowed."""


def collect_from_objects(objects: Sequence[Mapping[str, object]], source: Source) -> ExtraColumn:
    """Collect the unknown fields of JSON objects, or reject their events, as the source defines."""
    known = frozenset(source.partner_fields)
    if source.unknown_fields is UnknownFields.IGNORE or all(map(known.issuperset, objects)):
        return ExtraColumn(pa.nulls(len(objects), pa.string()), {})
    return _collect(({name: event[name] for name in event if name not in known} for event in objects), source)


def collect_from_table(table: pa.Table, source: Source) -> ExtraColumn:
    """Collect the columns of a file that the definition does not list: every row has all of these fields."""
    known = frozenset(source.partner_fields)
    names = [name for name in table.column_names if name not in known]
    if source.unknown_fields is UnknownFields.IGNORE or not names:
        return ExtraColumn(pa.nulls(table.num_rows, pa.string()), {})
    rejections: dict[int, Rejection] = {}
    columns: list[list[object]] = []
    for name in names:
        array = table[name].combine_chunks()
        values, invalid = to_json_values(array)
        for index, rejection in invalid.items():
            rejections.setdefault(index, rejection.of_field(quote_name(name)))
        # Arrow gives a map as a list of pairs. With strings as keys it is an object in JSON.
        if types.is_map(array.type) and is_string_type(array.type.key_type):
            values = [dict(value) if isinstance(value, list) else value for value in values]
        columns.append(values)
    extra = _collect((dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), source)
    return ExtraColumn(extra.array, {**extra.rejections, **rejections})


def _collect(unknown: Iterable[Mapping[str, object]], source: Source) -> ExtraColumn:
    """Collect `unknown`, the unknown fields of each event."""
    strings: list[str | None] = []
    rejections: dict[int, Rejection] = {}
    listed = list_names(list(source.partner_fields))
    for index, fields in enumerate(unknown):
        rejection = None
        if fields and source.unknown_fields is UnknownFields.REJECT:
            name = quote_name(next(iter(fields)))
            reason = f"{name}: the source has no such field (its fields: {listed})"
            rejection = Rejection(RejectionRule.UNKNOWN_FIELD, reason)
        elif fields:
            rejection = check_nesting(fields)
        if rejection:
            rejections[index] = rejection
        strings.append(None if rejection or not fields else format_as_json(fields))
    return ExtraColumn(pa.array(strings, pa.string()), rejections)


def check_nesting(fields: Mapping[str, object]) -> Rejection | None:
    """Return why the fields cannot be stored as JSON: NaN, infinity or too many levels. Return None if they can."""
    for name, value in fields.items():
        if type(value) in _SCALAR_TYPES:
            continue
        # Level by level, not recursively: the partner decides the depth, and could exhaust the stack.
        level = [value]
        for _ in range(MAX_DEPTH):
            if any(isinstance(inner, float) and not math.isfinite(inner) for inner in level):
                return Rejection(
                    RejectionRule.NOT_JSON, f"{quote_name(name)}: contains NaN or Infinity, which are not JSON"
                )
            nested = [inner for inner in level if isinstance(inner, dict | list | tuple)]
            if not nested:
                break
            level = [inner for outer in nested for inner in (outer.values() if isinstance(outer, dict) else outer)]
        else:
            return Rejection(RejectionRule.TOO_DEEP, f"{quote_name(name)}: nested more than {MAX_DEPTH} levels deep")
    return None


def format_as_json(fields: Mapping[str, object]) -> str:
    """Return the fields as a JSON object; integers of any size and lone surrogates are preserved."""
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # An integer does not fit into 64 bits, or a string has half of a surrogate pair.
        return json.dumps(fields, default=str, separators=(",", ":"))
