"""Find the type of one column: the first type that the receiver reads from all of its values without a loss.

The types are tried in the order of `_ColumnInference.finding`. If the values have several readings, the user has to
decide, and until then the column has a type that keeps them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.parsing.inference.finding import ColumnFinding, Reading, examples, reader_of
from slackwater.receiver.parsing.inference.number_formats import (
    BOOLEAN_PAIRS,
    FRACTION_OR_GROUPS,
    INTEGER,
    LEADING_ZERO,
    PLAIN_INTEGER,
    is_rounded,
    separated_fields,
)
from slackwater.receiver.parsing.inference.sample import SampleColumn
from slackwater.receiver.parsing.inference.time_formats import (
    FormatCandidate,
    has_time_name,
    is_microseconds_or_nanoseconds,
    number_candidates,
    string_candidates,
)
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import NO_REJECTIONS, quote_value
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO, FieldDefinition, FieldType

# Strings that often mean "no value", in any case. They are null values only in a column whose other values have a type.
NULL_STRINGS = frozenset(
    {"na", "n/a", "n.a.", "#n/a", "#na", "null", "(null)", r"\n", "none", "nil", "nan", "-", "--", "?"}
)
# A type that at least this share of the values has is worth a note.
_NEARLY_ALL = 0.9
# Rows that show whether a type fits at all.
_FIRST_ROWS = 100
BOOLEAN, INT64, DOUBLE, STRING, TIMESTAMP, DATE = (
    FieldDefinition(type=field_type)
    for field_type in (
        FieldType.BOOLEAN,
        FieldType.INT64,
        FieldType.DOUBLE,
        FieldType.STRING,
        FieldType.TIMESTAMP,
        FieldType.DATE,
    )
)


def null_strings_of(column: SampleColumn, *, trim: bool) -> list[str]:
    """Return the strings of a column that often mean "no value"."""
    strings = (string.strip(WHITESPACE) if trim else string for string in column.distinct_strings)
    return [string for string in dict.fromkeys(strings) if string.casefold() in NULL_STRINGS]


def infer_column(column: SampleColumn, *, trim: bool) -> ColumnFinding:
    """Find the type of a column. `trim` is that of the source."""
    null_strings = null_strings_of(column, trim=trim)
    if null_strings:
        finding = _ColumnInference(column, ["", *null_strings], trim=trim).finding()
        if finding.readings or (finding.field and finding.field.type is not FieldType.STRING):
            return replace(finding, null_strings=tuple(null_strings))
    return _ColumnInference(column, [""], trim=trim).finding()


class _ColumnInference:
    """Tries types on one column."""

    def __init__(self, column: SampleColumn, null_values: Sequence[str], *, trim: bool) -> None:
        self._column, self._null_values, self._trim = column, null_values, trim
        self._reader = reader_of(null_values, trim=trim)
        cleaned = (string.strip(WHITESPACE) if trim else string for string in column.distinct_strings)
        self._strings = [string for string in dict.fromkeys(cleaned) if string not in null_values]
        self._kinds = column.kinds if self._strings else column.kinds - {"string"}
        self._rejections: dict[FieldDefinition, pa.Table | None] = {}

    def finding(self) -> ColumnFinding:
        """Return the first type that fits, else what keeps most rows."""
        if not self._kinds:
            return ColumnFinding(field=STRING, notes=("no value in the sample",))
        attempts: tuple[Callable[[], ColumnFinding | None], ...] = (
            self._boolean,
            self._timestamp_as_number,
            self._number,
            self._number_with_separators,
            self._typed_timestamp,
            self._timestamp,
        )
        return next((finding for attempt in attempts if (finding := attempt())), None) or self._fallback()

    def _rejected(self, field: FieldDefinition) -> pa.Table | None:
        """Return the rejections of the receiver's reader; None if it rejects most of the first rows."""
        if field not in self._rejections:
            # Rejections are slow, because each has a reason.
            head = self._column.head(_FIRST_ROWS).read(field, self._reader)
            is_hopeless = head.rejections.num_rows > len(head.array) // 2
            self._rejections[field] = None if is_hopeless else self._column.read(field, self._reader).rejections
        return self._rejections[field]

    def _fits(self, field: FieldDefinition) -> bool:
        return (rejected := self._rejected(field)) is not None and not rejected.num_rows

    def _boolean(self) -> ColumnFinding | None:
        if self._fits(BOOLEAN):
            return ColumnFinding(field=BOOLEAN)
        folded = {string.casefold(): string for string in self._strings}
        for true, false in BOOLEAN_PAIRS:
            if self._kinds == {"string"} and folded.keys() == {true, false}:
                field = BOOLEAN.model_copy(update={"true_values": (folded[true],), "false_values": (folded[false],)})
                return ColumnFinding(field=field, notes=(f"only {folded[true]!r} and {folded[false]!r}, in any case",))
        return None

    def _timestamp_as_number(self) -> ColumnFinding | None:
        """Read epochs and numbers such as 20130308, in a column with the name of a time."""
        if not has_time_name(self._column.name) or not self._number_candidates:
            return None
        readings = self._readings(self._number_candidates)
        if len(readings) > 1:
            number = self._number()
            return replace(number, readings=readings, notes=()) if number and number.field else None
        return self._of_candidate(self._number_candidates[0])

    @cached_property
    def _number_range(self) -> tuple[float, float] | None:
        if not self._kinds <= {"string", "integer", "float"} or not self._fits(DOUBLE):
            return None
        extremes = pc.min_max(self._column.read(DOUBLE, self._reader).array).as_py()
        return extremes["min"], extremes["max"]

    @cached_property
    def _number_candidates(self) -> list[FormatCandidate]:
        if self._number_range is None:
            return []
        candidates = number_candidates(*self._number_range)
        return [candidate for candidate in candidates if self._fits(candidate.field)]

    def _number(self) -> ColumnFinding | None:
        """Read integers and doubles, unless digits would be lost."""
        return self._integer() or self._double()

    def _integer(self) -> ColumnFinding | None:
        stripped = [string.strip() for string in self._strings]
        if not self._kinds <= {"string", "integer", "decimal"} or not all(map(INTEGER.fullmatch, stripped)):
            return None
        if self._fits(INT64):
            odd = next((string for string in stripped if not PLAIN_INTEGER.fullmatch(string)), None)
            if odd is None:
                return ColumnFinding(field=INT64, notes=self._time_notes())
            what = "leading zeros" if LEADING_ZERO.match(odd) else "signs"
            return _string(f"numbers with {what}, such as {quote_value(odd)}, which int64 would drop")
        longest = max((*stripped, *map(str, self._integers)), key=len)
        return _string(f"integers of more than 64 bits, such as {longest[:60]}") if self._fits(STRING) else None

    def _double(self) -> ColumnFinding | None:
        if not self._kinds <= {"string", "integer", "float", "decimal"} or not self._fits(DOUBLE):
            return None
        stripped = [string.strip() for string in self._strings]
        zero = next(filter(LEADING_ZERO.match, stripped), None)
        if zero and self._fits(STRING):
            return _string(f"numbers with leading zeros, such as {quote_value(zero)}, which double would drop")
        rounded = next(filter(is_rounded, (*stripped, *map(str, self._integers))), None)
        if rounded is not None and self._fits(STRING):
            return _string(f"numbers with more digits than a double has, such as {quote_value(rounded)}")
        notes = (f"rounds long integers, such as {rounded}",) if rounded is not None else self._time_notes()
        if self._kinds == {"string"} and all(map(FRACTION_OR_GROUPS.fullmatch, stripped)):
            notes = ('the point is read as the decimal point; if it groups thousands, set thousands to "."', *notes)
        return ColumnFinding(field=DOUBLE, notes=notes)

    @property
    def _integers(self) -> Sequence[int]:
        """The values that are integers, and no strings."""
        if "integer" not in self._kinds:
            return []
        values = self._column.values
        distinct = pc.unique(values).to_pylist() if isinstance(values, pa.Array) else values
        return [value for value in distinct if type(value) is int]

    def _time_notes(self) -> tuple[str, ...]:
        """Return notes about numbers that may be times, although the name of the column does not say so."""
        if not self._number_range:
            return ()
        if has_time_name(self._column.name) and is_microseconds_or_nanoseconds(*self._number_range):
            return (f"microseconds or nanoseconds since 1970? Only {EPOCH_S} and {EPOCH_MS} can be read",)
        if not self._number_candidates:
            return ()
        readings = [f"with {field.formats[0]}, {example}" for field, example in self._readings(self._number_candidates)]
        return (f"may also be a {self._number_candidates[0].type}: {'; '.join(readings)}",)

    def _number_with_separators(self) -> ColumnFinding | None:
        if self._kinds != {"string"} or any(map(LEADING_ZERO.match, self._strings)):
            return None
        fields = [field for field in separated_fields(self._strings) if self._fits(field)]
        if len(fields) > 1:
            return self._undecided(fields)
        return ColumnFinding(field=fields[0], notes=(f"such as {quote_value(self._strings[0])}",)) if fields else None

    def _typed_timestamp(self) -> ColumnFinding | None:
        """Read the dates and timestamps of Parquet and Excel."""
        if not self._kinds <= {"timestamp", "date"}:
            return None
        # Excel has no dates: they are timestamps at midnight.
        if (self._column.cells or self._kinds == {"date"}) and self._fits(DATE):
            return ColumnFinding(field=DATE)
        return self._with_timezone(TIMESTAMP) if self._fits(TIMESTAMP) else None

    def _timestamp(self) -> ColumnFinding | None:
        if self._kinds != {"string"}:
            return None
        fitting = [candidate for candidate in self._string_candidates if self._fits(candidate.field)]
        fewest = min((len(candidate.formats) for candidate in fitting), default=0)
        fitting = [candidate for candidate in fitting if len(candidate.formats) == fewest]
        if len(fitting) == 1:
            return self._of_candidate(fitting[0])
        if not fitting:
            return None
        finding = self._undecided([candidate.field for candidate in fitting])
        is_utc = all(candidate.is_utc for candidate in fitting)
        return replace(finding, needs_timezone=self._needs_timezone(fitting[0].field), is_utc=is_utc)

    @cached_property
    def _string_candidates(self) -> list[FormatCandidate]:
        return string_candidates(self._strings)

    def _of_candidate(self, candidate: FormatCandidate) -> ColumnFinding:
        notes = () if candidate.formats == (ISO,) else (self._readings([candidate])[0].example,)
        return replace(self._with_timezone(candidate.field), is_utc=candidate.is_utc, notes=notes)

    def _with_timezone(self, field: FieldDefinition) -> ColumnFinding:
        return ColumnFinding(field=field, needs_timezone=self._needs_timezone(field))

    def _needs_timezone(self, field: FieldDefinition) -> bool:
        if field.type is not FieldType.TIMESTAMP:
            return False
        reader = reader_of(self._null_values, trim=self._trim, timezone=None)
        return bool(self._column.read(field, reader).rejections.num_rows)

    def _undecided(self, fields: Sequence[FieldDefinition]) -> ColumnFinding:
        return ColumnFinding(field=STRING, readings=examples(self._column, fields, self._reader))

    def _readings(self, candidates: Sequence[FormatCandidate]) -> tuple[Reading, ...]:
        return examples(self._column, [candidate.field for candidate in candidates], self._reader)

    def _fallback(self) -> ColumnFinding:
        """Return the type for values of no single type: a string, or none."""
        if self._fits(STRING):
            return ColumnFinding(field=STRING, notes=self._nearly())
        for possible, field in (
            ({"string"}, STRING),
            ({"integer", "float"}, DOUBLE),
            ({"timestamp"}, TIMESTAMP),
            ({"date"}, DATE),
        ):
            rejected = self._column.read(field, self._reader).rejections
            if self._kinds <= possible:
                note = f"rejects {counted(rejected.num_rows, 'row')}; {self._first(rejected)}"
                return ColumnFinding(field=field, notes=(note,))
        kinds = ", ".join(sorted(self._kinds))
        return ColumnFinding(
            field=None, notes=(f"values are {kinds}: stored as JSON in the column `_extra`", *self._nearly())
        )

    def _nearly(self) -> tuple[str, ...]:
        """Return a note about the type that nearly all values have, and a value that has not."""
        fields = [BOOLEAN, INT64, DOUBLE, *(candidate.field for candidate in self._string_candidates)]
        if any(map(LEADING_ZERO.match, self._strings)):
            fields = fields[3:]
        tried = [(rejected.num_rows, field, rejected) for field in fields if (rejected := self._rejected(field))]
        count, field, rejected = min(tried, key=itemgetter(0), default=(0, STRING, NO_REJECTIONS))
        values = self._count
        if not count or count > (1 - _NEARLY_ALL) * values:
            return ()
        how = f" ({', '.join(field.formats)})" if field.formats else ""
        exceptions = f"{field.type}{how} but for {count:,} of {counted(values, 'value')}"
        return (f"{exceptions}; {self._first(rejected)}",)

    def _first(self, rejected: pa.Table) -> str:
        """Return the number of the first rejected row, and the reason."""
        first = rejected.sort_by("index").slice(0, 1).to_pylist()[0]
        return f"row {self._column.row_numbers[first['index']]:,}: {first['reason']}"

    @property
    def _count(self) -> int:
        """Number of values."""
        if isinstance(self._column.values, pa.Array):
            read = self._column.read(STRING, self._reader)
            return int(len(read.array) - read.array.null_count)
        return sum(value is not None and value not in self._null_values for value in self._column.values)


def _string(note: str) -> ColumnFinding:
    return ColumnFinding(field=STRING, notes=(note,))
