"""The shape of raw events as Parquet: a source's fields, then what the receiver adds."""

from __future__ import annotations

import pyarrow as pa

from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, FieldDefinition, FieldType

ARROW_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.STRING: pa.string(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.DATE: pa.date32(),
}
TIMESTAMP = ARROW_TYPES[FieldType.TIMESTAMP]
_WRITTEN = frozenset({FieldType.TIMESTAMP, FieldType.DATE})
"""JSON has no type for them: they are written as text."""
EVENT_TIME, RECEIVED_AT, BATCH_ID, EXTRA = "_event_time", "_received_at", "_batch_id", "_extra"


def event_schema(source: Source) -> pa.Schema:
    """Return the schema of checked events: what they hold by themselves, whenever and however they came."""
    return pa.schema([*_columns(source), pa.field(EVENT_TIME, TIMESTAMP), pa.field(EXTRA, pa.string())])


def raw_schema(source: Source) -> pa.Schema:
    """Return the schema of raw objects: events, when they were received, in which batch, and by which id they count."""
    added = [(EVENT_TIME, TIMESTAMP), (RECEIVED_AT, TIMESTAMP), (BATCH_ID, pa.string()), (EXTRA, pa.string())]
    own_id = [pa.field(GENERATED_ID, pa.string())] if source.id_column == GENERATED_ID else []
    return pa.schema([*_columns(source), *(pa.field(name, kind) for name, kind in added), *own_id])


def partner_schema(source: Source) -> pa.Schema:
    """Return the fields by the partner's names, with the type that each has in JSON when nothing needs to be parsed."""
    return pa.schema([pa.field(field.origin or name, _wire_type(field)) for name, field in source.fields.items()])


def _columns(source: Source) -> list[pa.Field]:
    return [pa.field(name, ARROW_TYPES[kind]) for name, kind in source.columns.items()]


def _wire_type(field: FieldDefinition) -> pa.DataType:
    if field.type is FieldType.TIMESTAMP and {EPOCH_S, EPOCH_MS} & set(field.formats):
        return pa.int64()
    return pa.string() if field.is_punctuated or field.type in _WRITTEN else ARROW_TYPES[field.type]
