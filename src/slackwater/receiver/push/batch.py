"""A pushed body decoded into raw events: JSON array or NDJSON, gzip, zstd or neither."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.parsing.json_lines import (
    InvalidJson,
    TooManyEvents,
    json_error,
    line_texts,
    parse_json,
    read_json_lines,
)

_JSON = frozenset({"application/json"})
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
_PARAMETER = re.compile(r'([a-z0-9.+_-]+)=("?)([a-z0-9.:+/_-]+)\2')
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class BatchRefused(DataError):
    """A body that is refused as a whole: nothing of it was kept."""

    status: ClassVar[int]
    code: ClassVar[str]


class UnreadableBody(BatchRefused):
    """The body is not what its headers say."""

    status = 400
    code = "unreadable_body"


class BatchTooLarge(BatchRefused):
    """The body holds more than is taken at once: the message says how much that is."""

    status = 413
    code = "too_large"


class UnsupportedMedia(BatchRefused):
    """The media type or the encoding is none that is read here."""

    status = 415
    code = "unsupported_media"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one batch may hold."""

    body_bytes: int = 4 * 2**20
    """As sent. A synchronous Lambda call takes 6 MiB of JSON, in which a body is Base64, or its quotes are escaped."""
    expanded_bytes: int = 32 * 2**20
    nests: int = 1_000_000
    """Objects and arrays: one takes 3 bytes to send, and a hundred times as much memory once it is parsed."""
    events: int = 10_000
    hours: int = 1_000
    """Partitions that the events fall into: each is an object to write and an entry of the catalogue."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The raw events of one body, in their order."""

    batch_id: str
    """32 hex digits of SHA-256 of the form, `json` or `ndjson`, and the expanded body: however it is compressed."""
    events: Sequence[object] | pa.Table
    """Parsed JSON values, `InvalidJson` where a line was none; or the same events as a table by the wanted schema."""
    body: bytes
    """Expanded."""
    lines: Sequence[int] | None
    """NDJSON: the line of each event, from 1."""

    def texts(self, indexes: Sequence[int]) -> list[str]:
        """Return the original text of those events, which must be in order."""
        if not indexes:
            return []
        if self.lines is None:
            return _elements(self.body, indexes)
        return line_texts(self.body, [self.lines[index] for index in indexes])


def decode(
    body: bytes,
    *,
    content_type: str | None,
    content_encoding: str | None,
    limits: Limits,
    wanted: pa.Schema | None = None,
) -> Batch:
    """Decode a body by its headers. Raises `UnsupportedMedia`, `BatchTooLarge` or `UnreadableBody`.

    With `wanted`, the names and JSON types that events are expected to have, events that have no others may be read as
    a table, which is much quicker; it holds just what reading one by one would give.
    """
    media = _media_type(content_type)
    expanded = _expand(body, content_encoding, limits)
    if not expanded or expanded.isspace():
        raise UnreadableBody("the body is empty: send a JSON array of events, or NDJSON with one event a line")
    _refuse_too_many_nests(expanded, limits)
    events, lines = _json_array(expanded) if media in _JSON else _ndjson(expanded, limits, wanted)
    if len(events) > limits.events:
        raise _too_many(limits)
    return Batch(batch_id=_batch_id(media, expanded), events=events, body=expanded, lines=lines)


def _batch_id(media: str, expanded: bytes) -> str:
    """The form counts, too: the same text is other events as an array than line by line."""
    digest = hashlib.sha256(b"json\n" if media in _JSON else b"ndjson\n")
    digest.update(expanded)
    return digest.hexdigest()[:32]


def _media_type(content_type: str | None) -> str:
    media, *parameters = (part.strip() for part in (content_type or "").lower().split(";"))
    if media not in _JSON | _NDJSON:
        raise UnsupportedMedia(
            f"content type {content_type!r}: send application/json (an array) or application/x-ndjson (an event a line)"
        )
    for parameter in filter(None, parameters):
        found = _PARAMETER.fullmatch(parameter)
        if found is None:
            raise UnsupportedMedia(f"content type {content_type!r}: {parameter!r} is no parameter, send {media} alone")
        if found[1] == "charset" and found[3] not in _CHARSETS:
            raise UnsupportedMedia(f"charset {found[3]!r}: send UTF-8")
    return media


def _expand(body: bytes, encoding: str | None, limits: Limits) -> bytes:
    if len(body) > limits.body_bytes:
        raise BatchTooLarge(
            f"{len(body):,} bytes: at most {limits.body_bytes:,} are taken in one body, send it in parts"
        )
    name = (encoding or "identity").strip().lower()
    if name != "identity" and name not in _CODECS:
        raise UnsupportedMedia(f"content encoding {name!r}: send gzip or zstd, or none")
    expanded = body if name == "identity" else _decompress(body, _CODECS[name], limits.expanded_bytes + 1)
    if len(expanded) > limits.expanded_bytes:
        raise BatchTooLarge(f"the body expands to more than {limits.expanded_bytes:,} bytes: send it in parts")
    return expanded.removeprefix(_BOM)


def _decompress(body: bytes, codec: str, limit: int) -> bytes:
    """Expand all members or frames, up to `limit` bytes: what a bomb would hold beyond is never made."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            expanded: bytes = stream.read(limit)
    except OSError as error:
        raise UnreadableBody(f"the body is not {codec} from beginning to end: {error}") from error
    return expanded


def _refuse_too_many_nests(body: bytes, limits: Limits) -> None:
    """Count what may open an object or an array, in texts too: the exact number is known too late."""
    if (nests := body.count(b"{") + body.count(b"[")) > limits.nests:
        raise BatchTooLarge(f"{nests:,} of {{ and [: at most {limits.nests:,} are taken in one batch, send it in parts")


def _json_array(body: bytes) -> tuple[list[object], None]:
    try:
        found: Any = parse_json(body)
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        hint = "; NDJSON is sent as application/x-ndjson" if "Extra data" in str(error) else ""
        raise UnreadableBody(f"the body is not JSON: {json_error(error)}{hint}") from error
    if not isinstance(found, list):
        raise UnreadableBody(f"a JSON array of events is expected, not {type(found).__name__}: put it in [ ]")
    return found, None


def _ndjson(body: bytes, limits: Limits, wanted: pa.Schema | None) -> tuple[Sequence[object] | pa.Table, Sequence[int]]:
    try:
        events, lines = read_json_lines(body, wanted, max_events=limits.events)
    except TooManyEvents:
        raise _too_many(limits) from None
    if not isinstance(events, pa.Table) and all(isinstance(event, InvalidJson) for event in events):
        first = events[0].reason if events and isinstance(events[0], InvalidJson) else "there is none"
        raise UnreadableBody(f"no line of the body is JSON; the first event: {first}")
    return events, lines


def _too_many(limits: Limits) -> BatchTooLarge:
    return BatchTooLarge(
        f"more than {limits.events:,} events, which is all that is taken in one batch: send it in parts"
    )


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')


def _elements(body: bytes, indexes: Sequence[int]) -> list[str]:
    """Return the text of those elements of the JSON array `body`, which has been parsed before, however deep it is."""
    wanted, found = set(indexes), []
    start = body.index(b"[") + 1
    index = depth = 0
    for token in _TOKEN.finditer(body, start):
        mark = token[0]
        depth += (mark in {b"[", b"{"}) - (mark in {b"]", b"}"})
        if depth < 0 or (depth == 0 and mark == b","):
            if index in wanted:
                found.append(body[start : token.start()].strip(_BLANK).decode())
            index, start = index + 1, token.end()
    return found
