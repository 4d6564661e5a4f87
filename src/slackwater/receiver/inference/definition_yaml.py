"""The YAML of an inferred definition, with the evidence for each choice as comments."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from slackwater.formatting import counted, escape_control_characters
from slackwater.receiver.inference.columns import InferredField
from slackwater.receiver.inference.sample import Sample
from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.rejections import quote_name
from slackwater.sources.fields import FieldDefinition
from slackwater.sources.file_format import Json, Ndjson
from slackwater.sources.file_pattern import FilePattern

# Marks what a user has to decide. The second is no timezone, so a definition with it is not valid.
UNDECIDED = "DECIDE"
UNDECIDED_TIMEZONE = f"{UNDECIDED} the timezone"
_LINE_LENGTH = 110
# Rejected rows that the definition quotes.
_QUOTED_ROWS = 3
# Megabytes: larger files would need a job with a network, see `pull.max_file_mb`.
_MAX_FILE_MB = 1024
# Dates in names of files, and the placeholder of `files` by the character between their parts.
_FILE_DATE = re.compile(r"(?<!\d)[12]\d{3}(?P<separator>[-_]?)(0[1-9]|1[0-2])(?P=separator)(0[1-9]|[12]\d|3[01])(?!\d)")
_PLACEHOLDERS = {"-": "{date}", "_": "{date:%Y_%m_%d}", "": "{date:%Y%m%d}"}


def head_lines(sample: Sample, rejected: Sequence[RejectedEvent] | None, *, name: str, is_undecided: bool) -> list[str]:
    """Return the comment at the top; `rejected` are the rows that the receiver rejects, or None if not known."""
    rows = counted(sample.rows, "row")
    part = f"{rows}, all of the file." if sample.is_complete else f"only its first {rows}. The others were not read."
    head = [f"Written by `slackwater source infer` from {name}: {part}"]
    if is_undecided:
        head.append(f"{UNDECIDED} marks what the values do not decide.")
    if rejected:
        head.append(f"The receiver rejects {counted(len(rejected), 'row')} of them:")
        head += [f"- row {event.index + 1:,}: {event.reason}" for event in rejected[:_QUOTED_ROWS]]
    elif rejected is not None:
        head.append(f"The receiver accepts all of these rows{' after the decisions' if is_undecided else ''}.")
    return [line for paragraph in head for line in _comment(paragraph)]


def timestamp_lines(field: str | None, timezone: str | None, notes: Sequence[str]) -> list[str]:
    """Return `timestamp`. Without a field, it is not valid."""
    if field is None:
        lines = comments([f"{UNDECIDED} which field is the timestamp", *notes])
        return [*lines, f"timestamp: {flow({'timezone': timezone} if timezone else {})}"]
    lines = ["timestamp:", *comments(notes, indent=2), f"  field: {flow(field)}"]
    if timezone == UNDECIDED_TIMEZONE:
        text = (
            "For timestamps without an offset from UTC: an IANA name such as America/New_York, or UTC. When clocks are "
            "set back, an hour occurs twice, and both are read as the first hour: if your data has it, have UTC or "
            "offsets sent."
        )
        lines += _comment(text, indent=2)
    return [*lines, f"  timezone: {flow(timezone)}"] if timezone else lines


def field_lines(field: InferredField) -> list[str]:
    """Return the line of a field, with its notes, and with its readings if the user has to decide."""
    note = "; ".join(field.notes)
    if field.field is None:
        return _comment(f"No field for {quote_name(field.column.name)!r}: {note}.", indent=2)
    line = _definition(field, field.field)
    if field.readings:
        count = len(field.readings)
        what = f"{count} readings fit all values" if count > 1 else "a date, at midnight, is a timestamp too"
        decide = _comment(f"{UNDECIDED} how to read {field.name}: {what}. Replace its line by:", indent=2)
        readings = [f"  # {_definition(field, each.field)}  # {_printable(each.example)}" for each in field.readings]
        return [*decide, *readings, *comments(field.notes, indent=2), line]
    if len(line) + len(_printable(note)) <= _LINE_LENGTH:
        return [f"{line}  # {_printable(note)}" if note else line]
    return [*_comment(f"{field.name}: {note}.", indent=2), line]


def _definition(field: InferredField, definition: FieldDefinition) -> str:
    options = field.named(definition).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return f"  {flow(field.name)}: {flow(options['type'] if len(options) == 1 else options)}"


def arrival_lines(sample: Sample, source: str, *, name: str, url: str | None, listing: str | None) -> list[str]:
    """Return `pull`, or `push` for events that the receiver cannot read from the file.

    `name` is the name of the sample file, and `url` its URL, without a query, if it has one. `listing` is how its
    server lists it; None if that is not known.
    """
    if sample.list_key is not None:
        key = quote_name(sample.list_key)
        text = f"The receiver reads no object with the list {key!r}: have its elements pushed, or sent as one array."
        return [*_comment(text), "push: {}"]
    parts = urlsplit(url or "")
    folder, _, file_name = parts.path.rpartition("/")
    pattern, has_date = file_pattern(unquote(file_name) if url else name)
    folder = parts._replace(path=folder, query="", fragment="").geturl()
    options = sample.file_format.model_dump(mode="json", exclude_defaults=True)
    file_format = {"type": sample.file_format.type, **options} if options else sample.file_format.type
    lines = ["pull:"]
    lines += [] if url else _comment("Set `url` to the folder of the partner's files.", indent=2)
    lines.append(f"  url: {flow(folder if url else f'https://partner.example/{source}')}")
    if not has_date:
        lines += _comment("Set where the date is in names of files: the sample's name has none.", indent=2)
    lines.append(f"  files: {flow(pattern)}")
    if listing:
        lines.append(f"  listing: {listing}")
    elif url and FilePattern(pattern).is_exact:
        lines.append("  listing: none  # requests each possible name; if the server lists its files: json or html")
    lines += [*comments(sample.notes, indent=2), f"  format: {flow(file_format)}"]
    lines.append(f"  max_file_mb: {_MAX_FILE_MB}  # larger files need a job with a network")
    if isinstance(sample.file_format, Json | Ndjson):
        lines += _comment("If the partner pushes its events, replace `pull` by `push: {}`.")
    return lines


def file_pattern(file_name: str) -> tuple[str, bool]:
    """Return a pattern such as `flights-{date}*.csv` for a file's name, and whether the name contains a date."""
    name = re.sub(r"[{}*]", "*", file_name)
    if match := _FILE_DATE.search(name):
        # The number after a date may be an hour, or the number of a part.
        rest = re.sub(r"^[-_T.]?\d+", "*", name[match.end() :])
        return name[: match.start()] + _PLACEHOLDERS[match["separator"]] + rest, True
    stem, dot, suffixes = name.partition(".")
    return f"{stem}-{{date}}{dot}{suffixes}", False


def file_date(file_name: str) -> date | None:
    """Return the date in a file's name; None if it has none."""
    match = _FILE_DATE.search(file_name)
    try:
        return date.fromisoformat(re.sub("[-_]", "", match[0])) if match else None
    except ValueError:  # such as 2024-02-31
        return None


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": math.inf}
    text = str(yaml.safe_dump(value, allow_unicode=True, **options))
    if yaml.safe_load(text) != value:  # PyYAML does not escape U+0085, which is a line end
        text = str(yaml.safe_dump(value, **options))
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")


def comments(sentences: Sequence[str], *, indent: int = 0) -> list[str]:
    """Return a comment with these sentences; nothing if there are none."""
    text = ". ".join(sentences)
    return _comment(f"{text}.", indent=indent) if text else []


def _comment(text: str, *, indent: int = 0) -> list[str]:
    lines = textwrap.wrap(_printable(text), _LINE_LENGTH - indent, break_long_words=False, break_on_hyphens=False)
    return [f"{' ' * indent}# {line}" for line in lines]


def _printable(text: str) -> str:
    """Return text on one line: names and values of the sample must not end a comment."""
    return escape_control_characters(text).encode(errors="backslashreplace").decode()
