"""What a command shows: one JSON document, or text for people.

On a terminal, text has colours and rich draws the tables. In a pipe, both are plain text without control characters.
Documents and tables go to standard output, notes and progress to standard error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from shutil import get_terminal_size
from typing import Any, TextIO

from slackwater.formatting import escape_control_characters

# Blanks between two columns.
_GAP = 2
# Tables with fewer rows are drawn by rich. It takes about a millisecond for a row of twelve columns: 10,000 rows would
# take 12 s.
_DRAWN_ROWS = 500
COUNT_STYLES = {"complete": "green", "short": "red", "surplus": "yellow", "unknown": "yellow"}
"""The colours of states of counts."""
# The least width to which a column of text is folded, even if the table is then wider than the terminal.
_FOLDED_WIDTH = 12
# Characters of an event or a row that a terminal shows.
_CONTENT_WIDTH = 60


def print_json(value: Any) -> None:
    """Print the one JSON document of a command, converted by `to_json_value`."""
    # NaN and infinities are converted to null before: `allow_nan=False` makes sure that none is left.
    sys.stdout.write(json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False) + "\n")


def cut(content: str) -> str:
    """Return an event or a row as a table shows it: on a terminal, at most 60 characters."""
    is_cut = sys.stdout.isatty() and len(content) > _CONTENT_WIDTH
    return f"{content[: _CONTENT_WIDTH - 3]}..." if is_cut else content


def to_json_value(value: Any) -> Any:  # noqa: PLR0911 - one return for each type
    """Return the value, converted to types that JSON has.

    Dates and times become ISO 8601 strings (with their UTC offset if they have one), decimals become numbers, bytes
    become hexadecimal digits. NaN and infinities, which JSON lacks, become null.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case Mapping():
            return {str(key): to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            return str(value)


def print_text(text: str, *, style: str = "", stream: TextIO | None = None) -> None:
    """Print lines to a stream (standard output by default); on a terminal, in the given style of rich."""
    stream = stream or sys.stdout
    # Control characters in data could move the cursor or change colours, and rich does not remove most of them.
    text = "\n".join(map(escape_control_characters, text.split("\n")))
    if not stream.isatty():
        stream.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=stream, highlight=False, soft_wrap=True).print(Text(text, style=style))


def print_note(text: str, *, style: str = "") -> None:
    """Print lines that are not part of the result, to standard error."""
    print_text(text, style=style, stream=sys.stderr)


def value_lines(values: Mapping[str, Any]) -> list[str]:
    """Return parameters or effects of a step as lines: one each, or one for each item of a list of mappings."""
    lines = []
    for name, value in values.items():
        if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            items = [" ".join(f"{key}={_one_line(part)}" for key, part in item.items()) for item in value]
        else:
            items = [_one_line(value)]
        lines += [f"  {name}: {item}" for item in items]
    return lines


def _one_line(value: Any) -> str:
    """Return a string without line breaks, and any other value as JSON."""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(to_json_value(value), ensure_ascii=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """Print a table, its numbers aligned to the right.

    If the terminal is too narrow, the names of the columns are folded first, then long text in the cells. In a pipe,
    and from 500 rows on, each row is one line, whatever its length.
    """
    names = [escape_control_characters(name) for name in columns]
    cells = [[format_cell(value) for value in row] for row in rows]
    numeric = [_is_numeric(row[index] for row in rows) for index in range(len(columns))]
    if title:
        print_text(title, style="italic")
    if sys.stdout.isatty() and len(rows) < _DRAWN_ROWS:
        _draw_table(names, cells, numeric)
    else:
        _write_table(names, cells, numeric)


def format_cell(value: Any) -> str:
    """Return the value as a cell shows it: empty for null, at most four decimals, no control characters."""
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
            return escape_control_characters(json.dumps(to_json_value(value), ensure_ascii=False))
        case _:
            return escape_control_characters(str(to_json_value(value)))


def format_usd(usd: float | None) -> str:
    """Return a price as a cell shows it: six decimals, as a run may cost less than a cent; `-` if it is unknown."""
    return "-" if usd is None else f"{usd:.6f}"


def _is_numeric(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )


def _draw_table(names: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Draw a table with rich that fits the terminal if possible. Numbers are never folded or cut."""
    from rich import box
    from rich.align import Align
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = get_terminal_size()
    console = Console(width=terminal.columns, height=terminal.lines)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for name, is_number in zip(names, numeric, strict=True):
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    # Only a table that is too wide is changed: rich would otherwise fold numbers and names at any character.
    unlimited = console.options.update_width(sys.maxsize)
    if console.measure(table, options=unlimited).maximum > console.width:
        for index, column in enumerate(table.columns):
            # The name's words, each with the underscore that follows it: `dep_delay` becomes `dep_` and `delay`.
            parts = [part.rstrip() for part in re.findall("[^_ ]*[_ ]|[^_ ]+", names[index])]
            column.header = Align(Text("\n".join(parts)), column.justify, vertical="bottom")  # type: ignore[arg-type] # left or right
            longest = max((cell_len(row[index]) for row in cells), default=0)
            column.min_width = max(longest if numeric[index] else min(longest, _FOLDED_WIDTH), *map(cell_len, parts), 0)
    console.print(table, crop=False)


def _write_table(names: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Write a table as plain lines, one for each row."""
    from rich.cells import cell_len

    lines = [names, *cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (
            f"{'' if is_number else cell}{' ' * (width - cell_len(cell))}{cell if is_number else ''}"
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        )
        sys.stdout.write(f"{(' ' * _GAP).join(padded).rstrip()}\n")
