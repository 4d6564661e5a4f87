"""Events checked against their source: what is accepted, as a table, and what is rejected, with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.parsing.columns import NOT_UTF8, Column, Reader
from slackwater.receiver.parsing.derived_columns import as_texts, derive
from slackwater.receiver.parsing.json_lines import InvalidJson
from slackwater.receiver.parsing.rejections import Rejection, RejectionRule, quote_value
from slackwater.receiver.parsing.unknown_fields import Unknown, unknown_of_objects, unknown_of_table
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME, EXTRA, event_schema, partner_schema
from slackwater.sources.fields import FieldDefinition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HOUR, _DAY = 3_600 * 10**6, 86_400 * 10**6
_NO_FAULTS: Mapping[int, Rejection] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that cannot be used."""

    index: int
    """Its place among the events of its batch or file, from 0."""
    reason: str
    rule: RejectionRule
    line: int | None = None
    """The line on which it starts, from 1, in a text file; in a sheet, the row's number there."""
    text: str | None = None
    """As it came; None while the batch or the file still has to be asked for it."""


class CheckedEvents(NamedTuple):
    """Every event is in one of the two, never in both."""

    table: pa.Table
    """The accepted events, in their order, by `event_schema`."""
    rejected: list[RejectedEvent]
    """In their order."""


def check_events(events: Sequence[object] | pa.Table, source: Source, *, received_at: datetime) -> CheckedEvents:
    """Check parsed JSON values, each of which must be an object that holds what `source` declares.

    A table is what Arrow's JSON reader gave by exactly `partner_schema(source)`.
    """
    if isinstance(events, pa.Table):
        return check_table(events, source, received_at=received_at)
    faults = {index: _no_object(event) for index, event in enumerate(events) if not isinstance(event, dict)}
    objects: Sequence[Any] = [event if isinstance(event, dict) else {} for event in events] if faults else events
    reader = _reader(source)
    read = [reader.values(_values(objects, name), field) for name, field in _wire_fields(source).items()]
    unknown = unknown_of_objects(objects, source)
    return _checked(read, unknown, source, received_at=received_at, faults=faults)


def check_table(
    table: pa.Table, source: Source, *, received_at: datetime, faults: Mapping[int, Rejection] = _NO_FAULTS
) -> CheckedEvents:
    """Check the rows of a file: columns of any type, by the partner's names; a missing one is null throughout.

    A number or a moment is taken as it is where it fits its field exactly; a text is read as one in a text file.
    `faults` are of rows that are known to be of no use, by their place.
    """
    reader, rows = _reader(source), table.num_rows
    read = [
        reader.array(table[name].combine_chunks() if name in table.column_names else pa.nulls(rows), field)
        for name, field in _wire_fields(source).items()
    ]
    return _checked(read, unknown_of_table(table, source), source, received_at=received_at, faults=faults)


def _values(objects: Sequence[Mapping[str, object]], name: str) -> list[object]:
    try:
        return list(map(itemgetter(name), objects))
    except KeyError:  # Where one lacks it, all are asked another way, which takes half as long again.
        return [event.get(name) for event in objects]


def _reader(source: Source) -> Reader:
    return Reader(trim=source.trim, null_values=source.null_values, zone=source.zone)


def _wire_fields(source: Source) -> dict[str, FieldDefinition]:
    return dict(zip(partner_schema(source).names, source.fields.values(), strict=True))


def _checked(
    read: Sequence[Column], unknown: Unknown, source: Source, *, received_at: datetime, faults: Mapping[int, Rejection]
) -> CheckedEvents:
    """Join read columns to events, leaving out those with a fault; the first fault of an event is its reason."""
    columns = dict(zip(source.fields, read, strict=True))
    moments = columns[source.timestamp.field].array
    reasons = dict(faults)
    for index, fault in unknown.faults.items():
        reasons.setdefault(index, fault)
    for name, column in columns.items():
        _add_unread(reasons, column, name, source)
    if source.timestamp.is_limited:
        _add_untimely(reasons, moments, source, received_at)
    arrays = [*(column.array for column in read), moments, unknown.extra]
    table = pa.Table.from_arrays(arrays, [*columns, EVENT_TIME, EXTRA])
    if reasons:
        table = table.filter(pa.array([index not in reasons for index in range(table.num_rows)], pa.bool_()))
    rejected = [RejectedEvent(index, reasons[index].reason, reasons[index].rule) for index in sorted(reasons)]
    return CheckedEvents(_enriched(table, source), rejected)


def _enriched(table: pa.Table, source: Source) -> pa.Table:
    for name, derived in source.enrich.items():
        table = table.append_column(name, derive(table, derived))
    return table.select(event_schema(source).names)


def _add_unread(reasons: dict[int, Rejection], column: Column, name: str, source: Source) -> None:
    """Add the events whose value could not be read, or is missing though it is needed."""
    for index, reason in column.faults.items():
        rule = RejectionRule.NOT_UTF8 if reason == NOT_UTF8 else RejectionRule.WRONG_TYPE
        reasons.setdefault(index, Rejection(rule, f"{_label(name, source)}: {reason}"))
    if name in source.needed and column.array.null_count:
        fault = Rejection(RejectionRule.MISSING, f"{_label(name, source)}: missing, and {_need(name, source)}")
        for index in pc.indices_nonzero(column.array.is_null()).to_pylist():
            reasons.setdefault(index, fault)


def _label(name: str, source: Source) -> str:
    """Return a field's name, and the partner's for it where that is another."""
    origin = source.fields[name].origin
    return name if origin in {None, name} else f"{name} ({origin})"


def _need(name: str, source: Source) -> str:
    if name == source.timestamp.field:
        return "an event needs its timestamp"
    return "it is the event's id" if name == source.event_id else "it is required"


def _add_untimely(reasons: dict[int, Rejection], moments: pa.Array, source: Source, received_at: datetime) -> None:
    """Add the events that happened longer before their receipt than the source allows, or later after it."""
    days, hours = source.timestamp.max_age_days, source.timestamp.max_future_hours
    counts, received = moments.cast(pa.int64()), (received_at - _EPOCH) // _MICROSECOND
    if days is not None:
        fault = Rejection(RejectionRule.TOO_OLD, f"is more than {counted(days, 'day')} before it was received")
        _add_moments(reasons, moments, pc.less(counts, received - days * _DAY), fault, source)
    if hours is not None:
        fault = Rejection(RejectionRule.IN_THE_FUTURE, f"is more than {counted(hours, 'hour')} after it was received")
        _add_moments(reasons, moments, pc.greater(counts, received + hours * _HOUR), fault, source)


def _add_moments(
    reasons: dict[int, Rejection], moments: pa.Array, beyond: pa.Array, fault: Rejection, source: Source
) -> None:
    label = _label(source.timestamp.field, source)
    quote_value = as_texts(moments.filter(beyond)).to_pylist()
    for index, moment in zip(pc.indices_nonzero(beyond).to_pylist(), quote_value, strict=True):
        reasons.setdefault(index, Rejection(fault.rule, f"{label}: {moment} {fault.reason}"))


def _no_object(event: object) -> Rejection:
    if isinstance(event, InvalidJson):
        return Rejection(RejectionRule.NOT_UTF8 if event.reason == NOT_UTF8 else RejectionRule.NOT_JSON, event.reason)
    what = {list: "an array", str: "a text", type(None): "null", bool: "true or false"}.get(type(event), "a number")
    quoted = "" if isinstance(event, list) or event is None else f" ({quote_value(event)})"
    return Rejection(RejectionRule.NOT_AN_OBJECT, f"an event is a JSON object, not {what}{quoted}")
