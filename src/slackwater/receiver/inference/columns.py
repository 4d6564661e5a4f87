"""Find the type of one column: the first type that the receiver reads from all of its values without a loss.

If the values have several readings, the user decides, and until then the column has a type that keeps them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.inference.number_formats import is_rounded, separated_fields
from slackwater.receiver.inference.sample import SampleColumn, identifier
from slackwater.receiver.inference.time_formats import LITERAL_UTC, time_fields
from slackwater.receiver.parsing import patterns
from slackwater.receiver.parsing.json_values import format_as_strings
from slackwater.receiver.parsing.rejections import NO_REJECTIONS, quote_value
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, ISO, FieldDefinition, FieldType

STRING, INT64, DOUBLE, BOOLEAN, TIMESTAMP, DATE = (FieldDefinition(type=field_type) for field_type in FieldType)
# The fields of columns that have values of these kinds, and none that reads all of them.
_LAST_FIELDS = (({"string"}, STRING), ({"integer", "float"}, DOUBLE), ({"timestamp"}, TIMESTAMP), ({"date"}, DATE))
# Words for true and false, in any case.
_PAIRS = (("yes", "no"), ("y", "n"), ("t", "f"))

_INTEGER, _LEADING_ZERO = re.compile(r"[+-]?[0-9]+"), re.compile(r"[+-]?0[0-9]")
# Without what int64 drops: leading zeros and a plus.
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
# Either a fraction of three digits or groups of thousands.
_FRACTION_OR_GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+")

# A type that at least this share of the values has is worth a note, and from the second share on it is the type.
_NEARLY_ALL, _ALMOST_ALL = 0.9, 0.99
# Rows that show whether a type fits at all.
_FIRST_ROWS = 100

# Seconds or milliseconds since 1970.
_EPOCH = re.compile(r"[0-9]{9,13}")
# Words in names of columns with times.
_TIME_WORD = re.compile(
    "at|created|day|dt|epoch|modified|occurred|ts|unix|updated|when|[a-z0-9]*(time|date|timestamp)|datetime"
)
# Words in names of columns that identify something.
_ID_WORD = re.compile("id|uuid|guid|key|no|nr|number|ref|reference")
# In seconds: the years 1990 to 2100.
_FIRST_EPOCH, _LAST_EPOCH = 631_152_000, 4_102_444_800
# Numbers in these ranges may be dates: the years 1900 to 2100. Of epochs, the range makes one of two units unlikely,
# and not impossible.
_NUMERIC_TIMES = (
    ("date", "%Y%m%d", 19_000_101, 21_001_231),
    ("timestamp", "%Y%m%d%H%M", 190_001_010_000, 210_012_312_359),
    ("timestamp", "%Y%m%d%H%M%S", 19_000_101_000_000, 21_001_231_235_959),
    *(("timestamp", u, _FIRST_EPOCH * n, _LAST_EPOCH * n) for n in (1, 1_000) for u in (EPOCH_S, EPOCH_MS)),
)


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
    notes: Sequence[str] = ()
    readings: Sequence[Reading] = ()
    """Ways to read the values between which the user has to decide; empty if there is nothing to decide."""
    null_strings: Sequence[str] = ()
    """Strings that mean "no value": without them, the column would be a string."""
    odd_rows: int = 0
    """Rows that the field rejects. `column` has no value there."""

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

    @cached_property
    def needs_timezone(self) -> bool:
        """Whether timestamps without an offset are among the values."""
        if self.best is None or self.best.type is not FieldType.TIMESTAMP:
            return False
        without, in_utc = (len(self.column.read(self.best, timezone=zone).rejections) for zone in (None, "UTC"))
        return without > in_utc

    def named(self, field: FieldDefinition) -> FieldDefinition:
        """Return a definition of the column with the partner's name, if that differs."""
        return field.model_copy(update={"partner_name": None if self.column.name == self.name else self.column.name})


def has_time_name(name: str) -> bool:
    """Return whether a column is named like one with dates or timestamps."""
    return any(map(_TIME_WORD.fullmatch, identifier(name).split("_")))


def has_id_name(name: str) -> bool:
    """Return whether a column is named like one that identifies something."""
    return any(map(_ID_WORD.fullmatch, identifier(name).split("_")))


def read_examples(column: SampleColumn, fields: Sequence[FieldDefinition]) -> list[Reading]:
    """Return a reading for each field, all with the same value: the first that they read differently."""
    rows = list(zip(*(format_as_strings(column.read(field).array).to_pylist() for field in fields), strict=True))
    valid = [index for index, row in enumerate(rows) if row[0] is not None]
    # Beside dates of Excel, a string shows the format.
    strings = [index for index in valid if isinstance(column.values[index], str)]
    index = next((index for index in valid if len(set(rows[index])) > 1), (strings or valid)[0])
    value = column.values[index].as_py() if isinstance(column.values, pa.Array) else column.values[index]
    readings = []
    for field, result in zip(fields, rows[index], strict=True):
        # Without an offset or an epoch, the values do not say that they are in UTC.
        is_utc = any("%z" in format_ or format_ in patterns.EPOCH_UNITS for format_ in field.formats)
        readings.append(Reading(field, f"{quote_value(value)} is {result if is_utc else result.removesuffix('Z')}"))
    return readings


def infer_column(column: SampleColumn) -> InferredField:
    """Find the type of a column."""
    if null_strings := column.null_strings:
        inferred = _ColumnInference(column.cleaned(null_strings)).infer()
        if inferred.has_type:
            return replace(inferred, null_strings=null_strings)
    return _ColumnInference(column).infer()


class _ColumnInference:
    """Tries types on one column."""

    def __init__(self, column: SampleColumn) -> None:
        self._column, self._kinds = column, column.kinds
        self._texts = list(map(str, column.distinct))
        self._numbers = [text.strip() for text in self._texts]
        self._zero = next(filter(_LEADING_ZERO.match, self._numbers), None)
        self._rejected = cache(self._read_rejected)

    def infer(self) -> InferredField:
        """Return the first type that fits, else what keeps most rows."""
        if not self._kinds:
            return InferredField(column=self._column, field=STRING, notes=["no value in the sample"])
        for candidates, undecided in self._candidates():
            fitting = list(filter(self._fits, candidates))
            fitting = [field for field in fitting if len(field.formats) == min(len(other.formats) for other in fitting)]
            if len(fitting) > 1:
                readings = read_examples(self._column, fitting)
                return InferredField(column=self._column, field=undecided, readings=readings)
            if fitting:
                return InferredField(column=self._column, field=fitting[0], notes=self._evidence(fitting[0]))
        return self._without_odd_rows() or self._fallback()

    def _without_odd_rows(self) -> InferredField | None:
        """Return what fits all but at most 1 % of the values; None if no type does."""
        is_text = self._fits(STRING)
        if is_text and has_id_name(self._column.name):
            return None
        kept = [field for kinds, field in _LAST_FIELDS if kinds & self._kinds and field not in (STRING, DOUBLE)]
        tried = [*self._tried, *self._count_rejected(kept), *self._count_rejected([] if is_text else [STRING])]
        for count, _, rejected in tried:
            if not 0 < count <= (1 - _ALMOST_ALL) * self._values:
                continue
            odd = rejected["index"].to_pylist()
            inferred = _ColumnInference(self._column.without(odd)).infer()
            if inferred.field and not inferred.odd_rows and (inferred.has_type or not is_text):
                return replace(inferred, notes=[self._odd(odd), *inferred.notes], odd_rows=count)
        return None

    def _odd(self, rows: Sequence[int]) -> str:
        first, values = min(rows), self._column.values
        value = values[first].as_py() if isinstance(values, pa.Array) else values[first]
        shown = f"row {self._column.row_numbers[first]:,}: {quote_value(value)}"
        return f"{len(rows):,} of {counted(len(values), 'row')} would be rejected, such as {shown}"

    def _candidates(self) -> Iterator[tuple[Sequence[FieldDefinition], FieldDefinition]]:
        """Yield fields that are equally good, and the field until the user decides between those that fit."""
        is_text = self._kinds == {"string"}
        words = {text.casefold(): text for text in self._texts} if is_text else {}
        pairs = [pair for pair in _PAIRS if words.keys() == set(pair)]
        updates = ({"true_values": (words[true],), "false_values": (words[false],)} for true, false in pairs)
        yield [BOOLEAN, *(BOOLEAN.model_copy(update=update) for update in updates)], STRING
        number = self._number
        if has_time_name(self._column.name):
            yield self._numeric_times, number[0] if number else STRING
        if number:
            yield [number[0]], STRING
        yield self._separated, STRING
        if is_text or self._is_excel_with_strings:
            yield self._times, STRING
        yield self._mixed_times, STRING
        if self._kinds <= {"timestamp", "date"}:
            # Excel has no dates: they are timestamps at midnight.
            is_excel = not isinstance(self._column.values, pa.Array)
            yield [DATE if (is_excel or self._kinds == {"date"}) and self._fits(DATE) else TIMESTAMP], STRING

    def _read_rejected(self, field: FieldDefinition) -> pa.Table | None:
        """Return the rejections of the receiver's reader; None if it rejects most of the first rows."""
        # Rejections are slow, because each has a reason.
        head = replace(self._column, values=self._column.values[:_FIRST_ROWS]).read(field)
        is_hopeless = head.rejections.num_rows > len(head.array) // 2
        return None if is_hopeless else self._column.read(field).rejections

    def _fits(self, field: FieldDefinition) -> bool:
        return (rejected := self._rejected(field)) is not None and not rejected.num_rows

    def _evidence(self, field: FieldDefinition) -> Sequence[str]:
        """Return what a user should know about a field that fits."""
        if field.true_values:
            return [f"only {field.true_values[0]!r} and {field.false_values[0]!r}, in any case"]
        if field.has_separators or field.has_mixed_epochs:
            extremes = [find(self._numbers, key=float) for find in (min, max)] if field.has_mixed_epochs else []
            return [f"such as {' and '.join(map(quote_value, extremes or self._texts[:1]))}"]
        if len(field.formats) > 1 and ISO in field.formats:
            parts = (self._part(is_epoch=is_epoch) for is_epoch in (True, False))
            return [reading.example for part in parts for reading in read_examples(part, [field])]
        if field.formats:
            return [reading.example for reading in read_examples(self._column, [field])]
        if field == STRING:
            return [self._number[1]] if self._number else []
        notes = self._time_notes() if field in (INT64, DOUBLE) else []
        if field == DOUBLE:
            if rounded := next(filter(is_rounded, self._numbers), None):
                notes = [f"rounds long integers, such as {rounded}"]
            if self._kinds == {"string"} and all(map(_FRACTION_OR_GROUPS.fullmatch, self._numbers)):
                notes.insert(0, 'the point is read as the decimal point; if it groups thousands, set thousands to "."')
        return notes

    @cached_property
    def _range(self) -> tuple[float, float]:
        """The smallest and the largest number; two negative ones if there is another value."""
        if not self._kinds <= {"string", "integer", "float"} or not self._fits(DOUBLE):
            return -1, -1
        extremes = pc.min_max(self._column.read(DOUBLE).array).as_py()
        return extremes["min"], extremes["max"]

    @cached_property
    def _numeric_times(self) -> Sequence[FieldDefinition]:
        """The formats by which numbers such as 20130308 may be dates or timestamps."""
        (smallest, largest), times = self._range, _NUMERIC_TIMES
        possible = [(field_type, format_) for field_type, format_, a, z in times if a <= smallest <= largest <= z]
        fields = [FieldDefinition(type=FieldType(field_type), formats=(format_,)) for field_type, format_ in possible]
        if self._has_both_epochs(smallest, largest):
            fields = [TIMESTAMP.model_copy(update={"formats": (EPOCH_MS, EPOCH_S)})]
        return list(filter(self._fits, fields))

    def _has_both_epochs(self, smallest: float, largest: float) -> bool:
        """Return whether some numbers are seconds and the others milliseconds, all in the years 1990 to 2100."""
        if not _FIRST_EPOCH <= smallest <= _LAST_EPOCH < _FIRST_EPOCH * 1_000 <= largest <= _LAST_EPOCH * 1_000:
            return False
        numbers = self._column.read(DOUBLE).array
        between = pc.and_(pc.greater(numbers, _LAST_EPOCH), pc.less(numbers, _FIRST_EPOCH * 1_000))
        return not pc.any(between).as_py()

    @cached_property
    def _mixed_times(self) -> Sequence[FieldDefinition]:
        """The formats of epochs and ISO 8601 timestamps in one column; none if it does not have both."""
        epochs = [float(text) for text in self._texts if _EPOCH.fullmatch(text)]
        if not 0 < len(epochs) < len(self._texts):
            return []
        if not any(_FIRST_EPOCH * n <= min(epochs) <= max(epochs) <= _LAST_EPOCH * n for n in (1, 1_000)):
            return []
        return [TIMESTAMP.model_copy(update={"formats": (unit, ISO)}) for unit in (EPOCH_S, EPOCH_MS)]

    def _part(self, *, is_epoch: bool) -> SampleColumn:
        """Return the column with its epochs only, or with its other strings and integers."""
        values = self._column.values.to_pylist() if isinstance(self._column.values, pa.Array) else self._column.values
        texts = [str(value) if type(value) in {str, int} else "" for value in values]
        part = [
            value if text and bool(_EPOCH.fullmatch(text)) is is_epoch else None
            for value, text in zip(values, texts, strict=True)
        ]
        return replace(self._column, values=part)

    def _time_notes(self) -> list[str]:
        """Return notes about numbers that may be times, although the name of the column does not say so."""
        smallest, largest = self._range
        is_small = any(_FIRST_EPOCH * unit <= smallest <= largest <= _LAST_EPOCH * unit for unit in (10**6, 10**9))
        if is_small and has_time_name(self._column.name):
            return [f"microseconds or nanoseconds since 1970? Only {EPOCH_S} and {EPOCH_MS} can be read"]
        if not self._numeric_times:
            return []
        readings = read_examples(self._column, self._numeric_times)
        shown = "; ".join(f"with {field.formats[0]}, {example}" for field, example in readings)
        return [f"may also be a {readings[0].field.type}: {shown}"]

    @cached_property
    def _number(self) -> tuple[FieldDefinition, str] | None:
        """An integer or a double, or a string if digits would be lost, and which; None if there are other values."""
        if not self._kinds <= {"string", "integer", "float", "decimal"}:
            return None
        numbers, lost = self._numbers, ""
        are_integers = "float" not in self._kinds and all(map(_INTEGER.fullmatch, numbers))
        field = INT64 if are_integers else DOUBLE
        if not self._fits(field):
            lost = (
                f"integers of more than 64 bits, such as {max(numbers, key=len, default='')[:60]}"
                if are_integers
                else ""
            )
        elif self._zero:
            lost = f"numbers with leading zeros, such as {quote_value(self._zero)}, which {field.type} would drop"
        elif are_integers and (sign := next((each for each in numbers if not _PLAIN_INTEGER.fullmatch(each)), None)):
            lost = f"numbers with signs, such as {quote_value(sign)}, which int64 would drop"
        elif not are_integers and (rounded := next(filter(is_rounded, numbers), None)):
            lost = f"numbers with more digits than a double has, such as {quote_value(rounded)}"
        return STRING if lost and self._fits(STRING) else field, lost

    @cached_property
    def _times(self) -> Sequence[FieldDefinition]:
        """The formats of some of the strings."""
        return time_fields(self._texts)

    def _fallback(self) -> InferredField:
        """Return the type for values of no single type: a string, or none."""
        if self._fits(STRING):
            return InferredField(column=self._column, field=STRING, notes=self._nearly())
        field = next((field for kinds, field in _LAST_FIELDS if self._kinds <= kinds), None)
        if field is None:
            kinds = f"values are {', '.join(sorted(self._kinds))}: stored as JSON in the column `_extra`"
            return InferredField(column=self._column, field=None, notes=[kinds, *self._nearly()])
        rejected = self._column.read(field).rejections
        notes = [f"rejects {counted(rejected.num_rows, 'row')}; {self._first(rejected)}"]
        return InferredField(column=self._column, field=field, notes=notes)

    @cached_property
    def _separated(self) -> Sequence[FieldDefinition]:
        """The definitions of numbers with separators that some of the strings may have, beside numbers."""
        has_strings = "string" in self._kinds and self._kinds <= {"string", "integer", "float"}
        return list(separated_fields(self._texts)) if has_strings and not self._zero else []

    @property
    def _is_excel_with_strings(self) -> bool:
        """Whether there are dates of Excel and strings that may be dates."""
        return "timestamp" in self._kinds and any(isinstance(value, str) for value in self._column.values)

    @property
    def _values(self) -> int:
        read = self._column.read(STRING)
        return int(len(read.array) - read.array.null_count + read.rejections.num_rows)

    @cached_property
    def _tried(self) -> Sequence[tuple[int, FieldDefinition, pa.Table]]:
        """Numbers, booleans and times, each with the number of the values that it rejects and these; fewest first."""
        numbers = [] if self._zero else [BOOLEAN, INT64, DOUBLE, *self._separated]
        return sorted(self._count_rejected([*numbers, *self._times]), key=itemgetter(0))

    def _count_rejected(self, fields: Sequence[FieldDefinition]) -> list[tuple[int, FieldDefinition, pa.Table]]:
        return [(rejected.num_rows, field, rejected) for field in fields if (rejected := self._rejected(field))]

    def _nearly(self) -> Sequence[str]:
        """Return a note about the type that nearly all values have, and a value that has not."""
        count, field, rejected = self._tried[0] if self._tried else (0, STRING, NO_REJECTIONS)
        values = self._values
        if not count or count > (1 - _NEARLY_ALL) * values:
            return []
        separators = {name: getattr(field, name) for name in ("decimal", "thousands")}
        options = [f'{name} "{each}"' for name, each in separators.items() if each != getattr(DOUBLE, name)]
        how = f" ({', '.join([*field.formats, *options])})" if field.formats or options else ""
        return [f"{field.type}{how} but for {count:,} of {counted(values, 'value')}; {self._first(rejected)}"]

    def _first(self, rejected: pa.Table) -> str:
        """Return the number of the first rejected row, and the reason."""
        first = rejected.sort_by("index").slice(0, 1).to_pylist()[0]
        return f"row {self._column.row_numbers[first['index']]:,}: {first['reason']}"
