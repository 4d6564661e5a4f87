"""NDJSON of flat events read at once into a table, wherever that gives just what reading line by line gives."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

_OTHERS = bytes(set(range(256)) - set(b"{}\n"))
_NEGATIVE_ZERO = re.compile(rb":\s*-0\s*[,}]")


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
        table = json.read_json(
            pa.BufferReader(body),
            read_options=json.ReadOptions(use_threads=False, block_size=len(body) + 1),
            parse_options=json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
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
