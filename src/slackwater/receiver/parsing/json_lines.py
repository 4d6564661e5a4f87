"""Parse lines of JSON: with Arrow into a table when every line is a flat object, otherwise line by line.

Both ways give the same events; a property test compares them (tests/unit/parsing/test_json_lines.py).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from slackwater.errors import DataError
from slackwater.receiver.parsing.json_stream import describe_json_error
from slackwater.receiver.parsing.rejections import NOT_UTF8, Rejection, RejectionRule

WHITESPACE = b" \t\r\n"
"""Whitespace as JSON defines it."""
_NOT_BRACES_OR_NEWLINE = bytes(set(range(256)) - set(b"{}\n"))
# The integer -0 as the value of a key. Does not match -0.0 and -0e5, which Python reads as -0.0, like Arrow. It also
# matches inside strings, which only means that the slower parser is used.
_NEGATIVE_ZERO = re.compile(rb":\s*-0\s*[,}]")
# Maps each digit to "0" and each other byte to a space, so that a long number is a run of zeros.
_DIGITS_TO_ZEROS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
# The largest 64-bit integer has 19 digits; orjson parses larger integers as floats.
_LONG_NUMBER = b"0" * 19


class TooManyEvents(DataError):
    """There are more events than the caller accepts."""


def read_json_lines(
    body: bytes, schema: pa.Schema | None, *, max_events: int
) -> tuple[Sequence[object] | pa.Table, Sequence[int]]:
    """Parse all lines that are not blank.

    Returns the events and their line numbers, from 1. The events are a table with exactly `schema`, the source's
    `partner_schema`, if all lines fit it; otherwise, or if `schema` is None, they are parsed JSON values, with a
    `Rejection` for each line that is not JSON. Raises `TooManyEvents` when there are more than `max_events`.
    """
    if schema is not None and (count := count_flat_lines(body)):
        if count > max_events:
            raise TooManyEvents(f"more than {max_events:,} events")
        if (table := read_flat_lines(body, schema)) is not None:
            return table, range(1, count + 1)
    lines: dict[int, bytes] = {}
    for number, line in numbered_lines(body):
        lines[number] = line.removesuffix(b"\n")
        if len(lines) > max_events:
            raise TooManyEvents(f"more than {max_events:,} events")
    return [parse_line(line) for line in lines.values()], list(lines)


def numbered_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each line that is not blank."""
    return ((number, line) for number, line in enumerate(io.BytesIO(body), start=1) if line.strip(WHITESPACE))


def count_flat_lines(body: bytes) -> int:
    """Return the number of lines if each has exactly one "{", at its start, and one "}", at its end; otherwise 0.

    Such a line is either a flat object or not JSON, which Arrow's reader reports. Arrow's reader must not read other
    bodies: it accepts objects that span lines, and it crashes on a null beside an object (apache/arrow#47409).
    """
    # Counting bytes takes a small fraction of the time of parsing.
    braces = body.translate(None, _NOT_BRACES_OR_NEWLINE).removesuffix(b"\n") + b"\n"
    lines = len(braces) // len(b"{}\n")
    braces_at_ends = body.startswith(b"{") and body.endswith((b"}", b"}\n")) and body.count(b"}\n{") == lines - 1
    return lines if braces_at_ends and braces == b"{}\n" * lines else 0


def read_flat_lines(body: bytes, schema: pa.Schema) -> pa.Table | None:
    """Parse a body that `count_flat_lines` has accepted into a table with one row per line; absent fields are null.

    Returns None when a line does not fit `schema`, or when `parse_json` might give another value.
    """
    try:
        # Arrow's reader does not check that strings are UTF-8.
        body.decode()
        table = arrow_json.read_json(
            pa.BufferReader(body),
            # One block for the whole body, because a line that is longer than a block is an error.
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(body) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (UnicodeDecodeError, pa.ArrowException):
        return None
    for column in table.columns:
        if not pa.types.is_floating(column.type):
            continue
        # Arrow accepts NaN and Infinity, and reads numbers beyond the range of a double as infinity.
        if pc.all(pc.is_finite(column)).as_py() is False:
            return None
        # Python reads "-0" as the integer 0, Arrow as -0.0; the bits of -0.0 are those of the integer -2**63.
        bits = (chunk.view(pa.int64()) for chunk in column.chunks)
        if any(pc.index(chunk, -(2**63)).as_py() >= 0 for chunk in bits) and _NEGATIVE_ZERO.search(body):
            return None
    return table


def parse_line(line: bytes) -> object:
    """Parse one line. Returns a `Rejection` when it is not JSON, so that the other lines are still accepted."""
    try:
        return parse_json(line)
    except UnicodeDecodeError:
        return NOT_UTF8
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        reason = describe_json_error(error)
    return Rejection(RejectionRule.NOT_JSON, f"not JSON: {reason}")


def parse_json(body: bytes) -> Any:
    """Parse JSON with the results of `json.loads`, but faster.

    Integers of any size, NaN and lone surrogates are accepted. Raises `UnicodeDecodeError`, `json.JSONDecodeError`,
    `RecursionError` when values are nested too deep, or `ValueError` when a number has thousands of digits.
    """
    if _LONG_NUMBER not in body.translate(_DIGITS_TO_ZEROS):
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            pass  # `json.loads` accepts more (NaN, lone surrogates), and its messages have a line and a column.
    return json.loads(body.decode())


def decode_lines(body: bytes, numbers: Sequence[int]) -> list[str]:
    """Return the lines with these numbers, from 1. Bytes that are not UTF-8 are escaped with backslashes."""
    lines = body.split(b"\n")
    return [lines[number - 1].strip(WHITESPACE).decode(errors="backslashreplace") for number in numbers]
