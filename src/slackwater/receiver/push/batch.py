"""Decode a pushed body into raw events: a JSON array or NDJSON, uncompressed or compressed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.parsing.json_lines import (
    TooManyEvents,
    decode_lines,
    describe_json_error,
    parse_json,
    read_json_lines,
)
from slackwater.receiver.parsing.rejections import Rejection

_JSON = frozenset({"application/json"})
# No media type is registered for NDJSON, so tools send different ones.
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
# API Gateway expands bodies with gzip or deflate, and refuses others. Messages that the version before has queued have
# bodies with gzip or zstd.
_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
# A parameter of a media type, in lower case: `name=value` or `name="value"`. Refuses quoted values with spaces or
# escapes, which `charset` never has.
_PARAMETER = re.compile(r'([a-z0-9.+_-]+)=("?)([a-z0-9.:+/_-]+)\2')
# The UTF-8 byte order mark, which some programs on Windows write first; JSON parsers refuse it.
_BOM = b"\xef\xbb\xbf"
# Whitespace as JSON defines it.
_BLANK = b" \t\r\n"
# Either a whole JSON string with its escapes, so that brackets and commas inside it do not count, or one bracket, brace
# or comma between values. It may be used only on a body that has been parsed as JSON before.
_JSON_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')


class BatchRefused(DataError):
    """The body is refused as a whole; none of it is stored."""

    status: ClassVar[int]
    """HTTP status of the response."""
    code: ClassVar[str]
    """Code of the error in the response."""


class UnreadableBody(BatchRefused):
    """The body does not have the format that its headers say."""

    status = 400
    code = "unreadable_body"


class BatchTooLarge(BatchRefused):
    """The body exceeds a limit; the message names it."""

    status = 413
    code = "too_large"


class UnsupportedMedia(BatchRefused):
    """The media type, the charset or the content encoding is not supported."""

    status = 415
    code = "unsupported_media"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest batch that is accepted."""

    body_bytes: int = 4 * 2**20
    """As API Gateway passes it: expanded. A synchronous Lambda call accepts 6 MB of JSON, in which the body is Base64,
    so a third larger."""
    expanded_bytes: int = 32 * 2**20
    """Of a body that is still compressed, as in messages of earlier versions; bounds the memory of the function."""
    nested_values: int = 1_000_000
    """Objects and arrays. Each takes only 3 bytes to send (`{},`), but a hundred times as much memory once parsed."""
    events: int = 10_000
    """A source may set another number (`push.max_events`)."""
    hours: int = 1_000
    """Distinct hours of the events' timestamps: each is an object to write and a partition to register."""


@dataclass(frozen=True, kw_only=True)
class PushedBody:
    """A body as a partner sent it."""

    content: bytes
    """Not decompressed."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""


@dataclass(frozen=True, kw_only=True)
class ExpandedBody:
    """A body without its encoding; its events are not decoded yet."""

    batch_id: str
    """The first 32 hex digits of a SHA-256 over the format (`json` or `ndjson`) and `content`."""
    is_json: bool
    """Whether it is a JSON array; otherwise it is NDJSON."""
    content: bytes
    """Decompressed, and without a byte order mark."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The raw events of one body, in the order in which they were sent."""

    batch_id: str
    events: Sequence[object] | pa.Table
    """Parsed JSON values, with a `Rejection` for a line that is not JSON; or the same events as a table."""
    body: bytes
    """Expanded: decompressed, and without a byte order mark."""
    lines: Sequence[int] | None
    """NDJSON: the line number of each event, from 1. None for a JSON array."""

    def original_json(self, indexes: Sequence[int]) -> list[str]:
        """Return the JSON of the events at `indexes`, which must be in ascending order, as the partner sent it."""
        if not indexes:
            return []
        if self.lines is not None:
            return decode_lines(self.body, [self.lines[index] for index in indexes])
        # Scan the array for the commas between its elements: JSON parsers do not report where an element begins.
        wanted, elements = set(indexes), []
        start = self.body.index(b"[") + 1
        index = depth = 0
        for token in _JSON_TOKEN.finditer(self.body, start):
            mark = token[0]
            depth += (mark in {b"[", b"{"}) - (mark in {b"]", b"}"})
            if depth < 0 or (depth == 0 and mark == b","):
                if index in wanted:
                    elements.append(self.body[start : token.start()].strip(_BLANK).decode())
                index, start = index + 1, token.end()
        return elements


def identify(pushed: PushedBody, limits: Limits) -> ExpandedBody:
    """Expand a body by its headers, and compute its batch id.

    Raises `UnsupportedMedia` when the headers name a format that is not supported, `BatchTooLarge` when the body has
    too many bytes, and `UnreadableBody` for broken compressed data.
    """
    is_json = check_media_type(pushed.content_type) in _JSON
    expanded = expand(pushed.content, pushed.content_encoding, limits)
    # The format is part of the id: the same body has other events as NDJSON (one line `[1]`) than as a JSON array.
    digest = hashlib.sha256(b"json\n" if is_json else b"ndjson\n")
    digest.update(expanded)
    return ExpandedBody(batch_id=digest.hexdigest()[:32], is_json=is_json, content=expanded)


def decode(body: ExpandedBody, *, limits: Limits, schema: pa.Schema | None = None) -> Batch:
    """Decode the events of a body.

    `schema` is the source's `partner_schema`. With it, NDJSON whose events have no other fields may be read as a table,
    which is much faster and gives the same values.

    Raises `BatchTooLarge` when a limit is exceeded, and `UnreadableBody` when the body does not have its format.
    """
    expanded = body.content
    if not expanded or expanded.isspace():
        raise UnreadableBody("the body is empty: send a JSON array of events, or NDJSON with one event a line")
    # Brackets in strings are counted, too: only parsing gives the exact number, and parsing is what takes the memory.
    if (brackets := expanded.count(b"{") + expanded.count(b"[")) > limits.nested_values:
        message = f"the body has {brackets:,} opening brackets ({{ and [), the limit is {limits.nested_values:,}"
        raise BatchTooLarge(f"{message}: split the batch")
    too_many_events = BatchTooLarge(f"the body has more than {limits.events:,} events: split the batch")
    events: Sequence[object] | pa.Table
    if body.is_json:
        events, lines = parse_array(expanded), None
    else:
        try:
            events, lines = read_json_lines(expanded, schema, max_events=limits.events)
        except TooManyEvents:
            raise too_many_events from None
        if not isinstance(events, pa.Table) and all(isinstance(event, Rejection) for event in events):
            # Most likely the content type is wrong. Without events, all lines are blank.
            first = events[0].reason if events and isinstance(events[0], Rejection) else "there is none"
            raise UnreadableBody(f"no line of the body is JSON; the first event: {first}")
    if len(events) > limits.events:
        raise too_many_events
    return Batch(batch_id=body.batch_id, events=events, body=expanded, lines=lines)


def check_media_type(content_type: str | None) -> str:
    """Return the media type of a `content-type` header, without parameters. Raises `UnsupportedMedia`."""
    media_type, *parameters = (part.strip() for part in (content_type or "").lower().split(";"))
    if media_type not in _JSON | _NDJSON:
        raise UnsupportedMedia(
            f"content type {content_type!r}: send application/json (an array) or application/x-ndjson (an event a line)"
        )
    for parameter in filter(None, parameters):
        match = _PARAMETER.fullmatch(parameter)
        if match is None:
            raise UnsupportedMedia(
                f"content type {content_type!r}: {parameter!r} is not a parameter: send {media_type} alone"
            )
        if match[1] == "charset" and match[3] not in _CHARSETS:
            raise UnsupportedMedia(f"charset {match[3]!r}: send UTF-8")
    return media_type


def expand(body: bytes, content_encoding: str | None, limits: Limits) -> bytes:
    """Return the body decompressed and without a byte order mark.

    Raises `BatchTooLarge`, `UnsupportedMedia` for an unknown encoding, and `UnreadableBody` for broken compressed data.
    """
    if len(body) > limits.body_bytes:
        raise BatchTooLarge(f"the body has {len(body):,} bytes, the limit is {limits.body_bytes:,}: split the batch")
    encoding = (content_encoding or "identity").strip().lower()
    if encoding == "identity":
        expanded = body
    elif encoding in _CODECS:
        codec = _CODECS[encoding]
        try:
            # Decompresses all members (gzip) or frames (zstd), but stops one byte after the limit, so that a small body
            # which expands to gigabytes (a compression bomb) cannot use up the memory.
            with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
                expanded = stream.read(limits.expanded_bytes + 1)
        except OSError as error:
            raise UnreadableBody(f"the body is not valid {codec}: {error}") from error
    else:
        raise UnsupportedMedia(f"content encoding {encoding!r}: send gzip or deflate, or no encoding")
    if len(expanded) > limits.expanded_bytes:
        raise BatchTooLarge(f"the body expands to more than {limits.expanded_bytes:,} bytes: split the batch")
    return expanded.removeprefix(_BOM)


def parse_array(body: bytes) -> list[object]:
    """Return the elements of a JSON array. Raises `UnreadableBody`."""
    try:
        events: Any = parse_json(body)
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        hint = "" if body.lstrip(_BLANK).startswith(b"[") else "; NDJSON is sent as application/x-ndjson"
        raise UnreadableBody(f"the body is not JSON: {describe_json_error(error)}{hint}") from error
    if not isinstance(events, list):
        raise UnreadableBody(f"a JSON array of events is expected, not {type(events).__name__}: enclose it in [ ]")
    return events
