"""The most important change of a day, and its causes, in a few words: for subjects and headings."""

from __future__ import annotations

import math

from slackwater.formatting import counted, number_pair, relative_change
from slackwater.late.comparison import Cause, Comparison, MetricChange, RowCounts, Totals

_CAUSES = {
    Cause.LATE_DATA: "late data",
    Cause.REMOVED_DATA: "removed data",
    Cause.NEW_DEFINITION: "a new definition",
    Cause.NEW_CODE: "new code",
    Cause.ROLLBACK: "a rollback to version {version}",
}


def describe_causes(comparison: Comparison) -> str:
    """Return what has changed the day, to begin a sentence: `Late data`, `Late data and a new definition`."""
    names = [_CAUSES[cause].format(version=comparison.after.rollback) for cause in comparison.causes]
    if not names:
        # Without the manifests of both versions, nothing is known about the inputs.
        return "A new run" if comparison.inputs else "A new version"
    *others, last = names
    phrase = f"{', '.join(others)} and {last}" if others else last
    return phrase[0].upper() + phrase[1:]


def largest_effect(comparison: Comparison) -> str:
    """Return the most important change in ASCII, for a subject line: `flights 831 -> 883 (+6.3 %)`."""
    metric = largest_metric(comparison)
    return metric_effect(metric) if metric else rows_effect(comparison.rows)


def largest_metric(comparison: Comparison) -> MetricChange | None:
    """Return the metric with the most significant change, or None without a change.

    Sums come before means, and means before minima and maxima.
    """
    for total in Totals:
        moved = [metric for metric in comparison.metrics if metric.total is total and metric.moved]
        if moved:
            return max(moved, key=significance)
    return None


def metric_effect(metric: MetricChange) -> str:
    """Return the change of one metric in ASCII: `flights 831 -> 883 (+6.3 %)`."""
    before, after = number_pair(metric.before, metric.after)
    relative = relative_change(metric.before, metric.after)
    name = metric.metric.encode("unicode_escape").decode("ascii")
    return f"{name} {before} -> {after}{f' ({relative})' if relative else ''}"


def rows_effect(rows: RowCounts) -> str:
    """Return the change of the rows: `+3 rows`, `+3 -1 rows`, `2 rows changed`, `no change`."""
    counts = [f"{sign}{count:,}" for sign, count in (("+", rows.added), ("-", rows.removed)) if count]
    if counts:
        return f"{' '.join(counts)} {'row' if rows.added + rows.removed == 1 else 'rows'}"
    return f"{counted(rows.changed, 'row')} changed" if rows.changed else "no change"


def significance(metric: MetricChange) -> float:
    """Return a number that ranks the change of a metric among metrics with the same `total`.

    For a sum it is the change divided by the square root of the larger value: 705 -> 908 ranks above 3 -> 5, although
    its relative change is smaller. For others it is the relative change.
    """
    # The square root of a count is about its standard deviation when events are independent.
    before, after = metric.before or 0.0, metric.after or 0.0
    largest = max(abs(before), abs(after))
    return abs(after - before) / (math.sqrt(largest) if metric.total is Totals.SUM else largest) if largest else 0.0
