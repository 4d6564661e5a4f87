"""The report about a comparison as one HTML page, without scripts and without anything from elsewhere.

`page.html` is the template; this module computes what its two kinds of charts and its tables show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from slackwater import formatting
from slackwater.formatting import counted, hour_range, number_pair, relative_change
from slackwater.late.comparison import Comparison, HourTotals, MetricChange, RowChange
from slackwater.late.report import sections
from slackwater.late.report.headline import MAX_CELL, cut_value, describe_change, format_values, largest_effect
from slackwater.late.report.message import where_to_look
from slackwater.runs.inputs.difference import Change

MAX_HOURS = 72
"""Hours of a chart of inputs."""
# Charts of metrics, those that have changed first, and of sources with changed inputs.
_MAX_METRICS, _MAX_SOURCES = 12, 4
# Of the comparison's changed rows, of their columns, and of the changed files of all sources.
_MAX_ROWS, _MAX_COLUMNS, _MAX_FILES = 25, 8, 50
# Browsers break the lines of a page.
_WIDTH = 100_000

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

Hour = tuple[str, str]
"""Date and hour of a partition, UTC."""


class HourColumns(NamedTuple):
    """The two columns of an hour in a chart."""

    title: str
    """What a browser shows at the columns."""
    label: str
    before: float | None
    after: float | None
    moved: bool = True
    """Whether the values differ. Columns of other hours are pale."""


class InputChart(NamedTuple):
    """A source's rows by hour, before and after."""

    caption: str
    hours: list[HourColumns]
    dates: list[str]
    """Of each hour."""


def report_page(comparison: Comparison) -> str:
    """Return the page: the sections of the e-mail, with charts of the metrics and of the inputs by hour.

    Changed rows and files are tables, and longer than in the e-mail.
    """
    day = f"{comparison.pipeline} for {comparison.date}"
    metrics = [metric for metric in comparison.metrics if metric.before is not None or metric.after is not None]
    files = [(source, file) for source in comparison.inputs for file in source.by_file()]
    rows = comparison.examples[:_MAX_ROWS]
    return _TEMPLATES.get_template("page.html").render(
        formatting=formatting,
        sections=sections,
        cut_value=cut_value,
        bar_extents=bar_extents,
        metric_hours=metric_hours,
        hours_table=hours_table,
        comparison=comparison,
        title=describe_change(comparison, day) if comparison.rows.differing else f"{day}: no change",
        effect=largest_effect(comparison),
        summary=sections.summary_sections(comparison, _WIDTH),
        metrics=sorted(metrics, key=lambda metric: not metric.moved)[:_MAX_METRICS],
        charts=[input_chart(source, hours) for source, hours in list(rows_by_hour(comparison).items())[:_MAX_SOURCES]],
        values=sections.value_sections(comparison, _WIDTH),
        rows=rows,
        rows_title=sections.with_count("Changed rows", len(rows), comparison.rows.differing),
        rows_table=rows_table(comparison.key, rows),
        inputs=sections.inputs_section(comparison),
        files=files[:_MAX_FILES],
        file_count=len(files),
        closing=[*sections.closing_sections(comparison, _WIDTH), where_to_look(comparison)],
    )


def bar_extents(values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return the start and the length of each value's bar in percent of an axis that includes zero.

    The length is 0 for a missing value.
    """
    numbers = [value or 0.0 for value in values]
    # Divided first, because the difference of two large numbers can be infinite.
    largest = max(map(abs, numbers)) or 1.0
    scaled = [value / largest for value in numbers]
    low, high = min(0.0, *scaled), max(0.0, *scaled)
    span = (high - low) or 1.0
    return [(round(100 * (min(0.0, value) - low) / span, 4), round(100 * abs(value) / span, 4)) for value in scaled]


def hour_names(hours: Sequence[HourTotals]) -> list[str]:
    """Return the local times of hours, as in `01:00`; with its UTC offset if an hour occurs twice: `01:00 -04:00`."""
    times = [hour.hour[11:16] if hour.hour else "no hour" for hour in hours]
    count = Counter(times)
    return [
        f"{time} {hour.hour[16:]}" if hour.hour and count[time] > 1 else time
        for time, hour in zip(times, hours, strict=True)
    ]


def metric_hours(metric: MetricChange) -> list[HourColumns]:
    """Return the columns of a metric's chart."""
    columns, moved = [], metric.moved_hours
    for hour, name in zip(metric.hours, hour_names(metric.hours), strict=True):
        change = relative_change(hour.before, hour.after)
        pair = " -> ".join(number_pair(hour.before, hour.after))
        title = f"{name}: {pair}{f' ({change})' if change else ''}"
        columns.append(HourColumns(title, name[:2] if hour.hour else "", hour.before, hour.after, hour in moved))
    return columns


def hours_table(metric: MetricChange, comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the numbers of a metric's chart."""
    pairs = [(hour.before, hour.after) for hour in metric.hours]
    names = ["hour", *hour_names(metric.hours)]
    return list(zip(names, *sections.number_columns(comparison, pairs), strict=True))


def rows_by_hour(comparison: Comparison) -> dict[str, dict[Hour, tuple[int, int]]]:
    """Return the rows of each source's changed inputs in both versions, by date and hour (UTC).

    Inputs that have no hours, such as tables, are left out.
    """
    sources: dict[str, dict[Hour, tuple[int, int]]] = {}
    for source in comparison.inputs:
        for item in () if source.of_published_days else source.changes:
            if item.hour:
                hours = sources.setdefault(source.source, {})
                before, after = hours.get((item.date, item.hour), (0, 0))
                hours[item.date, item.hour] = before + item.before.rows, after + item.now.rows
    return sources


def input_chart(source: str, rows: Mapping[Hour, tuple[int, int]]) -> InputChart:
    """Return the chart of a source's rows, for at most `MAX_HOURS` hours."""
    hours = _axis(rows)
    columns = []
    for date, hour in hours:
        before, after = rows.get((date, hour), (0, 0))
        title = f"{date} {hour}:00 UTC: {before:,} -> {counted(after, 'row')}"
        columns.append(HourColumns(title, hour, before, after))
    hidden = len(rows.keys() - set(hours))
    left_out = f"; {counted(hidden, 'later hour')} not shown" if hidden else ""
    highest = counted(max(max(rows.get(hour, (0, 0))) for hour in hours), "row")
    caption = f"{source}, {hour_range(hours)}: at most {highest} in an hour{left_out}"
    return InputChart(caption, columns, [date for date, _ in hours])


def _axis(rows: Mapping[Hour, tuple[int, int]]) -> list[Hour]:
    """Return the hours of a chart in order: without gaps if they fit, else the first ones that have rows."""
    starts = [datetime.fromisoformat(f"{date}T{hour}:00") for date, hour in (min(rows), max(rows))]
    count = round((starts[1] - starts[0]) / timedelta(hours=1)) + 1
    if count > MAX_HOURS:
        return sorted(rows)[:MAX_HOURS]
    every = [starts[0] + timedelta(hours=index) for index in range(count)]
    return [(f"{start:%Y-%m-%d}", f"{start:%H}") for start in every]


def rows_table(key: Sequence[str], rows: Sequence[RowChange]) -> list[list[str]]:
    """Return a table with the columns of the key, then those of the values, the most often changed ones first."""
    # Columns that changed equally often keep their order. Rows that were added or removed have all columns.
    changed = Counter(name for row in rows if row.change is Change.CHANGED for name in row.values)
    others = (name for row in rows for name, pair in row.values.items() if pair != (None, None))
    names = list(dict.fromkeys([*(name for name, _ in changed.most_common()), *others]))
    shown, hidden = names[:_MAX_COLUMNS], set(names[_MAX_COLUMNS:])
    table = [["change", *(cut_value(name, MAX_CELL) for name in (*key, *shown))]]
    for row in rows:
        keys = (cut_value(row.key.get(name), MAX_CELL) for name in key)
        table.append([row.change.value, *keys, *(_cell(row, name) for name in shown)])
    if hidden:
        table[0].append(counted(len(hidden), "more column"))
        for row, cells in zip(rows, table[1:], strict=True):
            more = sum(row.values[name] != (None, None) for name in hidden & row.values.keys())
            cells.append(f"{more} not shown" if more else "")
    return table


def _cell(row: RowChange, name: str) -> str:
    """Return a value of a row: of a changed row before and after, empty if it is the same."""
    if name not in row.values:
        return ""
    if row.change is Change.CHANGED:
        return format_values(*row.values[name], limit=MAX_CELL)
    value = row.values[name][row.change is Change.ADDED]
    return "" if value is None else format_values(value, limit=MAX_CELL)
