"""The first rows of a file, their columns before a type is found, and what was found about each column."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.inference.time_formats import LITERAL_UTC
from slackwater.receiver.parsing import patterns
from slackwater.receiver.parsing.columns import Column, ColumnReader
from slackwater.receiver.parsing.json_values import decode_strings, format_as_strings, is_string_type
from slackwater.receiver.parsing.rejections import quote_value
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import FileFormat

# Strings that often mean "no value", in any case. They are null values only in a column whose other values have a type.
_NULL_STRING = re.compile(r"n/?a|n\.a\.|#n/?a|null|\(null\)|\\n|none|nil|nan|--?|\?", re.IGNORECASE)
# The kind of a value by the name of its type, which is Arrow's or Python's.
_KIND = re.compile(
    "(?P<nested>dict|struct|map|.*list)|(?P<boolean>bool)|(?P<integer>u?int)|(?P<float>float|double|halffloat)"
    "|(?P<string>str|(large_)?(string|binary))|(?P<decimal>decimal)|(?P<timestamp>timestamp|datetime)|(?P<date>date)"
)

# Of a field, in characters.
_MAX_NAME = 63


@dataclass(frozen=True)
class SampleColumn:
    """One column of a sample, with its values before they are read as a type."""

    name: str
    """The partner's name."""
    values: pa.Array | Sequence[object]
    """An Arrow array for CSV and Parquet; parsed JSON values otherwise. None where a row has no value."""
    row_numbers: Sequence[int] = range(1, 2**31)
    """The number of each row in the file, without the header, from 1; Excel: in the sheet."""
    cells: Sequence[object] | None = None
    """Excel: the values for fields with dates and timestamps; for other fields they are strings in `values`."""

    def read(self, field: FieldDefinition, reader: ColumnReader) -> Column:
        """Read the values as the receiver reads them for `field`."""
        if isinstance(self.values, pa.Array):
            return reader.read_array(self.values, field)
        is_temporal = field.type in {FieldType.TIMESTAMP, FieldType.DATE}
        return reader.read_values(self.cells if self.cells and is_temporal else self.values, field)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its values: groups of `_KIND`, or the names of other types."""
        if isinstance(self.values, pa.Array):
            names = {str(self.values.type)} if self.values.null_count < len(self.values) else set()
        else:
            names = {type(value).__name__ for value in self.cells or self.values if value is not None}
        kinds = {(match and match.lastgroup) or name for name in names for match in [_KIND.match(name)]}
        # Of a column of dates and strings, both are read as strings.
        return frozenset(kinds - {"string"} if "timestamp" in kinds else kinds)

    @cached_property
    def _distinct(self) -> list[object]:
        if not isinstance(self.values, pa.Array):
            return list(dict.fromkeys(value for value in self.values if type(value) in {str, int}))
        is_text, values = is_string_type(self.values.type), self.values
        if not is_text and not self.kinds <= {"integer", "decimal"}:
            return []
        return list(pc.unique((decode_strings(values)[0] if is_text else values).drop_null()).to_pylist())

    def distinct(self, *, trim: bool) -> list[object]:
        """Return its distinct strings, integers and decimals, in order of appearance."""
        values = self._distinct
        return list(dict.fromkeys(v.strip(patterns.WHITESPACE) if trim and isinstance(v, str) else v for v in values))

    def null_strings(self, *, trim: bool) -> list[str]:
        """Return its strings that often mean "no value"."""
        return [v for v in self.distinct(trim=trim) if isinstance(v, str) and _NULL_STRING.fullmatch(v)]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The first rows of a file."""

    file_format: FileFormat
    columns: Sequence[SampleColumn]
    rows: int
    """Number of rows, with those that cannot be read."""
    is_complete: bool
    """Whether these are all rows of the file."""
    notes: Sequence[str] = ()
    """What a user should know about the format, one sentence each."""
    list_key: str | None = None
    """JSON: the key of the list that holds the events, if the file is an object."""


class Reading(NamedTuple):
    """One of several ways to read a column."""

    field: FieldDefinition
    example: str
    """What it makes of one value, such as `'01/02/2013' is 2013-02-01`."""


@dataclass(frozen=True, kw_only=True)
class InferredField:
    """What a sample says about one column."""

    column: SampleColumn
    field: FieldDefinition | None
    """None if no type reads the values: the column is then stored as JSON, like all fields without a definition."""
    name: str = ""
    """The name in the definition."""
    notes: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    """Ways to read the values between which the user has to decide; empty if there is nothing to decide."""
    needs_timezone: bool = False
    """Whether timestamps without an offset are among the values."""
    null_strings: tuple[str, ...] = ()
    """Strings that mean "no value": without them, the column would be a string."""

    @property
    def best(self) -> FieldDefinition | None:
        """The first reading if the user has to decide, else `field`."""
        return self.readings[0].field if self.readings else self.field

    @property
    def has_type(self) -> bool:
        """Whether the best reading is more than a string."""
        return self.best is not None and self.best.type is not FieldType.STRING

    @property
    def is_utc(self) -> bool:
        """Whether the values say that they are in UTC, without an offset."""
        formats = self.best.formats if self.best else ()
        return bool(formats) and all(format_.endswith(LITERAL_UTC) for format_ in formats)

    def named(self, field: FieldDefinition) -> FieldDefinition:
        """Return a definition of the column with the partner's name, if that differs."""
        return field.model_copy(update={"partner_name": None if self.column.name == self.name else self.column.name})


def reader_of(null_values: Sequence[str], *, trim: bool, timezone: str | None = "UTC") -> ColumnReader:
    """Return the receiver's reader. By default, timestamps without an offset are in UTC, in which all times exist."""
    zone = ZoneInfo(timezone) if timezone else None
    return ColumnReader(trim=trim, null_values=tuple(null_values), timezone=zone)


def read_examples(column: SampleColumn, fields: Sequence[FieldDefinition], reader: ColumnReader) -> tuple[Reading, ...]:
    """Return a reading for each field, all with the same value: the first that they read differently."""
    results = [format_as_strings(column.read(field, reader).array).to_pylist() for field in fields]
    rows = list(zip(*results, strict=True))
    valid = [index for index, row in enumerate(rows) if row[0] is not None]
    index = next((index for index in valid if len(set(rows[index])) > 1), valid[0])
    value = column.values[index].as_py() if isinstance(column.values, pa.Array) else column.values[index]
    # Without an offset or an epoch, the values do not say that they are in UTC.
    is_utc = [any("%z" in format_ or format_ in patterns.EPOCH_UNITS for format_ in field.formats) for field in fields]
    shown = [result if utc else result.removesuffix("Z") for utc, result in zip(is_utc, rows[index], strict=True)]
    return tuple(Reading(f, f"{quote_value(value)} is {result}") for f, result in zip(fields, shown, strict=True))


def identifier(name: str) -> str:
    """Return the words of a name in lower case, with underscores between them; empty if it has no letter or digit."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", ascii_name).lower()).strip("_")


def unique_names(partner_names: Sequence[str]) -> list[str]:
    """Return valid names of fields, in lower case and with underscores, for a partner's names; no two are the same."""
    names: list[str] = []
    for position, partner_name in enumerate(partner_names, start=1):
        name = identifier(partner_name) or f"column_{position}"
        name = name if name[0].isalpha() else f"column_{name}"
        candidate, number = name[:_MAX_NAME], 2
        while candidate in names:
            candidate, number = f"{name[: _MAX_NAME - 5]}_{number}", number + 1
        names.append(candidate)
    return names
