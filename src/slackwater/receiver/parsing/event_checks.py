"""Check events against their source: accepted events become a table, rejected ones get a rule and a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.parsing.columns import Column, ColumnReader
from slackwater.receiver.parsing.count_keys import KEY_NUMBER, rejected_key_numbers
from slackwater.receiver.parsing.json_values import (
    collect_from_objects,
    collect_from_table,
    format_as_strings,
    values_of,
)
from slackwater.receiver.parsing.rejections import (
    REJECTIONS,
    Rejection,
    RejectionRule,
    first_rejections,
    quote_value,
    reject,
    rejections_table,
)
from slackwater.receiver.parsing.timezones import to_local_time
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import ARROW_TYPES, EVENT_TIME, EXTRA, event_schema
from slackwater.sources.fields import ConstantColumn, DatePartColumn, DerivedColumn, LookupColumn, TemplateColumn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HOUR_US, _DAY_US = 3_600 * 10**6, 86_400 * 10**6
# Of local times.
_DATE_PARTS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "date": lambda times: times.cast(pa.date32()),
    "hour": pc.hour,
    "weekday": partial(pc.day_of_week, count_from_zero=False, week_start=1),
    "month": pc.month,
    "year": pc.year,
}
NO_KNOWN_REJECTIONS: Mapping[int, Rejection] = MappingProxyType({})


@dataclass(frozen=True)
class RejectedEvent:
    """An event that breaks a rule of its source."""

    index: int
    """Position in its batch or file, from 0."""
    reason: str
    rule: RejectionRule
    line: int | None = None
    """Text files: the line on which the event starts, from 1. Excel: the number of its row."""
    text: str | None = None
    """The event as the partner sent it. None until `CheckedEvents.located` has added it."""


class CheckedEvents(NamedTuple):
    """Events after checking: each is either in `table` or in `rejections`."""

    table: pa.Table
    """The accepted events, in their order, with the columns of `event_schema`."""
    rejections: pa.Table
    """The rejected events in order of index: the columns of `REJECTIONS`, `EVENT_TIME` with the timestamp of each that
    has a readable one, `KEY_NUMBER`, and `line` and `text` after `located`."""
    missing_columns: Sequence[str] = ()
    """The partner's names of fields for which the file has no column; none for JSON."""

    @property
    def rejected(self) -> list[RejectedEvent]:
        """The rejected events as objects, for callers that expect few."""
        rows = self.rejections.drop_columns([EVENT_TIME, KEY_NUMBER]).to_pylist()
        return [RejectedEvent(**{**row, "rule": RejectionRule(row["rule"])}) for row in rows]

    def located(self, texts: pa.Array, lines: pa.Array | None = None, *, first_index: int = 0) -> CheckedEvents:
        """Return the events with text, line and index in the file of each rejected one.

        `texts` and `lines` are in order of index; `first_index` is the index in the file of the first event.
        """
        indices = pc.add(self.rejections["index"], first_index)
        rejections = self.rejections.set_column(0, REJECTIONS.field("index"), indices)
        rejections = rejections.append_column("line", pa.nulls(len(texts), pa.int64()) if lines is None else lines)
        return CheckedEvents(self.table, rejections.append_column("text", texts))


def check_events(
    events: Sequence[object] | pa.Table,
    source: Source,
    *,
    received_at: datetime,
    first_received_at: datetime | None = None,
    rejections: Mapping[int, Rejection] = NO_KNOWN_REJECTIONS,
    is_clean: bool = False,
) -> CheckedEvents:
    """Check the events of a batch, or the rows of a block of a file.

    `events` are parsed JSON values, with a `Rejection` for each that is rejected already; or a table whose columns have
    the partner's names and any type, in which a missing column is null in all rows. Strings in it are read as in a text
    file; `is_clean` is as in `ColumnReader`, for a table with one chunk. `rejections` are those of a table that are
    already known, by index. The age of an event is its age at `received_at`, and for the rule `too_old` at
    `first_received_at`, if it is set.
    An event that breaks several rules is rejected with the first: known rejections, unknown fields, fields in order,
    age.
    """
    fields, nulls = source.partner_fields, source.null_values
    reader = ColumnReader(trim=source.trim, null_values=nulls, timezone=source.timezone, is_clean=is_clean)
    if isinstance(events, pa.Table):
        arrays = (_array_of(events, name, is_clean=is_clean) for name in fields)
        columns = list(map(reader.read_array, arrays, fields.values()))
        extra = collect_from_table(events, source)
    else:
        rejections = {
            index: reject_non_object(event) for index, event in enumerate(events) if not isinstance(event, dict)
        }
        # An empty object in place of each element that is not an event, so that indexes stay the same.
        objects: Sequence[Any] = (
            [event if isinstance(event, dict) else {} for event in events] if rejections else events
        )
        columns = list(map(reader.read_values, (values_of(objects, name) for name in fields), fields.values()))
        extra = collect_from_objects(objects, source)
    by_name = dict(zip(source.fields, columns, strict=True))
    timestamps = by_name[source.timestamp.field].array
    tables = [rejections_table(rejections), rejections_table(extra.rejections)]
    for name, column in by_name.items():
        tables += reject_values(column, name, source)
    tables += reject_outside_age_limits(timestamps, source, received_at, first_received_at)
    rejected = first_rejections(tables)

    checked = [*(column.array for column in columns), timestamps, extra.array]
    table = pa.Table.from_arrays(checked, [*by_name, EVENT_TIME, EXTRA])
    counted_by = source.counts and source.counts.by
    invalid = by_name[counted_by].rejections["index"] if counted_by else pa.chunked_array([], pa.int64())
    key_numbers = rejected_key_numbers(table, rejected, source.count_keys, invalid=invalid)
    if rejected.num_rows:
        indices = pc.indices_nonzero(pa.repeat(True, table.num_rows)).cast(pa.int64())
        table = table.filter(pc.invert(pc.is_in(indices, value_set=rejected["index"])))
    for name, derived in source.enrich.items():
        table = table.append_column(name, derive_column(table, derived))
    rejected = rejected.append_column(EVENT_TIME, timestamps.take(rejected["index"]))
    rejected = rejected.append_column(KEY_NUMBER, key_numbers)
    return CheckedEvents(table.select(event_schema(source).names), rejected)


def _array_of(table: pa.Table, name: str, *, is_clean: bool) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows)
    # `combine_chunks` would copy the only chunk.
    return table[name].chunk(0) if is_clean else table[name].combine_chunks()


def reject_non_object(event: object) -> Rejection:
    """Return why an element of a JSON array, or a line, is not an event: it is not JSON, or not an object."""
    if isinstance(event, Rejection):
        return event
    json_types = {list: "an array", str: "a string", type(None): "null", bool: "true or false"}
    quoted = "" if isinstance(event, list) or event is None else f" ({quote_value(event)})"
    return Rejection(
        RejectionRule.NOT_AN_OBJECT,
        f"an event is a JSON object, not {json_types.get(type(event), 'a number')}{quoted}",
    )


def reject_values(column: Column, name: str, source: Source) -> Iterator[pa.Table]:
    """Yield the rejections of events with an invalid value for the field `name`, or with none although it is required.

    An event may be in both; the first one counts.
    """
    label = source.field_label(name)
    if column.rejections.num_rows:
        reasons = pc.binary_join_element_wise(f"{label}: ", column.rejections["reason"], "")
        yield column.rejections.set_column(1, REJECTIONS.field("reason"), reasons)
    # An invalid value is null, too.
    if name in source.required_fields and column.array.null_count > column.rejections.num_rows:
        if name == source.timestamp.field:
            why = "every event needs a timestamp"
        else:
            why = "it is the event id" if name == source.event_id else "it is required"
        missing = pc.indices_nonzero(column.array.is_null())
        yield reject(missing, f"{label}: no value, but {why}", RejectionRule.MISSING)


def reject_outside_age_limits(
    timestamps: pa.Array, source: Source, received_at: datetime, first_received_at: datetime | None = None
) -> Iterator[pa.Table]:
    """Yield the rejections of events that are older or further in the future than the source's `timestamp` allows.

    `timestamps` has the event time of each event, including the rejected ones.
    """
    days, hours = source.timestamp.max_age_days, source.timestamp.max_future_hours
    microseconds, received_us = timestamps.cast(pa.int64()), (received_at - _EPOCH) // _MICROSECOND
    first_us = ((first_received_at or received_at) - _EPOCH) // _MICROSECOND
    limits: list[tuple[pa.Array, RejectionRule, str]] = []
    if days is not None:
        first = "its file was first received" if first_received_at else "it was received"
        too_old = pc.less(microseconds, first_us - days * _DAY_US)
        limits.append((too_old, RejectionRule.TOO_OLD, f"{counted(days, 'day')} before {first}"))
    if hours is not None:
        in_the_future = pc.greater(microseconds, received_us + hours * _HOUR_US)
        limits.append((in_the_future, RejectionRule.IN_THE_FUTURE, f"{counted(hours, 'hour')} after it was received"))
    label = source.field_label(source.timestamp.field)
    for outside, rule, limit in limits:
        strings, end = format_as_strings(timestamps.filter(outside)), f" is more than {limit}"
        yield reject(pc.indices_nonzero(outside), pc.binary_join_element_wise(f"{label}: ", strings, end, ""), rule)


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
            return _DATE_PARTS[derived.part](
                to_local_time(table[derived.of].combine_chunks(), ZoneInfo(derived.timezone))
            )


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
