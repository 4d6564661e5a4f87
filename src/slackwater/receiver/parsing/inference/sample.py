"""A sample: the first rows of a file, with the values that the receiver would check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from slackwater.receiver.parsing.arrow_to_python import decode_strings, is_string_type
from slackwater.receiver.parsing.columns import Column, ColumnReader
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import FileFormat

_PYTHON_KINDS = {bool: "boolean", int: "integer", float: "float", str: "string", dict: "nested", list: "nested"}
_ARROW_KINDS = (
    (is_string_type, "string"),
    (types.is_integer, "integer"),
    (types.is_floating, "float"),
    (types.is_boolean, "boolean"),
    (types.is_decimal, "decimal"),
    (types.is_timestamp, "timestamp"),
    (types.is_date, "date"),
    (types.is_nested, "nested"),
)


@dataclass(frozen=True)
class SampleColumn:
    """One column of a sample, with its values before they are read as a type."""

    name: str
    """The partner's name."""
    values: pa.Array | Sequence[object]
    """An Arrow array for CSV and Parquet; parsed JSON values otherwise. None where a row has no value."""
    cells: Sequence[object] | None = None
    """Excel: the values for fields with dates and timestamps; for other fields they are strings in `values`."""
    row_numbers: Sequence[int] = range(1, 2**31)
    """The number of each row in the file, without the header, from 1; Excel: in the sheet."""

    def read(self, field: FieldDefinition, reader: ColumnReader) -> Column:
        """Read the values as the receiver reads them for `field`."""
        if isinstance(self.values, pa.Array):
            return reader.read_array(self.values, field)
        is_temporal = field.type in {FieldType.TIMESTAMP, FieldType.DATE}
        return reader.read_values(self.cells if self.cells and is_temporal else self.values, field)

    def head(self, rows: int) -> SampleColumn:
        """Return the column with its first rows only."""
        return replace(self, values=self.values[:rows], cells=self.cells[:rows] if self.cells else None)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its values: those of `_ARROW_KINDS`, or an Arrow type."""
        if isinstance(self.values, pa.Array):
            if self.values.null_count == len(self.values):
                return frozenset()
            data_type = self.values.type
            return frozenset({next((kind for is_kind, kind in _ARROW_KINDS if is_kind(data_type)), str(data_type))})
        values = self.cells or self.values
        kinds = {_PYTHON_KINDS.get(python_type, "string") for python_type in set(map(type, values)) - {type(None)}}
        if any(isinstance(value, date) for value in self.cells or ()):
            # Of a column of dates and strings, both are read as strings.
            kinds = (kinds - {"string"}) | {"timestamp"}
        return frozenset(kinds)

    @cached_property
    def distinct_strings(self) -> Sequence[str]:
        """Its distinct strings, in order of appearance."""
        if not isinstance(self.values, pa.Array):
            return list(dict.fromkeys(value for value in self.values if isinstance(value, str)))
        if types.is_decimal(self.values.type):
            return [str(value) for value in pc.unique(self.values.drop_null()).to_pylist()]
        if not is_string_type(self.values.type):
            return []
        return list(pc.unique(decode_strings(self.values)[0].drop_null()).to_pylist())


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
    header: Sequence[str] = ()
    """CSV: the cells of the row that is read as the header."""
    list_key: str | None = None
    """JSON: the key of the list that holds the events, if the file is an object."""
