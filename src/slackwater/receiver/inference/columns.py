"""Find the type of one column: the first type that the receiver reads from all of its values without a loss.

If the values have several readings, the user decides, and until then the column has a type that keeps them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, cached_property
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.inference.sample import InferredField, SampleColumn, identifier, read_examples, reader_of
from slackwater.receiver.inference.time_formats import formats_of
from slackwater.receiver.parsing import patterns
from slackwater.receiver.parsing.rejections import NO_REJECTIONS, quote_value
from slackwater.sources.fields import EPOCH_MS, EPOCH_S, FieldDefinition, FieldType

# Words for true and false, in any case.
_PAIRS = (("yes", "no"), ("y", "n"), ("t", "f"))
_INTEGER, _LEADING_ZERO = re.compile(r"[+-]?[0-9]+"), re.compile(r"[+-]?0[0-9]")
# Without what int64 drops: leading zeros and a plus.
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
# Either a fraction of three digits or groups of thousands.
_FRACTION_OR_GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+")
# Every decimal number with this many digits is different from its neighbours as a double.
_EXACT_DIGITS = 15
# A type that at least this share of the values has is worth a note.
_NEARLY_ALL = 0.9
# Rows that show whether a type fits at all.
_FIRST_ROWS = 100

# Distinct strings whose formats are tried on all of them.
_TRIED_STRINGS = 20
# Words in names of columns with times.
_TIME_WORD = re.compile(
    "at|created|day|dt|epoch|modified|occurred|ts|unix|updated|when|[a-z0-9]*(time|date|timestamp)|datetime"
)
# Numbers in these ranges may be dates: the years 1900 to 2100, and for epochs the years 1990 to 2100.
_COMPACT_FORMATS = (
    (FieldType.DATE, "%Y%m%d", 19_000_101, 21_001_231),
    (FieldType.TIMESTAMP, "%Y%m%d%H%M", 190_001_010_000, 210_012_312_359),
    (FieldType.TIMESTAMP, "%Y%m%d%H%M%S", 19_000_101_000_000, 21_001_231_235_959),
)
_FIRST_EPOCH, _LAST_EPOCH = 631_152_000, 4_102_444_800

STRING, INT64, DOUBLE, BOOLEAN, TIMESTAMP, DATE = (FieldDefinition(type=field_type) for field_type in FieldType)
# The fields of columns that have values of these kinds, and none that reads all of them.
_LAST_FIELDS = (({"string"}, STRING), ({"integer", "float"}, DOUBLE), ({"timestamp"}, TIMESTAMP), ({"date"}, DATE))


def has_time_name(name: str) -> bool:
    """Return whether a column is named like one with dates or timestamps."""
    return any(map(_TIME_WORD.fullmatch, identifier(name).split("_")))


def infer_column(column: SampleColumn, *, trim: bool) -> InferredField:
    """Find the type of a column. `trim` is that of the source."""
    if null_strings := column.null_strings(trim=trim):
        inferred = _ColumnInference(column, ["", *null_strings], trim=trim).infer()
        if inferred.has_type:
            return replace(inferred, null_strings=tuple(null_strings))
    return _ColumnInference(column, [""], trim=trim).infer()


class _ColumnInference:
    """Tries types on one column."""

    def __init__(self, column: SampleColumn, null_values: Sequence[str], *, trim: bool) -> None:
        self._column, self._reader = column, reader_of(null_values, trim=trim)
        self._without_timezone = reader_of(null_values, trim=trim, timezone=None)
        values = [value for value in column.distinct(trim=trim) if value not in null_values]
        self._texts = list(map(str, values))
        self._numbers = [text.strip() for text in self._texts]
        self._kinds = column.kinds if any(isinstance(value, str) for value in values) else column.kinds - {"string"}
        self._zero = next(filter(_LEADING_ZERO.match, self._numbers), None)
        self._rejected = cache(self._read_rejected)

    def infer(self) -> InferredField:
        """Return the first type that fits, else what keeps most rows."""
        if not self._kinds:
            return self._as(STRING, "no value in the sample")
        # Fields that are equally good, and the field until the user decides between those that fit.
        attempts: tuple[tuple[Callable[[], Iterable[FieldDefinition]], FieldDefinition], ...] = (
            (self._booleans, STRING),
            (lambda: self._numeric_times if has_time_name(self._column.name) else (), self._number or STRING),
            (lambda: filter(None, [self._number]), STRING),
            (self._separated, STRING),
            (self._typed_times, STRING),
            (lambda: self._times if self._kinds == {"string"} else (), STRING),
        )
        for candidates, undecided in attempts:
            fitting = [field for field in candidates() if self._fits(field)]
            fitting = [field for field in fitting if len(field.formats) == min(len(other.formats) for other in fitting)]
            if len(fitting) > 1:
                return self._as(undecided, readings=fitting)
            if fitting:
                return self._as(fitting[0], *self._evidence(fitting[0]))
        return self._fallback()

    def _as(
        self, field: FieldDefinition | None, *notes: str, readings: Sequence[FieldDefinition] = ()
    ) -> InferredField:
        examples = read_examples(self._column, readings, self._reader) if readings else ()
        inferred = InferredField(column=self._column, field=field, notes=notes, readings=examples)
        if inferred.best is None or inferred.best.type is not FieldType.TIMESTAMP:
            return inferred
        rejected = [self._column.read(inferred.best, r).rejections for r in (self._without_timezone, self._reader)]
        return replace(inferred, needs_timezone=rejected[0].num_rows > rejected[1].num_rows)

    def _read_rejected(self, field: FieldDefinition) -> pa.Table | None:
        """Return the rejections of the receiver's reader; None if it rejects most of the first rows."""
        # Rejections are slow, because each has a reason.
        cells = self._column.cells and self._column.cells[:_FIRST_ROWS]
        head = replace(self._column, values=self._column.values[:_FIRST_ROWS], cells=cells).read(field, self._reader)
        is_hopeless = head.rejections.num_rows > len(head.array) // 2
        return None if is_hopeless else self._column.read(field, self._reader).rejections

    def _fits(self, field: FieldDefinition) -> bool:
        return (rejected := self._rejected(field)) is not None and not rejected.num_rows

    def _evidence(self, field: FieldDefinition) -> Sequence[str]:
        """Return what a user should know about a field that fits."""
        if field.true_values:
            return [f"only {field.true_values[0]!r} and {field.false_values[0]!r}, in any case"]
        if field.has_separators:
            return [f"such as {quote_value(self._texts[0])}"]
        if field.formats:
            return [reading.example for reading in read_examples(self._column, [field], self._reader)]
        if field == STRING:
            return [self._lost_digits]
        notes = self._time_notes() if field in (INT64, DOUBLE) else []
        if field == DOUBLE:
            if rounded := next(filter(_is_rounded, self._numbers), None):
                notes = [f"rounds long integers, such as {rounded}"]
            if self._kinds == {"string"} and all(map(_FRACTION_OR_GROUPS.fullmatch, self._numbers)):
                notes.insert(0, 'the point is read as the decimal point; if it groups thousands, set thousands to "."')
        return notes

    def _booleans(self) -> Sequence[FieldDefinition]:
        folded = {text.casefold(): text for text in self._texts} if self._kinds == {"string"} else {}
        words = [
            {"true_values": (folded[t],), "false_values": (folded[f],)} for t, f in _PAIRS if folded.keys() == {t, f}
        ]
        return [BOOLEAN, *(BOOLEAN.model_copy(update=update) for update in words)]

    @cached_property
    def _range(self) -> tuple[float, float]:
        """The smallest and the largest number; two negative ones if there is another value."""
        if not self._kinds <= {"string", "integer", "float"} or not self._fits(DOUBLE):
            return -1, -1
        extremes = pc.min_max(self._column.read(DOUBLE, self._reader).array).as_py()
        return extremes["min"], extremes["max"]

    def _is_epoch(self, *scales: int) -> bool:
        smallest, largest = self._range
        return any(_FIRST_EPOCH * scale <= smallest <= largest <= _LAST_EPOCH * scale for scale in scales)

    @cached_property
    def _numeric_times(self) -> Sequence[FieldDefinition]:
        """The formats by which numbers such as 20130308 may be dates or timestamps."""
        smallest, largest = self._range
        fields = [
            FieldDefinition(type=field_type, formats=(format_,))
            for field_type, format_, first, last in _COMPACT_FORMATS
            if first <= smallest <= largest <= last
        ]
        if not fields and self._is_epoch(1, 1_000):
            # Both: the range makes one of them unlikely, and not impossible.
            fields = [TIMESTAMP.model_copy(update={"formats": (unit,)}) for unit in patterns.EPOCH_UNITS]
        return [field for field in fields if self._fits(field)]

    def _time_notes(self) -> list[str]:
        """Return notes about numbers that may be times, although the name of the column does not say so."""
        if has_time_name(self._column.name) and self._is_epoch(10**6, 10**9):
            return [f"microseconds or nanoseconds since 1970? Only {EPOCH_S} and {EPOCH_MS} can be read"]
        if not self._numeric_times:
            return []
        readings = read_examples(self._column, self._numeric_times, self._reader)
        shown = "; ".join(f"with {field.formats[0]}, {example}" for field, example in readings)
        return [f"may also be a {readings[0].field.type}: {shown}"]

    @cached_property
    def _number(self) -> FieldDefinition | None:
        """An integer or a double; a string if digits would be lost; None if there are other values."""
        if not self._kinds <= {"string", "integer", "float", "decimal"}:
            return None
        return STRING if self._lost_digits and self._fits(STRING) else INT64 if self._are_integers else DOUBLE

    @cached_property
    def _are_integers(self) -> bool:
        return "float" not in self._kinds and all(map(_INTEGER.fullmatch, self._numbers))

    @cached_property
    def _lost_digits(self) -> str:
        """Which digits a type of numbers would lose; empty if none, or if there are other values."""
        field, numbers = (INT64 if self._are_integers else DOUBLE), self._numbers
        if not self._fits(field):
            too_long = f"integers of more than 64 bits, such as {max(numbers, key=len, default='')[:60]}"
            return too_long if self._are_integers else ""
        if self._zero:
            return f"numbers with leading zeros, such as {quote_value(self._zero)}, which {field.type} would drop"
        if self._are_integers:
            sign = next((number for number in numbers if not _PLAIN_INTEGER.fullmatch(number)), None)
            return f"numbers with signs, such as {quote_value(sign)}, which int64 would drop" if sign else ""
        rounded = next(filter(_is_rounded, numbers), None)
        return f"numbers with more digits than a double has, such as {quote_value(rounded)}" if rounded else ""

    def _separated(self) -> Iterable[FieldDefinition]:
        """Return numbers with separators."""
        return _separated_fields(self._texts) if self._kinds == {"string"} and not self._zero else ()

    def _typed_times(self) -> Sequence[FieldDefinition]:
        """Return the dates or timestamps of Parquet and Excel."""
        if not self._kinds <= {"timestamp", "date"}:
            return []
        # Excel has no dates: they are timestamps at midnight.
        return [DATE if (self._column.cells or self._kinds == {"date"}) and self._fits(DATE) else TIMESTAMP]

    @cached_property
    def _times(self) -> Sequence[FieldDefinition]:
        """The formats of some of the strings."""
        texts = self._texts[:: max(1, len(self._texts) // _TRIED_STRINGS)]
        fields = dict.fromkeys(field for text in texts for field in formats_of(text))
        # Programs that drop a fraction of zero write two formats.
        for field in [field for field in fields if "%S" in "".join(field.formats)]:
            whole = re.sub("[.,]%f", "", field.formats[0])
            pairs = [(whole, whole.replace("%S", f"%S{point}%f")) for point in ".,"]
            fields |= dict.fromkeys(field.model_copy(update={"formats": pair}) for pair in pairs)
        return list(fields)

    def _fallback(self) -> InferredField:
        """Return the type for values of no single type: a string, or none."""
        if self._fits(STRING):
            return self._as(STRING, *self._nearly())
        field = next((field for kinds, field in _LAST_FIELDS if self._kinds <= kinds), None)
        if field is None:
            kinds = ", ".join(sorted(self._kinds))
            return self._as(None, f"values are {kinds}: stored as JSON in the column `_extra`", *self._nearly())
        rejected = self._column.read(field, self._reader).rejections
        return self._as(field, f"rejects {counted(rejected.num_rows, 'row')}; {self._first(rejected)}")

    def _nearly(self) -> Sequence[str]:
        """Return a note about the type that nearly all values have, and a value that has not."""
        fields = [*([] if self._zero else [BOOLEAN, INT64, DOUBLE]), *self._times]
        tried = [(rejected.num_rows, field, rejected) for field in fields if (rejected := self._rejected(field))]
        count, field, rejected = min(tried, key=itemgetter(0), default=(0, STRING, NO_REJECTIONS))
        read = self._column.read(STRING, self._reader)
        values = len(read.array) - read.array.null_count + read.rejections.num_rows
        if not count or count > (1 - _NEARLY_ALL) * values:
            return []
        how = f" ({', '.join(field.formats)})" if field.formats else ""
        return [f"{field.type}{how} but for {count:,} of {counted(values, 'value')}; {self._first(rejected)}"]

    def _first(self, rejected: pa.Table) -> str:
        """Return the number of the first rejected row, and the reason."""
        first = rejected.sort_by("index").slice(0, 1).to_pylist()[0]
        return f"row {self._column.row_numbers[first['index']]:,}: {first['reason']}"


def _is_rounded(number: str) -> bool:
    """Return whether a number in decimal digits has more digits than a double can hold.

    Digits that programs add when they write a double, such as 39.020000000000003, do not count.
    """
    if len(number) <= _EXACT_DIGITS and "e" not in number.lower():
        return False
    exact, double = Decimal(number), float(number)
    return exact not in {Decimal(repr(double)), Decimal(f"{double:.17g}")}


def _separated_fields(texts: Sequence[str]) -> Iterator[FieldDefinition]:
    """Yield the definitions of numbers with the separators that occur; each still has to be tried on all strings."""
    characters = set("".join(texts).replace("\u00a0", " ").replace("\u202f", " "))
    present = [separator for separator in ",. '" if separator in characters]
    for thousands in ("", *present):
        decimals = [separator for separator in ",." if separator in present and separator != thousands]
        for decimal in decimals if thousands else set(decimals) - {"."}:
            yield DOUBLE.model_copy(update={"decimal": decimal, "thousands": thousands})
        if thousands and not decimals:
            yield INT64.model_copy(update={"decimal": "," if thousands == "." else ".", "thousands": thousands})
