"""Bar charts as SVG.

Those of metrics have no text of their own, so that they stretch to any width: HTML beside them has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from slackwater.formatting import counted, hour_range, number_pair, relative_change
from slackwater.late.changes.comparison import Comparison, MetricChange
from slackwater.late.changes.elements import Html, element
from slackwater.late.changes.section import cut_value

# Units of a metric's SVG, whatever its size on the screen.
WIDTH, HEIGHT = 100.0, 10.0
# Pixels of a chart of hours, with a line for the hours and one for the dates below the columns.
_COLUMN_HEIGHT, _COLUMN_WIDTH, _HOUR_WIDTH, _MIN_WIDTH = 80, 10, 26, 90
_HOUR_LINE, _DATE_LINE, _CHART_HEIGHT = 95, 111, 116
MAX_HOURS = 72
"""Hours of a chart."""

Hour = tuple[str, str]
"""Date and hour of a partition, UTC."""
# Characters of a metric's name.
_MAX_NAME = 60


def metric_chart(metric: MetricChange, comparison: Comparison) -> Html:
    """Return one bar for each version's total of a metric, on a common scale that includes zero."""
    bars = bar_extents([metric.before, metric.after])
    strings = number_pair(metric.before, metric.after)
    rows = [
        element(
            "div",
            element("span", f"version {version.attempt}", class_="label"),
            _bar(extent, side),
            element("span", string, class_="value"),
            class_="bar",
        )
        for version, extent, string, side in zip(
            (comparison.before, comparison.after), bars, strings, ("before", "after"), strict=True
        )
    ]
    change = relative_change(metric.before, metric.after)
    name = f"{cut_value(metric.metric, _MAX_NAME)} ({metric.total.value}){f', {change}' if change else ''}"
    return element("figure", element("figcaption", name), *rows)


def bar_extents(values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return the start and the width of each value's bar, in units of `WIDTH`; a bar of 0 for a missing value."""
    numbers = [value or 0.0 for value in values]
    # Divided first, because the difference of two large numbers can be infinite.
    largest = max(map(abs, numbers)) or 1.0
    scaled = [value / largest for value in numbers]
    low, high = min(0.0, *scaled), max(0.0, *scaled)
    span = (high - low) or 1.0
    return [(round(WIDTH * (min(0.0, value) - low) / span, 4), round(WIDTH * abs(value) / span, 4)) for value in scaled]


def _bar(extent: tuple[float, float], side: str) -> Html:
    start, width = extent
    rect = element("rect", x=start, y=0, width=width, height=HEIGHT, class_=side)
    return element("svg", rect, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", preserveAspectRatio="none", aria_hidden="true")


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


def hours_chart(source: str, rows: Mapping[Hour, tuple[int, int]], comparison: Comparison) -> Html:
    """Return two columns for each hour, the rows before and after, for at most `MAX_HOURS` hours."""
    hours = _axis(rows)
    highest = max(max(rows.get(hour, (0, 0))) for hour in hours) or 1
    children: list[Html] = []
    for index, hour in enumerate(hours):
        children += _hour_columns(index, hour, rows.get(hour, (0, 0)), highest)
        if not index or hour[0] != hours[index - 1][0]:
            children.append(element("text", hour[0], x=index * _HOUR_WIDTH, y=_DATE_LINE))
    width = max(len(hours) * _HOUR_WIDTH, _MIN_WIDTH)
    svg = element(
        "svg", *children, viewBox=f"0 0 {width} {_CHART_HEIGHT}", width=width, height=_CHART_HEIGHT, class_="hours"
    )
    left_out = f"; {counted(len(rows.keys() - set(hours)), 'later hour')} not shown" if rows.keys() - set(hours) else ""
    caption = f"{source}, {hour_range(hours)}: at most {counted(highest, 'row')} in an hour{left_out}"
    versions = zip((comparison.before, comparison.after), ("before", "after"), strict=True)
    legend = [element("span", f"version {version.attempt}", class_=f"legend {side}") for version, side in versions]
    return element(
        "figure",
        element("figcaption", caption),
        element("p", *legend),
        element("div", svg, class_="scroll"),
    )


def _axis(rows: Mapping[Hour, tuple[int, int]]) -> list[Hour]:
    """Return the hours of a chart in order: without gaps if they fit, else the first ones that have rows."""
    starts = [datetime.fromisoformat(f"{date}T{hour}:00") for date, hour in (min(rows), max(rows))]
    count = round((starts[1] - starts[0]) / timedelta(hours=1)) + 1
    if count > MAX_HOURS:
        return sorted(rows)[:MAX_HOURS]
    every = [starts[0] + timedelta(hours=index) for index in range(count)]
    return [(f"{start:%Y-%m-%d}", f"{start:%H}") for start in every]


def _hour_columns(index: int, hour: Hour, pair: tuple[int, int], highest: int) -> Iterator[Html]:
    """Yield the two columns of an hour, and its label."""
    left = index * _HOUR_WIDTH
    for side, rows, offset in zip(("before", "after"), pair, (0, _COLUMN_WIDTH), strict=True):
        height = round(_COLUMN_HEIGHT * rows / highest, 4)
        title = element("title", f"{' '.join(hour)}:00 UTC, {side}: {counted(rows, 'row')}")
        yield element(
            "rect",
            title,
            x=left + offset,
            y=round(_COLUMN_HEIGHT - height, 4),
            width=_COLUMN_WIDTH - 1,
            height=height,
            class_=side,
        )
    yield element("text", hour[1], x=left + _COLUMN_WIDTH, y=_HOUR_LINE, text_anchor="middle")
