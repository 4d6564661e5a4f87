"""What people are told of a changed day: a subject that says it all, and a plain text that reads well in an e-mail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import wrap
from typing import TypeGuard

from slackwater.formatting import counted, moment, size, span
from slackwater.late.comparison import Comparison, RowChange, Value
from slackwater.late.effect import change, duration, largest_effect, largest_metric, number, pair
from slackwater.runs.difference import Change, FileChange, SourceDifference
from slackwater.runs.manifest import Record

_WIDTH = 78
"""Columns: what an e-mail shows without breaking lines."""
_MAX_FILES = 10
_MAX_ROWS = 8
_MAX_VALUE = 40
"""Characters of a value that is text."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Message(Record):
    """What people are told."""

    subject: str
    body: str
    message_id: str | None = None
    """None until it was sent, or when nobody knows whether it was."""
    sent_at: datetime | None = None


def compose(comparison: Comparison) -> Message:
    """Return the message about a comparison with differing rows."""
    subject = f"{comparison.pipeline} {comparison.date} changed: {largest_effect(comparison)}"
    parts = (_opening(comparison), _arrived(comparison), _changed(comparison), _rows(comparison), _where(comparison))
    return Message(subject=subject, body="\n\n".join("\n".join(part) for part in parts) + "\n")


def _opening(comparison: Comparison) -> Iterator[str]:
    cause = "A new run" if comparison.inputs else "A new version"
    if any(_come(source) for source in comparison.inputs):
        cause = "Late data"
    yield f"{cause} has changed what {comparison.pipeline} had published for {comparison.date}:"
    yield f"{largest_effect(comparison)}."


def _arrived(comparison: Comparison) -> Iterator[str]:
    frozen_at = comparison.before.frozen_at
    yield "WHAT ARRIVED LATE"
    if not comparison.inputs:
        yield "  That cannot be known any more: the list of what a version has read is gone."
        return
    changed = [source for source in comparison.inputs if source.changes]
    if not changed:
        yield "  Nothing: both versions come from the same inputs. The pipeline's definition or its"
        yield "  code has changed, or the day was run again by hand."
        return
    yield f"  Published before was what had arrived by {moment(frozen_at)}. Since then:"
    for source in changed:
        yield ""
        yield f"  {source.source}: {counted(source.now.rows, 'row')} of the day, {source.before.rows:,} before"
        files = source.by_file()
        for found in files[:_MAX_FILES]:
            yield from _file(found, frozen_at)
        if files[_MAX_FILES:]:
            yield f"    ... and {counted(len(files) - _MAX_FILES, 'more file')}"


def _changed(comparison: Comparison) -> Iterator[str]:
    rows = comparison.rows
    yield "WHAT IT CHANGED"
    yield (
        f"  {counted(rows.changed, 'row')} changed, {rows.added:,} new, {rows.removed:,} gone: "
        f"{counted(rows.after, 'row')} of the day, {rows.before:,} before"
    )
    moved = [metric for metric in comparison.metrics if metric.moved]
    if moved:
        yield ""
        yield from _table([(f"{item.metric} ({item.total})", *_move(item.before, item.after)) for item in moved])
    largest = largest_metric(comparison)
    if largest and largest.movers:
        yield ""
        yield f"  Where {largest.metric} moved most:"
        yield from _table([(_key(item.key), *_move(item.before, item.after)) for item in largest.movers], indent=4)


def _rows(comparison: Comparison) -> Iterator[str]:
    examples = comparison.examples[:_MAX_ROWS]
    rest = comparison.rows.differing - len(examples)
    yield "THE FIRST CHANGED ROWS" if rest else "THE CHANGED ROWS"
    for row in examples:
        yield from _wrapped(_row(row), indent=2)
    if rest:
        yield f"  ... and {counted(rest, 'more row')}"


def _where(comparison: Comparison) -> Iterator[str]:
    yield "WHERE TO LOOK"
    commands = {
        f"slackwater diff {comparison.pipeline} --date {comparison.date}": "its two latest versions",
        f"slackwater runs {comparison.pipeline}": "when it ran, what it read",
    }
    width = max(map(len, commands))
    yield from (f"  {command.ljust(width)}  {what}" for command, what in commands.items())
    if comparison.all_rows:
        yield "  All changed rows, as Arrow files:"
        yield f"    {comparison.all_rows.manifest}"
    yield "  The version before can still be read; in Spark SQL:"
    yield f"    FROM {comparison.pipeline} VERSION AS OF '{comparison.before.tag}'"
    yield f"    WHERE date = '{comparison.date}'"


def _file(found: FileChange, frozen_at: datetime) -> Iterator[str]:
    remark = {Change.ADDED: "", Change.CHANGED: " (changed)", Change.REMOVED: " (gone)"}
    yield f"    {_clean(found.file) if found.file else 'pushed events'}{remark[found.change]}"
    amount = found.before if found.change is Change.REMOVED else found.now
    earlier = f" ({found.before.rows:,} before)" if found.change is Change.CHANGED else ""
    yield f"      {counted(amount.rows, 'row')}{earlier}, {size(amount.bytes)}, of {span(found.hours)}"
    if found.arrivals:
        yield f"      {_arrival(found.arrivals[0], found.arrivals[-1], frozen_at)}"


def _arrival(first: datetime, last: datetime, frozen_at: datetime) -> str:
    if last <= frozen_at:
        return f"being taken when the inputs were listed, {moment(last)}"
    if moment(first) == moment(last):
        return f"came {moment(last)}, {duration(last - frozen_at)} later"
    until = f"{last:%H:%M} UTC" if first.date() == last.date() else moment(last)
    return f"came {first:%Y-%m-%d %H:%M} to {until}, up to {duration(last - frozen_at)} later"


def _come(source: SourceDifference) -> bool:
    return bool(source.late.objects)


def _move(before: float | None, after: float | None) -> tuple[str, str, str, str]:
    was, now = pair(before, after)
    return was, "->", now, change(before, after)


def _key(key: dict[str, Value]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in key.items())


def _row(row: RowChange) -> str:
    match row.change:
        case Change.ADDED:
            values = [f"{name} {_shown(after)}" for name, (_, after) in row.values.items() if after is not None]
            return f"new, {_key(row.key)}: {', '.join(values)}"
        case Change.REMOVED:
            values = [f"{name} {_shown(before)}" for name, (before, _) in row.values.items() if before is not None]
            return f"gone, {_key(row.key)}: {', '.join(values)}"
        case Change.CHANGED:
            values = [f"{name} {' -> '.join(_both(*sides))}" for name, sides in row.values.items()]
            return f"{_key(row.key)}: {', '.join(values)}"


def _both(before: Value, after: Value) -> tuple[str, str]:
    if _is_number(before) and _is_number(after):
        return pair(before, after)
    return _shown(before), _shown(after)


def _shown(value: Value) -> str:
    return number(value) if _is_number(value) else _text(value)


def _text(value: Value) -> str:
    """A value as it is: numbers in keys are names, so 2013 stays 2013."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    text = _clean(str(value))
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."


def _is_number(value: Value) -> TypeGuard[int | float | None]:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _clean(text: str) -> str:
    """The text on one line: data cannot add lines to a message."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def _wrapped(text: str, *, indent: int) -> list[str]:
    """The text in lines; those after the first are set in by two more."""
    first = " " * indent
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=f"{first}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(rows: Sequence[Sequence[str]], *, indent: int = 2) -> Iterator[str]:
    """The rows in aligned columns: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        yield f"{' ' * indent}{'  '.join(cells)}".rstrip()
