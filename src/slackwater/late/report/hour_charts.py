"""Column charts by hour as SVG: the values of a metric, and the rows of changed inputs, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from slackwater.formatting import counted, hour_range, number, number_pair, relative_change
from slackwater.late.comparison import Comparison, HourTotals, MetricChange
from slackwater.late.report.charts import WIDTH, bar_extents
from slackwater.late.report.elements import Html, element, table
from slackwater.late.report.section import ReportTable, cut_value, number_columns

# Pixels. A day of 25 hours fits a screen that is 400 pixels wide.
_COLUMN_HEIGHT, _COLUMN_WIDTH, _HOUR_WIDTH = 80, 6, 14
_HOUR_LINE, _DATE_LINE, _CHART_HEIGHT, _DATE_WIDTH = 95, 111, 116, 76
_LABELLED_HOURS = 3
MAX_HOURS = 72
"""Hours of a chart of inputs."""
_MAX_NAME = 60

Hour = tuple[str, str]
"""Date and hour of a partition, UTC."""


class _Column(NamedTuple):
    """An hour of a chart."""

    values: tuple[float | None, float | None]
    """Before and after."""
    title: str
    """What a browser shows at the columns of the hour."""
    label: str
    moved: bool = True
    """Whether the values differ. Columns of other hours are pale."""


def hour_names(hours: Sequence[HourTotals]) -> list[str]:
    """Return the local times of hours, as in `01:00`; with its UTC offset if an hour occurs twice: `01:00 -04:00`."""
    times = [hour.hour[11:16] if hour.hour else "no hour" for hour in hours]
    count = Counter(times)
    return [
        f"{time} {hour.hour[16:]}" if hour.hour and count[time] > 1 else time
        for time, hour in zip(times, hours, strict=True)
    ]


def metric_hours(metric: MetricChange, comparison: Comparison) -> list[Html]:
    """Return the chart of a metric by hour, and a table with its numbers; an empty list if no hour has changed."""
    if not metric.moved_hours:
        return []
    names, pairs = hour_names(metric.hours), [(hour.before, hour.after) for hour in metric.hours]
    columns = []
    for hour, name, pair in zip(metric.hours, names, pairs, strict=True):
        change = relative_change(*pair)
        title = f"{name}: {' -> '.join(number_pair(*pair))}{f' ({change})' if change else ''}"
        columns.append(_Column(pair, title, name[:2] if hour.hour else "", hour in metric.moved_hours))
    values = [0.0, *(value for pair in pairs for value in pair if value is not None)]
    scale = f"By local hour, from {number(min(values))} to {number(max(values))}; pale: no change"
    label = f"{cut_value(metric.metric, _MAX_NAME)} by hour: the table below has the numbers"
    numbers = ReportTable.of_columns([["hour", *names], *number_columns(comparison, pairs)])
    return [
        element("p", scale, class_="label"),
        _chart(columns, label),
        element("details", element("summary", "Numbers by hour"), table(*numbers)),
    ]


def rows_by_hour(comparison: Comparison) -> dict[str, dict[Hour, tuple[int, int]]]:
    """Return the rows of each source's changed inputs in both versions, by date and hour (UTC).

    Inputs that have no hours, such as tables, are left out.
    """
    sources: dict[str, dict[Hour, tuple[int, int]]] = {}
    for source in comparison.inputs:
        if source.of_published_days:
            continue
        for item in source.changes:
            if item.hour:
                hours = sources.setdefault(source.source, {})
                before, after = hours.get((item.date, item.hour), (0, 0))
                hours[item.date, item.hour] = before + item.before.rows, after + item.now.rows
    return sources


def input_hours(source: str, rows: Mapping[Hour, tuple[int, int]], comparison: Comparison) -> Html:
    """Return the chart of a source's rows before and after, for at most `MAX_HOURS` hours."""
    hours = _axis(rows)
    columns = []
    for hour in hours:
        before, after = rows.get(hour, (0, 0))
        title = f"{' '.join(hour)}:00 UTC: {before:,} -> {counted(after, 'row')}"
        columns.append(_Column((before, after), title, hour[1]))
    highest = max(max(rows.get(hour, (0, 0))) for hour in hours)
    left_out = f"; {counted(len(rows.keys() - set(hours)), 'later hour')} not shown" if rows.keys() - set(hours) else ""
    caption = f"{source}, {hour_range(hours)}: at most {counted(highest, 'row')} in an hour{left_out}"
    versions = zip((comparison.before, comparison.after), ("before", "after"), strict=True)
    legend = [element("span", f"version {version.attempt}", class_=f"legend {side}") for version, side in versions]
    return element(
        "figure",
        element("figcaption", caption),
        element("p", *legend),
        _chart(columns, caption, dates=[date for date, _ in hours]),
    )


def _axis(rows: Mapping[Hour, tuple[int, int]]) -> list[Hour]:
    """Return the hours of a chart in order: without gaps if they fit, else the first ones that have rows."""
    starts = [datetime.fromisoformat(f"{date}T{hour}:00") for date, hour in (min(rows), max(rows))]
    count = round((starts[1] - starts[0]) / timedelta(hours=1)) + 1
    if count > MAX_HOURS:
        return sorted(rows)[:MAX_HOURS]
    every = [starts[0] + timedelta(hours=index) for index in range(count)]
    return [(f"{start:%Y-%m-%d}", f"{start:%H}") for start in every]


def _chart(columns: Sequence[_Column], label: str, *, dates: Sequence[str] = ()) -> Html:
    """Return the columns of all hours, with labels below. Screen readers read `label` instead."""
    width, height = len(columns) * _HOUR_WIDTH, _CHART_HEIGHT if dates else _HOUR_LINE + 5
    children = [*_columns(columns, width), *_hour_labels(columns)]
    for x, date in _date_positions(dates).items():
        children.append(element("text", date, x=x, y=_DATE_LINE))
        width = max(width, x + _DATE_WIDTH)
    svg = element(
        "svg", *children, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=label,
        class_="hours",
    )  # fmt: skip
    return element("div", svg, class_="scroll")


def _columns(columns: Sequence[_Column], width: int) -> Iterator[Html]:
    """Yield the line at zero, and for each hour one column up or down from it for each version."""
    extents = bar_extents([0.0, *(value for column in columns for value in column.values)])
    (zero, _), *bars = [(_y(start + share), _y(start) - _y(start + share)) for start, share in extents]
    yield element("rect", x=0, y=round(zero, 2), width=width, height=1, class_="base")
    for index, column in enumerate(columns):
        rects = [
            element("rect", x=x, y=round(y, 2), width=_COLUMN_WIDTH, height=round(height, 2), class_=side)
            for x, side, (y, height) in zip(
                (index * _HOUR_WIDTH, index * _HOUR_WIDTH + _COLUMN_WIDTH),
                ("before", "after"),
                bars[2 * index : 2 * index + 2],
                strict=True,
            )
        ]
        yield element("g", element("title", column.title), *rects, class_="moved" if column.moved else "same")


def _y(share: float) -> float:
    """Return the position of a value in pixels from the top; `share` is in units of `WIDTH` above the lowest one."""
    return _COLUMN_HEIGHT * (1 - share / WIDTH)


def _hour_labels(columns: Sequence[_Column]) -> Iterator[Html]:
    """Yield the labels of the first hour, and of every third hour of the day that is not next to it."""
    for index, column in enumerate(columns):
        if not index or (column.label and int(column.label) % _LABELLED_HOURS == 0 and index > 1):
            yield element("text", column.label, x=index * _HOUR_WIDTH, y=_HOUR_LINE)


def _date_positions(dates: Sequence[str]) -> dict[int, str]:
    """Return the position of each date: at its first hour, unless it would overlap the one before."""
    positions: dict[int, str] = {}
    for index, date in enumerate(dates):
        x = index * _HOUR_WIDTH
        if date not in positions.values() and x >= max(positions, default=-_DATE_WIDTH) + _DATE_WIDTH:
            positions[x] = date
    return positions
