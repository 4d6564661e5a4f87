"""The section of a report about the rows that were added, removed or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from slackwater.formatting import counted, number
from slackwater.late.comparison import Comparison, RowChange
from slackwater.late.report.section import (
    MAX_CELL,
    ReportSection,
    ReportTable,
    cut_value,
    is_number,
    value_pair,
    with_count,
)
from slackwater.runs.inputs.difference import Change

# Rows and columns that are shown in lines, and in the table of a page. The comparison has up to 100 rows.
_MAX_ROWS, _MAX_COLUMNS = 10, 20
_MAX_TABLE_ROWS, _MAX_TABLE_COLUMNS = 25, 8
# Keeps `120 -> 131` on one line: `textwrap` breaks lines only at ASCII spaces.
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


def rows_section(comparison: Comparison, width: int | None) -> ReportSection:
    """Return the first changed rows, and the URI of all of them when there are more. Without a width, as a table."""
    differing = comparison.rows.differing
    examples = comparison.examples[: _MAX_TABLE_ROWS if width is None else _MAX_ROWS]
    lines: list[str] = []
    if width is not None:
        lines += (line for row in examples for line in _row_lines(row, width))
    if len(examples) < differing:
        if width is not None:
            lines.append(f"... and {counted(differing - len(examples), 'more row')}")
        if comparison.all_rows:
            lines += ["All changed rows, as Arrow files:", f"  {comparison.all_rows.manifest}"]
    table = _rows_table(comparison.key, examples) if width is None else None
    return ReportSection(with_count("Changed rows", len(examples), differing), tuple(lines), table)


def _row_lines(row: RowChange, width: int) -> Iterator[str]:
    lines = wrap(describe_row(row), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return (line.replace(_NO_BREAK_SPACE, " ") for line in lines)


def _rows_table(key: Sequence[str], rows: Sequence[RowChange]) -> ReportTable:
    """Return a table with the columns of the key, then those of the values, the most often changed ones first."""
    # Columns that changed equally often keep their order. Rows that were added or removed have all columns.
    changed = Counter(name for row in rows if row.change is Change.CHANGED for name in row.values)
    others = (name for row in rows for name, pair in row.values.items() if pair != (None, None))
    names = list(dict.fromkeys([*(name for name, _ in changed.most_common()), *others]))
    shown = names[:_MAX_TABLE_COLUMNS]
    titles = ["change", *(cut_value(name, MAX_CELL) for name in (*key, *shown))]
    table = [
        [
            row.change.value,
            *(cut_value(row.key.get(name), MAX_CELL) for name in key),
            *(_cell(row, name) for name in shown),
        ]
        for row in rows
    ]
    if names[_MAX_TABLE_COLUMNS:]:
        titles.append(f"{counted(len(names) - len(shown), 'more column')}")
        for row, cells in zip(rows, table, strict=True):
            more = sum(1 for name, pair in row.values.items() if pair != (None, None) and name not in shown)
            cells.append(f"{more} not shown" if more else "")
    return ReportTable(tuple(titles), tuple(map(tuple, table)))


def _cell(row: RowChange, name: str) -> str:
    """Return a value of a row: of a changed row before and after, empty if it is the same."""
    before, after = row.values.get(name, (None, None))
    if row.change is Change.CHANGED:
        return " -> ".join(value_pair(before, after, MAX_CELL)) if name in row.values else ""
    value = after if row.change is Change.ADDED else before
    if value is None:
        return ""
    return number(value) if is_number(value) else cut_value(value, MAX_CELL)


def describe_row(row: RowChange) -> str:
    """Return one line about a row: `changed origin EWR, carrier UA: flights 120 -> 131`.

    For an added or removed row the line has all values that are not null. Spaces within a value are no-break spaces.
    """
    if row.change is Change.CHANGED:
        pairs = {name: value_pair(before, after) for name, (before, after) in row.values.items()}
        values = [f"{cut_value(name)} {before} -> {after}" for name, (before, after) in pairs.items()]
    else:
        side = 1 if row.change is Change.ADDED else 0
        present = {name: pair[side] for name, pair in row.values.items() if pair[side] is not None}
        values = [
            f"{cut_value(name)} {number(value) if is_number(value) else cut_value(value)}"
            for name, value in present.items()
        ]
    if values[_MAX_COLUMNS:]:
        values[_MAX_COLUMNS:] = [f"{len(values) - _MAX_COLUMNS} more"]
    key = ", ".join(f"{cut_value(name)} {cut_value(value)}" for name, value in row.key.items())
    items = ", ".join(value.replace(" ", _NO_BREAK_SPACE) for value in values)
    return f"{row.change.value}{f' {key}' if key else ''}: {items}"
