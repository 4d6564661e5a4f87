"""The columns of a sample before their types are found, and what was found about each of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.columns import Column, ColumnReader
from slackwater.receiver.parsing.json_values import decode_strings, is_string_type
from slackwater.receiver.parsing.patterns import WHITESPACE
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
    """An Arrow array for CSV and Parquet; otherwise JSON values, and dates of Excel. None where a row has no value."""
    row_numbers: Sequence[int] = range(1, 2**31)
    """The number of each row in the file, without the header, from 1; Excel: in the sheet."""

    def read(self, field: FieldDefinition, *, timezone: str | None = "UTC") -> Column:
        """Read the values as the receiver reads them for `field`. In UTC, all local times exist."""
        reader = ColumnReader(trim=False, null_values=("",), timezone=ZoneInfo(timezone) if timezone else None)
        if isinstance(self.values, pa.Array):
            return reader.read_array(self.values, field)
        is_temporal = field.type in {FieldType.TIMESTAMP, FieldType.DATE}
        return reader.read_values(self.values if is_temporal else self._json_values, field)

    def cleaned(self, null_strings: Sequence[str] = (), *, trim: bool = False) -> SampleColumn:
        """Return the column with null for empty strings and `null_strings`, and without blanks around the others."""
        null_values = ("", *null_strings)
        if isinstance(self.values, pa.Array):
            if not is_string_type(self.values.type) or (decoded := decode_strings(self.values))[1]:
                return self  # The receiver rejects what is not UTF-8.
            strings = pc.utf8_trim(decoded[0], characters=WHITESPACE) if trim else decoded[0]
            is_null = pc.is_in(strings, value_set=pa.array(null_values, pa.string()))
            return replace(self, values=pc.if_else(is_null, pa.scalar(None, pa.string()), strings))
        values = [value.strip(WHITESPACE) if trim and isinstance(value, str) else value for value in self.values]
        return replace(self, values=[None if value in null_values else value for value in values])

    def without(self, rows: Sequence[int]) -> SampleColumn:
        """Return the column without the values of these rows, by index."""
        if isinstance(self.values, pa.Array):
            is_row = pc.is_in(pa.array(range(len(self.values))), value_set=pa.array(rows, pa.int64()))
            return replace(self, values=pc.if_else(is_row, pa.scalar(None, self.values.type), self.values))
        dropped = set(rows)
        return replace(self, values=[None if n in dropped else value for n, value in enumerate(self.values)])

    @cached_property
    def _json_values(self) -> list[object]:
        return [value.isoformat() if isinstance(value, date) else value for value in self.values]

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its values: groups of `_KIND`, or the names of other types."""
        if isinstance(self.values, pa.Array):
            names = {str(self.values.type)} if self.values.null_count < len(self.values) else set()
        else:
            names = {type(value).__name__ for value in self.values if value is not None}
        kinds = {(match and match.lastgroup) or name for name in names for match in [_KIND.match(name)]}
        # Of a column of dates and strings, both are read as strings.
        return frozenset(kinds - {"string"} if "timestamp" in kinds else kinds)

    @cached_property
    def distinct(self) -> list[object]:
        """Its distinct strings, integers and decimals, in order of appearance."""
        if not isinstance(self.values, pa.Array):
            return list(dict.fromkeys(value for value in self._json_values if type(value) in {str, int}))
        if not is_string_type(self.values.type):
            is_exact = self.kinds <= {"integer", "decimal"}
            return list(pc.unique(self.values.drop_null()).to_pylist()) if is_exact else []
        return list(pc.unique(decode_strings(self.values)[0].drop_null()).to_pylist())

    @property
    def null_strings(self) -> tuple[str, ...]:
        """Its strings that often mean "no value"."""
        return tuple(value for value in self.distinct if isinstance(value, str) and _NULL_STRING.fullmatch(value))


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
