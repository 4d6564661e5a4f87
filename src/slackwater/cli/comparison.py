"""A comparison of two versions of a day, as people read it on a terminal of a hundred columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from slackwater.cli.output import say, shown, table
from slackwater.formatting import counted
from slackwater.late.comparison import Comparison, MetricChange, Mover, PublishedVersion, RowChange, Value
from slackwater.late.effect import change, duration, largest_metric, number, pair
from slackwater.runs.difference import Amount, Change

_WIDTH = 100
_CELL = 24
"""Characters of one value, where it stands beside others."""
_METRICS, _ROWS, _INPUTS = 20, 10, 10
"""Lines of each table; what they leave out is in the comparison that `--json` prints."""


def show_comparison(comparison: Comparison) -> None:
    """Print what the later version changed, from the whole to the single row, and the inputs that explain it."""
    _show_head(comparison)
    if comparison.rows.differing:
        _show_metrics(comparison)
        _show_movers(comparison)
        _show_rows(comparison)
    _show_inputs(comparison)


def _show_head(comparison: Comparison) -> None:
    before, after, rows = comparison.before, comparison.after, comparison.rows
    say(f"{comparison.pipeline} {comparison.date}: {_name(before)} -> {after.attempt}", style="bold")
    later = duration(after.published_at - before.published_at)
    say(f"  published {_moment(before.published_at)}, again {_moment(after.published_at)}, {later} after")
    if rows.differing == 0:
        say(f"  {counted(rows.after, 'row')}, the same in both", style="green")
        return
    same = rows.after - rows.added - rows.changed
    say(
        f"  {rows.before:,} -> {counted(rows.after, 'row')}: {rows.added:,} added, {rows.removed:,} removed, "
        f"{rows.changed:,} changed, {same:,} the same",
        style="yellow",
    )


def _show_metrics(comparison: Comparison) -> None:
    metrics = sorted(comparison.metrics, key=lambda metric: not metric.moved)[:_METRICS]
    if not metrics:
        return
    numbers = [(metric.before if metric.moved else metric.after, metric.after) for metric in metrics]
    old, new, by = _numbers(comparison, numbers)
    rows = [
        (_cut(metric.metric), metric.total.value, *cells, _moved_most(metric))
        for metric, *cells in zip(metrics, old.cells, new.cells, by.cells, strict=True)
    ]
    _titled(
        "Metrics, over the day",
        ("metric", "", old.head, new.head, by.head, "moved most"),
        rows,
        of=len(comparison.metrics),
    )


def _show_movers(comparison: Comparison) -> None:
    metric = largest_metric(comparison)
    if metric is None or len(metric.movers) < 2:  # noqa: PLR2004 - a single one stands beside its metric
        return
    old, new, by = _numbers(comparison, [(mover.before, mover.after) for mover in metric.movers])
    rows = [
        (*_key(mover.key), *cells) for mover, *cells in zip(metric.movers, old.cells, new.cells, by.cells, strict=True)
    ]
    _titled(f"Largest movers of {_cut(metric.metric)}", (*comparison.key, old.head, new.head, by.head), rows)


def _show_rows(comparison: Comparison) -> None:
    examples = comparison.examples[:_ROWS]
    heads = ("", *comparison.key, f"{_name(comparison.before)} -> {comparison.after.attempt}")
    keys = [(row.change.value, *_key(row.key)) for row in examples]
    room = _room(heads[:-1], keys)
    rows = [(*key, _values(row, room)) for key, row in zip(keys, examples, strict=True)]
    _titled("Rows", heads, rows, of=comparison.rows.differing)
    if comparison.all_rows and len(examples) < comparison.rows.differing:
        say(f"  all of them, as Arrow files: {comparison.all_rows.manifest}")


def _show_inputs(comparison: Comparison) -> None:
    say("")
    if not comparison.inputs:
        say("What the versions have read is not known any more: an input manifest is gone.", style="yellow")
        return
    groups = [group for source in comparison.inputs for group in source.by_file()]
    if not groups:
        say("Both versions have read the same inputs: the definition has changed, or the run was forced.")
        return
    rows = [
        (
            one.source,
            _cut(one.file or "pushed events", 2 * _CELL),
            one.change.value,
            _amounts(one.before, one.now),
            _hours(one.hours),
            _lateness(one.arrivals, comparison.before),
        )
        for one in groups[:_INPUTS]
    ]
    heads = ("source", "input", "", "events", "hours, UTC", "came")
    title = f"Inputs since {_name(comparison.before)} listed its own, {_moment(comparison.before.frozen_at)}"
    _titled(title, heads, rows, of=len(groups), apart=False)


def _amounts(before: Amount, now: Amount) -> str:
    by = f"{now.rows - before.rows:+,}"
    return f"{before.rows:,} -> {now.rows:,} ({by})" if before.objects and now.objects else by


def _hours(hours: Sequence[tuple[str, str]]) -> str:
    """Return `03-10 05`, or `03-10 05 to 03-11 03`."""
    first, last = (f"{date[len('2013-') :]} {hour}" for date, hour in (min(hours), max(hours)))
    return first if first == last else f"{first} to {last}"


def _lateness(arrivals: Sequence[datetime], version: PublishedVersion) -> str:
    if not arrivals:
        return "gone"
    span = arrivals[-1] - version.frozen_at
    return f"{duration(span)} {'after' if span.total_seconds() >= 0 else 'before'}"


def _moved_most(metric: MetricChange) -> str:
    if not metric.movers:
        return ""
    mover = metric.movers[0]
    return f"{_place(mover)}{' -> '.join(pair(mover.before, mover.after))}"


def _place(mover: Mover) -> str:
    return f"{' '.join(_key(mover.key))}: " if mover.key else ""


def _values(row: RowChange, room: int) -> str:
    """Return as many values as there is room for, and the number of the others."""
    side = {Change.ADDED: 1, Change.REMOVED: 0}.get(row.change)
    parts = [
        f"{_cut(name)} {_plain(values[side]) if side is not None else ' -> '.join(_pair(*values))}"
        for name, values in row.values.items()
    ]
    text = ", ".join(parts)
    left = len(parts)
    while len(text) > room and left > 1:
        left -= 1
        text = f"{', '.join(parts[:left])}, {len(parts) - left} more"
    return _cut(text, room)


def _pair(before: Value, after: Value) -> tuple[str, str]:
    if _is_number(before) and _is_number(after):
        return pair(before, after)  # type: ignore[arg-type] # numbers both
    return _plain(before), _plain(after)


def _plain(value: Value) -> str:
    if value is None or _is_number(value):
        return number(value)  # type: ignore[arg-type] # a number or none
    return _cut(shown(value))


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(key: dict[str, Value]) -> list[str]:
    return [_cut(shown(value)) for value in key.values()]


def _cut(text: str, limit: int = _CELL) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _name(version: PublishedVersion) -> str:
    return f"version {version.attempt}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class _Column:
    """A column that is set to the right."""

    head: str
    cells: list[str]


def _numbers(comparison: Comparison, numbers: Sequence[tuple[float | None, float | None]]) -> list[_Column]:
    """Return the columns of both versions' numbers and of their change, as `table` takes them."""
    pairs = [pair(*both) for both in numbers]
    return [
        _to_the_right(_name(comparison.before), [old for old, _ in pairs]),
        _to_the_right(_name(comparison.after), [new for _, new in pairs]),
        _to_the_right("change", [change(*both) for both in numbers]),
    ]


def _to_the_right(head: str, cells: Sequence[str]) -> _Column:
    width = max(map(len, (head, *cells)))
    return _Column(head.rjust(width), [cell.rjust(width) for cell in cells])


def _room(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how many characters the columns leave to one more."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return max(_WIDTH - sum(widths) - 2 * len(widths), 2 * _CELL)


def _titled(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, of: int | None = None, apart: bool = True
) -> None:
    """Print a table under its title, with the number of lines that it leaves out."""
    if apart:
        say("")
    say(title if of is None or of == len(rows) else f"{title}: {len(rows)} of {of:,}", style="bold")
    table(heads, rows)
