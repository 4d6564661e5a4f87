"""Reading a file of events, and cutting it into batches that are cut the same way every time."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from slackwater.errors import DataError, InputError

MAX_EVENTS = 5_000
MAX_BYTES = 4_000_000
"""Of one batch, before compression: API Gateway and Lambda take 6 MB and more."""


def read_events(file: str) -> list[bytes]:
    """Return the events of a file, each as JSON text: NDJSON or a JSON array, gzip or not; `-` is standard input.

    Raises `InputError` for a file that is not there, `DataError` naming the line that is no JSON. NDJSON lines are kept
    to the byte, so that the same file always gives the same batches.
    """
    content = _content(file)
    if content.lstrip()[:1] == b"[":
        return _array(content, file)
    lines = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), start=1)]
    events = [(number, line) for number, line in lines if line]
    for number, line in events:
        try:
            json.loads(line)
        except ValueError as error:
            raise DataError(f"{file}: line {number} is not JSON: {error} (nothing was sent)") from error
    return [line for _, line in events]


def batches(
    events: Sequence[bytes], *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES
) -> Iterator[list[bytes]]:
    """Cut events, in order, into batches of at most `max_events` and `max_bytes`.

    Raises `DataError` for an event that is too large by itself.
    """
    batch: list[bytes] = []
    size = 0
    for place, event in enumerate(events):
        length = len(event) + 1
        if length > max_bytes:
            raise DataError(f"event {place} has {length:,} bytes; at most {max_bytes:,} can be sent at once")
        if batch and (len(batch) == max_events or size + length > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    if batch:
        yield batch


def body_of(batch: Sequence[bytes]) -> bytes:
    """Return the batch as gzipped NDJSON, the same bytes for the same events."""
    return gzip.compress(b"\n".join(batch) + b"\n", mtime=0)


def _content(file: str) -> bytes:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file}: not readable as gzip: {error}") from error
    return content.removeprefix(b"\xef\xbb\xbf")


def _array(content: bytes, file: str) -> list[bytes]:
    try:
        events = json.loads(content)
    except ValueError as error:
        raise DataError(f"{file}: not readable as a JSON array: {error} (nothing was sent)") from error
    return [json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() for event in events]
