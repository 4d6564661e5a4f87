"""Rows of declared fields, from files, APIs and databases without types: read and checked as the receiver reads events.

These rows are the project's own data, and no rejected events are stored for them: a row that does not fit is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field, model_validator

from slackwater.errors import DataError
from slackwater.formatting import counted
from slackwater.model import TimeZone
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.sources.definition import EventTimestamp, Source, UnknownFields
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition, Fields, FieldType
from slackwater.sources.file_format import FileFormat, Json
from slackwater.sources.pull_config import PullConfig
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.step import Parameters

# The receiver's readers expect a timestamp. No file and no API has a field of this name, so it is null in every row.
_ANY_FORMAT = Json()
_NO_TIMESTAMP, _NAME_OF_NO_FIELD = "no_timestamp_is_expected", "\x1f"


class _Rows(Source):
    """The definition of rows that need no timestamp."""

    @property
    def required_fields(self) -> frozenset[str]:
        """The fields with `required`."""
        return super().required_fields - {_NO_TIMESTAMP}


class TypedRows(Parameters):
    """Parameters of steps that read rows of declared fields."""

    fields: Annotated[Fields, Field(min_length=1)]
    """The columns of the result, as in a source: name and type, or a definition with `from`, `required`, `formats`, ...
    Other columns are not read."""
    timezone: TimeZone | None = None
    """Timezone of timestamps without an offset. If none is set, such timestamps are errors."""
    trim: bool = False
    """Remove whitespace from both ends of every string."""
    null_values: tuple[str, ...] = ("",)
    """Strings that mean "no value"."""

    @model_validator(mode="after")
    def _check_fields(self) -> TypedRows:
        self.definition()
        return self

    def definition(self, file_format: FileFormat = _ANY_FORMAT) -> Source:
        """Return the fields as the receiver's readers expect them. Raises `ValueError` for fields that clash."""
        no_timestamp = FieldDefinition.model_validate({"type": FieldType.TIMESTAMP, "from": _NAME_OF_NO_FIELD})
        return _Rows(
            source="rows",
            timestamp=EventTimestamp(field=_NO_TIMESTAMP, timezone=self.timezone),
            fields={**self.fields, _NO_TIMESTAMP: no_timestamp},
            trim=self.trim,
            null_values=self.null_values,
            unknown_fields=UnknownFields.IGNORE,
            pull=PullConfig(url="s3://files/", files="{date}", format=file_format),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([(name, ARROW_TYPES[field.type]) for name, field in self.fields.items()])


def declared_columns(_inputs: InputColumns, parameters: TypedRows) -> Columns:
    """Return the declared fields, which are the columns of the result."""
    return tuple(parameters.fields)


def check_rows(rows: list[Mapping[str, Any]], parameters: TypedRows, *, name: str, before: int = 0) -> pa.Table:
    """Return parsed rows as a table of the declared fields. `before` is the number of rows before these.

    Raises `DataError` that names the first wrong row and its field.
    """
    checked = check_events(rows, parameters.definition(), received_at=datetime.now(UTC))
    return accepted(checked, parameters, name=name, before=before)


def accepted(checked: CheckedEvents, parameters: TypedRows, *, name: str, before: int = 0) -> pa.Table:
    """Return the rows that were read. Raises `DataError` that names `name`, the first faulty row and its field."""
    if checked.rejected:
        first, *others = checked.rejected
        position = f"line {first.line}" if first.line else f"row {before + first.index + 1}"
        more = f" (and {counted(len(others), 'more row')} near it)" if others else ""
        raise DataError(f"{name}: {position}: {first.reason}{more}")
    return checked.table.select(parameters.schema.names).cast(parameters.schema)
