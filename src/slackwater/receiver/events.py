"""Events checked against their source: what is accepted, as a table, and what is rejected, with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.batch import Unparsed
from slackwater.receiver.columns import Column, Reader
from slackwater.receiver.schema import event_schema
from slackwater.receiver.source import Source
from slackwater.receiver.values import shown


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that cannot be used."""

    index: int
    """Its place among the events of its batch or file, from 0."""
    reason: str


class Checked(NamedTuple):
    """Every event is in one of the two, never in both."""

    table: pa.Table
    """The accepted events, in their order, by `event_schema`."""
    rejected: list[Rejected]
    """In their order."""


def reader_of(source: Source) -> Reader:
    """Return the reader of a source's values."""
    return Reader(null_values=source.null_values, zone=source.zone)


def check_events(events: Sequence[object], source: Source) -> Checked:
    """Check parsed JSON values: each must be an object that holds what `source` declares."""
    faults = {index: _no_object(event) for index, event in enumerate(events) if not isinstance(event, dict)}
    objects = [event if isinstance(event, dict) else {} for event in events] if faults else events
    extra, found = _extras(objects, source)
    reader = reader_of(source)
    columns = {
        name: reader.values([event.get(name) for event in objects], field.type)  # type: ignore[attr-defined]
        for name, field in source.fields.items()
    }
    return check_columns(columns, extra, source, faults={**found, **faults})


def check_columns(
    columns: Mapping[str, Column], extra: pa.Array, source: Source, *, faults: Mapping[int, str]
) -> Checked:
    """Join read columns to events, leaving out those with a fault; the first fault of an event is its reason."""
    reasons = dict(faults)
    for name, field in source.fields.items():
        array, unread = columns[name]
        for index, reason in unread.items():
            reasons.setdefault(index, f"{name}: {reason}")
        if (field.required or name == source.timestamp.field) and array.null_count:
            why = "an event needs its timestamp" if name == source.timestamp.field else "it is required"
            for index in pc.indices_nonzero(array.is_null()).to_pylist():
                reasons.setdefault(index, f"{name}: missing, and {why}")
    arrays = [columns[name].array for name in source.fields]
    table = pa.Table.from_arrays([*arrays, columns[source.timestamp.field].array, extra], schema=event_schema(source))
    if reasons:
        table = table.filter(pa.array([index not in reasons for index in range(table.num_rows)], pa.bool_()))
    return Checked(table, [Rejected(index, reasons[index]) for index in sorted(reasons)])


def _extras(events: Sequence[object], source: Source) -> tuple[pa.Array, dict[int, str]]:
    """Return each event's unknown fields as JSON, null where there are none."""
    known = frozenset(source.fields)
    faults: dict[int, str] = {}
    extras: list[str | None] = [None] * len(events)
    for index, event in enumerate(events):
        if known.issuperset(event):  # type: ignore[arg-type]
            continue
        unknown = {name: value for name, value in event.items() if name not in known}  # type: ignore[attr-defined]
        try:
            extras[index] = json.dumps(unknown, allow_nan=False, separators=(",", ":"))
        except ValueError:
            faults[index] = "an unknown field holds NaN or Infinity, which JSON does not have"
    return pa.array(extras, pa.string()), faults


def _no_object(event: object) -> str:
    if isinstance(event, Unparsed):
        return event.reason
    what = {list: "an array", str: "a text", type(None): "null", bool: "true or false"}.get(type(event), "a number")
    quoted = "" if isinstance(event, list) or event is None else f" ({shown(event)})"
    return f"an event is a JSON object, not {what}{quoted}"
