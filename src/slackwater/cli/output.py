"""What a command shows: one JSON document, or text for people.

On a terminal there are colours and tables; in a pipe there is plain text without control characters. Documents and
tables go to standard output, remarks and progress to standard error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from shutil import get_terminal_size
from typing import Any, TextIO

_GAP = "  "
"""Between two columns."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain(value: Any) -> Any:
    """Return the value as JSON has it.

    Dates and times are ISO 8601 (with their offset where they have one), decimals are numbers, bytes are hexadecimal
    digits; NaN and the infinities, which JSON lacks, are null.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            return str(value)


def document(value: Any) -> None:
    """Print the one JSON document of a command."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")


def say(text: str, *, style: str = "", stream: TextIO | None = None) -> None:
    """Print lines, in colour on a terminal. `style` is one of rich's."""
    stream = stream or sys.stdout
    text = "\n".join(map(clean, text.split("\n")))
    if not stream.isatty():
        stream.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=stream, highlight=False, soft_wrap=True).print(Text(text, style=style))


def remark(text: str, *, style: str = "") -> None:
    """Print a line beside the answer: to standard error."""
    say(text, style=style, stream=sys.stderr)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """Print a table in aligned columns, on a terminal with its header set off and folded where that saves room."""
    cells = [[shown(value) for value in row] for row in rows]
    numeric = [_is_numeric(row[place] for row in rows) for place in range(len(columns))]
    heads = [[clean(name)] for name in columns]
    if sys.stdout.isatty() and _width(heads, cells) > get_terminal_size().columns:
        heads = [[part.rstrip() for part in re.findall("[^_ ]*[_ ]|[^_ ]+", name)] for [name] in heads]
    widths = _widths(heads, cells)
    height = max((len(parts) for parts in heads), default=0)
    header = zip(*([""] * (height - len(parts)) + parts for parts in heads), strict=True)
    if title:
        say(title, style="italic")
    for line in header:
        say(_aligned(line, widths, numeric), style="bold")
    if sys.stdout.isatty():
        say("─" * _width(heads, cells), style="dim")
    if cells:
        say("\n".join(_aligned(row, widths, numeric) for row in cells))


def shown(value: Any) -> str:
    """Return the value as a table's cell shows it: nothing for null, at most four decimals, no control characters."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:.4f}".rstrip("0").rstrip(".") if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case timedelta():
            return str(value)
        case Mapping() | list() | tuple():
            return clean(json.dumps(plain(value), ensure_ascii=False))
        case _:
            return clean(str(plain(value)))


def clean(text: str) -> str:
    """Return the text with control characters written out: data can neither move the cursor nor break a line."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def _is_numeric(values: Any) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )


def _widths(heads: Sequence[Sequence[str]], cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([*map(len, parts), *(len(row[place]) for row in cells)], default=0) for place, parts in enumerate(heads)
    ]


def _width(heads: Sequence[Sequence[str]], cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(heads, cells)) + len(_GAP) * (len(heads) - 1)


def _aligned(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, numeric, strict=True)
    )
    return _GAP.join(padded).rstrip()
