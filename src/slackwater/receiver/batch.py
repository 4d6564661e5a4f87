"""A pushed body decoded into raw events: JSON array or NDJSON, gzip or not."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any, ClassVar

from slackwater.errors import DataError

_JSON = frozenset({"application/json"})
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_GZIP = 16 + zlib.MAX_WBITS
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n"


class Refused(DataError):
    """A body that is refused as a whole: nothing of it was kept."""

    status: ClassVar[int]
    code: ClassVar[str]


class UnreadableBody(Refused):
    """The body is not what its headers say."""

    status = 400
    code = "unreadable_body"


class TooLarge(Refused):
    """The body holds more than is taken at once: the message says how much that is."""

    status = 413
    code = "too_large"


class UnsupportedMedia(Refused):
    """The media type or the encoding is none that is read here."""

    status = 415
    code = "unsupported_media"


@dataclass(frozen=True)
class Unparsed:
    """Stands for an event that is no JSON at all."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one batch may hold."""

    body_bytes: int = 6 * 2**20
    """As sent: what one synchronous Lambda call takes."""
    expanded_bytes: int = 32 * 2**20
    events: int = 10_000


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The raw events of one body, in their order."""

    batch_id: str
    """32 hex digits of the body's SHA-256: the same body sent again has the same."""
    events: Sequence[object]
    """Parsed JSON values; `Unparsed` where a line was none."""
    text: str
    lines: Sequence[int] | None
    """NDJSON: the line of each event, from 1."""

    def texts(self, indexes: Sequence[int]) -> list[str]:
        """Return the original text of those events, which must be in order."""
        if self.lines is None:
            return _elements(self.text, indexes)
        rows = self.text.split("\n")
        return [rows[self.lines[index] - 1].strip(_BLANK) for index in indexes]


def decode(body: bytes, *, content_type: str | None, content_encoding: str | None, limits: Limits) -> Batch:
    """Decode a body by its headers. Raises `UnsupportedMedia`, `TooLarge` or `UnreadableBody`."""
    media = _media_type(content_type)
    expanded = _expand(body, content_encoding, limits)
    if not expanded.strip():
        raise UnreadableBody("the body is empty: send a JSON array of events, or NDJSON with one event a line")
    batch_id = hashlib.sha256(body).hexdigest()[:32]
    if media in _JSON:
        events, text, lines = *_json_array(expanded), None
    else:
        events, text, lines = _ndjson(expanded, fence=int(batch_id[:12], 16))
    if len(events) > limits.events:
        raise TooLarge(f"{len(events)} events: at most {limits.events} are taken in one batch, send it in parts")
    return Batch(batch_id=batch_id, events=events, text=text, lines=lines)


def _media_type(content_type: str | None) -> str:
    header = Message()
    header["content-type"] = content_type or "missing/missing"
    media, charset = header.get_content_type(), header.get_content_charset("utf-8")
    if media not in _JSON | _NDJSON:
        raise UnsupportedMedia(
            f"content type {content_type!r}: send application/json (an array) or application/x-ndjson (an event a line)"
        )
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise UnsupportedMedia(f"charset {charset!r}: send UTF-8")
    return media


def _expand(body: bytes, encoding: str | None, limits: Limits) -> bytes:
    if len(body) > limits.body_bytes:
        raise TooLarge(f"{len(body):,} bytes: at most {limits.body_bytes:,} are taken in one body, send it in parts")
    match (encoding or "identity").strip().lower():
        case "identity":
            expanded = body
        case "gzip" | "x-gzip":
            expanded = _gunzip(body, limits.expanded_bytes + 1)
        case other:
            raise UnsupportedMedia(f"content encoding {other!r}: send gzip, or none")
    if len(expanded) > limits.expanded_bytes:
        raise TooLarge(f"the body expands to more than {limits.expanded_bytes:,} bytes: send it in parts")
    return expanded.removeprefix(_BOM)


def _gunzip(body: bytes, limit: int) -> bytes:
    """Expand all gzip members, up to `limit` bytes: what a bomb would hold beyond is never made."""
    out = b""
    try:
        while body and len(out) < limit:
            member = zlib.decompressobj(wbits=_GZIP)
            out += member.decompress(body, limit - len(out))
            if not member.eof and len(out) < limit:
                raise UnreadableBody("the gzip body ends too early")
            body = member.unused_data
    except zlib.error as error:
        raise UnreadableBody(f"the body is not gzip, as its content encoding says: {error}") from error
    return out


def _json_array(body: bytes) -> tuple[list[object], str]:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "; NDJSON is sent as application/x-ndjson" if "Extra data" in str(error) else ""
        raise UnreadableBody(f"the body is not JSON: {_why(error)}{hint}") from error
    if not isinstance(found, list):
        raise UnreadableBody(f"a JSON array of events is expected, not {type(found).__name__}: put it in [ ]")
    return found, text


def _ndjson(body: bytes, *, fence: int) -> tuple[list[object], str, list[int]]:
    """Read each line by itself: one that is no JSON spoils no other."""
    text = body.decode(errors="backslashreplace")
    broken = _broken_lines(body)
    rows = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip(_BLANK)]
    lines = [number for number, _ in rows]
    together = None if broken else _parse_together([line for _, line in rows], fence)
    events = together or [broken.get(number) or _parse_line(line) for number, line in rows]
    if all(isinstance(event, Unparsed) for event in events):
        first = events[0].reason if events and isinstance(events[0], Unparsed) else "there is none"
        raise UnreadableBody(f"no line of the body is JSON; the first event: {first}")
    return events, text, lines


def _broken_lines(body: bytes) -> dict[int, Unparsed]:
    try:
        body.decode()
    except UnicodeDecodeError:
        lines = enumerate(body.split(b"\n"), start=1)
        return {number: Unparsed("not UTF-8") for number, line in lines if not _is_utf8(line)}
    return {}


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_together(lines: Sequence[str], fence: int) -> list[object] | None:
    """Parse all lines as one array, which takes half the time; None when not every line is one value by itself.

    `fence` is a number that stands between them: made of the body's own hash, no body can hold it on purpose.
    """
    try:
        found: list[object] = json.loads(f"[{f',{fence},'.join(lines)}]")
    except (ValueError, RecursionError):
        return None
    # A value that spans two lines would hold a fence, and its lines would be one value too few.
    whole = len(found) == 2 * len(lines) - 1 and found[1::2].count(fence) == len(lines) - 1
    return found[::2] if whole else None


def _parse_line(line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        return Unparsed(f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {_why(error)}")


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it holds a number of thousands of digits"


def _elements(text: str, indexes: Sequence[int]) -> list[str]:
    """Return the text of those elements of the JSON array `text`, which has been parsed before."""
    wanted, found, decoder = set(indexes), [], json.JSONDecoder()
    place = text.index("[") + 1
    for index in range(max(indexes, default=-1) + 1):
        while text[place] in _BLANK or text[place] == ",":
            place += 1
        _, end = decoder.raw_decode(text, place)
        if index in wanted:
            found.append(text[place:end])
        place = end
    return found
