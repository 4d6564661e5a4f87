"""A pushed body, and the raw events in it: a JSON array or NDJSON, uncompressed or compressed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.parsing.compression import BrokenData, ExpandsTooFar, decompress
from slackwater.receiver.parsing.json_lines import (
    TooManyEvents,
    decode_lines,
    numbered_lines,
    parse_json,
    read_json_lines,
)
from slackwater.receiver.parsing.json_stream import describe_json_error
from slackwater.receiver.parsing.rejections import Rejection

_JSON = frozenset({"application/json"})
# No media type is registered for NDJSON, so tools send different ones.
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
# API Gateway expands bodies with gzip or deflate, and refuses others. Messages that the version before has queued have
# bodies with gzip or zstd.
_CODECS = {"identity": None, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
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
    """Distinct hours of the events' timestamps: each is an object to write."""


@dataclass(frozen=True, kw_only=True)
class Body:
    """A body as a partner sent it. It is expanded when it is read first."""

    content: bytes
    """As it was sent: not decompressed."""
    content_type: str | None
    content_encoding: str | None
    origin: str
    """`push:<partner>`."""
    limits: Limits

    @cached_property
    def is_json(self) -> bool:
        """Whether the body is a JSON array; otherwise it is NDJSON.

        Raises `UnsupportedMedia` when the header names a media type or a charset that is not supported.
        """
        return check_media_type(self.content_type) in _JSON

    @cached_property
    def expanded(self) -> bytes:
        """The content, decompressed and without a byte order mark.

        Raises `BatchTooLarge` when it has too many bytes, `UnsupportedMedia` for an unknown encoding, and
        `UnreadableBody` for broken compressed data.
        """
        body, limits = self.content, self.limits
        if len(body) > limits.body_bytes:
            message = f"the body has {len(body):,} bytes, the limit is {limits.body_bytes:,}"
            raise BatchTooLarge(f"{message}: split the batch")
        encoding = (self.content_encoding or "identity").strip().lower()
        if encoding not in _CODECS:
            raise UnsupportedMedia(f"content encoding {encoding!r}: send gzip or deflate, or no encoding")
        codec, max_bytes = _CODECS[encoding], limits.expanded_bytes
        try:
            expanded = decompress(body, codec=codec, name="the body", max_bytes=max_bytes)
        except ExpandsTooFar as error:
            raise BatchTooLarge(f"the body expands to more than {max_bytes:,} bytes: split the batch") from error
        except BrokenData as error:
            raise UnreadableBody(f"the body is not valid {codec}: {error.__cause__}") from error
        return expanded.removeprefix(_BOM)

    @cached_property
    def batch_id(self) -> str:
        """The first 32 hex digits of a SHA-256 over the format (`json` or `ndjson`) and the expanded content.

        Raises `BatchRefused` when the body cannot be expanded by its headers.
        """
        # The format is part of the id: the same body has other events as NDJSON (one line `[1]`) than as a JSON array.
        digest = hashlib.sha256(b"json\n" if self.is_json else b"ndjson\n")
        digest.update(self.expanded)
        return digest.hexdigest()[:32]

    def events(self, schema: pa.Schema | None = None, max_events: int | None = None) -> Sequence[object] | pa.Table:
        """Return the raw events in the order in which they were sent.

        They are parsed JSON values, with a `Rejection` for a line that is not JSON. `schema` is the source's
        `partner_schema`. With it, NDJSON whose events have no other fields may be read as a table, which is much faster
        and has the same values. `max_events` replaces the limit of events.

        Raises `BatchTooLarge` when a limit is exceeded, and `UnreadableBody` when the body does not have its format.
        """
        body, limits = self.expanded, self.limits
        limit = limits.events if max_events is None else max_events
        if not body or body.isspace():
            raise UnreadableBody("the body is empty: send a JSON array of events, or NDJSON with one event a line")
        # Brackets in strings are counted, too: only parsing gives the exact number, and parsing is what takes the
        # memory.
        if (brackets := body.count(b"{") + body.count(b"[")) > limits.nested_values:
            message = f"the body has {brackets:,} opening brackets ({{ and [), the limit is {limits.nested_values:,}"
            raise BatchTooLarge(f"{message}: split the batch")
        try:
            events = parse_array(body) if self.is_json else parse_lines(body, schema, max_events=limit)
            if len(events) > limit:
                raise TooManyEvents
        except TooManyEvents:
            raise BatchTooLarge(f"the body has more than {limit:,} events: split the batch") from None
        return events

    def originals(self, indexes: Sequence[int]) -> tuple[pa.Array, pa.Array | None]:
        """Return the text and the line of the events at `indexes`, which must be in ascending order.

        The text is the JSON that the partner sent. The lines are numbers from 1; None for a JSON array, or no event.
        """
        if not indexes:  # the lines are numbered, and the body is split, only if an event is rejected
            return pa.array([], pa.string()), None
        if self.is_json:
            return pa.array(self._elements(indexes), pa.string()), None
        all_lines = [number for number, _ in numbered_lines(self.expanded)]
        lines = [all_lines[index] for index in indexes]
        return pa.array(decode_lines(self.expanded, lines), pa.string()), pa.array(lines, pa.int64())

    def _elements(self, indexes: Sequence[int]) -> list[str]:
        """Return the JSON of elements of the array."""
        body = self.expanded
        # Scan the array for the commas between its elements: JSON parsers do not report where an element begins.
        wanted, elements = set(indexes), []
        start = body.index(b"[") + 1
        index = depth = 0
        for token in _JSON_TOKEN.finditer(body, start):
            mark = token[0]
            depth += (mark in {b"[", b"{"}) - (mark in {b"]", b"}"})
            if depth < 0 or (depth == 0 and mark == b","):
                if index in wanted:
                    elements.append(body[start : token.start()].strip(_BLANK).decode())
                index, start = index + 1, token.end()
        return elements


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


def parse_lines(body: bytes, schema: pa.Schema | None, *, max_events: int) -> Sequence[object] | pa.Table:
    """Return the events of NDJSON, as a table if they fit `schema`. Raises `TooManyEvents` and `UnreadableBody`."""
    events, _ = read_json_lines(body, schema, max_events=max_events)
    if not isinstance(events, pa.Table) and all(isinstance(event, Rejection) for event in events):
        # Most likely the content type is wrong. Without events, all lines are blank.
        first = events[0].reason if events and isinstance(events[0], Rejection) else "there is none"
        raise UnreadableBody(f"no line of the body is JSON; the first event: {first}")
    return events


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
