"""Events from lines of JSON: as one Arrow table where every line is a flat object, else line by line with the same result."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from slackwater.errors import DataError

_BLANK = b" \t\r\n"
_OTHERS = bytes(set(range(256)) - set(b"{}\n"))
_NEGATIVE_ZERO = re.compile(rb":\s*-0\s*[,}]")


class TooManyEvents(DataError):
    """There are more events than the caller accepts."""


@dataclass(frozen=True)
class InvalidJson:
    """Stands for an event that is no JSON at all."""

    reason: str


def read_json_lines(
    body: bytes, wanted: pa.Schema | None, *, max_events: int
) -> tuple[Sequence[object] | pa.Table, Sequence[int]]:
    """Return the events of all lines that are not blank, as `Batch` has them, and their lines. Raises `TooManyEvents`."""
    if wanted is not None and (count := count_flat_lines(body)):
        if count > max_events:
            raise TooManyEvents(f"more than {max_events:,} events")
        if (table := read_flat_lines(body, wanted)) is not None:
            return table, range(1, count + 1)
    rows = _rows(body, max_events)
    return [_parse_line(row) for row in rows.values()], list(rows)


def _rows(body: bytes, max_events: int) -> dict[int, bytes]:
    """Return all lines that are not blank, by number."""
    rows = {}
    for number, row in enumerate(io.BytesIO(body), start=1):
        if row.strip(_BLANK):
            rows[number] = row.removesuffix(b"\n")
            if len(rows) > max_events:
                raise TooManyEvents(f"more than {max_events:,} events")
    return rows


def _parse_line(line: bytes) -> object:
    """Read a line by itself: one that is no JSON spoils no other."""
    try:
        return parse_json(line)
    except UnicodeDecodeError:
        return InvalidJson("not UTF-8")
    except json.JSONDecodeError as error:
        return InvalidJson(f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return InvalidJson(f"not JSON: {json_error(error)}")


_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_LONG = b"0" * 19
"""As many digits as the largest integer of 64 bits has: orjson gives a larger one as a float."""


def parse_json(text: bytes) -> Any:
    """Parse JSON as `json.loads` does, quicker: integers of any size, NaN and lone surrogates are taken."""
    if _LONG not in text.translate(_DIGITS):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # It may be of what only `json` takes; if not, its reasons are the ones to give.
    return json.loads(text.decode())


def json_error(error: ValueError | RecursionError) -> str:
    """Return why a body is not JSON, with line and column where they are known."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it holds a number of thousands of digits"


def line_texts(body: bytes, lines: Sequence[int]) -> list[str]:
    """Return the text of those lines, counted from 1; bytes that are not UTF-8 are escaped with backslashes."""
    rows = body.split(b"\n")
    return [rows[line - 1].strip(_BLANK).decode(errors="backslashreplace") for line in lines]


def count_flat_lines(body: bytes) -> int:
    """Return the number of lines if each begins with its only opening brace and ends with its only closing one, else 0.

    Such a line is one flat object or no JSON, and Arrow tells which. Other lines it must not see: it takes objects
    wherever they begin and end, and a null beside one makes it crash (apache/arrow#47409).
    """
    braces = body.translate(None, _OTHERS).removesuffix(b"\n") + b"\n"
    lines = len(braces) // 3
    framed = body.startswith(b"{") and body.endswith((b"}", b"}\n")) and body.count(b"}\n{") == lines - 1
    return lines if framed and braces == b"{}\n" * lines else 0


def read_flat_lines(body: bytes, wanted: pa.Schema) -> pa.Table | None:
    """Return the events of lines that `count_flat_lines` has counted: a row each, null for what one does not have.

    None where one of them is no event as `wanted`, or where another reader may read another value.
    """
    try:
        body.decode()
        table = arrow_json.read_json(
            pa.BufferReader(body),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(body) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
        )
    except (UnicodeDecodeError, pa.ArrowException):
        return None
    return None if _may_differ(table, body) else table


def _may_differ(table: pa.Table, body: bytes) -> bool:
    """Whether Arrow took what is read in another way elsewhere: NaN, Infinity, too large a number, or -0."""
    for column in table.columns:
        if not pa.types.is_floating(column.type):
            continue
        if pc.all(pc.is_finite(column)).as_py() is False:
            return True
        bits = (chunk.view(pa.int64()) for chunk in column.chunks)
        if any(pc.index(chunk, -(2**63)).as_py() >= 0 for chunk in bits) and _NEGATIVE_ZERO.search(body):
            return True
    return False
