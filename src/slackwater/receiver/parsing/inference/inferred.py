"""What a sample says about a whole source: its fields, its timestamp, its id and its null values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.formatting import counted
from slackwater.receiver.parsing.inference.column import STRING, infer_column, null_strings_of
from slackwater.receiver.parsing.inference.finding import ColumnFinding, examples, reader_of
from slackwater.receiver.parsing.inference.names import identifier, unique_names
from slackwater.receiver.parsing.inference.sample import Sample, SampleColumn
from slackwater.receiver.parsing.inference.time_formats import has_time_name
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import list_names, quote_name
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import Csv

# Marks what a user has to decide. The second is no time zone, so a definition with it is not valid.
UNDECIDED = "DECIDE"
UNDECIDED_TIMEZONE = f"{UNDECIDED} the time zone"
# Names of columns, in order of preference, that usually say when an event happened.
_TIMESTAMP_NAMES = (
    *("event_time", "event_timestamp", "occurred_at", "timestamp", "ts", "time", "datetime", "at"),
    *("created_at", "created", "created_on", "date"),
)
# Names of columns that usually identify an event, and words in names of other columns that may.
_ID_NAMES = frozenset({"id", "event_id", "uuid", "guid", "message_id", "record_id", "transaction_id"})
_ID_WORDS = frozenset({"id", "uuid", "guid", "key", "no", "nr", "number", "ref", "reference"})
_ID_TYPES = frozenset({FieldType.STRING, FieldType.INT64})


@dataclass(frozen=True, kw_only=True)
class InferredField:
    """One column of the sample as a field."""

    name: str
    column: SampleColumn
    finding: ColumnFinding

    @property
    def definition(self) -> FieldDefinition | None:
        """The definition with the partner's name, if that differs; None if there is no field for the column."""
        return self._named(self.finding.field)

    @property
    def best_definition(self) -> FieldDefinition | None:
        """The definition with the first reading, if the user has to decide."""
        return self._named(self.finding.best_field)

    def _named(self, field: FieldDefinition | None) -> FieldDefinition | None:
        partner_name = None if self.column.name == self.name else self.column.name
        return field and field.model_copy(update={"partner_name": partner_name})


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """What a sample says about a source."""

    source: str
    sample: Sample
    trim: bool
    null_values: tuple[str, ...]
    fields: Sequence[InferredField]
    timestamp: InferredField | None
    """The field with the event's timestamp; None if no column is one."""
    timestamp_notes: Sequence[str]
    timezone: str | None
    """Of timestamps without an offset: `UTC`, `UNDECIDED_TIMEZONE`, or None if there are none."""
    event_id: str | None
    event_id_notes: Sequence[str]
    null_notes: Sequence[str]

    @property
    def undecided(self) -> dict[str, str]:
        """What the user has to decide, by the field of the definition."""
        problems: dict[str, str] = {}
        if self.timestamp is None:
            problems["timestamp.field"] = "no column has a timestamp in every row"
        if self.timezone == UNDECIDED_TIMEZONE:
            problems["timestamp.timezone"] = "there are timestamps without an offset from UTC"
        for field in self.fields:
            if field.finding.readings:
                problems[f"fields.{field.name}"] = _reading_problem(field)
        return problems

    @property
    def source_content(self) -> dict[str, Any] | None:
        """The definition without `pull`, in which everything is decided in some way; None if it has no timestamp."""
        if self.timestamp is None:
            return None
        zone = {"timezone": "UTC"} if self.timezone else {}
        definitions = {field.name: field.best_definition for field in self.fields}
        return {
            "source": self.source,
            "timestamp": {"field": self.timestamp.name, **zone},
            "event_id": self.event_id,
            "trim": self.trim,
            "null_values": self.null_values,
            "fields": {
                name: definition.model_dump(by_alias=True) for name, definition in definitions.items() if definition
            },
        }


def _reading_problem(field: InferredField) -> str:
    readings = field.finding.readings
    return f"{len(readings)} readings fit all values" if len(readings) > 1 else "a date without a time"


def infer(sample: Sample, *, source: str) -> Inferred:
    """Return what the sample says about the source with this name."""
    fields, trim = _infer_fields(sample)
    null_strings = dict.fromkeys(string for field in fields for string in field.finding.null_strings)
    null_values = ("", *null_strings)
    arrays = _read(fields, null_values, trim=trim)
    timestamp, timestamp_notes = _find_timestamp(fields, arrays, sample.rows)
    timezone: str | None = None
    if timestamp is None:
        timezone = UNDECIDED_TIMEZONE if any(field.finding.needs_timezone for field in fields) else None
    elif timestamp.finding.needs_timezone:
        timezone = "UTC" if timestamp.finding.is_utc else UNDECIDED_TIMEZONE
    decided = [
        timestamp
        if timestamp and field.name == timestamp.name
        else _in_timezone(field, timezone, null_values, trim=trim)
        for field in fields
    ]
    event_id, event_id_notes = _find_event_id(decided, arrays, source, sample.rows)
    return Inferred(
        source=source,
        sample=sample,
        trim=trim,
        null_values=null_values,
        fields=decided,
        timestamp=timestamp,
        timestamp_notes=timestamp_notes,
        timezone=timezone,
        event_id=event_id,
        event_id_notes=event_id_notes,
        null_notes=_null_notes(decided, list(null_strings), trim=trim),
    )


def _infer_fields(sample: Sample) -> tuple[list[InferredField], bool]:
    """Return the fields, and whether the source has to trim strings to read them."""
    columns = list(sample.columns)
    findings = [infer_column(column, trim=False) for column in columns]
    stripped = [column.name.strip(WHITESPACE) for column in columns]
    trim = False
    if len(set(stripped)) == len(stripped):
        trimmed = [
            infer_column(column, trim=True) if _has_blanks(column) else finding
            for column, finding in zip(columns, findings, strict=True)
        ]
        if sum(map(_has_type, trimmed)) > sum(map(_has_type, findings)):
            findings, trim = trimmed, True
            # The receiver trims the header of a CSV file too.
            if isinstance(sample.file_format, Csv):
                columns = [replace(column, name=name) for column, name in zip(columns, stripped, strict=True)]
    names = unique_names([column.name for column in columns])
    return [
        InferredField(name=name, column=column, finding=_check_name(column, finding))
        for name, column, finding in zip(names, columns, findings, strict=True)
    ], trim


def _has_blanks(column: SampleColumn) -> bool:
    return any(string != string.strip(WHITESPACE) for string in column.distinct_strings)


def _has_type(finding: ColumnFinding) -> bool:
    return bool(finding.readings) or (finding.field is not None and finding.field.type is not FieldType.STRING)


def _check_name(column: SampleColumn, finding: ColumnFinding) -> ColumnFinding:
    """Return no field for a column whose name cannot be written into a definition."""
    is_utf8 = column.name.encode(errors="replace").decode() == column.name
    if column.name and is_utf8:
        return finding
    return ColumnFinding(field=None, notes=("its name is empty or not UTF-8: stored as JSON in the column `_extra`",))


def _read(fields: Sequence[InferredField], null_values: Sequence[str], *, trim: bool) -> dict[str, pa.Array]:
    """Return the values of the fields as the receiver reads them, by name."""
    reader = reader_of(null_values, trim=trim)
    return {field.name: field.column.read(best, reader).array for field in fields if (best := field.finding.best_field)}


def _find_timestamp(
    fields: Sequence[InferredField], arrays: Mapping[str, pa.Array], rows: int
) -> tuple[InferredField | None, list[str]]:
    """Return the field with the event's timestamp, and what a user should know about the choice."""
    candidates: list[tuple[tuple[bool, int], InferredField]] = []
    with_nulls: list[str] = []
    for field in fields:
        timestamp = _as_timestamp(field)
        if timestamp is None:
            continue
        if nulls := arrays[field.name].null_count:
            with_nulls.append(f"{field.name} ({counted(nulls, 'row')} without a value)")
        else:
            candidates.append(((timestamp is not field, _name_rank(field.name)), timestamp))
    notes = [f"Not possible, because an event needs a timestamp: {', '.join(with_nulls)}"] if with_nulls else []
    if not candidates:
        return None, ["No column has a timestamp in every row: the receiver cannot store the events", *notes]
    # `sort` keeps the order of columns that are equally good.
    candidates.sort(key=lambda candidate: candidate[0])
    best, *others = (field for _, field in candidates)
    names = list_names([field.name for field in others])
    also = [f"Other candidates: {names}"] if others else []
    utc = ["Its values say that they are in UTC"] if best.finding.is_utc else []
    return best, [f"{best.name} has a date or timestamp in {_all_rows(rows)}", *utc, *also, *notes]


def _all_rows(rows: int) -> str:
    return "the only row" if rows == 1 else f"all {rows:,} rows"


def _name_rank(name: str) -> int:
    if name in _TIMESTAMP_NAMES:
        return _TIMESTAMP_NAMES.index(name)
    return len(_TIMESTAMP_NAMES) + (0 if has_time_name(name) else 1)


def _as_timestamp(field: InferredField) -> InferredField | None:
    """Return the field itself if it is a timestamp, or a field whose dates may be read as timestamps; else None."""
    best = field.finding.best_field
    if best is None or best.type not in {FieldType.TIMESTAMP, FieldType.DATE}:
        return None
    if best.type is FieldType.TIMESTAMP:
        return field
    dates = [reading.field for reading in field.finding.readings] or [best]
    midnights = [FieldDefinition(type=FieldType.TIMESTAMP, formats=date.formats or ("%Y-%m-%d",)) for date in dates]
    reader = reader_of(["", *field.finding.null_strings], trim=True)
    if any(field.column.read(midnight, reader).rejections.num_rows for midnight in midnights):
        return None  # a column of dates in Parquet or Excel
    readings = examples(field.column, midnights, reader)
    return replace(field, finding=replace(field.finding, readings=readings, needs_timezone=True))


def _in_timezone(
    field: InferredField, timezone: str | None, null_values: Sequence[str], *, trim: bool
) -> InferredField:
    """Return the field; as a string if `timestamp.timezone` is not the one that its timestamps need."""
    finding = field.finding
    needed = "UTC" if finding.is_utc else UNDECIDED_TIMEZONE
    if not finding.needs_timezone or needed == timezone:
        return field
    note = "timestamps without an offset from UTC: to read them as timestamps, set `timestamp.timezone` to theirs"
    if finding.readings:
        return replace(field, finding=replace(finding, notes=(*finding.notes, note)))
    reads_string = not field.column.read(STRING, reader_of(null_values, trim=trim)).rejections.num_rows
    return replace(field, finding=ColumnFinding(field=STRING if reads_string else None, notes=(note, *finding.notes)))


def _find_event_id(
    fields: Sequence[InferredField], arrays: Mapping[str, pa.Array], source: str, rows: int
) -> tuple[str | None, list[str]]:
    """Return the field with the id of the event if its name is clear, and what a user should know about it."""
    candidates = []
    for field in fields:
        has_name = bool(_ID_WORDS.intersection(identifier(field.column.name).split("_"))) or field.name in _ID_NAMES
        if not has_name or field.finding.field is None or field.finding.field.type not in _ID_TYPES:
            continue
        array = arrays[field.name]
        if not field.finding.readings and pc.count_distinct(array).as_py() == len(array):
            candidates.append(field.name)
    own_names = {f"{source}_id", f"{source.removesuffix('s')}_id"}
    best = next((name for name in candidates if name in _ID_NAMES | own_names), None)
    unique = f"unique in {_all_rows(rows)}, and never empty"
    others = [name for name in candidates if name != best]
    notes = [f"{best} is {unique}. Of events with the same id in the same hour, one counts"] if best else []
    if others:
        verb = "are" if len(others) > 1 else "is"
        notes.append(
            f"{list_names(others)} {verb} {'also ' if best else ''}{unique}: set event_id if one identifies an event"
        )
    return best, notes


def _null_notes(fields: Sequence[InferredField], null_strings: Sequence[str], *, trim: bool) -> list[str]:
    """Return what a user should know about strings that mean "no value", or may mean it."""
    notes: list[str] = []
    for string in null_strings:
        typed = [field.name for field in fields if string in field.finding.null_strings]
        notes.append(f"{string!r} means no value in {list_names(typed)}: the other values have a type")
    others: dict[str, list[str]] = {}
    for field in fields:
        for string in null_strings_of(field.column, trim=trim):
            if string not in field.finding.null_strings:
                others.setdefault(string, []).append(quote_name(field.name))
    for string, names in others.items():
        effect = (
            "becomes null there too" if string in null_strings else "is kept as a string: add it if it means no value"
        )
        notes.append(f"{string!r} also occurs in {list_names(names)}, and {effect}")
    return notes
