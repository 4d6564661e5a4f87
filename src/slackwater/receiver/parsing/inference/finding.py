"""What a sample says about one column, and the readers with which it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from slackwater.receiver.parsing.arrow_to_python import format_as_strings
from slackwater.receiver.parsing.columns import ColumnReader
from slackwater.receiver.parsing.inference.sample import SampleColumn
from slackwater.receiver.parsing.patterns import EPOCH_UNITS
from slackwater.receiver.parsing.rejections import quote_value
from slackwater.sources.fields import FieldDefinition

_UTC = ZoneInfo("UTC")


class Reading(NamedTuple):
    """One of several ways to read a column."""

    field: FieldDefinition
    example: str
    """What it makes of one value, such as `'01/02/2013' is 2013-02-01`."""


@dataclass(frozen=True, kw_only=True)
class ColumnFinding:
    """What a sample says about one column."""

    field: FieldDefinition | None
    """None if no type reads the values: the column is then stored as JSON, like all fields without a definition."""
    notes: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    """Ways to read the values between which the user has to decide; empty if there is nothing to decide."""
    needs_timezone: bool = False
    """Whether timestamps without an offset are among the values."""
    is_utc: bool = False
    """Whether they say that they are in UTC."""
    null_strings: tuple[str, ...] = ()
    """Strings that mean "no value": without them, the column would be a string."""

    @property
    def best_field(self) -> FieldDefinition | None:
        """The first reading if the user has to decide, else `field`."""
        return self.readings[0].field if self.readings else self.field


def reader_of(null_values: Sequence[str], *, trim: bool, timezone: ZoneInfo | None = _UTC) -> ColumnReader:
    """Return the receiver's reader. By default, timestamps without an offset are in UTC, in which all times exist."""
    return ColumnReader(trim=trim, null_values=tuple(null_values), timezone=timezone)


def examples(column: SampleColumn, fields: Sequence[FieldDefinition], reader: ColumnReader) -> tuple[Reading, ...]:
    """Return a reading for each field, all with the same value: the first that they read differently."""
    arrays = [column.read(field, reader).array for field in fields]
    results = [format_as_strings(array).to_pylist() for array in arrays]
    rows = list(zip(*results, strict=True))
    row = next((index for index, row in enumerate(rows) if len(set(row)) > 1), None)
    if row is None:
        row = next(index for index, row in enumerate(rows) if row[0] is not None)
    values = column.values.slice(row, 1).to_pylist()[0] if isinstance(column.values, pa.Array) else column.values[row]
    return tuple(
        Reading(field, f"{quote_value(values)} is {result.removesuffix('Z') if _is_local(field) else result}")
        for field, result in zip(fields, rows[row], strict=True)
    )


def _is_local(field: FieldDefinition) -> bool:
    """Return whether the formats of a field say nothing about the time zone."""
    return not any(format_ in EPOCH_UNITS or "%z" in format_ for format_ in field.formats)
