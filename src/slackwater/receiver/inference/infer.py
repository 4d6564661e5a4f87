"""Infer the definition of a source from a sample file, and check it with the receiver's own reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from slackwater.errors import DataError
from slackwater.formatting import counted
from slackwater.receiver.formats.read import read_file
from slackwater.receiver.inference.columns import (
    STRING,
    InferredField,
    has_id_name,
    has_time_name,
    infer_column,
    read_examples,
)
from slackwater.receiver.inference.definition_yaml import (
    UNDECIDED_TIMEZONE,
    arrival_lines,
    comments,
    field_lines,
    flow,
    head_lines,
    timestamp_lines,
)
from slackwater.receiver.inference.read_sample import read_sample, read_start
from slackwater.receiver.inference.sample import Sample, identifier, unique_names
from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.patterns import WHITESPACE
from slackwater.receiver.parsing.rejections import list_names, quote_name, quote_value
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.file_format import Csv

# Names of columns, in order of preference, that usually say when an event happened.
_TIMESTAMP_NAMES = (
    *("event_time", "event_timestamp", "occurred_at", "timestamp", "ts", "time", "datetime", "at"),
    *("created_at", "created", "created_on", "date"),
)
# Names of columns that usually identify an event; for others that may, see `has_id_name`.
_ID_NAME = re.compile("id|uuid|guid|(event|message|record|transaction)_id")

# Of the rows, that may have no timestamp: a row with totals, for example.
_FEW_WITHOUT_TIMESTAMP = 0.01
# Of the rows, of which an id repeats that of an earlier row: more say that it identifies something else.
_FEW_REPEATS = 0.1
_FEW_EMPTY = 0.01
# With fewer rows, columns that are not named like an id are unique by chance.
_ROWS_OF_IDS = 100


@dataclass(frozen=True, kw_only=True)
class InferredDefinition:
    """A definition that was inferred from a sample."""

    source: str
    definition: str
    """The YAML, with comments."""
    rows: int
    """Rows of the sample."""
    is_complete: bool
    """Whether the sample is the whole file."""
    rejected: int | None
    """Rows of the sample that the receiver rejects by this definition; None if it could not be checked."""
    fields: dict[str, str]
    """Types of the fields."""
    undecided: dict[str, str]
    """What the user has to decide, by the field of the definition."""


def infer_definition(
    path: Path,
    *,
    name: str,
    source: str | None = None,
    url: str | None = None,
    listing: str | None = None,
    is_whole: bool = True,
) -> InferredDefinition:
    """Infer the definition of a source from a file.

    `name` is the name of the file, `source` that of the source (by default, it is made of the file's), and `url` where
    the file comes from; `listing` is how the server lists it, as in `pull.listing`, if that is known. `is_whole` is
    False if `path` holds only the beginning of it. Raises `DataError` when the file has no row that can be read.
    """
    # In a folder of its own: the receiver decompresses some formats beside the file.
    with TemporaryDirectory(prefix="slackwater-infer-") as folder:
        file = Path(folder, "sample")
        if is_whole:
            file.symlink_to(path.resolve())
        else:
            # The receiver's reader does not return what comes before the end of broken compressed data.
            file.write_bytes(read_start(path, name, is_whole=False)[0])
        sample = read_sample(file, name, is_whole=is_whole)
        # The name of a file without suffixes, dates and other numbers.
        words = identifier(re.sub(r"[^A-Za-z]+", " ", name.partition(".")[0]))
        source = source or words[:63] or "source"
        fields, undecided, lines = _infer_source(sample, source)
        lines += arrival_lines(sample, source, name=name, url=url, listing=listing)
        rejected = _check("\n".join(lines), fields, sample, file, name, is_whole=is_whole)
    head = head_lines(sample, rejected, name=url or name, is_undecided=bool(undecided))
    return InferredDefinition(
        source=source,
        definition="\n".join([*head, *lines]) + "\n",
        rows=sample.rows,
        is_complete=sample.is_complete,
        rejected=None if rejected is None else len(rejected),
        fields={field.name: str(field.field.type) for field in fields if field.field},
        undecided=undecided,
    )


def _infer_source(sample: Sample, source: str) -> tuple[list[InferredField], dict[str, str], list[str]]:
    """Return the fields, what the user has to decide, and the lines of the definition but for how data arrives."""
    fields, trim = _infer_fields(sample)
    null_strings = list(dict.fromkeys(string for field in fields for string in field.null_strings))
    arrays = {f.name: f.column.cleaned(null_strings).read(f.best).array for f in fields if f.best}
    timestamp, timestamp_notes = _find_timestamp(fields, arrays, sample.rows)
    timezone: str | None = None
    if timestamp.needs_timezone if timestamp else any(field.needs_timezone for field in fields):
        timezone = "UTC" if timestamp and timestamp.is_utc else UNDECIDED_TIMEZONE
    fields = [
        timestamp if timestamp and field.name == timestamp.name else _in_timezone(field, timezone) for field in fields
    ]
    event_id, event_id_notes = _find_event_id(fields, arrays, source, sample.rows)
    undecided = {} if timestamp else {"timestamp.field": "no column has a timestamp in every row"}
    if timezone == UNDECIDED_TIMEZONE:
        undecided["timestamp.timezone"] = "there are timestamps without an offset from UTC"
    for field in fields:
        if count := len(field.readings):
            what = f"{count} readings fit all values" if count > 1 else "a date without a time"
            undecided[f"fields.{field.name}"] = what
    lines = [
        f"source: {flow(source)}",
        *timestamp_lines(timestamp.name if timestamp else None, timezone, timestamp_notes),
    ]
    lines += [*comments(event_id_notes), *([f"event_id: {flow(event_id)}"] if event_id else [])]
    lines += ["trim: true  # values have blanks around them"] if trim else []
    lines += comments(_null_notes(fields, null_strings))
    lines += [f"null_values: {flow(['', *null_strings])}"] if null_strings else []
    lines.append("fields:" if any(field.field for field in fields) else "fields: {}")
    return fields, undecided, lines + [line for field in fields for line in field_lines(field)]


def _infer_fields(sample: Sample) -> tuple[list[InferredField], bool]:
    """Return the fields, and whether the source has to trim strings to read them."""
    columns = [column.cleaned() for column in sample.columns]
    fields, trim = list(map(infer_column, columns)), False
    names = [column.name.strip(WHITESPACE) for column in columns]
    trimmed = [column.cleaned(trim=True) for column in columns]
    if len(set(names)) == len(names) and any(a.distinct != b.distinct for a, b in zip(columns, trimmed, strict=True)):
        # The receiver trims the header of a CSV file too.
        if isinstance(sample.file_format, Csv):
            trimmed = [replace(column, name=name) for column, name in zip(trimmed, names, strict=True)]
        trimmed_fields = list(map(infer_column, trimmed))
        if _quality(trimmed_fields) > _quality(fields):
            fields, trim = trimmed_fields, True
    for index, (field, name) in enumerate(zip(fields, unique_names([f.column.name for f in fields]), strict=True)):
        fields[index] = replace(field, name=name)
        if not field.column.name or field.column.name.encode(errors="ignore").decode() != field.column.name:
            note = "its name is empty or not UTF-8: stored as JSON in the column `_extra`"
            fields[index] = InferredField(column=field.column, name=name, field=None, notes=(note,))
    return fields, trim


def _quality(fields: Sequence[InferredField]) -> tuple[int, int]:
    """Return by what the better one of two readings of a sample is the larger one: types, and fewer odd rows."""
    return sum(field.has_type for field in fields), -sum(field.odd_rows for field in fields)


def _find_timestamp(
    fields: Sequence[InferredField], arrays: Mapping[str, pa.Array], rows: int
) -> tuple[InferredField | None, list[str]]:
    """Return the field with the event's timestamp, and what a user should know about the choice."""
    timestamps = [(field, arrays[field.name].null_count) for field in map(_as_timestamp, fields) if field]
    most = min((nulls for _, nulls in timestamps if nulls <= _FEW_WITHOUT_TIMESTAMP * rows), default=0)
    candidates = [field for field, nulls in timestamps if nulls <= most]
    others = [(field.name, nulls) for field, nulls in timestamps if nulls > most]
    with_nulls = [f"{name} ({counted(nulls, 'row')} without a value)" for name, nulls in others]
    notes = [f"Not possible, because an event needs a timestamp: {', '.join(with_nulls)}"] if with_nulls else []
    if not candidates:
        return None, ["No column has a timestamp in every row: the receiver cannot store the events", *notes]
    best, *unused = sorted(candidates, key=lambda field: (field not in fields, _name_rank(field.name)))
    also = [f"Other candidates: {list_names([field.name for field in unused])}"] if unused else []
    utc = ["Its values say that they are in UTC"] if best.is_utc else []
    array = arrays[best.name]
    if not array.null_count:
        return best, [f"{best.name} has a date or timestamp in {_all_rows(rows)}", *utc, *also, *notes]
    row = pc.indices_nonzero(array.is_null())[0].as_py()
    values = [field.column.values[row] for field in fields]
    texts = (value.as_py() if isinstance(value, pa.Scalar) else value for value in values)
    shown = next((f": {quote_value(text)}" for text in texts if isinstance(text, str | int | float)), "")
    such_as = f"such as row {best.column.row_numbers[row]:,}{shown}"
    has = f"{best.name} has a date or timestamp in {len(array) - array.null_count:,} of {rows:,} rows"
    rejected = f"{counted(array.null_count, 'row')} would be rejected, {such_as}"
    return best, [has, rejected, *utc, *also, *notes]


def _all_rows(rows: int) -> str:
    return "the only row" if rows == 1 else f"all {rows:,} rows"


def _name_rank(name: str) -> int:
    known = len(_TIMESTAMP_NAMES)
    return _TIMESTAMP_NAMES.index(name) if name in _TIMESTAMP_NAMES else known + (not has_time_name(name))


def _as_timestamp(field: InferredField) -> InferredField | None:
    """Return the field itself if it is a timestamp, or a field whose dates may be read as timestamps; else None."""
    best = field.best
    if best is None or best.type is not FieldType.DATE:
        return field if best and best.type is FieldType.TIMESTAMP else None
    dates = [reading.field for reading in field.readings] or [best]
    midnights = [FieldDefinition(type=FieldType.TIMESTAMP, formats=each.formats or ("%Y-%m-%d",)) for each in dates]
    if any(field.column.read(midnight).rejections.num_rows for midnight in midnights):
        return None  # a column of dates in Parquet or Excel
    return replace(field, readings=read_examples(field.column, midnights))


def _in_timezone(field: InferredField, timezone: str | None) -> InferredField:
    """Return the field; as a string if `timestamp.timezone` is not the one that its timestamps need."""
    if not field.needs_timezone or timezone == ("UTC" if field.is_utc else UNDECIDED_TIMEZONE):
        return field
    note = "timestamps without an offset from UTC: to read them as timestamps, set `timestamp.timezone` to theirs"
    if field.readings:
        return replace(field, notes=(*field.notes, note))
    is_string = not field.column.read(STRING).rejections.num_rows
    return replace(field, field=STRING if is_string else None, notes=(note, *field.notes), null_strings=())


def _find_event_id(
    fields: Sequence[InferredField], arrays: Mapping[str, pa.Array], source: str, rows: int
) -> tuple[str | None, list[str]]:
    """Return the field with the id of the event if its name is clear, and what a user should know about it."""
    candidates, repeated = [], dict[str, str]()
    for field in fields:
        if field.field and field.field.type in {FieldType.STRING, FieldType.INT64} and not field.readings:
            has_name = has_id_name(field.column.name) or bool(_ID_NAME.fullmatch(field.name))
            array = arrays[field.name]
            empty = array.null_count
            repeats = len(array) - empty - pc.count_distinct(array).as_py()
            if not repeats and not empty and (has_name or rows >= _ROWS_OF_IDS):
                candidates.append(field.name)
            elif has_name and repeats <= _FEW_REPEATS * rows and empty <= _FEW_EMPTY * rows:
                repeated[field.name] = counted(repeats, "repeat") + (f", {empty:,} empty" if empty else "")
    own_names = {f"{source}_id", f"{source.removesuffix('s')}_id"}
    best = next((name for name in candidates if _ID_NAME.fullmatch(name) or name in own_names), None)
    unique = f"unique in {_all_rows(rows)}, and never empty"
    notes = [f"{best} is {unique}. Of events with the same id in the same hour, one counts"] if best else []
    if others := [name for name in candidates if name != best]:
        verb = ("are" if len(others) > 1 else "is") + (" also" if best else "")
        notes.append(f"{list_names(others)} {verb} {unique}: set event_id if one identifies an event")
    if not best:
        remedy = "choose it as event_id if repeats are the same event"
        notes += [f"{name} is nearly unique: {exceptions}; {remedy}" for name, exceptions in repeated.items()]
    return best, notes


def _null_notes(fields: Sequence[InferredField], null_strings: Sequence[str]) -> list[str]:
    """Return what a user should know about strings that mean "no value", or may mean it."""
    notes: list[str] = []
    for string in null_strings:
        typed = [field.name for field in fields if string in field.null_strings]
        notes.append(f"{string!r} means no value in {list_names(typed)}: the other values have a type")
    others: dict[str, list[str]] = {}
    for field in fields:
        for string in field.column.null_strings:
            if string not in field.null_strings:
                others.setdefault(string, []).append(quote_name(field.name))
    kept = "is kept as a string: add it if it means no value"
    for string, names in others.items():
        effect = "becomes null there too" if string in null_strings else kept
        notes.append(f"{string!r} also occurs in {list_names(names)}, and {effect}")
    return notes


def _check(
    definition: str, fields: Sequence[InferredField], sample: Sample, path: Path, name: str, *, is_whole: bool
) -> list[RejectedEvent] | None:
    """Return the rows of the sample that the receiver rejects; None if it does not read all rows of the sample.

    It reads none without a timestamp, and not the last rows of an incomplete JSON array. What the user has to decide
    is decided in some way.
    """
    content = yaml.safe_load(definition)
    if "field" not in content["timestamp"] or sample.list_key is not None:
        return None
    content["timestamp"] |= {"timezone": "UTC"} if "timezone" in content["timestamp"] else {}
    content["fields"] |= {f.name: f.named(f.best).model_dump(by_alias=True) for f in fields if f.readings and f.best}
    content["pull"] = {"url": "https://partner.example", "files": "{date}", "format": sample.file_format}
    source = Source.model_validate(content)
    rejected, rows = list[RejectedEvent](), 0
    try:
        for block in read_file(path, source, name=name, received_at=datetime.now(UTC)):
            rejected += [event for event in block.rejected if event.index < sample.rows]
            rows += block.table.num_rows + len(block.rejected)
            if rows >= sample.rows:
                return rejected
    except DataError:
        # The beginning of a file ends within a row.
        if is_whole:
            raise
    return None
