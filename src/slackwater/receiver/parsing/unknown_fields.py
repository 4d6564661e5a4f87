"""Fields that no definition names: kept as JSON, left out, or the reason why their event is rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa
from pyarrow import types

from slackwater.receiver.parsing.arrow_to_python import python_values
from slackwater.receiver.parsing.columns import NOT_UTF8, decoded, is_text
from slackwater.receiver.parsing.derived_columns import as_texts
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule, quote_name
from slackwater.sources.definition import Source, UnknownFields
from slackwater.sources.event_schema import partner_schema

MAX_DEPTH = 32
"""Levels to which an event may be nested; the event itself is the first."""
_NAMED = 10
"""Fields that a reason lists."""
_FLAT = frozenset({str, int, bool, type(None)})


class Unknown(NamedTuple):
    """What becomes of the unknown fields of some events."""

    extra: pa.Array
    """As JSON, null where an event has none."""
    faults: Mapping[int, Rejection]
    """Why the event in that place cannot be used."""


def unknown_of_objects(objects: Sequence[Mapping[str, object]], source: Source) -> Unknown:
    """Judge what events have besides their source's fields."""
    known = frozenset(partner_schema(source).names)
    if source.unknown_fields is UnknownFields.IGNORE or all(map(known.issuperset, objects)):
        return _none(len(objects))
    return _judged(({name: item[name] for name in item if name not in known} for item in objects), source)


def unknown_of_table(table: pa.Table, source: Source) -> Unknown:
    """Judge the columns of a file that are none of the source's: every row has them."""
    known = frozenset(partner_schema(source).names)
    names = [name for name in table.column_names if name not in known]
    if source.unknown_fields is UnknownFields.IGNORE or not names:
        return _none(table.num_rows)
    faults: dict[int, Rejection] = {}
    columns = [_json_values(table[name].combine_chunks(), name, faults) for name in names]
    found = _judged((dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), source)
    return Unknown(found.extra, {**found.faults, **faults})


def _none(events: int) -> Unknown:
    return Unknown(pa.nulls(events, pa.string()), {})


def _judged(unknown: Iterable[Mapping[str, object]], source: Source) -> Unknown:
    extra: list[str | None] = []
    faults: dict[int, Rejection] = {}
    refusal = _refusal(source)
    for index, fields in enumerate(unknown):
        fault = _fault(fields, refusal) if fields else None
        if fault:
            faults[index] = fault
        extra.append(None if fault or not fields else _json(fields))
    return Unknown(pa.array(extra, pa.string()), faults)


def _refusal(source: Source) -> str | None:
    """Return what is said of an unknown field, if the source has none."""
    if source.unknown_fields is not UnknownFields.REJECT:
        return None
    names = partner_schema(source).names
    listed = ", ".join([*names[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
    return f"no field of this source (it has: {listed})"


def _fault(fields: Mapping[str, object], refusal: str | None) -> Rejection | None:
    if refusal is not None:
        return Rejection(RejectionRule.UNKNOWN_FIELD, f"{quote_name(next(iter(fields)))}: {refusal}")
    for name, value in fields.items():
        if type(value) in _FLAT:
            continue
        values = [value]
        for _ in range(MAX_DEPTH):
            if any(isinstance(inner, float) and not math.isfinite(inner) for inner in values):
                return Rejection(
                    RejectionRule.NOT_JSON, "an unknown field holds NaN or Infinity, which JSON does not have"
                )
            nests = [inner for inner in values if isinstance(inner, dict | list | tuple)]
            if not nests:
                break
            values = [inner for nest in nests for inner in (nest.values() if isinstance(nest, dict) else nest)]
        else:
            return Rejection(RejectionRule.TOO_DEEP, f"{quote_name(name)}: nested more than {MAX_DEPTH} levels deep")
    return None


def _json(fields: Mapping[str, object]) -> str:
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # An integer of more than 64 bits, or half of a surrogate pair.
        return json.dumps(fields, default=str, separators=(",", ":"))


def _json_values(array: pa.Array, name: str, faults: dict[int, Rejection]) -> list[object]:
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        array, broken = decoded(array)
        for index in broken:
            faults.setdefault(index, Rejection(RejectionRule.NOT_UTF8, f"{quote_name(name)}: {NOT_UTF8}"))
    elif types.is_temporal(array.type) or types.is_decimal(array.type):
        array = as_texts(array)
    values, unreadable = python_values(array)
    for index, reason in unreadable.items():
        rule = RejectionRule.NOT_UTF8 if reason == NOT_UTF8 else RejectionRule.WRONG_TYPE
        faults.setdefault(index, Rejection(rule, f"{quote_name(name)}: {reason}"))
    if types.is_map(array.type) and is_text(array.type.key_type):
        return [dict(value) if isinstance(value, list) else value for value in values]
    return values
