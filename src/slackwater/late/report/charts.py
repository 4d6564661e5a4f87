"""Bar charts of metrics as SVG. They stretch to any width, because all text is in the HTML beside them."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.formatting import number_pair, relative_change
from slackwater.late.comparison import Comparison, MetricChange
from slackwater.late.report.elements import Html, element
from slackwater.late.report.section import cut_value

# Units of a metric's SVG, whatever its size on the screen.
WIDTH, HEIGHT = 100.0, 10.0
# Characters of a metric's name.
_MAX_NAME = 60


def metric_chart(metric: MetricChange, comparison: Comparison, hours: Sequence[Html] = ()) -> Html:
    """Return one bar for each version's total of a metric, on a common scale that includes zero.

    `hours` is shown below the bars: the metric by hour.
    """
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
    return element("figure", element("figcaption", name), *rows, *hours)


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
