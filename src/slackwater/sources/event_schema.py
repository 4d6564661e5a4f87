"""Arrow schemas of a source's events: as the partner sends them, after checking, and as stored in raw objects."""

from __future__ import annotations

import pyarrow as pa

from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, FieldType

ARROW_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.STRING: pa.string(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),  # Spark and Iceberg have microseconds, not nanoseconds
    FieldType.DATE: pa.date32(),
}
TIMESTAMP = ARROW_TYPES[FieldType.TIMESTAMP]
EVENT_TIME, RECEIVED_AT, BATCH_ID, EXTRA = "_event_time", "_received_at", "_batch_id", "_extra"


def event_schema(source: Source) -> pa.Schema:
    """Return the schema of checked events: the source's columns, the event's timestamp and the unknown fields."""
    return pa.schema([*_source_columns(source), pa.field(EVENT_TIME, TIMESTAMP), pa.field(EXTRA, pa.string())])


def raw_schema(source: Source) -> pa.Schema:
    """Return the schema of raw objects: `event_schema` with the time of receipt, the batch and generated ids."""
    metadata = [(EVENT_TIME, TIMESTAMP), (RECEIVED_AT, TIMESTAMP), (BATCH_ID, pa.string()), (EXTRA, pa.string())]
    if source.id_column == GENERATED_ID:
        metadata.append((GENERATED_ID, pa.string()))
    return pa.schema([*_source_columns(source), *(pa.field(name, data_type) for name, data_type in metadata)])


def partner_schema(source: Source) -> pa.Schema:
    """Return the schema of a JSON event whose values need no conversion, with the partner's names for the fields.

    Arrow's JSON reader parses by this schema. JSON has no timestamps and dates: they are strings, or integers where the
    field has an epoch format.
    """
    fields: list[pa.Field] = []
    for name, field in source.partner_fields.items():
        data_type = ARROW_TYPES[field.type]
        if field.type is FieldType.TIMESTAMP and {EPOCH_S, EPOCH_MS} & set(field.formats):
            data_type = pa.int64()
        elif field.has_separators or field.type in {FieldType.TIMESTAMP, FieldType.DATE}:
            data_type = pa.string()
        fields.append(pa.field(name, data_type))
    return pa.schema(fields)


def _source_columns(source: Source) -> list[pa.Field]:
    return [pa.field(name, ARROW_TYPES[field_type]) for name, field_type in source.columns.items()]
