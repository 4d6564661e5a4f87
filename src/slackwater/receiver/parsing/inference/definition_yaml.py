"""Write an inferred definition as YAML, with the evidence for each choice as comments."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from slackwater.formatting import escape_control_characters
from slackwater.receiver.parsing.inference.inferred import UNDECIDED, UNDECIDED_TIMEZONE, Inferred, InferredField
from slackwater.receiver.parsing.inference.names import file_pattern
from slackwater.receiver.parsing.rejections import quote_name
from slackwater.sources.fields import FieldDefinition
from slackwater.sources.file_format import FileFormat, Json, Ndjson
from slackwater.sources.file_pattern import FilePattern

_LINE_LENGTH = 110
# Megabytes: larger files would need a job with a network, see `pull.max_file_mb`.
_MAX_FILE_MB = 1024


def write_definition(inferred: Inferred, *, name: str, head: Iterable[str], url: str | None) -> str:
    """Return the YAML of a definition.

    `name` is the name of the sample file, `head` what to say at the top, one paragraph each, and `url` the URL of the
    file, without a query, if it has one.
    """
    lines = [line for paragraph in head for line in _comment(paragraph)]
    lines += [f"source: {_flow(inferred.source)}", *_timestamp(inferred)]
    lines += _comments(inferred.event_id_notes)
    if inferred.event_id:
        lines.append(f"event_id: {_flow(inferred.event_id)}")
    if inferred.trim:
        lines.append("trim: true  # values have blanks around them")
    lines += _comments(inferred.null_notes)
    if inferred.null_values != ("",):
        lines.append(f"null_values: {_flow(list(inferred.null_values))}")
    lines.append("fields:" if any(field.definition for field in inferred.fields) else "fields: {}")
    for field in inferred.fields:
        lines += _field(field)
    return "\n".join([*lines, *_arrival(inferred, name, url)]) + "\n"


def _timestamp(inferred: Inferred) -> list[str]:
    if inferred.timestamp is None:
        lines = _comments([f"{UNDECIDED} which field is the timestamp", *inferred.timestamp_notes])
        # Without a field the definition is not valid.
        return [*lines, f"timestamp: {_flow({'timezone': inferred.timezone} if inferred.timezone else {})}"]
    lines = ["timestamp:", *_comments(inferred.timestamp_notes, indent=2), f"  field: {_flow(inferred.timestamp.name)}"]
    if inferred.timezone == UNDECIDED_TIMEZONE:
        text = "For timestamps without an offset from UTC: an IANA name such as America/New_York, or UTC."
        lines += _comment(text, indent=2)
    if inferred.timezone:
        lines.append(f"  timezone: {_flow(inferred.timezone)}")
    return lines


def _field(field: InferredField) -> list[str]:
    definition, notes = field.definition, field.finding.notes
    if definition is None:
        return _comment(f"No field for {quote_name(field.column.name)!r}: {'; '.join(notes)}.", indent=2)
    line = f"  {_flow(field.name)}: {_flow(_definition(definition))}"
    if field.finding.readings:
        return [*_readings(field), *_comments(notes, indent=2), line]
    note = _printable("; ".join(notes))
    if len(line) + len(note) <= _LINE_LENGTH:
        return [f"{line}  # {note}" if note else line]
    return [*_comment(f"{field.name}: {note}.", indent=2), line]


def _readings(field: InferredField) -> list[str]:
    """Return the readings between which the user has to decide, each as a line for the definition."""
    readings = field.finding.readings
    what = (
        f"{len(readings)} readings fit all values" if len(readings) > 1 else "a date, at midnight, is a timestamp too"
    )
    lines = _comment(f"{UNDECIDED} how to read {field.name}: {what}. Replace its line by:", indent=2)
    for reading in readings:
        named = reading.field.model_copy(update={"partner_name": field.definition and field.definition.partner_name})
        lines.append(f"  #   {_flow(field.name)}: {_flow(_definition(named))}  # {_printable(reading.example)}")
    return lines


def _definition(field: FieldDefinition) -> Any:
    options = field.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return options["type"] if len(options) == 1 else options


def _arrival(inferred: Inferred, name: str, url: str | None) -> list[str]:
    """Return `pull`, or `push` for events that the receiver cannot read from the file."""
    if inferred.sample.list_key is not None:
        key = quote_name(inferred.sample.list_key)
        text = f"The receiver reads no object with the list {key!r}: have its elements pushed, or sent as one array."
        return [*_comment(text), "push: {}"]
    lines = ["pull:"]
    parts = urlsplit(url or "")
    file_name = unquote(parts.path.rpartition("/")[2]) if url else name
    pattern, has_date = file_pattern(file_name)
    folder = parts._replace(path=parts.path.rpartition("/")[0], query="", fragment="").geturl()
    if url is None:
        lines += _comment("Set `url` to the folder of the partner's files.", indent=2)
    lines.append(f"  url: {_flow(folder if url else f'https://partner.example/{inferred.source}')}")
    if not has_date:
        lines += _comment("Set where the date is in names of files: the sample's name has none.", indent=2)
    lines.append(f"  files: {_flow(pattern)}")
    if url and FilePattern(pattern).is_exact:
        lines.append("  listing: none  # requests each possible name; if the server lists its files: json or html")
    lines += _comments(inferred.sample.notes, indent=2)
    lines.append(f"  format: {_flow(_format(inferred.sample.file_format))}")
    lines.append(f"  max_file_mb: {_MAX_FILE_MB}  # larger files need a job with a network")
    if isinstance(inferred.sample.file_format, Json | Ndjson):
        lines += _comment("If the partner pushes its events, replace `pull` by `push: {}`.")
    return lines


def _format(file_format: FileFormat) -> Any:
    options = file_format.model_dump(mode="json", exclude_defaults=True)
    return {"type": file_format.type, **options} if options else file_format.type


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": math.inf}
    text = str(yaml.safe_dump(value, allow_unicode=True, **options))
    if yaml.safe_load(text) != value:  # PyYAML does not escape U+0085, which is a line end
        text = str(yaml.safe_dump(value, **options))
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")


def _comments(sentences: Iterable[str], *, indent: int = 0) -> list[str]:
    text = ". ".join(sentences)
    return _comment(f"{text}.", indent=indent) if text else []


def _comment(text: str, *, indent: int = 0) -> list[str]:
    lines = textwrap.wrap(_printable(text), _LINE_LENGTH - indent, break_long_words=False, break_on_hyphens=False)
    return [f"{' ' * indent}# {line}" for line in lines]


def _printable(text: str) -> str:
    """Return text on one line: names and values of the sample must not end a comment."""
    return escape_control_characters(text).encode(errors="backslashreplace").decode()
