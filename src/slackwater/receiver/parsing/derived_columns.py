"""The columns that the receiver adds to accepted events, made of the events' own."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.timezones import clocks_at
from slackwater.sources.enrichment import ConstantColumn, DatePartColumn, DerivedColumn, LookupColumn, TemplateColumn
from slackwater.sources.event_schema import ARROW_TYPES


def derive(table: pa.Table, derived: DerivedColumn) -> pa.Array:
    """Return the column, of as many rows as the table: of the events that it was read from.

    It is null where a part of a template, the text to look up, or the moment is null.
    """
    match derived:
        case ConstantColumn(constant=value):
            return pa.repeat(pa.scalar(value, ARROW_TYPES[derived.type]), table.num_rows)
        case TemplateColumn():
            return _filled(table, derived)
        case LookupColumn():
            return _looked_up(as_texts(_column(table, derived.of)), derived)
        case DatePartColumn():
            return _part(clocks_at(_column(table, derived.of), ZoneInfo(derived.timezone)), derived)


def as_texts(array: pa.Array) -> pa.Array:
    """Return values as JSON shows them, texts without quotes; days and moments are ISO 8601, in UTC with a Z."""
    kind = array.type
    if types.is_floating(kind):
        encoded = array.dictionary_encode()
        return pa.array(map(json.dumps, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)
    if types.is_timestamp(kind):
        # Without a zone: Arrow would look for zone files, which Lambda's image does not have.
        texts = array.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string())
        return pc.replace_substring_regex(texts, r"^(\S+) (.*?)(\.0+)?$", rf"\1T\2{'Z' if kind.tz else ''}")
    return array.cast(pa.string())


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _filled(table: pa.Table, template: TemplateColumn) -> pa.Array:
    pieces: list[pa.Array] = [pa.repeat(pa.scalar("", pa.string()), table.num_rows)]
    for text, field in template.parts:
        pieces.append(pa.scalar(text))
        if field is not None:
            pieces.append(as_texts(_column(table, field)))
    return pc.binary_join_element_wise(*pieces, "")  # Null where one of them is.


def _looked_up(texts: pa.Array, mapping: LookupColumn) -> pa.Array:
    places = pc.index_in(texts, value_set=pa.array(mapping.values, pa.string()))
    found = pa.array(mapping.values.values(), pa.string()).take(places)
    if mapping.default is None:
        return found
    return pc.if_else(texts.is_valid(), pc.coalesce(found, mapping.default), found)


def _part(clocks: pa.Array, part: DatePartColumn) -> pa.Array:
    match part.part:
        case "date":
            return clocks.cast(pa.date32())
        case "hour":
            return pc.hour(clocks)
        case "weekday":
            return pc.day_of_week(clocks, count_from_zero=False, week_start=1)
        case "month":
            return pc.month(clocks)
        case "year":
            return pc.year(clocks)
