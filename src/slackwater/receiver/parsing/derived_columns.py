"""Compute the derived columns of accepted events."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.arrow_to_python import format_as_strings
from slackwater.receiver.parsing.timezones import to_local_time
from slackwater.sources.enrichment import ConstantColumn, DatePartColumn, DerivedColumn, LookupColumn, TemplateColumn
from slackwater.sources.event_schema import ARROW_TYPES


def derive_column(table: pa.Table, derived: DerivedColumn) -> pa.Array:
    """Compute a derived column from `table`, which has the events' fields by the source's names.

    The column is null where a field that it reads is null.
    """
    match derived:
        case ConstantColumn(constant=value):
            return pa.repeat(pa.scalar(value, ARROW_TYPES[derived.type]), table.num_rows)
        case TemplateColumn():
            return fill_template(table, derived)
        case LookupColumn():
            return look_up(format_as_strings(table[derived.of].combine_chunks()), derived)
        case DatePartColumn():
            local_times = to_local_time(table[derived.of].combine_chunks(), ZoneInfo(derived.timezone))
            return date_part(local_times, derived)


def fill_template(table: pa.Table, template: TemplateColumn) -> pa.Array:
    """Return the template of each row, with the row's values in place of the fields."""
    # The first array gives the result its length when no field is in the template.
    parts: list[pa.Array] = [pa.repeat(pa.scalar("", pa.string()), table.num_rows)]
    for literal, field in template.parts:
        parts.append(pa.scalar(literal))
        if field is not None:
            parts.append(format_as_strings(table[field].combine_chunks()))
    return pc.binary_join_element_wise(*parts, "")


def look_up(strings: pa.Array, lookup: LookupColumn) -> pa.Array:
    """Return the lookup's result for each string: its default for a string that it does not list, and null for null."""
    # `index_in` and `take` give null for strings that are not listed.
    indices = pc.index_in(strings, value_set=pa.array(lookup.values, pa.string()))
    results = pa.array(lookup.values.values(), pa.string()).take(indices)
    if lookup.default is None:
        return results
    return pc.if_else(strings.is_valid(), pc.coalesce(results, lookup.default), results)


def date_part(local_times: pa.Array, derived: DatePartColumn) -> pa.Array:
    """Return the derived part of each local time; weekdays are 1 (Monday) to 7."""
    match derived.part:
        case "date":
            return local_times.cast(pa.date32())
        case "hour":
            return pc.hour(local_times)
        case "weekday":
            return pc.day_of_week(local_times, count_from_zero=False, week_start=1)
        case "month":
            return pc.month(local_times)
        case "year":
            return pc.year(local_times)
