"""The shape of raw events as Parquet: a source's fields, then what the receiver adds."""

from __future__ import annotations

import pyarrow as pa

from slackwater.receiver.source import FieldType, Source

ARROW_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.STRING: pa.string(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.DATE: pa.date32(),
}
MOMENT = ARROW_TYPES[FieldType.TIMESTAMP]
EVENT_TIME, RECEIVED_AT, BATCH_ID, EXTRA = "_event_time", "_received_at", "_batch_id", "_extra"


def event_schema(source: Source) -> pa.Schema:
    """Return the schema of checked events: what they hold by themselves, whenever and however they came."""
    fields = [pa.field(name, ARROW_TYPES[field.type]) for name, field in source.fields.items()]
    return pa.schema([*fields, pa.field(EVENT_TIME, MOMENT), pa.field(EXTRA, pa.string())])


def raw_schema(source: Source) -> pa.Schema:
    """Return the schema of raw objects: events, when they were received and in which batch."""
    fields = [pa.field(name, ARROW_TYPES[field.type]) for name, field in source.fields.items()]
    added = [(EVENT_TIME, MOMENT), (RECEIVED_AT, MOMENT), (BATCH_ID, pa.string()), (EXTRA, pa.string())]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in added)])
