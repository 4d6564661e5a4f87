"""The first rows of a file, and their columns before a type is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing import patterns
from slackwater.receiver.parsing.arrow_to_python import decode_strings, is_string_type
from slackwater.receiver.parsing.columns import Column, ColumnReader
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import FileFormat

# Strings that often mean "no value", in any case. They are null values only in a column whose other values have a type.
_NULL_STRING = re.compile(r"n/?a|n\.a\.|#n/?a|null|\(null\)|\\n|none|nil|nan|--?|\?", re.IGNORECASE)
# The kind of a value by the name of its type, which is Arrow's or Python's.
_KIND = re.compile(
    "(?P<nested>dict|struct|map|.*list)|(?P<boolean>bool)|(?P<integer>u?int)|(?P<float>float|double|halffloat)"
    "|(?P<string>str|(large_)?(string|binary))|(?P<decimal>decimal)|(?P<timestamp>timestamp|datetime)|(?P<date>date)"
)


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
