"""Reads a file of events, and cuts it into batches, the same ones every time."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from slackwater.errors import DataError, InputError

MAX_EVENTS = 5_000
# Bytes of a batch before compression. The API accepts 4 MB: API Gateway expands a body, and Lambda gets it in Base64.
MAX_BYTES = 4_000_000


def read_events(file: str) -> list[bytes]:
    """Return the events of a file, each as JSON.

    The file is NDJSON or a JSON array, gzipped or not; `-` is standard input. Lines of NDJSON are returned byte for
    byte, so that the same file always gives the same batches.

    Lines that are not JSON are returned too, because the API rejects each of them alone, and keeps them.

    Raises `InputError` for a file that cannot be read, and `DataError` if it is no JSON array and no line is JSON.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    # Every gzip file begins with these two bytes (RFC 1952).
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file}: not readable as gzip: {error}") from error
    # The byte order mark of UTF-8, which some editors and Excel write.
    content = content.removeprefix(b"\xef\xbb\xbf")
    return _read_array(content, file) if content.lstrip()[:1] == b"[" else _read_lines(content, file)


def cut_batches(
    events: Sequence[bytes], *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES
) -> Iterator[list[bytes]]:
    """Cut events, in order, into batches of at most `max_events` events and `max_bytes` bytes before compression.

    Raises `DataError` for an event that is too large for any batch.
    """
    batch: list[bytes] = []
    size = 0
    for index, event in enumerate(events):
        length = len(event) + 1
        if length > max_bytes:
            raise DataError(f"event {index} has {length:,} bytes; at most {max_bytes:,} can be sent in a batch")
        if batch and (len(batch) == max_events or size + length > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    if batch:
        yield batch


def encode_body(batch: Sequence[bytes]) -> bytes:
    """Return the batch as gzipped NDJSON, the same bytes for the same events."""
    # By default, the gzip header has the current time, which would make the bytes differ.
    return gzip.compress(b"\n".join(batch) + b"\n", mtime=0)


def _read_array(content: bytes, file: str) -> list[bytes]:
    try:
        events = json.loads(content)
    except ValueError as error:
        raise DataError(f"{file}: not readable as a JSON array: {error} (nothing was sent)") from error
    return [json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() for event in events]


def _read_lines(content: bytes, file: str) -> list[bytes]:
    lines = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), start=1)]
    events = [(number, line) for number, line in lines if line]
    first = ""
    for number, event in events:
        try:
            json.loads(event)
        except ValueError as error:
            first = first or f"line {number}: {error}"
        else:
            break
    else:
        if events:
            raise DataError(f"{file}: no line is JSON; {first} (nothing was sent)")
    return [event for _, event in events]
